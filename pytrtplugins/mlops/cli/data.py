"""The command ``pytrt data compare``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from ...cli.app import app
from ...cli.exif import Exif
from ...cli.shared import loading, options
from ...cli.shared.number import number
from ...cli.shared.option import argument, option, typer
from ...cli.shared.results import Result, show, to_json
from ...cli.shared.tables import print_texts
from ...errors import UsageError
from ...utils.atomic import check_target, write_atomic
from ...utils.numbers import IntRange
from ...utils.optional import require
from ...utils.terminal import COMMAND
from ...vision import PIXELS
from ..drift import Comparison, Embedder, compare_photos, draw_chart, read_limit, to_markdown, write_html
from ..drift.compare import MOST_PHOTOS
from ..drift.page import COLUMNS, cells, remarks
from ..shards import FORMATS, open_photos

__all__ = ["command"]

_WRITERS: dict[str, Callable[[Comparison, Path], object]] = {
    ".md": lambda found, path: write_atomic(path, to_markdown(found).encode()),
    ".json": lambda found, path: write_atomic(path, json.dumps(to_json(found), indent=1).encode()),
    ".html": write_html,
    ".png": draw_chart,
    ".svg": draw_chart,
    ".pdf": draw_chart,
}
_LARGEST_SEED = (1 << 32) - 1
_NONE = "none"

command: Any = typer.Typer(help="Sets of photos beside each other.", result_callback=show, **COMMAND)
app.add_typer(command, name="data")


@command.command("compare")  # type: ignore[untyped-decorator]
def compare(
    a: Annotated[Path, argument("A", "The reference: a set of shards, or photos with labels.")],
    b: Annotated[Path, argument("B", "The set that is compared with the reference.")],
    labels: Annotated[
        str, option("FORMAT", f"auto, {_NONE}, or one of {', '.join(FORMATS)}; shards need none.")
    ] = "auto",
    exif: Exif = None,
    model: Annotated[
        Path | None, option("MODEL", "A network, ONNX file or engine, whose output is compared too.", "--model")
    ] = None,
    embedding: Annotated[
        str, option("NAME", "The network's output to compare; default: the first.", "--embedding")
    ] = "",
    pixels: Annotated[str, option("FORM", f"Values that the network takes for pixels: {', '.join(PIXELS)}.")] = "0..1",
    engine: options.Engine = "auto",
    weights: options.Weights = None,
    threads: options.Threads = None,
    plugins: options.Plugins = None,
    limit: Annotated[
        list[str] | None,
        option(
            "NAME=X",
            "Exit with code 1 if a figure exceeds a limit, such as drift=0.2; may be repeated.",
            "--fail-above",
        ),
    ] = None,
    photos: Annotated[
        int, number(IntRange(2, MOST_PHOTOS), "Number of samples, drawn by --seed, of each set.", "--samples")
    ] = 1000,
    seed: Annotated[int, number(IntRange(0, _LARGEST_SEED), "Seed for the choice of samples.")] = 0,
    output: Annotated[
        list[Path] | None, option("FILE", f"Write the result: {' '.join(_WRITERS)}; may be repeated.", "--output", "-o")
    ] = None,
) -> Result[Comparison]:
    """Compare two sets of photos: sizes, brightness, boxes, classes, and what a network sees. A pipeline can stop where they differ.

    PSI is the population stability index between the sets; "by chance" is what samples of this size exceed in one of 1,000 cases where
    nothing differs. The figure drift is the largest PSI that is more than chance.

    Examples: pytrt data compare shards/ today/ --fail-above drift=0.2

    pytrt data compare shards/ today/ --model animals.engine -o drift.html -o drift.png
    """
    targets = [check_target(path, "output", tuple(_WRITERS)) for path in output or ()]
    if any(path.suffix in (".html", ".png", ".svg", ".pdf") for path in targets):
        require("matplotlib", extra="cli", feature="a chart")
    if pixels not in PIXELS:
        raise UsageError(f"--pixels {pixels[:40]}: expected one of {', '.join(PIXELS)}.")
    limits = [read_limit(text) for text in limit or ()]
    sets = open_photos(a, labels, exif), open_photos(b, labels, exif)
    embedder = None
    if model is not None:
        built = loading.open_engine(model, weights=weights, engine=engine, threads=threads)
        embedder = Embedder(built, pixels, embedding)
    result = compare_photos(
        *sets,
        names=(str(a), str(b)),
        embed=embedder,
        embedding=embedder.output if embedder else "",
        limits=limits,
        photos=photos,
        seed=seed,
    )
    for path in targets:
        _WRITERS[path.suffix](result, path)
    problem = "; ".join(
        f"{exceeded.figure} is {exceeded.found:.4g}, the limit is {exceeded.most:g}" for exceeded in result.exceeded
    )
    return Result(result, lambda comparison: _print(comparison, targets), not result.exceeded, problem)


def _print(comparison: Comparison, targets: list[Path]) -> None:
    print_texts(COLUMNS, cells(comparison))
    for remark in remarks(comparison):
        print(remark)
    for path in targets:
        print(f"written: {path}")
