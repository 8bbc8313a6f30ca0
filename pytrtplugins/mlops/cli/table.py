"""The command ``pytrt table``."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from ...calibration import CALIBRATORS
from ...cli.app import app
from ...cli.exif import Exif
from ...cli.shared import loading, option_values, options
from ...cli.shared.groups import NetworkOptions, grouped
from ...cli.shared.number import number
from ...cli.shared.option import choice, option
from ...cli.shared.options import MAX_SAMPLES
from ...cli.shared.results import Result
from ...errors import UsageError
from ...models import YoloData
from ...utils.atomic import check_target, write_atomic
from ...utils.name_list import read_class_names
from ...utils.numbers import LARGEST_BATCH, FloatRange, IntRange
from ...utils.optional import require
from ...vision import PIXELS
from ..tables import (
    ClassificationTask,
    DetectionTask,
    ImagePairs,
    LabelledImages,
    Table,
    TablePlan,
    Task,
    VerificationTask,
    draw_chart,
    make_table,
    to_markdown,
    write_html,
)
from ..tables.image_pairs import PAIR_SUFFIXES

__all__ = ["command"]

_WRITERS: dict[str, Callable[[Table, Path], object]] = {
    ".md": lambda table, path: write_atomic(path, to_markdown(table).encode()),
    ".json": lambda table, path: write_atomic(path, json.dumps(table.to_dict(), indent=1).encode()),
    ".html": write_html,
    ".png": draw_chart,
    ".svg": draw_chart,
    ".pdf": draw_chart,
}
_MAX_ROUNDS, _MAX_SECONDS = 1000, 3600.0


@app.command("table")  # type: ignore[untyped-decorator]
@grouped
def command(
    source: NetworkOptions,
    data: Annotated[
        Path,
        option(
            "DIR|FILE",
            "Images: for verification and classification a folder for each person or class, or an .npz file; for verification also a "
            "list of pairs, .txt or .csv; for detection the YOLO layout, or a data.yaml.",
        ),
    ],
    task: Annotated[Literal["verification", "detection", "classification"], choice("Task of the network.")],
    engines: Annotated[str, option("NAME,...", "Engines that `pytrt devices` lists.", "--engine")] = "auto",
    precisions: Annotated[
        str,
        option("NAME,...", f"Precisions ({', '.join(loading.PRECISIONS)}) and precision files (.yaml).", "--precision"),
    ] = "fp32,int8",
    algorithms: Annotated[
        str,
        option(
            "NAME,...",
            f"Calibration algorithms, for int8 and fp8: {', '.join(CALIBRATORS)}; each makes a row.",
            "--algorithm",
        ),
    ] = "minmax",
    samples: Annotated[
        str, option("N,...", "Numbers of images to calibrate with; each gives a row.", "--calibration-size")
    ] = "200",
    batches: Annotated[str, option("N,...", "Images per run; each gives columns.", "--batch")] = "1,8",
    calibration: Annotated[
        Path | None, option("DIR|FILE.npz", "Images to calibrate with; default: a part of --data.")
    ] = None,
    images: Annotated[
        Path | None,
        option("DIR", "Folder of the images in a list of pairs; default: the list's folder.", "--image-root"),
    ] = None,
    calibration_share: Annotated[
        float,
        number(
            FloatRange(0.01, 0.99),
            "Without --calibration: use the first part of the labels (0..1) to calibrate, and the rest to measure.",
            metavar="X",
        ),
    ] = 0.5,
    augment: Annotated[
        bool,
        choice(
            "If --calibration-size exceeds the number of images, also calibrate on mirrored and shifted copies, up to 10 of each. "
            "Not for detection.",
            "--augment-calibration",
        ),
    ] = False,
    pixels: Annotated[str, option("FORM", f"Values that the network takes for pixels: {', '.join(PIXELS)}.")] = "0..1",
    names: options.Names = None,
    mode: options.Mode = "letterbox",
    exif: Exif = None,
    limit: options.FirstImages = None,
    threads: options.Threads = None,
    rounds: Annotated[int, number(IntRange(1, _MAX_ROUNDS), "Rounds in which the engines take turns.")] = 5,
    seconds: Annotated[
        float, number(FloatRange(0.001, _MAX_SECONDS), "Seconds for the runs of each engine and batch.", metavar="X")
    ] = 2.0,
    output: Annotated[
        list[Path] | None, option("FILE", f"Write the result: {' '.join(_WRITERS)}; may be repeated.", "--output", "-o")
    ] = None,
    work: Annotated[
        Path | None,
        option(
            "DIR",
            "Keep engines and results here, so that the same command continues after an interruption. "
            "Default: a folder MODEL.table, removed at the end.",
        ),
    ] = None,
    settings: options.Settings = None,
    forms: options.Forms = None,
) -> Result[Table]:
    """Compare speed, memory and accuracy of a network on engines and in precisions, in one table to decide by.

    Every variant is built and saved; then its accuracy on the data is measured, its memory in a process of its own, and its latency in
    turns with the others. The first row is what others are compared with.

    verification: whether two images show the same person, by the cosine between embeddings, for all pairs of --data. Columns: true
    positives (TPR) at 0.001 and 0.01 false positives, balanced accuracy, and how near embeddings are to those of the first row.

    A list of pairs as --data (LFW's pairs.txt, lines `a.jpg b.jpg 1`, or .csv) has verification look at these pairs only, and tells the
    accuracy by folds where it has folds. INT8 then needs --calibration.

    classification: top-1 and top-5. detection: mAP50 and mAP50:95, on the images in val.txt; those in train.txt calibrate.

    Latency and memory are measured host to host; calibrations of one engine and precision have the same latency, so only the first is
    timed.

    Examples: pytrt table face.onnx --task verification --data faces/ --pixels 0..255 --engine cpu,onnxruntime -o face.html

    pytrt table face.onnx --task verification --data faces/ --algorithm minmax,entropy --calibration-size 50,200 -o face.md -o face.png

    pytrt table face.onnx --task verification --data pairs.txt --image-root lfw/ --calibration people/

    pytrt table yolov2.cfg --task detection --data voc/ --precision fp32,int8
    """
    targets = [check_target(path, "output", tuple(_WRITERS)) for path in output or ()]
    if any(path.suffix in (".html", ".png", ".svg", ".pdf") for path in targets):
        require("matplotlib", extra="cli", feature="a chart")
    if pixels not in PIXELS:
        raise UsageError(f"--pixels {pixels[:40]}: expected one of {', '.join(PIXELS)}.")
    plan = TablePlan(
        engines=option_values.read_words(engines, "--engine"),
        precisions=tuple(loading.check_precision(word) for word in option_values.read_words(precisions, "--precision")),
        algorithms=option_values.read_words(algorithms, "--algorithm"),
        samples=_numbers(samples, "--calibration-size", MAX_SAMPLES),
        batches=_numbers(batches, "--batch", LARGEST_BATCH),
        rounds=rounds,
        seconds=seconds,
        threads=threads,
        settings=option_values.read_settings(settings),
        plugins=option_values.read_forms(forms),
        modules=tuple(source.plugins or ()),
    )
    network = source.open("dynamic")
    folder = work or Path(f"{source.model.stem}.table")
    measured_table = make_table(
        network,
        _task(task, data, images, calibration, calibration_share, augment, pixels, names, mode, exif, limit),
        plan,
        name=source.model.name,
        data=data.name,
        work=folder,
    )
    for path in targets:
        _WRITERS[path.suffix](measured_table, path)
    if work is None:
        shutil.rmtree(folder, ignore_errors=True)
    return Result(measured_table, lambda table: _print(table, targets))


def _task(
    task: str,
    data: Path,
    folder: Path | None,
    calibration: Path | None,
    share: float,
    augment: bool,
    pixels: str,
    names: Path | None,
    mode: str,
    exif: str | None,
    limit: int | None,
) -> Task:
    class_names = None if names is None else read_class_names(names)
    is_list = data.suffix.lower() in PAIR_SUFFIXES and not data.is_dir()
    if folder is not None and not is_list:
        raise UsageError("--image-root: only a list of pairs, .txt or .csv, names images in another folder")
    if is_list and task != "verification":
        raise UsageError(f"--data {data}: a list of pairs is for --task verification")
    if task == "detection":
        if calibration is not None:
            raise UsageError("--calibration: detection calibrates on the images in train.txt of --data")
        if augment:
            raise UsageError("--augment-calibration: detection calibrates on the images in train.txt as they are")
        return DetectionTask(YoloData(data, exif=exif), names=class_names, mode=mode, limit=limit)
    if is_list:
        seen = LabelledImages(calibration) if calibration else None
        return VerificationTask(ImagePairs(data, folder), seen, pixels, augmented=augment)
    images = LabelledImages(data)
    measured, seen = (images, LabelledImages(calibration)) if calibration else reversed(images.split(share))
    if task == "verification":
        return VerificationTask(measured, seen, pixels, augmented=augment)
    return ClassificationTask(measured, seen, pixels, class_names, augmented=augment)


def _numbers(text: str, option: str, most: int) -> tuple[int, ...]:
    words = text.split(",")
    if not all(re.fullmatch("[0-9]{1,9}", word) and 0 < int(word) <= most for word in words):
        raise UsageError(f"{option} {text[:80]}: expected numbers from 1 to {most:,} with commas between them.")
    return tuple(map(int, words))


def _print(table: Table, targets: list[Path]) -> None:
    print(to_markdown(table), end="")
    for path in targets:
        print(f"written: {path}")
