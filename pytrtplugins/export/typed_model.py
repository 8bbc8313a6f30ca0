"""Export a float32 model as a typed ONNX file: with Q/DQ nodes, in half precision, or both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..calibration import CalibrationTable, Calibrator
from ..engines.base.arithmetic import float_reasons, layer_types
from ..engines.base.types import BuildOptions
from ..engines.calibrate import network_digest
from ..engines.quantized import has_qdq, quantize_for, read_precisions, with_precisions
from ..engines.registry import engine_class
from ..errors import PrecisionError, UsageError
from ..model import Graph
from ..model.opaque import opaque_nodes
from ..model.proto import node_name
from ..passes import CODES, Precisions
from ..passes.half import HALF_TYPES
from ..tensor import DType
from ..utils.optional import onnx
from ..utils.progress import progress_bar
from ..validation.operators import standard_opset
from . import _typed_steps as steps
from .comparison import Comparison, compare_models
from .parser_check import ParserCheck, check_parser

__all__ = ["READERS", "FloatNode", "TypedModel", "export_half", "export_quantized"]

READERS = {"tensorrt": "tensorrt", "onnxruntime": "onnxruntime", "openvino": "cpu"}
"""Library that reads the file → the engine whose Q/DQ placement it gets."""


@dataclass(frozen=True)
class FloatNode:
    """A node that computes in a wider type than the others.

    Attributes:
        name: Its name.
        why: The reason.
    """

    name: str
    why: str


@dataclass(frozen=True)
class TypedModel:
    """The exported typed ONNX file.

    Attributes:
        file: Path of the file.
        bytes: Its size, without weights in a file of their own.
        opset: Its opset.
        precision: ``"int8"``, ``"fp8"``, ``"fp16"`` or ``"bf16"``.
        rest: Type of what is not quantized: ``"fp32"``, ``"fp16"`` or ``"bf16"``.
        reader: Library whose Q/DQ placement the file has; empty for a file without Q/DQ nodes.
        opaque: Names of the nodes that nobody here has a class for: they stand in the file as they were.
        quantized: Names of the layers with weights that compute in codes.
        float_layers: Layers with weights that could not be quantized.
        missing: Names of the tensors of the model that have no scale in the calibration cache.
        float32_nodes: Nodes that stay in float32 where the rest is in half precision.
        comparison: Errors of the file beside the float32 model, on one sample.
        parser: Whether TensorRT for RTX builds the file; None where the file is for another library.
    """

    file: str
    bytes: int
    opset: int
    precision: str
    rest: str
    reader: str
    opaque: tuple[str, ...]
    quantized: tuple[str, ...]
    float_layers: tuple[FloatNode, ...]
    missing: tuple[str, ...]
    float32_nodes: tuple[FloatNode, ...]
    comparison: Comparison
    parser: ParserCheck | None


def export_quantized(
    model: str | Path | onnx.ModelProto | Graph,
    path: str | Path,
    *,
    calibration: Calibrator | CalibrationTable | str | Path | None = None,
    precision: str | Path | Precisions = "int8",
    rest: str = "fp32",
    reader: str = "tensorrt",
    threads: int | None = None,
    progress: bool = True,
) -> TypedModel:
    """Write a model with Q/DQ nodes into an ONNX file that other tools read, and check the file.

    The Q/DQ nodes stand where `pytrtplugins.build` puts them for the engine of the reader. onnx.checker checks the file, onnxruntime
    runs it beside the float32 model, and for TensorRT the parser of TensorRT for RTX builds it, where that is installed.

    Args:
        model: ONNX file, model or graph in float32.
        path: File to write.
        calibration: A calibrator, a table, or the path of a calibration cache; caches of TensorRT 7 to 10 are read by tensor name.
            Layers whose tensors have no scale in a table or cache stay in float.
        precision: ``"int8"``, ``"fp8"``, or the path of a precision file, which holds its own scales.
        rest: Type of what is not quantized: ``"fp32"``, ``"fp16"`` or ``"bf16"``. For ``"fp16"`` the opset becomes 19, for
            ``"bf16"`` 22, unless it is newer.
        reader: Library that is to read the file: ``"tensorrt"``, for which plugin nodes are kept; ``"onnxruntime"`` or
            ``"openvino"``, for which plugins are written out as standard operators.
        threads: Threads of a calibration run.
        progress: Show a progress bar if the output is a terminal.

    Returns:
        What was written, and what the checks found.

    Raises:
        CalibrationTableError: no tensor of the model has a scale in the table, or the cache belongs to another network.
        CalibrationError: there is no calibration.
        PrecisionError: the model holds Q/DQ nodes already, or the precision is not one that quantizes.
        UsageError: the rest or the reader is unknown.
        BuildError: a plugin cannot be written out for the reader.
        ModelError: the model is broken, or onnx.checker refuses the file.
    """
    if rest not in ("fp32", *HALF_TYPES):
        raise UsageError(f"rest: expected fp32, {', '.join(HALF_TYPES)}; found {rest!r}")
    if reader not in READERS:
        raise UsageError(f"reader: expected {', '.join(READERS)}; found {reader!r}")
    table, cls = read_precisions(precision), engine_class(READERS[reader])
    name = str(precision) if table is None else table.precision
    if name not in CODES:
        raise PrecisionError(
            f"precision {name!r} does not quantize; expected {', '.join(CODES)}.\n"
            f"Do: pytrt convert MODEL --precision {precision if table is not None else name} -o {path}",
            precision=name,
        )
    cls.check_precision(name)
    loaded, external_data = steps.read_float_model(model)
    if has_qdq(loaded):
        raise PrecisionError("the model holds Q/DQ nodes already.\nDo: give the float model", precision=name)
    prepared = steps.prepare_float_model(loaded)
    if table is not None:
        quantized, scales = (
            with_precisions(prepared, table, cls, calibration, precision, rest),
            CalibrationTable(table.scales),
        )
        missing: tuple[str, ...] = ()
    else:
        options = BuildOptions(name, threads)
        result = quantize_for(cls, prepared, calibration, options, progress, partial=True, rest=rest)
        quantized, scales, missing = result.model, result.table, result.missing
    float_layers = float_reasons(quantized)
    if reader != "tensorrt":
        quantized = steps.write_out_plugins(quantized, reader, name)
    written, float32_nodes = quantized, dict[str, str]()
    if rest != "fp32":
        written, float32_nodes = steps.in_half(
            quantized, HALF_TYPES[rest], {tensor: scales.amax(tensor) for tensor in scales}
        )
    layers = tuple(layer for layer, kind in layer_types(written).items() if kind in CODES)
    sample, data = steps.take_sample(prepared, calibration)
    with progress_bar("checking", 3, progress) as advance:
        comparison = compare_models(prepared, written, sample, data)
        advance(1, "onnx.checker")
        size = steps.write_checked(written, path, external_data)
        advance(1, "TensorRT's parser")
        parser = check_parser(written) if reader == "tensorrt" else None
    return TypedModel(
        str(path), size, standard_opset(written), name, rest, reader, _opaque(prepared),
        layers, _nodes(float_layers), missing, _nodes(float32_nodes), comparison, parser,
    )  # fmt: skip


def export_half(
    model: str | Path | onnx.ModelProto | Graph,
    path: str | Path,
    *,
    precision: str | Path | Precisions,
    calibration: Calibrator | CalibrationTable | str | Path | None = None,
    progress: bool = True,
) -> TypedModel:
    """Write a float32 model in half precision into an ONNX file that other tools read, and check the file.

    Inputs and outputs stay float32. Nodes whose constants or tensors are beyond float16 stay in float32, with Cast nodes around them;
    `pytrtplugins.passes.half_ranges.float_nodes` lists the rules. The checks are those of `export_quantized`.

    Args:
        model: ONNX file, model or graph in float32.
        path: File to write.
        precision: ``"fp16"``, ``"bf16"``, or the path of a precision file.
        calibration: Where the ranges of tensors come from: a calibrator or a table, or the path of a calibration cache. Without one
            the model runs on one input of random numbers.
        progress: Show a progress bar if the output is a terminal.

    Returns:
        What was written, and what the checks found.

    Raises:
        PrecisionError: the precision is not a half precision.
        FormatError: the precision file belongs to another network.
        ModelError: the model is broken, or onnx.checker refuses the file.
    """
    table = read_precisions(precision)
    name = str(precision) if table is None else table.precision
    if name not in HALF_TYPES:
        raise PrecisionError(
            f"precision {name!r} is not a half precision; expected {', '.join(HALF_TYPES)}.\n"
            f"Do: pytrt quantize MODEL --precision {precision if table is not None else name} -o {path}",
            precision=name,
        )
    loaded, external_data = steps.read_float_model(model)
    prepared = steps.prepare_float_model(loaded)
    pinned, narrow = dict[str, str](), list[str]()
    if table is not None:
        table.check_fits(
            prepared, network_digest(prepared), precision if isinstance(precision, (str, Path)) else "precisions"
        )
        pinned = {layer: table.layers[layer].reason or "the precision file says so" for layer in table.pinned()}
        narrow = [layer for layer, values in table.layers.items() if values.strategy == "half-weights"]
    sample, data = steps.take_sample(prepared, calibration)
    ranges: dict[str, float] = {}
    if HALF_TYPES[name] is DType.FLOAT16:
        ranges = steps.seen_ranges(prepared, calibration, sample, progress)
    written, float32_nodes = steps.in_half(prepared, HALF_TYPES[name], ranges, pinned, narrow)
    with progress_bar("checking", 3, progress) as advance:
        comparison = compare_models(prepared, written, sample, data)
        advance(1, "onnx.checker")
        size = steps.write_checked(written, path, external_data)
        advance(1, "TensorRT's parser")
        parser = check_parser(written)
    return TypedModel(
        str(path), size, standard_opset(written), name, name, "", _opaque(prepared),
        (), (), (), _nodes(float32_nodes), comparison, parser,
    )  # fmt: skip


def _opaque(model: onnx.ModelProto) -> tuple[str, ...]:
    return tuple(map(node_name, opaque_nodes(model)))


def _nodes(reasons: Mapping[str, str]) -> tuple[FloatNode, ...]:
    return tuple(FloatNode(name, why) for name, why in reasons.items())
