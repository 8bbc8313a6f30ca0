"""The commands that prepare a network for INT8: ``pytrt calibrate`` and ``pytrt equalize``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from .. import engines, passes
from ..calibration import ImageBatches
from ..calibration.batches import MAX_IMAGES
from ..engines.calibrate import network_digest
from ..errors import UsageError
from ..utils.atomic import check_target, write_atomic
from ..utils.numbers import IntRange
from .app import app
from .facts import Calibrated, WrittenFile
from .opaque import Shapes, open_with_shapes
from .shared import loading, option_values, options, tables
from .shared.groups import NetworkOptions, grouped
from .shared.number import number
from .shared.option import choice, option
from .shared.results import Result

__all__ = ["calibrate", "equalize"]

_ROUNDED_WITH = 8  # images, or fewer where the limit says so


@app.command()  # type: ignore[untyped-decorator]
@grouped
def calibrate(
    network: NetworkOptions,
    calibration: Annotated[
        Path,
        option(
            "DIR|FILE.yaml",
            "Images like those that the network will see, a few hundred; or a data.yaml with a part train; or .npz files, with an "
            "array for each input.",
        ),
    ],
    cache: options.Cache = None,
    algorithm: Annotated[Literal["entropy", "minmax", "percentile"], choice("Calibration algorithm.")] = "minmax",
    batch: Annotated[int, number(IntRange(1, MAX_IMAGES), "Images per run.")] = 8,
    limit: options.FirstImages = None,
    mode: options.CalibrationMode = "letterbox",
    engine: options.Engine = "auto",
    threads: options.Threads = None,
    forms: options.Forms = None,
    shapes: Shapes = None,
) -> Result[Calibrated]:
    """Measure on images the scales that INT8 and FP8 need, and save them in a cache file (TensorRT's format).

    Tensors behind nodes that nobody here has a class for, such as EfficientNMS_TRT, cannot be measured, and have no scale.

    Example: pytrt calibrate yolov2.onnx --calibration images/ --cache yolov2.cache
    """
    path = cache or network.model.with_suffix(".cache")
    check_target(path)
    calibrator = loading.make_calibrator(algorithm, calibration, path, batch=batch, limit=limit, mode=mode)
    prepared = passes.prepare(open_with_shapes(network.model, network.weights, shapes))
    table = engines.calibrate(
        prepared, calibrator, engine=engine, threads=threads, plugins=option_values.read_forms(forms)
    )
    calibrator.store_table(table, network=network_digest(prepared))
    calibrated = Calibrated(str(path), len(table), table.algorithm)
    return Result(
        calibrated, lambda calibrated: print(f"{calibrated.file}: {calibrated.tensors} tensors, {calibrated.algorithm}")
    )


@app.command("equalize")  # type: ignore[untyped-decorator]
@grouped
def equalize(
    network: NetworkOptions,
    calibration: Annotated[
        Path, option("DIR|FILE.yaml", "Images like those that the network will see; 20 are enough.")
    ],
    output: Annotated[Path, option("FILE.onnx", "Write the model to this file.", "--output", "-o")],
    limit: options.FirstImages = 20,
    mode: options.CalibrationMode = "letterbox",
    round_weights: Annotated[
        bool, choice("Also round the weights of each layer together; for CPUs without VNNI.", "--round-weights")
    ] = False,
    engine: options.Engine = "auto",
    threads: options.Threads = None,
) -> Result[WrittenFile]:
    """Rescale the channels of a network so that INT8 loses less accuracy; in float the results stay the same.

    Calibrate and build the new model like any other. Networks with depthwise convolutions gain most,
    and calibration by percentile (`pytrt calibrate --algorithm percentile`) suits it best. With --round-weights its weights
    are those that INT8 has on this machine, in float too: build it on a machine of the same kind.

    Example: pytrt equalize mobile.onnx --calibration images/ -o mobile-equalized.onnx
    """
    if not output.absolute().parent.is_dir() or output.suffix != ".onnx":
        raise UsageError(f"--output {output}: expected a file .onnx in a folder that exists")
    batches = ImageBatches(calibration, limit=limit, mode=mode)
    equalized = engines.equalize(network.open(), batches, engine=engine, threads=threads)
    if round_weights:
        batches = ImageBatches(calibration, limit=min(limit or _ROUNDED_WITH, _ROUNDED_WITH), mode=mode)
        equalized = engines.round_weights(equalized, batches, engine=engine, threads=threads)
    write_atomic(output, equalized.SerializeToString())
    return Result(WrittenFile(str(output), output.stat().st_size), tables.print_file)
