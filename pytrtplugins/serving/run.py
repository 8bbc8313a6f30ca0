"""From what is to be served to a server that runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import UsageError
from .replica import model_class, names_code
from .spec import Limits, ModelSpec

__all__ = ["read_target", "serve"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TAKEN = {"stats"}  # has an address of its own


def read_target(text: str) -> tuple[str, str]:
    """The name and the target of ``animals.engine``, ``module:Class`` or ``name=animals.engine``.

    Raises:
        UsageError: the name cannot stand in an address, or the class cannot be found.
    """
    name, equals, target = text.partition("=")
    if not equals:
        target = text
        if names_code(target):
            cls = model_class(target)
            name = cls.name or cls.__name__.lower()
        else:
            name = re.sub(r"[^A-Za-z0-9._-]", "_", Path(target).stem)
    if not _NAME.fullmatch(name) or name in _TAKEN:
        raise UsageError(
            f"{text}: {name!r} cannot stand in an address: a name has letters, digits, '.', '_' and '-', 64 at most.\n"
            f"Do: pytrt serve mymodel={target}"
        )
    return name, target


def serve(
    specs: Sequence[ModelSpec],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    limits: Limits | None = None,
    announce: Callable[[str], object] = print,
) -> dict[str, dict[str, int]]:
    """Serve models until the process gets SIGTERM or SIGINT.

    Args:
        specs: What is served; names differ.
        host: Address to listen on: by default this machine alone can connect.
        port: To listen on; 0: any that is free.
        limits: Of requests.
        announce: Takes a line once requests are taken.

    Returns:
        For each model how many requests it got, by outcome, and batches it ran.

    Raises:
        UsageError: the port is taken, two models have one name, or a file or class is not there.
        PytrtpluginsError: a model cannot be loaded.
    """
    from .local import LocalBackend  # here: asyncio and what builds on it are imported by no other command of pytrt
    from .server import bind, serve_app

    names = [spec.name for spec in specs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"two models are named {twice!r}.\nDo: pytrt serve a={specs[0].target} b={specs[-1].target}")
    limits = limits or Limits()
    sock = bind(host, port)

    def started() -> None:
        address = f"http://{f'[{host}]' if ':' in host else host}:{sock.getsockname()[1]}"
        announce(f"{', '.join(names)}: ready at {address} (addresses: {address}/docs; Ctrl-C ends)")

    backend = LocalBackend(specs, limits)
    with sock:
        serve_app(backend, limits, [sock], started)
    return {name: service.statistics.total() for name, service in backend.services.items()}
