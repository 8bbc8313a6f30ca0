"""The command ``pytrt check-plugin``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from .. import check
from ..utils.atomic import write_atomic
from ..utils.numbers import FloatRange
from .app import app
from .shared import options
from .shared.fields import open_plugin, read_samples, read_shapes
from .shared.loading import import_plugin
from .shared.number import number
from .shared.option import choice, option
from .shared.results import Result, current_output

__all__ = ["check_plugin"]

_LONGEST_S = 86_400


@app.command("check-plugin")  # type: ignore[untyped-decorator]
def check_plugin(
    plugin: options.PluginOrInstance,
    fields: options.Fields = None,
    inputs: Annotated[
        list[str] | None,
        option(
            "NAME=@FILE.npy|LOW..HIGH",
            "Array for an input, by the names of compute's parameters: x=@x.npy, or a range, index=0..9; may be repeated.",
            "--input",
        ),
    ] = None,
    shapes: Annotated[
        list[str] | None,
        option(
            "NAME=DIMS",
            "Dims of an input, by the names of compute's parameters: x=1x8x6x6; similar sizes are tried too; repeat for each input.",
            "--shape",
        ),
    ] = None,
    sanitize: Annotated[
        bool, choice("Also run kernels under AddressSanitizer, and on a GPU under compute-sanitizer.", "--sanitize")
    ] = False,
    time_limit: Annotated[
        float, number(FloatRange(0.1, _LONGEST_S), "Time limit of one check on one shape, in seconds.", metavar="S")
    ] = 30.0,
    reference: Annotated[
        str | None,
        option(
            "MODULE:CLASS",
            "A reference class with the same fields, whose compute gives the expected results, for example for an exported library.",
        ),
    ] = None,
    skip: Annotated[
        list[str] | None, option("CHECK", 'Leave out this check, such as "large tensors"; may be repeated.')
    ] = None,
    junit: Annotated[Path | None, option("FILE.xml", "Also write the report as JUnit XML, for CI.", "--junit")] = None,
) -> Result[check.Report]:
    """Check a plugin on many shapes and types; exit code 1 if a check fails. With --verbose a line for each check.

    Examples: pytrt check-plugin mylayers:ChannelShuffle

    pytrt check-plugin mylayers:PRelu --set slope=@slope.npy --input x=@x.npy

    pytrt check-plugin mylayers:Gather --input index=0..9

    pytrt check-plugin mylayers:DeformConv --shape x=1x8x6x6 --shape offset=1x18x6x6

    pytrt check-plugin libacme.so:Scale --reference mylayers:Scale
    """
    subject, samples = open_plugin(plugin, fields), read_samples(inputs)
    report = check.check_plugin(
        subject,
        shapes=read_shapes(shapes),
        inputs=samples,
        sanitize=sanitize,
        time_limit=time_limit,
        skip=skip or (),
        reference=import_plugin(reference) if reference else None,
    )
    if junit is not None:
        write_atomic(junit, report.junit_xml().encode())
    problem = "\n".join(f"{report.plugin}: {entry.name}: {entry.detail}" for entry in report.failed)
    verbose = current_output().verbose
    return Result(report, lambda subject: print(subject.table() if verbose else subject), report.ok, problem)
