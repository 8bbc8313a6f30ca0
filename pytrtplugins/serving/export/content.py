"""Contents of exported files: YAML, TOML, and the build context of the container image."""

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
    """A Dockerfile and all files that it copies: models, ``serving.toml`` and the wheel."""
    if deployment.scale.cpu_replicas:
        raise UsageError("cpu_replicas: replicas that only decode can only be had on Ray.\nDo: leave it out")
    gpu = deployment.scale.gpus > 0
    extras = f"[{'cuda' if gpu else 'cpu'},cli,jpeg,serve]"
    specs, copied = _models_in_image(deployment)
    install = f"RUN pip install --no-cache-dir {shlex.quote(f'pytrtplugins{extras}=={__version__}')}"
    files: Files = {}
    if deployment.wheel is not None:
        name = deployment.wheel.name
        files[name] = _file(deployment.wheel)
        install = f'COPY {name} /tmp/\nRUN pip install --no-cache-dir "/tmp/{name}{extras}" && rm /tmp/{name}'
    files["Dockerfile"] = _DOCKERFILE.format(
        image=deployment.image,
        user=USER,
        install=install,
        files=f"\nCOPY --chown=root:root {_FILES}/ ./" if deployment.files else "",
        port=deployment.port,
        health=json.dumps(_HEALTH.format(port=deployment.port)),
        command=json.dumps(command(deployment)),
    )
    return {**files, "serving.toml": _toml(deployment, specs), **copied}


def command(deployment: Deployment) -> list[str]:
    """The command of the container."""
    keys = ["--keys", f"{KEYS_FOLDER}/keys.toml"] if deployment.secret else []
    return ["pytrt", "serve", "--config", "serving.toml", *keys]


def _models_in_image(deployment: Deployment) -> tuple[list[ModelSpec], Files]:
    """The models with their paths in the image, and their files."""
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
    other = files.setdefault(str(place), source)
    if other != source:
        raise UsageError(f"{source} and {other} have the same name, and are copied into one folder.\nDo: rename one")


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
        "[limits]": _changed_values(deployment.limits, OPTIONS_OF_LIMITS),
    }
    lines = [f"# made by pytrt serve-export {__version__}"]
    for head, table in (
        *tables.items(),
        *((_table_name(specs, spec), _changed_values(spec, ("name",))) for spec in specs),
    ):
        if table:
            lines += ["", head, *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _table_name(specs: list[ModelSpec], spec: ModelSpec) -> str:
    """The TOML table of a model, or of one of its versions."""
    name = json.dumps(spec.name)
    several = sum(other.name == spec.name for other in specs) > 1
    return f"[[models.{name}.versions]]" if several else f"[models.{name}]"


def _changed_values(value: Any, without: Collection[str]) -> dict[str, Any]:
    """Field values that differ from the defaults of a dataclass, for TOML."""
    values = {
        field.name: (getattr(value, field.name), field.default) for field in fields(value) if field.name not in without
    }
    return {name: item for name, (item, default) in values.items() if item is not None and item != default}
