"""``pytrt run``: a detector on images and videos; any model on arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from ..engines import Engine
from ..engines.base.context import Arrays
from ..errors import ImageError, UsageError
from ..models import Summary, Yolov2
from ..models.yolov2 import Decoder
from ..utils.array_files import MAX_BYTES
from ..utils.atomic import check_target
from ..utils.numbers import LARGEST_BATCH, MAX_SLOTS, SHARE, IntRange
from ..utils.progress import progress_bar
from ..vision import Outputs, Sources, Tracker
from .app import app
from .run_facts import ArrayRun, Detected, ImageDetections, OutputFacts
from .shared import loading, option_values, options, runs, tables
from .shared.groups import EngineOptions, grouped
from .shared.number import number
from .shared.option import argument, choice, option
from .shared.other_files import expect_images
from .shared.results import Result, current_output

__all__: list[str] = []

_MAX_MIB, _MAX_RUNS, _MAX_CAMERA = 1 << 20, 10_000_000, 1000


@app.command()  # type: ignore[untyped-decorator]
@grouped
def run(
    network: EngineOptions,
    images: Annotated[
        list[str] | None,
        argument(
            "[IMAGE]...",
            "Images, videos, folders, globs, URLs (http, https, rtsp, rtmp); - for paths on standard input, one per line.",
        ),
    ] = None,
    camera: Annotated[
        list[int] | None, number(IntRange(0, _MAX_CAMERA), "Number of a camera, from 0; may be repeated.")
    ] = None,
    recursive: Annotated[bool, choice("Also search the subfolders of folders.", "--recursive")] = False,
    batch: Annotated[
        int | None, number(IntRange(1, LARGEST_BATCH), "Images per run; default: the model's batch.")
    ] = None,
    names: options.Names = None,
    threshold: Annotated[
        float | None, number(SHARE, "Lowest score, 0..1; default: the model's, or else 0.5.", metavar="X")
    ] = None,
    nms: Annotated[
        float | None,
        number(SHARE, "Highest overlap of boxes of a class, 0..1; default: the model's, or else 0.45.", metavar="X"),
    ] = None,
    mode: options.ModelsMode = None,
    decode: Annotated[
        Decoder, choice("Where JPEG files are decoded: on the CPU's cores, or on the GPU of engine cuda.")
    ] = "cpu",
    track: Annotated[
        bool, choice("Follow objects from frame to frame (ByteTrack), and number them.", "--track")
    ] = False,
    output: Annotated[
        Path | None,
        option(
            "FILE|DIR",
            "Write annotated images and videos: the suffix says what is written; a folder keeps names.",
            "--output",
            "-o",
        ),
    ] = None,
    save_json: Annotated[Path | None, option("FILE", "Write COCO's results.")] = None,
    save_txt: Annotated[
        Path | None,
        option("DIR", "Write labels in the YOLO form: class x y width height, in 0..1; tracks add their number."),
    ] = None,
    save_crops: Annotated[Path | None, option("DIR", "Write the crop of each box: LABEL/NAME-NUMBER.jpg.")] = None,
    show: Annotated[bool, choice("Show frames in a window; press q to end.", "--show")] = False,
    inputs: Annotated[
        list[str] | None, option("NAME=FILE.npy", "Array for an input; default: random numbers.", "--input")
    ] = None,
    input_limit: Annotated[
        int, number(IntRange(1, _MAX_MIB), "Memory that an array of --input may take.", metavar="MIB")
    ] = MAX_BYTES >> 20,
    save: Annotated[Path | None, option("FILE.npz", "Write the outputs.")] = None,
    repeat: Annotated[int, number(IntRange(1, _MAX_RUNS), "Runs to time.")] = 1,
    slots: Annotated[
        int, number(IntRange(1, MAX_SLOTS), "Simultaneous runs; from 2 on, the number of runs per second is shown.")
    ] = 1,
) -> Result[Detected] | Result[ArrayRun]:
    """Find objects in images and videos; without images, run a model on arrays and show its outputs.

    If an image cannot be read, it is named and skipped, and the exit code is 1.

    Examples: pytrt run yolov2-voc.cfg dog.jpg --output boxes.png

    pytrt run yolov2.engine images/ film.mp4 --output found/ --save-json found.json

    pytrt run yolov2.engine --camera 0 --track --show

    pytrt run model.onnx --input data=batch.npy --save outputs.npz --repeat 20

    pytrt run yolov2.engine --repeat 1000 --slots 2
    """
    for path in filter(None, (save, save_json)):
        check_target(path)
    expect_images(images or ())
    paths: list[str | Path | int] = [*(images or ()), *(camera or ())]
    sources = Sources(paths, recursive=recursive) if paths else None
    files = {"output": output, "coco": save_json, "labels": save_txt, "crops": save_crops}
    if sources is None and (any(files.values()) or show or track or recursive):
        raise UsageError(
            "there is no image to find objects on.\nDo: pytrt run MODEL dog.jpg, or a folder, a video, --camera 0"
        )
    outputs = Outputs(sources, show=show, **files) if sources else None
    if track:
        Tracker()  # whose library may be missing: said before the engine is built
    built = network.open_engine(batch=batch)
    if sources is None or outputs is None:
        arrays = option_values.read_inputs(inputs, built, input_limit << 20, free=batch or 1)
        return Result(_run_on_arrays(built, arrays, repeat, slots, save), tables.print_ran)
    with loading.open_detector(built, network.model, names, mode=mode, batch=batch) as detector:
        thresholds = {"score_threshold": threshold, "iou_threshold": nms}
        detected = _detect(detector, sources, outputs, **thresholds, track=track, decode=decode)
    return Result(detected, tables.print_detected, ok=not detected.failures)


def _run_on_arrays(engine: Engine, arrays: Arrays, repeat: int, slots: int, save: Path | None) -> ArrayRun:
    if slots == 1:
        outputs, figure = runs.one_by_one(engine, arrays, repeat)
    else:
        outputs, figure = runs.side_by_side(engine, arrays, repeat, slots)
    if save:
        runs.save_arrays(save, outputs)
    times = (figure, None) if slots == 1 else (None, figure)
    facts = tuple(_output_facts(name, np.asarray(array)) for name, array in outputs.items())
    return ArrayRun(engine.name, engine.precision, engine.arithmetic, facts, repeat, slots, *times)


def _output_facts(name: str, array: npt.NDArray[Any]) -> OutputFacts:
    values = array.astype(np.float64)
    figures = [float(function(values)) for function in (np.min, np.max, np.mean)] if values.size else [None, None, None]
    return OutputFacts(name, str(array.dtype), array.shape, *figures)


def _detect(detector: Yolov2, sources: Sources, outputs: Outputs, **options: Any) -> Detected:
    """Print the detections of each frame, and write them. Unreadable inputs are reported at the end.

    Ctrl-C is how one ends a camera or a stream: then it is not an interruption.
    """
    looked, summary = list[ImageDetections](), Summary()
    in_json = current_output().command is not None  # else a camera's frames would fill the memory
    count = sources.count()
    try:
        with outputs, progress_bar("images", count, enabled=count != 1) as bar:
            for frame, detections in detector.stream(sources, **options):
                print(f"{frame.name}: {detector.timings}", *detections, sep="\n")
                outputs.write(frame, detections)
                if in_json:
                    looked.append(ImageDetections(frame.name, tuple(detections)))
                summary.add(detections, detector.timings)
                bar.update(text=frame.name)
                if outputs.stopped:
                    break
    except ImageError as error:
        if not (sources.failures and summary.images):
            raise
        tables.print_error(type(error).__name__, str(error))
    except KeyboardInterrupt:
        if all(source.kind != "live" for source in sources.found):
            raise
    engine, failures = detector.engine, tuple(map(str, sources.failures))
    ran = engine.name, engine.precision, engine.arithmetic
    return Detected(*ran, tuple(looked), failures, tuple(outputs.saved()), str(summary))
