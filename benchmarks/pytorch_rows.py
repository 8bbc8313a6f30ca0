"""INT8 of networks as others write them: latency beside float32 and onnxruntime's own static quantization, and what it costs."""

from __future__ import annotations

import logging
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pytrtplugins.engines import build
from pytrtplugins.engines.host.timing import run_seconds
from pytrtplugins.passes import prepare
from pytrtplugins.precision.scales import make_tables

from .pytorch_networks import exported, images

if TYPE_CHECKING:
    import onnx

    from pytrtplugins.calibration import CalibrationTable

__all__ = ["ENGINES", "measure"]

ENGINES = ("cpu", "onnxruntime")
_OWN = "own"
_CALIBRATED, _JUDGED = 16, 16  # images
_ALGORITHMS = ("minmax", "entropy")


def measure(family: str, exporter: str, threads: int) -> Iterator[dict[str, Any]]:
    """Build, compare and time a network on both engines; all of its forms are timed in turns, in one process.

    Yields:
        A row of each engine, with milliseconds of the processor for a run in float32, in INT8 by min-max, and quantized by onnxruntime
        itself; and cosine and signal to noise in dB against float32, by algorithm, and of onnxruntime's own.
    """
    warnings.simplefilter("ignore")  # of exporters
    logging.getLogger("root").setLevel(logging.ERROR)  # onnxruntime's quantizer
    model = prepare(exported(family, exporter))
    calibration = [{"data": image[None]} for image in images(family, _CALIBRATED, seed=5)]
    judged = [image[None] for image in images(family, _JUDGED, seed=6)]
    tables = make_tables(model, calibration, _ALGORITHMS, progress=False)
    own = _own_session(model, [each["data"] for each in calibration], threads)
    for engine in ENGINES:
        with ExitStack() as stack:

            def form(
                table: CalibrationTable | None, stack: ExitStack = stack, engine: str = engine
            ) -> Callable[[Any], Any]:
                precision, settings = ("fp32", {}) if table is None else ("int8", {"int8": "always"})
                made = build(
                    model, engine=engine, precision=precision, calibration=table, threads=threads, settings=settings
                )
                context = stack.enter_context(made.create_context())
                return lambda sample: context.run({"data": sample})["y"]

            runs = {"fp32": form(None), **{name: form(table) for name, table in tables.items()}, _OWN: own}
            outputs = {name: [np.asarray(run(x), np.float64).ravel() for x in judged] for name, run in runs.items()}
            quality = {name: _quality(outputs["fp32"], outputs[name]) for name in (*_ALGORITHMS, _OWN)}
            timed = {name: partial(runs[name], judged[0]) for name in ("fp32", "minmax", _OWN)}
            ms = {name: 1e3 * seconds for name, seconds in run_seconds(timed, time.process_time).items()}
            yield {"family": family, "exporter": exporter, "engine": engine, "ms": ms, "quality": quality}


def _quality(wanted: Sequence[Any], found: Sequence[Any]) -> tuple[float, float]:
    """Mean cosine of the outputs of an image, and signal to noise of all."""
    cosines = [float(a @ b / np.sqrt((a @ a) * (b @ b))) for a, b in zip(wanted, found, strict=True)]
    signal = sum(float(a @ a) for a in wanted)
    noise = sum(float((a - b) @ (a - b)) for a, b in zip(wanted, found, strict=True))
    return float(np.mean(cosines)), 10 * float(np.log10(signal / noise)) if noise else float("inf")


def _own_session(model: onnx.ModelProto, batches: Sequence[Any], threads: int) -> Callable[[Any], Any]:
    """onnxruntime's ``quantize_static`` as its guide has it: preprocessed, Q/DQ, a scale a channel, uint8 by int8, min-max."""
    import onnx
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    from pytrtplugins.engines.host.int8 import safe_weight_levels

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.left = iter(batches)

        def get_next(self) -> dict[str, Any] | None:
            batch = next(self.left, None)
            return None if batch is None else {"data": batch}

    with tempfile.TemporaryDirectory() as folder:
        plain, prepared, quantized = (Path(folder) / f"{name}.onnx" for name in ("plain", "prepared", "quantized"))
        onnx.save(model, plain)
        quant_pre_process(str(plain), str(prepared), skip_symbolic_shape=True)
        quantize_static(
            str(prepared), str(quantized), Reader(), per_channel=True, reduce_range=safe_weight_levels() < 127,
            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
        )  # fmt: skip
        data = quantized.read_bytes()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"data": x})[0]
