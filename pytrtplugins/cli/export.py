"""The commands ``pytrt export-plugin`` and ``pytrt export-triton``."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ..export import triton
from ..export.plugin import ExportedPlugin, export_plugin
from ..utils.numbers import Whole
from ..utils.optional import require
from . import loading, options
from .app import app
from .fields import read_fields
from .options import number
from .results import Result

if TYPE_CHECKING:
    import onnx

typer = require("typer", extra="cli", feature="the command pytrt")

__all__ = ["plugin", "triton_repository"]


@app.command("export-plugin")  # type: ignore[untyped-decorator]
def plugin(
    plugin: options.Plugin,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.so", help="The library; with --source-only a new folder.")
    ],
    fixed: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="A field that has this value alone: groups=4, slope=@slope.npy; may be repeated.",
        ),
    ] = None,
    source_only: Annotated[
        bool, typer.Option("--source-only", help="Write the sources and build.sh, which builds them elsewhere.")
    ] = False,
    loadable: Annotated[
        bool,
        typer.Option("--loadable", help="For TensorRT's load_library, in place of a library that registers itself."),
    ] = False,
    tensorrt_include: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="TensorRT's headers; default: the environment's TENSORRT_INCLUDE."),
    ] = None,
    architecture: Annotated[
        list[int] | None, number(Whole(50, 999), help="Of a GPU: 90 for 9.0; may be repeated. Default: 80, 90.")
    ] = None,
    host: Annotated[
        bool,
        typer.Option("--host", help="For tests without a GPU: the kernels run on the CPU, on the process's memory."),
    ] = False,
) -> Result[ExportedPlugin]:
    """Turn a plugin whose enqueue launches kernels into a library for TensorRT that needs no Python.

    Examples: pytrt export-plugin mylayers:ChannelShuffle -o libacme.so --tensorrt-include TensorRT/include

    pytrt export-plugin mylayers:ChannelShuffle -o acme-sources --source-only
    """
    cls = loading.import_plugin(plugin)
    written = export_plugin(
        cls,
        output,
        fixed=read_fields(fixed, cls),
        source_only=source_only,
        loadable=loadable,
        tensorrt_include=tensorrt_include,
        architectures=architecture or (80, 90),
        host=host,
    )
    return Result(written, functools.partial(_print_plugin, name=str(cls.plugin_key())))


@app.command("export-triton")  # type: ignore[untyped-decorator]
def triton_repository(
    model: options.Model,
    repository: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Triton's folder of all models.")],
    weights: options.Weights = None,
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
    kind: Annotated[
        Literal["auto", "cpu", "gpu"], typer.Option(help="Where onnxruntime runs; auto: on the GPUs that there are.")
    ] = "auto",
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
    forms: options.Forms = None,
    plugins: options.Plugins = None,
) -> Result[triton.TritonModel]:
    """Write a model into a Triton model repository: ONNX with all plugins written out, or a TensorRT plan.

    Examples: pytrt export-triton yolov2.onnx -o models/

    pytrt export-triton yolov2.engine -o models/ --library libpytrtplugins.so --served-at /models
    """
    written = triton.export_triton(
        _opened(model, weights),
        repository,
        name=name or model.stem,
        version=version,
        plan=plan,
        libraries=library or [],
        plugins=loading.read_forms(forms),
        max_batch=max_batch,
        instances=instances,
        kind=kind,
        queue_delay=queue_delay,
        served_at=served_at,
    )
    return Result(written, _print_triton)


def _print_plugin(written: ExportedPlugin, name: str) -> None:
    print(f"{written.path}: {name}, {written.form}")
    print(f"types:   {'; '.join(written.formats)}")
    print(f"kernels: {', '.join(written.kernels)}")
    for remark in written.remarks:
        print(remark)


def _print_triton(written: triton.TritonModel) -> None:
    for path in written.files:
        print(f"{path}: {path.stat().st_size:,} bytes")
    for need in written.needs:
        print(f"needs {need}")
    print(f"Do: {written.start}")


def _opened(path: Path, weights: Path | None) -> Path | onnx.ModelProto:
    """The path of an engine, or a model; darknet's networks with a free batch, so that requests can be put together."""
    return path if loading.is_engine_file(path) else loading.open_model(path, weights, batch="dynamic")
