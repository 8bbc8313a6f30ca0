"""The command ``pytrt export-plugin``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ..errors import UsageError
from ..export.plugin import export_plugin
from ..utils.numbers import Whole
from ..utils.optional import require
from . import loading
from .app import app
from .numbers import number

typer = require("typer", extra="cli", feature="the command pytrt")

__all__ = ["command"]


@app.command("export-plugin")  # type: ignore[untyped-decorator]
def command(
    plugin: Annotated[str, typer.Argument(metavar="MODULE:CLASS", help="The class; or path/to/file.py:Class.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.so", help="The library; with --source-only a new folder.")
    ],
    fixed: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="A field that has this value alone; may be repeated."),
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
) -> None:
    """Turn a plugin whose enqueue launches kernels into a library for TensorRT that needs no Python.

    Examples: pytrt export-plugin mylayers:ChannelShuffle -o libacme.so --tensorrt-include TensorRT/include

    pytrt export-plugin mylayers:ChannelShuffle -o acme-sources --source-only
    """
    if wrong := [pair for pair in fixed or [] if not pair.partition("=")[0] or "=" not in pair]:
        raise UsageError(f"--set {wrong[0]}: expected FIELD=VALUE, such as groups=4.")
    cls = loading.import_plugin(plugin)
    written = export_plugin(
        cls,
        output,
        fixed=loading.read_settings(fixed or []),
        source_only=source_only,
        loadable=loadable,
        tensorrt_include=tensorrt_include,
        architectures=architecture or (80, 90),
        host=host,
    )
    print(f"{written.path}: {cls.plugin_key()}, {written.form}")
    print(f"types:   {'; '.join(written.formats)}")
    print(f"kernels: {', '.join(written.kernels)}")
    for remark in written.remarks:
        print(remark)
