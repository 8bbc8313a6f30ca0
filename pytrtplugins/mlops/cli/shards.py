"""The commands ``pytrt shards``: make and check shards of photos and labels for training."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Annotated, Any

from ...cli.app import app
from ...cli.exif import Exif
from ...cli.shared.number import number
from ...cli.shared.option import argument, choice, option, typer
from ...cli.shared.results import Result, show
from ...cli.shared.tables import print_texts
from ...errors import UsageError
from ...utils.numbers import FloatRange, IntRange
from ...utils.terminal import COMMAND
from ..shards import FORMATS, CheckedShards, Made, check_shards, make_shards
from ..shards.make import MAX_WORKERS, SHARD_BYTES, SIDES, TURNED

__all__ = ["command"]

_TURNED = (
    "Their boxes are those of the upright photo. samples/train_yolov2.py turns them; many other decoders do not: --longest-side of "
    "`pytrt shards make` stores them upright."
)
_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}

command: Any = typer.Typer(
    help="Photos and boxes as shards for training: tars with an index.", result_callback=show, **COMMAND
)
app.add_typer(command, name="shards")


@command.command("make")  # type: ignore[untyped-decorator]
def make(
    source: Annotated[
        list[Path],
        argument("DIR|TAR|FILE.yaml...", "Photos and labels, or a data.yaml; several form one set."),
    ],
    output: Annotated[Path, option("DIR", "Write the shards into this folder.", "--output", "-o")],
    labels: Annotated[str, option("FORMAT", f"auto, or one of {', '.join(FORMATS)}.")] = "auto",
    classes: Annotated[
        Path | None,
        option(
            "FILE",
            "Class names, one per line, in the order of their numbers; default: the order in the labels.",
            "--names",
        ),
    ] = None,
    drop_others: Annotated[
        bool,
        choice("Drop boxes of classes that are not in --names; without this option they are refused.", "--drop-others"),
    ] = False,
    listed: Annotated[
        Path | None,
        option(
            "FILE",
            "Use only the photos in this list, a file in the data set or on disk; or a part of a data.yaml, such as train; "
            "all: every photo.",
            "--list",
        ),
    ] = None,
    size: Annotated[
        str, option("SIZE", "Approximate size of a shard, such as 256MB or 1GiB.", "--shard-size")
    ] = "256MB",
    longest_side: Annotated[
        int | None,
        number(
            IntRange(*SIDES),
            "Shrink larger photos to this longest side in pixels, and rotate them upright, as JPEG; default: files stay unchanged.",
        ),
    ] = None,
    hold_back: Annotated[
        float,
        number(
            FloatRange(0, 0.99),
            "Write two sets, train/ and held-back/; this share of the photos, chosen by a hash of their names, goes into held-back/.",
            metavar="SHARE",
        ),
    ] = 0.0,
    exif: Exif = None,
    strict: Annotated[
        bool, choice("Refuse boxes that extend beyond their photo; without this option they are cut.", "--strict")
    ] = False,
    skip_bad: Annotated[bool, choice("Skip photos that cannot be used, and list them.", "--skip-bad")] = False,
    force: Annotated[bool, choice("Replace a finished set.", "--force")] = False,
    workers: Annotated[
        int | None,
        number(
            IntRange(1, MAX_WORKERS), "CPU threads, each with its own shard; default: one per processor.", "--threads"
        ),
    ] = None,
) -> Result[Made]:
    """Make shards of photos and their labels: VOC's XML, COCO's JSON, darknet's text, CVAT's XML, or folders named after classes.

    A shard is a tar with key.jpg and key.json for each photo, as WebDataset reads it, and an index for reading in any order. The same
    command goes on where it was interrupted. The same photos and labels give the same bytes.

    Examples: pytrt shards make voc/ -o shards/ --shard-size 256MB

    pytrt shards make photos.tar -o shards/ --list train.txt --longest-side 448

    pytrt shards make cvat/ -o shards/ --names classes.txt --hold-back 0.15

    pytrt shards make imagenet/train -o shards/ --labels folders --longest-side 320
    """
    made_shards = make_shards(
        source,
        output,
        labels=labels,
        classes=classes,
        drop_others=drop_others,
        listed=listed,
        size=_bytes(size),
        longest_side=longest_side,
        hold_back=hold_back,
        exif=exif,
        strict=strict,
        skip_bad=skip_bad,
        force=force,
        workers=workers,
    )
    return Result(made_shards, functools.partial(_print_made_shards, upright=longest_side is not None))


@command.command("check")  # type: ignore[untyped-decorator]
def check(
    folder: Annotated[Path, argument("DIR", "Folder of the shards.")],
    repair: Annotated[bool, choice("Repair: rebuild missing or wrong indexes from intact tars.", "--repair")] = False,
    decode: Annotated[bool, choice("Decode every photo completely; default: read its header.", "--full")] = False,
    workers: Annotated[
        int | None,
        number(
            IntRange(1, MAX_WORKERS), "CPU threads, each with its own shard; default: one per processor.", "--threads"
        ),
    ] = None,
) -> Result[CheckedShards]:
    """Check a set of shards: checksums, indexes, photos and boxes; and count what it holds. The exit code is 1 where something is wrong.

    Examples: pytrt shards check shards/

    pytrt shards check shards/ --repair

    pytrt shards check shards/ --full --json
    """
    checked = check_shards(folder, repair=repair, decode=decode, workers=workers)
    return Result(checked, _print_checked, checked.ok, f"{folder}: {len(checked.problems):,} problems")


def _bytes(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,12}) ?([A-Z]*)", text.upper())
    size = int(match[1]) * _UNITS.get(match[2], 0) if match else 0
    if not SHARD_BYTES[0] <= size <= SHARD_BYTES[1]:
        raise UsageError(f"--shard-size {text[:40]}: expected a size from 1MiB to 64GiB, such as 256MB.")
    return size


def _print_made_shards(result: Made, *, upright: bool) -> None:
    print(f"labels: {result.labels}, {len(result.classes)} classes")
    for part in result.sets:
        kept_text = f", {part.kept} of them kept from an interrupted run" if part.kept else ""
        print(
            f"{part.folder}: {part.photos:,} photos, {part.boxes:,} boxes, {part.shards} shards{kept_text}, "
            f"{part.bytes / 1e6:,.1f} MB, digest {part.digest[:8]}"
        )
    for what, count in result.changed.items():
        if count:
            print(f"{count:,} {what}")
    if result.changed.get(TURNED) and not upright:
        print(_TURNED)
    if result.skipped:
        print(f"{len(result.skipped):,} photos or labels skipped:")
        for problem in result.skipped:
            print(f"  {problem}")


def _print_checked(checked: CheckedShards) -> None:
    print(
        f"{checked.folder}: {checked.photos:,} photos, {checked.boxes:,} boxes, {checked.shards} shards, {checked.bytes / 1e6:,.1f} MB, "
        f"digest {checked.digest[:8]}"
    )
    print_texts(
        ("class", "boxes", "photos"), [(row.name, f"{row.boxes:,}", f"{row.photos:,}") for row in checked.classes]
    )
    counts = {
        "photos without a box": checked.unlabelled,
        "photos that are copies of others": checked.identical,
        TURNED: checked.turned,
    }
    for what, count in counts.items():
        if count:
            print(f"{count:,} {what}")
    if checked.turned:
        print(_TURNED)
    for index in checked.repaired:
        print(f"made anew: {index}")
    print(f"{len(checked.problems):,} problems:" if checked.problems else "everything agrees with its checksums")
    for problem in checked.problems:
        print(f"  {problem}")
