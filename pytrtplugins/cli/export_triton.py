"""The command ``pytrt export-triton``."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from darknet2caffe import read_network, to_onnx

from ..export import triton
from ..utils.numbers import Whole
from ..utils.optional import require
from . import loading
from .app import app
from .numbers import number
from .options import ModelArgument, PluginsOption, WeightsOption

if TYPE_CHECKING:
    import onnx

typer = require("typer", extra="cli", feature="the command pytrt")

__all__ = ["command"]


class Kind(str, Enum):
    """Values of ``--kind``."""

    AUTO = "auto"
    CPU = "cpu"
    GPU = "gpu"


@app.command("export-triton")  # type: ignore[untyped-decorator]
def command(
    model: ModelArgument,
    repository: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Triton's folder of all models.")],
    weights: WeightsOption = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="The model's name there; default: MODEL's.")] = None,
    version: Annotated[int, number(Whole(1, triton.LARGEST_VERSION), help="Its version there.")] = 1,
    plan: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="TensorRT engine that another tool made from MODEL; served instead."),
    ] = None,
    library: Annotated[
        list[Path] | None, typer.Option(metavar="LIB.so", help="Library with the plan's plugins; may be repeated.")
    ] = None,
    max_batch: Annotated[
        int | None,
        number(Whole(1, triton.LARGEST_BATCH), help="Most requests in one run; default: 8, or the engine's."),
    ] = None,
    instances: Annotated[int, number(Whole(1, triton.MAX_INSTANCES), help="Runs side by side, on each device.")] = 1,
    kind: Annotated[Kind, typer.Option(help="Where onnxruntime runs; auto: on the GPUs that there are.")] = Kind.AUTO,
    queue_delay: Annotated[
        int,
        number(
            Whole(0, triton.LONGEST_DELAY),
            metavar="MICROSECONDS",
            help="How long a request may wait for others of its batch.",
        ),
    ] = 0,
    served_at: Annotated[
        str | None, typer.Option(metavar="DIR", help="The folder's path on the server; default: its path here.")
    ] = None,
    plugins: PluginsOption = None,
) -> None:
    """Write a model into a Triton model repository: ONNX with all plugins written out, or a TensorRT plan.

    Examples: pytrt export-triton yolov2.onnx -o models/

    pytrt export-triton yolov2.engine -o models/ --library libpytrtplugins.so --served-at /models
    """
    loading.import_plugins(plugins or [])
    written = triton.export_triton(
        _opened(model, weights),
        repository,
        name=name or model.stem,
        version=version,
        plan=plan,
        libraries=library or [],
        max_batch=max_batch,
        instances=instances,
        kind=kind.value,
        queue_delay=queue_delay,
        served_at=served_at,
    )
    for path in written.files:
        print(f"{path}: {path.stat().st_size:,} bytes")
    for need in written.needs:
        print(f"needs {need}")
    print(f"Do: {written.start}")


def _opened(path: Path, weights: Path | None) -> Path | onnx.ModelProto:
    """The path of an engine, or a model; darknet's networks with a free batch, so that requests can be put together."""
    if loading.is_engine_file(path):
        return path
    if path.suffix == ".cfg" and path.is_file():
        return to_onnx(read_network(path, weights or path.with_suffix(".weights")), batch="dynamic")
    return loading.open_model(path, weights)
