"""Start a server for given models."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from ..errors import UsageError
from ..utils.cpu_features import default_threads
from .access.access import Access
from .batching.replica import model_class, names_code
from .model.registered import is_registered, name_of, resolve
from .model.spec import Limits, ModelSpec, device_name, is_name
from .processes.files import limit_connections_to_files
from .processes.placement import Place, place
from .shared.statistics import Statistics

__all__ = ["check", "print_at_once", "read_target", "serve"]


def read_target(text: str) -> tuple[str, str]:
    """The name and the target of ``animals.engine``, ``module:Class``, ``registry:animals@production`` or ``name=animals.engine``.

    Raises:
        UsageError: the name cannot stand in an address, or the class cannot be found.
    """
    name, equals, target = text.partition("=")
    if not equals:
        target = text
        if is_registered(target):
            name = name_of(target)
        elif names_code(target):
            cls = model_class(target)
            name = cls.name or cls.__name__.lower()
        else:
            name = re.sub(r"[^A-Za-z0-9._-]", "_", Path(target).stem)
    if not is_name(name):
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
    grpc_port: int | None = None,
    cpu: int | None = None,
    engines: int | None = None,
    devices: Sequence[str] = (),
    modules: Sequence[str] = (),
    limits: Limits | None = None,
    access: Access | None = None,
    announce: Callable[[str], object] | None = None,
) -> dict[str, dict[str, dict[str, int]]]:
    """Serve models until the process gets SIGTERM or SIGINT.

    Args:
        specs: What is served; names or versions differ.
        host: Address to listen on: by default this machine alone can connect.
        port: To listen on; 0: any that is free.
        grpc_port: To serve gRPC on too.
        cpu: CPU processes, which speak HTTP and decode; 0: everything in this process. None: half as many as there are cores; on two
            cores none. Without engine processes one for each core.
        engines: Engine processes, if there are CPU processes; None: one for each device. 0: none, and each CPU process has the
            models itself.
        devices: The engine's own names for devices, over which engine processes are spread; a number N is ``cuda:N``. Empty: those of
            the models, or the engine's default.
        modules: Modules with plugins, which each process imports.
        limits: Of requests.
        access: Who may connect, and what is recorded of requests.
        announce: Takes a line once requests are taken; by default it is printed, at once into a pipe too.

    Returns:
        For each model and each version of it how many requests it got, by outcome, and batches it ran.

    Raises:
        UsageError: the port is taken, the versions of a model cannot be served together, or a file or class is not there.
        PytrtpluginsError: a model cannot be loaded.
    """
    from .access.access_check import check_access, warn_of_access
    from .backends.local import (
        LocalBackend,  # here: asyncio and what builds on it are imported by no other command of pytrt
    )
    from .backends.versions import check_versions
    from .processes.server import BACKLOG, bind, serve_app
    from .processes.supervisor import Supervisor

    check_versions(specs)
    places = _places(specs, engines, devices)
    names = list(dict.fromkeys(spec.name for spec in specs))
    limits, access, announce = (
        limit_connections_to_files(limits or Limits(), 1 if grpc_port is None else 2),
        access or Access(),
        announce or print_at_once,
    )
    check_access(access, names)
    several, in_one_process = len({entry.device for entry in places}) > 1, engines == 0
    if cpu is None:
        cpu = (
            default_threads()
            if in_one_process and hasattr(os, "memfd_create")
            else max(default_cpu_processes(), several)
        )
    if several and not cpu:
        raise UsageError("one process computes on one device: name one, or start several processes.\nDo: --cpu 1")
    grpc_address = None
    if grpc_port is not None:
        # gRPC shares its port, so that nobody would be told that another program has it
        bind(host, grpc_port, option="--grpc-port").close()
        grpc_address = f"{f'[{host}]' if ':' in host else host}:{grpc_port}"
    with bind(host, port) as sock:
        warn_of_access(access, sock)
        number = sock.getsockname()[1]
        address = f"http{'s' * bool(access.tls_cert)}://{f'[{host}]' if ':' in host else host}:{number}"
        if not cpu:
            backend = LocalBackend(specs, limits, places[0].device)
            ready = _ready(names, address, "one process")
            serve_app(backend, limits, [sock], lambda: announce(ready), grpc_address, access)
            return _by_version(specs, [service.statistics for service in backend.services.every])
    with ExitStack() as stack:  # that nobody else has the port is known now; from here on several sockets share it
        sockets = [stack.enter_context(bind(host, number, shared=True)) for _ in range(cpu)]
        for entry in sockets:
            entry.listen(BACKLOG)
        processes = f"{_count_text(cpu, 'CPU process')} and {_count_text(len(places), 'engine process')}"
        shared = specs, limits, sockets, [] if in_one_process else places, modules, grpc_address, access
        supervisor = Supervisor(*shared, models_in_cpu_processes=places[0] if in_one_process else None)
        if in_one_process:
            processes = f"{_count_text(cpu, 'process')} with the models in each"
        supervisor.run(lambda: announce(_ready(names, address, processes)))
        return _by_version(specs, supervisor.statistics)


def check(
    specs: Sequence[ModelSpec],
    engines: int | None = None,
    devices: Sequence[str] = (),
    access: Access | None = None,
) -> None:
    """Look whether models can be served, without loading them, and at the files of ``access``; see `serve`.

    Raises:
        UsageError: the versions of a model cannot be served together, or a file or class is not there.
    """
    from .access.access_check import check_access
    from .backends.versions import check_versions
    from .model.defaults import target_file  # engines take longer to import than all else here

    check_versions(specs)
    _places(specs, engines, devices)
    check_access(access or Access(), {spec.name for spec in specs})
    for spec in specs:
        if is_registered(spec.target):
            resolve(spec.target, spec.registry)
        elif names_code(spec.target):
            model_class(spec.target)
        else:
            target_file(spec.target)


def _places(specs: Sequence[ModelSpec], engines: int | None, devices: Sequence[str]) -> list[Place]:
    """The device and models of each engine process; of each CPU process, if there are no engine processes."""
    places = place(specs, engines or None, list(map(device_name, devices)))
    if engines == 0 and len(places) > 1:
        raise UsageError(
            "--gpu 0: all processes compute on one device: name one, or start engine processes.\nDo: --gpu 2"
        )
    return places


def _by_version(specs: Sequence[ModelSpec], statistics: Sequence[Statistics]) -> dict[str, dict[str, dict[str, int]]]:
    totals: dict[str, dict[str, dict[str, int]]] = {}
    for spec, counts in zip(specs, statistics, strict=True):
        totals.setdefault(spec.name, {})[spec.version] = counts.total()
    return totals


def default_cpu_processes() -> int:
    """Default number of CPU processes: half of the cores; 0 on two cores, where everything runs in one process."""
    cores = default_threads()
    return 0 if cores <= 2 or not hasattr(os, "memfd_create") else cores // 2


def print_at_once(text: str) -> None:
    """Print a line that reaches a pipe now, not when the process ends."""
    print(text, flush=True)


def _ready(names: Sequence[str], address: str, processes: str) -> str:
    return f"{', '.join(names)}: ready at {address}, in {processes}; open it in a browser, or see {address}/docs; Ctrl-C ends"


def _count_text(number: int, what: str) -> str:
    return f"{number} {what}{'es' * (number != 1)}"
