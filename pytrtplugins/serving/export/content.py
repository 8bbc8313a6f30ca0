"""What exported files contain: YAML, TOML, and what a container image is built from."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Collection
from dataclasses import fields, replace
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from ...errors import UsageError
from ...version import __version__
from ..batching.replica import names_code
from ..model.registered import is_registered, resolve
from ..model.spec import ModelSpec
from .deployment import Deployment

__all__ = ["KEYS_FOLDER", "OPTIONS_OF_LIMITS", "READY", "USER", "Files", "command", "image_files"]

Files: TypeAlias = dict[str, "str | Path | Callable[[Path], object]"]
"""Paths within the exported folder: each with its text, a file to copy, or what writes it."""

USER = 10001
"""The user, and the group, of the container's processes."""
READY = "/v2/health/ready"
OPTIONS_OF_LIMITS = ("body_bytes", "shared_memory_regions", "urls")
"""Limits that are options of the command, not keys of ``[limits]``."""
KEYS_FOLDER = "/run/secrets/pytrt"
"""Where the Secret with the keys is mounted."""

_FILES = "files"  # of models, in the working directory of the container
_HEALTH = (
    "import urllib.request as r; r.urlopen('http://127.0.0.1:{port}" + READY + "', timeout=4)"  # raises unless 2xx
)
_DOCKERFILE = """\
# Build: docker build -t {image} .
FROM python:3.12-slim

RUN useradd --uid {user} --create-home --shell /usr/sbin/nologin pytrt
{install}
WORKDIR /srv
COPY --chown=root:root serving.toml ./
COPY --chown=root:root models/ ./models/{files}
USER {user}:{user}
# caches of compiled kernels; the rest of the file system may be read-only
ENV HOME=/tmp PYTHONDONTWRITEBYTECODE=1
EXPOSE {port}
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 CMD ["python", "-c", {health}]
CMD {command}
"""


def image_files(deployment: Deployment) -> Files:
    """A Dockerfile, and all that it copies: the models, ``serving.toml`` and the wheel."""
    if deployment.scale.cpu_replicas:
        raise UsageError("cpu_replicas: replicas that only decode can only be had on Ray.\nDo: leave it out")
    gpu = deployment.scale.gpus > 0
    extras = f"[{'cuda' if gpu else 'cpu'},cli,jpeg,serve]"
    specs, copied = _moved(deployment)
    install = f"RUN pip install --no-cache-dir {shlex.quote(f'pytrtplugins{extras}=={__version__}')}"
    made: Files = {}
    if deployment.wheel is not None:
        name = deployment.wheel.name
        made[name] = _file(deployment.wheel)
        install = f'COPY {name} /tmp/\nRUN pip install --no-cache-dir "/tmp/{name}{extras}" && rm /tmp/{name}'
    made["Dockerfile"] = _DOCKERFILE.format(
        image=deployment.image,
        user=USER,
        install=install,
        files=f"\nCOPY --chown=root:root {_FILES}/ ./" if deployment.files else "",
        port=deployment.port,
        health=json.dumps(_HEALTH.format(port=deployment.port)),
        command=json.dumps(command(deployment)),
    )
    return {**made, "serving.toml": _toml(deployment, specs), **copied}


def command(deployment: Deployment) -> list[str]:
    """What a container runs."""
    keys = ["--keys", f"{KEYS_FOLDER}/keys.toml"] if deployment.secret else []
    return ["pytrt", "serve", "--config", "serving.toml", *keys]


def _moved(deployment: Deployment) -> tuple[list[ModelSpec], Files]:
    """The models as they are in the image, and their files."""
    specs: list[ModelSpec] = []
    files: Files = {}
    for spec in deployment.specs:
        target, name = spec.target, ""
        if is_registered(target):
            path, source = resolve(spec.target, spec.registry)
            place = PurePosixPath("models", f"{spec.name}-{source.version}.engine")
            _add(files, place, path.absolute())
            specs.append(replace(spec, target=str(place), version=source.version, registry=""))
            continue
        if names_code(target):
            target, _, name = target.rpartition(":")
            target = target if target.endswith(".py") else f"{target}.py"
            if not Path(target).is_file():
                raise UsageError(
                    f"{spec.target}: only a class in one file can be copied into an image, and there is no {target}.\n"
                    f"Do: name the file, path/to/file.py:{name}"
                )
        place = PurePosixPath("models", Path(target).name)
        _add(files, place, _file(Path(target)))
        specs.append(replace(spec, target=f"{place}:{name}" if name else str(place)))
    for path in deployment.files:
        _add(files, PurePosixPath(_FILES, path.name), _file(path))
    return specs, files


def _add(files: Files, place: PurePosixPath, source: Path) -> None:
    known = files.setdefault(str(place), source)
    if known != source:
        raise UsageError(f"{source} and {known} have the same name, and are copied into one folder.\nDo: rename one")


def _file(path: Path) -> Path:
    if not path.is_file():
        raise UsageError(f"{path}: no such file", path=path)
    return path.absolute()


def _toml(deployment: Deployment, specs: list[ModelSpec]) -> str:
    """A file for `pytrt serve --config`."""
    scale = deployment.scale
    workers = (
        0 if scale.cpus <= 2 else int(scale.cpus) // 2
    )  # as the command itself chooses; but it sees the machine's cores
    tables: dict[str, dict[str, Any]] = {
        "[serve]": {"host": "0.0.0.0", "port": deployment.port, "cpu": workers, **deployment.options},
        "[limits]": _changed(deployment.limits, OPTIONS_OF_LIMITS),
    }
    lines = [f"# made by pytrt serve-export {__version__}"]
    for head, table in (*tables.items(), *((_head(specs, spec), _changed(spec, ("name",))) for spec in specs)):
        if table:
            lines += ["", head, *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _head(specs: list[ModelSpec], spec: ModelSpec) -> str:
    """Of the table of a model, or of one of its versions."""
    name = json.dumps(spec.name)
    several = sum(each.name == spec.name for each in specs) > 1
    return f"[[models.{name}.versions]]" if several else f"[models.{name}]"


def _changed(value: Any, without: Collection[str]) -> dict[str, Any]:
    """What differs from the defaults of a dataclass, as TOML takes it: JSON's scalars and lists are TOML's."""
    found = {each.name: (getattr(value, each.name), each.default) for each in fields(value) if each.name not in without}
    return {name: item for name, (item, default) in found.items() if item is not None and item != default}
