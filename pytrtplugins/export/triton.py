"""Export a model as a folder of a Triton model repository."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..model import Graph
from ..passes import load_model
from ..passes.dim_names import name_inputs, name_outputs
from ..plugin.policy import requested_forms
from ..utils.atomic import write_atomic
from ..utils.numbers import check_int
from ..utils.optional import onnx
from ._triton_config import Word, bindings, config_text, same_batch
from ._triton_sources import Source, from_engine_file, from_onnx, from_plan

__all__ = ["TritonModel", "export_triton"]

KINDS = ("auto", "cpu", "gpu")
_USUAL_BATCH = 8
LARGEST_VERSION, LARGEST_BATCH = (1 << 63) - 1, (1 << 31) - 1  # what Triton's fields hold
MAX_INSTANCES, LONGEST_DELAY = 1024, 3_600_000_000  # runs on a device; an hour in microseconds
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True)
class TritonModel:
    """The exported files.

    Attributes:
        files: All files, config.pbtxt first.
        config: The text of config.pbtxt.
        start: The command that serves the repository.
        needs: What the server must have.
    """

    files: tuple[Path, ...]
    config: str
    start: str
    needs: tuple[str, ...]


def export_triton(
    model: str | Path | onnx.ModelProto | Graph,
    repository: str | Path,
    *,
    name: str | None = None,
    version: int = 1,
    plan: str | Path | None = None,
    libraries: Sequence[str | Path] = (),
    plugins: Mapping[str, str] | None = None,
    max_batch: int | None = None,
    instances: int = 1,
    kind: str = "auto",
    queue_delay: int = 0,
    served_at: str | Path | None = None,
) -> TritonModel:
    """Write a version of a model into a Triton model repository, whole or not at all.

    Args:
        model: An ONNX file or model, which onnxruntime serves with all plugins written out; or an engine file: of
            TensorRT, whose plan is served, or of another engine, whose ONNX model is (with its Q/DQ nodes if INT8).
        repository: The folder of all models; it is made if need be.
        name: The model's name there; by default the file's.
        version: Version of the model in the repository.
        plan: A TensorRT engine made from the ONNX model by other tools, such as trtexec; it is served in its place.
        libraries: For a plan: libraries whose plugins register themselves when they are loaded. For ONNX: libraries of
            custom operators for onnxruntime.
        plugins: For ONNX: the form in which a plugin runs, by its name: ``"decomposition"``, or, with a library that has it,
            ``"enqueue"``. An engine file has its own.
        max_batch: Most requests in one run; by default 8, or what an engine was built for, where all inputs and outputs
            have one free first axis, and no batches elsewhere.
        instances: How many runs go on side by side, on each device, 1 to 1,024.
        kind: Where onnxruntime runs: ``"auto"``, ``"cpu"`` or ``"gpu"``. Plans are for GPUs.
        queue_delay: Microseconds for which a request may wait for others of its batch, an hour at most.
        served_at: The repository's path on the server; by default its path here.

    Raises:
        UsageError: an argument does not fit the model, or that version is there already.
        ModelError: the model cannot be served as it is; the message says by which nodes.
        EngineFileError: the engine file is damaged.
    """
    source = _source(model, plan, libraries, requested_forms(plugins or {}))
    name_inputs(source.model)
    name_outputs(source.model)
    version = check_int("version", version, 1, LARGEST_VERSION)
    instances = check_int("instances", instances, 1, MAX_INSTANCES)
    queue_delay = check_int("queue_delay", queue_delay, 0, LONGEST_DELAY)
    if max_batch is not None:
        max_batch = check_int("max_batch", max_batch, 1, LARGEST_BATCH)
    if kind not in KINDS or (source.backend == "tensorrt" and kind == "cpu"):
        raise UsageError(f"kind: expected {' or '.join(KINDS)}, and a GPU for a plan; found {kind!r}", kind=kind)
    name = _checked_name(name, model)
    at = Path(served_at or Path(repository).absolute()) / name / str(version)
    served = [at / Path(library).name for library in libraries]
    config = config_text(
        {
            "name": name,
            "backend": source.backend,
            **_io_fields(source, max_batch, queue_delay),
            "instance_group": [{"count": instances, "kind": Word(f"KIND_{'GPU' if source.plan else kind.upper()}")}],
            **(
                {"model_operations": {"op_library_filename": [*map(str, served)]}} if served and not source.plan else {}
            ),
        }
    )
    folder = Path(repository) / name
    _check_place(folder, version, config)
    folder.mkdir(parents=True, exist_ok=True)
    with _atomic_folder(folder / str(version)) as inside:
        source.write(inside)
        for library in libraries:
            shutil.copyfile(library, inside / Path(library).name)
        write_atomic(folder / "config.pbtxt", config.encode())  # before the version, which is never without it
    files = (folder / "config.pbtxt", *sorted((folder / str(version)).iterdir()))
    return TritonModel(files, config, _start(at.parents[1], source, served), source.needs)


def _source(
    model: Any, plan: str | Path | None, libraries: Sequence[str | Path], requested: Mapping[str, str]
) -> Source:
    """The model that is served."""
    for library in libraries:
        if not Path(library).is_file():
            raise UsageError(f"library {str(library)!r}: no such file", path=library)
    names = [Path(library).name for library in libraries]
    if len(set(names)) < len(names):
        raise UsageError(f"libraries: expected different names, found {', '.join(names)}")
    built = isinstance(model, (str, Path)) and Path(model).is_file() and zipfile.is_zipfile(model)
    if requested and (built or plan is not None):
        raise UsageError(
            f"plugins: {plan or model} is built already, and its plugins have their forms.\nDo: leave plugins out"
        )
    if built:
        if plan is not None:
            raise UsageError(f"{model} is an engine file; a plan belongs to an ONNX model.\nDo: leave one out")
        return from_engine_file(Path(model), libraries)
    loaded = load_model(model)
    return from_onnx(loaded, libraries, requested) if plan is None else from_plan(loaded, Path(plan), libraries)


def _checked_name(name: str | None, model: Any) -> str:
    checked = name if name is not None else Path(model).stem if isinstance(model, (str, Path)) else ""
    if not _NAME.fullmatch(checked):
        raise UsageError(f"name {checked!r}: expected letters, digits and . - _, such as yolov2", name=checked)
    return checked


def _io_fields(source: Source, max_batch: int | None, queue_delay: int) -> dict[str, Any]:
    """Inputs, outputs, and whether requests are batched."""
    inputs, outputs = bindings(source.model)
    free = all(item.dims and not isinstance(item.dims[0], int) for item in (*inputs, *outputs))
    built_for = source.max_batch
    if max_batch is None:
        max_batch = (built_for or _USUAL_BATCH) if same_batch((*inputs, *outputs)) else 0
        if max_batch and source.plan and built_for is None:
            raise UsageError("max_batch: the plan does not say for how many it was built.\nDo: --max-batch N")
    elif not free or (built_for is not None and max_batch > built_for):
        fixed = next((item for item in (*inputs, *outputs) if not item.dims or isinstance(item.dims[0], int)), None)
        reason = f"the engine was built for {built_for} at most"
        if fixed is not None:
            reason = f"{fixed.name!r} has no free first axis: ({', '.join(map(str, fixed.dims))})"
        raise UsageError(f"max_batch {max_batch}: {reason}", max_batch=max_batch)
    delay = {"max_queue_delay_microseconds": queue_delay} if queue_delay else {}
    return {
        "max_batch_size": max_batch,
        "input": [item.fields(batched=max_batch > 0) for item in inputs],
        "output": [item.fields(batched=max_batch > 0) for item in outputs],
        **({"dynamic_batching": delay} if max_batch > 1 else {}),
    }


def _check_place(folder: Path, version: int, config: str) -> None:
    """Require that nothing which is there is overwritten."""
    if (folder / str(version)).exists():
        raise UsageError(f"{folder / str(version)} is there already.\nDo: --version {version + 1}, or remove it")
    path = folder / "config.pbtxt"
    if path.is_file() and path.read_text("utf-8") != config:
        raise UsageError(
            f"{path} is there already, and says something else than this version needs:\n{config}"
            "Do: --name NAME for a model of its own, or remove the file",
            path=path,
        )


@contextlib.contextmanager
def _atomic_folder(path: Path) -> Iterator[Path]:
    """A temporary folder that is renamed when the block succeeds, since polling servers must not see a part."""
    temporary = Path(tempfile.mkdtemp(prefix=".", dir=path.parent))
    try:
        yield temporary
        temporary.chmod(0o755)
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        with contextlib.suppress(OSError):
            path.parent.rmdir()  # if nothing is in it


def _start(repository: Path, source: Source, served: Sequence[Path]) -> str:
    options = [f"--model-repository={repository}"]
    if source.plan and served:
        options.append(f"--backend-config=tensorrt,plugins={';'.join(map(str, served))}")
    if source.version_compatible:
        options.append("--backend-config=tensorrt,version-compatible=true")
    return shlex.join(["tritonserver", *options])
