"""Collect the facts that a registry records of a version."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...calibration import CalibrationTable
from ...calibration.sidecar import Sidecar
from ...calibration.table import MAX_CACHE_BYTES
from ...engines.base.engine_file import read_engine_file
from ...errors import ModelRegistryError
from ...utils.files import list_files, read_regular, sha256_hex
from ...utils.named_numbers import named_numbers
from ...utils.optional import installed_version
from ...utils.text_formats import read_json
from ...version import __version__
from ..shards.manifest import NAME as SHARDS
from ..shards.manifest import Manifest
from .manifest import ENGINE, MAX_FIGURES, ModelVersion, StoredFile, check_fields, is_digest, now

__all__ = ["data_digest", "describe", "environment", "of_cache", "read_figures"]

_PACKAGES = (
    "numpy",
    "onnx",
    "onnx-ir",
    "onnxruntime",
    "openvino",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "tensorrt",
    "nvidia-cudnn-frontend",
)
_HARDWARE = ("processor", "GPU", "system")


def describe(
    files: Mapping[str, Path],
    network: str | Path | None,
    figures: Mapping[str, float] | str | Path | Sequence[str | Path],
    data: Mapping[str, str | Path],
    **fields: Any,
) -> ModelVersion:
    """Describe a version before it has a number and its files are stored.

    Args:
        files: By role, the engine file among them.
        network: File that the engine was built from.
        figures: Numbers by name, or files of JSON that have them.
        data: By what it was used for: a file, a folder, or a digest.
        fields: Fields of `ModelVersion` that the user gives.

    Raises:
        EngineFileError: the engine file is damaged.
        CalibrationTableError: the calibration cache is.
        ModelRegistryError: a file cannot be used, or a fact cannot stand in a manifest.
    """
    file = read_engine_file(files[ENGINE])
    file.check()
    facts, options = file.metadata, file.metadata.get("options")
    engine, requested = str(facts.get("engine")), options.get("precision", "") if isinstance(options, dict) else ""
    precision = str(facts.get("computes", requested))
    networks, seen = of_cache(files["calibration"]) if "calibration" in files else ({}, {})
    if network is not None:
        networks["source"] = data_digest(network)
    hardware, packages = environment()
    packages["built with"] = f"{facts.get('created_by')}; {facts.get('built_with')}"
    version = ModelVersion(
        version=1,
        created=now(),
        engine=engine,
        precision=precision,
        files={role: StoredFile(path.name, "0" * 64, 0) for role, path in files.items()},
        networks={**networks, "built": str(facts["model_sha256"])},
        data={**seen, **{role: data_digest(source) for role, source in data.items()}},
        figures=_figures(figures, engine, precision),
        hardware=hardware,
        packages=packages,
        **fields,
    )
    return check_fields(version, fields["name"])


def _figures(
    source: Mapping[str, float] | str | Path | Sequence[str | Path], engine: str, precision: str
) -> dict[str, float]:
    if isinstance(source, Mapping):
        return dict(source)
    figures: dict[str, float] = {}
    for path in [source] if isinstance(source, (str, Path)) else source:
        figures.update(read_figures(Path(path), engine, precision))
    return figures


def environment() -> tuple[dict[str, str], dict[str, str]]:
    """Hardware with drivers, and package versions, of this machine."""
    from ...doctor import machine  # a server that follows a registry does without it

    facts = machine()
    versions = {"pytrtplugins": __version__, "Python": platform.python_version()}
    installed = {name: version for name in _PACKAGES if (version := installed_version(name))}
    return {name: facts[name] for name in _HARDWARE}, {**versions, **installed}


def of_cache(cache: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Digests of network and data, by role, from the sidecar of a calibration cache.

    Raises:
        CalibrationTableError: the cache is damaged, or does not belong to that file.
    """
    data, sidecar = Sidecar.read(cache, lambda: read_regular(cache, MAX_CACHE_BYTES))
    CalibrationTable.from_bytes(data, path=cache)
    if sidecar is None:
        return {}, {}
    networks = {"calibrated": sidecar.network} if is_digest(sidecar.network) else {}
    return networks, {"calibration": sidecar.data} if is_digest(sidecar.data) else {}


def data_digest(source: str | Path) -> str:
    """The digest of data: given as such, of a file, of shards by their manifest, or of all names and contents in a folder.

    Raises:
        ModelRegistryError: there is no such file or folder, or the folder is empty.
        FormatError: the shards' own list of them is damaged.
    """
    if is_digest(str(source)):
        return str(source)
    path = Path(source)
    if not os.path.isdir(path):
        try:
            return sha256_hex(path)
        except OSError as error:
            raise ModelRegistryError(
                f"{path}: {(error.strerror or str(error)).lower()}: expected a file, a folder, or 64 hex digits of a SHA-256",
                path=path,
            ) from None
    if os.path.lexists(path / SHARDS):
        return Manifest.read(path).digest
    digest, files = hashlib.sha256(), sorted(list_files(path, error=ModelRegistryError))
    if not files:
        raise ModelRegistryError(f"{path}: the folder has no files", path=path)
    for file in files:
        name = file.relative_to(path).as_posix()
        digest.update(f"{name}\0{sha256_hex(file)}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def read_figures(path: Path, engine: str, precision: str) -> dict[str, float]:
    """The numbers in a file of JSON, such as ``pytrt evaluate --json`` and ``pytrt table --json`` give.

    A number's name is that of `named_numbers`, from ``figures`` on where there are such. Of a table, the first row
    with this engine and precision counts.

    Raises:
        ModelRegistryError: it is no JSON, has no numbers or too many, or is a table without such a row.
    """
    data = read_json(path, error=ModelRegistryError)
    if isinstance(data, dict) and {"command", "result"} <= data.keys():
        data = data["result"]
    if isinstance(data, dict) and isinstance(data.get("rows"), list):
        data = _row(path, data["rows"], engine, precision)
    elif isinstance(data, dict) and isinstance(data.get("figures"), dict):
        data = data["figures"]
    figures = dict(named_numbers(data))
    if not figures or len(figures) > MAX_FIGURES:
        raise ModelRegistryError(
            f"{path}: expected an object with 1 to {MAX_FIGURES:,} numbers, found {len(figures):,}", path=path
        )
    return figures


def _row(path: Path, rows: list[Any], engine: str, precision: str) -> dict[str, Any]:
    """Figures of one variant in a table."""
    variants = [row["variant"] for row in rows if isinstance(row, dict) and isinstance(row.get("variant"), dict)]
    for row in rows:
        variant = row.get("variant") if isinstance(row, dict) else None
        if isinstance(variant, dict) and (variant.get("engine"), variant.get("precision")) == (engine, precision):
            return {"latency": row.get("latency"), **(row.get("figures") or {})}
    names = ", ".join(f"{each.get('engine')} {each.get('precision')}" for each in variants[:20])
    raise ModelRegistryError(f"{path}: no row for engine {engine} in {precision}; it has {names[:400]}", path=path)
