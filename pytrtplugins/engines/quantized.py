"""Float model → model with Q/DQ nodes in the placement of an engine, for `build` and for files that other tools read."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..calibration import CalibrationTable, Calibrator
from ..errors import CalibrationError, PrecisionError, UsageError
from ..model.opaque import computable_part
from ..model.proto import info_dims
from ..passes import CODES, Precisions, Quantize, quantized_tensors, to_ir, to_proto
from ..passes.prepare import in_opset_of_precision
from ..passes.quantize import FLOAT_LAYERS, QuantizeResult
from ..passes.unscaled_layers import unscaled_layers
from ..utils.listing import first_texts
from ..utils.optional import onnx
from .base.engine import Engine
from .base.types import BuildOptions
from .calibrate import calibrate_prepared, fitting_table, float_tensors, network_digest

__all__ = ["QuantizedModel", "has_qdq", "quantize_for", "read_precisions", "with_precisions"]

_log = logging.getLogger(__name__)
_SHOWN = 5  # layers in a message


@dataclass(frozen=True)
class QuantizedModel:
    """A model with Q/DQ nodes.

    Attributes:
        model: The model.
        table: The calibration table that the scales come from.
        missing: Names of the tensors that have no scale in the table; the layers that read them stay in float.
    """

    model: onnx.ModelProto
    table: CalibrationTable
    missing: tuple[str, ...] = ()


def read_precisions(precision: str | Path | Precisions) -> Precisions | None:
    """The precisions that a caller gives layer by layer; None: one name for all."""
    if isinstance(precision, Precisions):
        return precision
    is_file = isinstance(precision, Path) or precision.endswith((".yaml", ".yml"))
    return Precisions.read(precision) if is_file else None


def has_qdq(model: onnx.ModelProto) -> bool:
    """Whether a model holds QuantizeLinear nodes, in its graph or its functions."""
    nodes = (node for graph in (model.graph, *model.functions) for node in graph.node)
    return any(node.op_type == "QuantizeLinear" for node in nodes)


def with_precisions(
    model: onnx.ModelProto, table: Precisions, cls: type[Engine], calibration: Any, source: object, rest: str = "fp32"
) -> onnx.ModelProto:
    """Write a prepared model with the precisions of a file, with the Q/DQ placement of an engine.

    Args:
        model: A prepared float model; it is not changed.
        table: The precisions.
        cls: The engine's class.
        calibration: What the caller gave as calibration; it must be None.
        source: What the caller gave as precision, for messages.
        rest: Type of what is not quantized.

    Raises:
        UsageError: there is a calibration too.
        PrecisionError: the model holds Q/DQ nodes already.
        FormatError: the file belongs to another network.
    """
    if calibration is not None:
        raise UsageError("a precision file holds its own scales: give precision or calibration, not both")
    path = source if isinstance(source, (str, Path)) else "precisions"
    if has_qdq(model):
        raise PrecisionError(f"{path}: the model holds Q/DQ nodes already.\nDo: give the float model")
    table.check_fits(model, network_digest(model), path)
    return table.apply(model, **(cls.quantize_options(table.precision, rest) if table.precision in CODES else {}))


def quantize_for(
    cls: type[Engine],
    model: onnx.ModelProto,
    calibration: Calibrator | CalibrationTable | str | Path | None,
    options: BuildOptions,
    progress: bool = True,
    *,
    partial: bool = False,
    rest: str = "fp32",
) -> QuantizedModel:
    """Quantize a prepared model as an engine needs it.

    Args:
        cls: The engine's class.
        model: A prepared float model; it is not changed.
        calibration: A calibrator, a table or the path of a calibration cache.
        options: The precision, ``"int8"`` or ``"fp8"``, threads and forms of plugins.
        progress: Show a progress bar while calibrating.
        partial: Let layers stay in float whose tensors have no scale in the table or cache; by default that is an error.
        rest: Type of what is not quantized.

    Raises:
        CalibrationError: there is no calibration.
        CalibrationTableError: the table belongs to another network, or lacks tensors.
    """
    if calibration is None:
        raise CalibrationError(
            f'precision="{options.precision}" needs the scales of the tensors, and calibration is None.\n'
            'Do: calibration="yolov2.cache" for a table made before, or '
            'calibration=MinMaxCalibrator(ImageBatches("images/"), cache="yolov2.cache") to make one'
        )
    quantize_options = cls.quantize_options(options.precision, rest)
    placed = {name: value for name, value in quantize_options.items() if name != "weight_levels"}
    written = to_ir(in_opset_of_precision(model, options.precision), checked=True)
    required = quantized_tensors(written, precision=options.precision, **placed)
    if isinstance(calibration, Calibrator):
        digest = network_digest(model)
        calibration.bind({info.name: info_dims(info) for info in model.graph.input})
        expected = required
        if partial:
            computable = set(float_tensors(computable_part(model)))
            expected = tuple(name for name in required if name in computable)
        table = calibration.cached_table(float_tensors(model), network=digest, required=expected)
        if table is None:
            table = calibrate_prepared(
                model, calibration, threads=options.threads, plugins=options.plugins, progress=progress
            )
            calibration.store_table(table, network=digest)
    else:
        table = fitting_table(calibration, model, required, partial=partial)
    unscaled = unscaled_layers(written, table, precision=options.precision, **placed) if partial else {}
    result = Quantize(table, precision=options.precision, exclude=tuple(unscaled), **quantize_options)(written)
    if unscaled:
        reasons = json.loads(result.model.metadata_props[FLOAT_LAYERS])
        reasons |= {name: f"the calibration has no scale of {tensor!r}" for name, tensor in unscaled.items()}
        result.model.metadata_props[FLOAT_LAYERS] = json.dumps(reasons)
    if isinstance(result, QuantizeResult) and not result.modified:
        reasons = [f"{name}: {why}" for name, why in result.float_layers]
        _log.warning(
            "precision=%r quantizes no layer, and the engine computes all of them in float: %s",
            options.precision,
            first_texts(reasons, _SHOWN, "; ", "; and ") or "the model has no layer with constant float32 weights",
        )
    return QuantizedModel(to_proto(result.model), table, tuple(dict.fromkeys(unscaled.values())))
