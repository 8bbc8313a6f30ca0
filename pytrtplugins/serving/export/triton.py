"""Write a model repository for Triton."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ...errors import UsageError
from ...export.triton import export_triton
from ..batching.replica import names_code
from ..model.registered import is_registered, resolve
from ..model.spec import ModelSpec
from .content import Files
from .deployment import Deployment

__all__ = ["files"]


def files(deployment: Deployment) -> Files:
    """Files of each model, as `pytrt export-triton` writes them, with its batch and delay."""
    deployment.refuse("a model repository", "secret", "wheel", "files")
    for spec in deployment.specs:
        if names_code(spec.target):
            raise UsageError(
                f"{spec.name}: Triton cannot run the class {spec.target}; it takes engines and ONNX models.\n"
                f"Do: pytrt serve-export triton {spec.name}=FILE.engine, with the engine that the class loads"
            )
    return {"": _writer(deployment)}


def _writer(deployment: Deployment) -> Callable[[Path], object]:
    def write(repository: Path) -> None:
        for spec in deployment.specs:
            _write(spec, repository)

    return write


def _write(spec: ModelSpec, repository: Path) -> None:
    target, version = Path(spec.target), spec.version
    if is_registered(spec.target):
        target, source = resolve(spec.target, spec.registry)
        version = source.version
    export_triton(
        target,
        repository,
        name=spec.name,
        version=int(version),
        max_batch=spec.max_batch,
        queue_delay=round(1000 * spec.max_delay_ms),
    )
