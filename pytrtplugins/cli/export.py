"""The commands ``pytrt export-plugin`` and ``pytrt export-triton``."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Literal

from ..export import triton
from ..export.plugin import ExportedPlugin, export_plugin
from ..utils.numbers import IntRange
from ..utils.optional import onnx
from .app import app
from .shared import loading, option_values, options
from .shared.fields import read_fields
from .shared.groups import NetworkOptions, grouped
from .shared.number import number
from .shared.option import choice, option
from .shared.results import Result

__all__ = ["plugin", "triton_repository"]


@app.command("export-plugin")  # type: ignore[untyped-decorator]
def plugin(
    plugin: options.Plugin,
    output: Annotated[
        Path,
        option(
            "FILE.so",
            "Write the library to this file; with --source-only its sources into this new folder.",
            "--output",
            "-o",
        ),
    ],
    fixed: Annotated[
        list[str] | None,
        option(
            "FIELD=VALUE",
            "A field's value, fixed in the library: groups=4, slope=@slope.npy; may be repeated.",
            "--set",
        ),
    ] = None,
    source_only: Annotated[
        bool, choice("Write the sources, and build.sh to build them on another machine.", "--source-only")
    ] = False,
    loadable: Annotated[
        bool, choice("Make a library for TensorRT's load_library instead of one that registers itself.", "--loadable")
    ] = False,
    tensorrt_include: Annotated[
        Path | None, option("DIR", "TensorRT's headers; default: the environment variable TENSORRT_INCLUDE.")
    ] = None,
    architecture: Annotated[
        list[int] | None,
        number(IntRange(50, 999), "Compute capability of a GPU: 90 for 9.0; may be repeated. Default: 80, 90."),
    ] = None,
    host: Annotated[bool, choice("Compile the kernels for the CPU, for tests without a GPU.", "--cpu-kernels")] = False,
) -> Result[ExportedPlugin]:
    """Export a plugin whose enqueue launches kernels as a library for TensorRT that needs no Python.

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
@grouped
def triton_repository(
    network: NetworkOptions,
    repository: Annotated[Path, option("DIR", "Write into this model repository of Triton.", "--output", "-o")],
    name: Annotated[
        str | None, option("NAME", "Name of the model in the repository; default: that of MODEL.", "--name")
    ] = None,
    version: Annotated[int, number(IntRange(1, triton.LARGEST_VERSION), "Version of the model in the repository.")] = 1,
    plan: Annotated[
        Path | None, option("FILE", "TensorRT engine that another tool made from MODEL; it is served instead of MODEL.")
    ] = None,
    library: Annotated[list[Path] | None, option("LIB.so", "Library with the plan's plugins; may be repeated.")] = None,
    max_batch: Annotated[
        int | None,
        number(
            IntRange(1, triton.LARGEST_BATCH), "Largest number of requests in one run; default: 8, or the engine's."
        ),
    ] = None,
    instances: Annotated[int, number(IntRange(1, triton.MAX_INSTANCES), "Instances of the model on each device.")] = 1,
    kind: Annotated[
        Literal["auto", "cpu", "gpu"],
        choice("Where onnxruntime runs; auto: on GPUs, if there are any.", "--instance-kind"),
    ] = "auto",
    queue_delay: Annotated[
        int,
        number(
            IntRange(0, triton.LONGEST_DELAY),
            "How long a request may wait until its batch is full.",
            metavar="MICROSECONDS",
        ),
    ] = 0,
    served_at: Annotated[
        str | None, option("DIR", "Path of the repository on the server; default: its path on this machine.")
    ] = None,
    forms: options.Forms = None,
) -> Result[triton.TritonModel]:
    """Write a model into a Triton model repository: as ONNX with plugins decomposed into standard operators, or as a TensorRT plan.

    Examples: pytrt export-triton yolov2.onnx -o models/

    pytrt export-triton yolov2.engine -o models/ --library libpytrtplugins.so --served-at /models
    """
    written = triton.export_triton(
        _open_for_triton(network.model, network.weights),
        repository,
        name=name or network.model.stem,
        version=version,
        plan=plan,
        libraries=library or [],
        plugins=option_values.read_forms(forms),
        max_batch=max_batch,
        instances=instances,
        kind=kind,
        queue_delay=queue_delay,
        served_at=served_at,
    )
    return Result(written, _print_triton)


def _print_plugin(written: ExportedPlugin, name: str) -> None:
    """Print what was exported, and what to do with it."""
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


def _open_for_triton(path: Path, weights: Path | None) -> Path | onnx.ModelProto:
    """The path of an engine, or a model; darknet's networks get a free batch, so that requests can be batched."""
    return path if loading.is_engine_file(path) else loading.open_model(path, weights, batch="dynamic")
