"""Float model and calibration table → the same model with Q/DQ nodes, in INT8, which every engine can run, or in FP8."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..calibration.table import CalibrationTable
from ..errors import UsageError
from ..model.ir import add_constant, array_of, names_in, to_ir, to_proto, unused_name
from ..model.proto import node_name
from ..utils.optional import ir, onnx
from ._base import Pass, PassResult
from ._int8_demand import input_of
from ._quantize_plan import QuantizePlan, make_plan, weight_axis
from .codes import INT8, Codes, codes_of, quantize_weights
from .int8_forms import Int8Forms
from .placement import Placement

__all__ = ["FLOAT_LAYERS", "Quantize", "QuantizeResult", "quantize", "quantized_tensors"]

FLOAT_LAYERS = "pytrtplugins.float_layers"  # key in the model's metadata: JSON, name of a layer left in float → why
_log = logging.getLogger(__name__)
_FEWEST = 2
_FIRST_IR = 9
"""The first version of ONNX's files that has 8-bit floats."""


def quantize(
    model: str | Path | onnx.ModelProto,
    table: CalibrationTable,
    *,
    exclude: Collection[str] = (),
    float_first: bool | None = None,
    float_last: bool = True,
    placement: Placement | None = None,
    weight_levels: int | None = None,
    per_tensor: Collection[str] = (),
    precision: str = INT8.precision,
) -> onnx.ModelProto:
    """Write Q/DQ nodes into a float model; see `Quantize` for where.

    Args:
        model: Path or model, opset 13 or newer, for FP8 19, best prepared (batch norm folded); it is not changed.
        table: Scale of every tensor, made with this model.
        exclude: Names of nodes that stay in float.
        float_first: Keep the first layers in float; None: in FP8 the convolutions that read an image, in INT8 none. See `Quantize`, 6.
        float_last: Keep the last layers, before the heads, in float.
        placement: What the engine's int8 kernels take and give; None: the form of TensorRT.
        weight_levels: Largest int8 weight, 2..127, the default. Give 64 for CPUs without VNNI; see `Quantize`, 2.
        per_tensor: Names of layers whose weights have one scale for all output channels.
        precision: ``"int8"`` or ``"fp8"``.

    Returns:
        The model with Q/DQ. Which layers stayed in float, and why, is logged, and noted as JSON in its metadata under
        ``pytrtplugins.float_layers``.

    Raises:
        CalibrationTableError: the table lacks tensors of the model; the message and ``.only_in_network`` name them.
        UsageError: ``exclude`` names a node that the model does not have; ``weight_levels`` is out of range, or is given for FP8;
            ``precision`` is another.
        ModelError: the model holds Q/DQ already, or its opset is too old.
    """
    run = Quantize(
        table,
        exclude=exclude,
        float_first=float_first,
        float_last=float_last,
        placement=placement,
        weight_levels=weight_levels,
        per_tensor=per_tensor,
        precision=precision,
    )
    return to_proto(run(to_ir(model)).model)


def quantized_tensors(
    model: ir.Model,
    *,
    exclude: Collection[str] = (),
    float_first: bool | None = None,
    float_last: bool = True,
    placement: Placement | None = None,
    precision: str = INT8.precision,
) -> tuple[str, ...]:
    """Names of the tensors whose scales `quantize` reads from the table, with the same options.

    The model is rewritten as `Quantize` rewrites it first, if the placement asks for that.
    """
    if placement is not None and placement.rewritten:
        Int8Forms()(model)
    plan = make_plan(
        model,
        None,
        exclude=exclude,
        float_first=float_first,
        float_last=float_last,
        placement=placement,
        codes=codes_of(precision),
    )
    return plan.required


@dataclass(frozen=True)
class QuantizeResult(PassResult):
    """Result of `Quantize`.

    Attributes:
        model: The model with Q/DQ.
        modified: Whether anything is quantized.
        layers: Names of the layers that compute in int8 or FP8.
        float_layers: Name of every layer that could have been quantized and is not → why.
    """

    layers: tuple[str, ...] = ()
    float_layers: tuple[tuple[str, str], ...] = ()


class Quantize(Pass):
    """Write a calibration table into a model as Q/DQ nodes, in the form that TensorRT, OpenVINO and onnxruntime share.

    1. Activations: int8, zero point 0, one scale a tensor, from the table. A tensor is quantized once, behind the
       activation function (Conv → LeakyRelu → Q → DQ), and every layer that computes in int8 reads that DQ. A
       `Placement` says what else an engine needs: onnxruntime's kernels give int8 alone, so that Q/DQ stands before the
       activation function too (Conv → Q → DQ → LeakyRelu → Q → DQ), which costs 1.5 dB on YOLOv2; engines for CPUs store
       what cannot be negative as uint8 with zero point 0, one step being amax/255.
    2. Weights of Conv, ConvTranspose, Gemm and MatMul, and W of LSTM, GRU and RNN: int8 constants in -127..127, one scale an
       output channel, max|w|/127, rounded half to even, followed by DequantizeLinear. Biases stay float32. CPUs without VNNI add two
       products of uint8 and int8 in 16 bits, which saturate where two weights of up to 127 meet two large activations:
       OpenVINO's results are then wrong by many steps. With ``weight_levels=64`` they cannot (2·255·64 < 2**15), and
       its results equal onnxruntime's, for 1 to 4 dB more rounding noise (2 on YOLOv2, 4 on depthwise Yolo-Fastest).
       The two directions of a recurrent layer share the scales of W, as DequantizeLinear has one axis. R and the states stay
       float32: errors of a step would be carried on to all later ones.
    3. Tensors joined by nodes that only copy values (MaxPool, Concat, Reshape, Transpose, nearest Resize, plugins
       whose ``int8`` is ``"pass_through"`` ...) share one scale, the largest of those that are computed. Q/DQ stands
       before the first of the copying nodes, and again, with the same scale, behind each plugin: that second pair
       changes no value, and lets an engine run the plugin on int8.
    4. Residual additions whose result is wanted in int8 read int8, except for a convolution's own result that nobody
       else reads: engines then add inside the convolution and round once. Of two such convolutions the one with more nodes
       before it adds.
    5. FP8 (E4M3) is the same with other codes: the scale of a tensor is amax/448, values are rounded to the nearest code, half to
       even, and saturate. The scale of an output channel is max|w|/448 or up to an octave more, and its weights are rounded
       together: see `pytrtplugins.passes.codes`. Steps are finer near 0 and coarser near amax than int8's.
    6. Layers that feed no other layer with weights stay in float (``float_last``), and so does everything that no
       layer of 2. or 4. reads: heads, softmax, outputs. With ``float_first``, so do the first layers. So do convolutions of
       a single pixel behind a global pool (squeeze-and-excitation), where the `Placement` does not ask for them.
    7. In FP8 the first convolutions stay in float too if their input has fewer than 16 channels, as images have, unless
       ``float_first`` is false. Pixels are equal steps up to amax, and E4M3 has 8 values from amax/2 to amax: it keeps 4 bits
       of them, and a filter that looks for edges subtracts neighbours that hardly differ. Little speed is lost, as the sums
       of so few channels are short. Weights and activations behind that have their most values near 0, where E4M3 is fine.

    Source:
        TensorRT documentation, "Working with Quantized Types": explicit quantization and Q/DQ placement. NVIDIA's Model Optimizer,
        modelopt/onnx/quantization/graph_utils.py, `find_nodes_from_convs_to_exclude`: in FP8 it leaves out every convolution
        with fewer than 16 channels.
    """

    name = "quantize"

    def __init__(
        self,
        table: CalibrationTable,
        *,
        exclude: Collection[str] = (),
        float_first: bool | None = None,
        float_last: bool = True,
        placement: Placement | None = None,
        weight_levels: int | None = None,
        per_tensor: Collection[str] = (),
        precision: str = INT8.precision,
    ) -> None:
        self.codes = codes_of(precision)
        if weight_levels is not None and not (self.codes is INT8 and _FEWEST <= weight_levels <= INT8.largest):
            raise UsageError(
                f"quantize: weight_levels: expected {_FEWEST}..{INT8.largest}, and int8; found {weight_levels} for {precision}."
            )
        self.weight_levels = self.codes.largest if weight_levels is None else weight_levels
        self.per_tensor = frozenset(per_tensor)
        self.table = table
        self.exclude = tuple(exclude)
        self.float_first = float_first
        self.float_last = float_last
        self.placement = placement or Placement()

    def call(self, model: ir.Model) -> QuantizeResult:
        """Quantize the model in place."""
        if self.placement.rewritten:
            Int8Forms()(model)
        plan = make_plan(
            model,
            self.table,
            exclude=self.exclude,
            float_first=self.float_first,
            float_last=self.float_last,
            placement=self.placement,
            codes=self.codes,
        )
        _Writer(model.graph, self.codes, self.weight_levels, self.per_tensor).write(plan)
        if self.codes is not INT8:
            model.ir_version = max(model.ir_version or 0, _FIRST_IR)
        for name, why in plan.float_layers.items():
            _log.info("quantize: %s stays in float: %s", name, why)
        model.metadata_props[FLOAT_LAYERS] = json.dumps(dict(plan.float_layers))
        return QuantizeResult(
            model,
            bool(plan.layers),
            layers=tuple(node_name(node) for node in plan.layers),
            float_layers=tuple(plan.float_layers.items()),
        )


class _Writer:
    """Inserts the nodes of a plan into a graph."""

    def __init__(self, graph: ir.Graph, codes: Codes, weight_levels: int, per_tensor: Collection[str]) -> None:
        self._codes, self._kind = codes, np.dtype(codes.dtype.numpy)
        self._weight_levels, self._per_tensor = weight_levels, per_tensor
        self._graph, self._taken = graph, names_in(graph)
        self._constants: dict[tuple[object, ...], ir.Value] = {}

    def write(self, plan: QuantizePlan) -> None:
        dequantized = {
            value: self._quantize_activation(value, scale, value in plan.unsigned)
            for value, scale in plan.scales.items()
        }
        for node, index in plan.reads:
            node.replace_input_with(index, dequantized[input_of(node, index)])
        for node in plan.weights:
            self._quantize_weights(node)

    def _quantize_activation(self, value: ir.Value, scale: np.float32, unsigned: bool) -> ir.Value:
        zero = np.zeros((), np.uint8 if unsigned else self._kind)
        name = f"{zero.dtype}_zero"
        operands = [self._constant(f"{value.name}_scale", scale), self._constant(name, zero, key=(name,))]
        kind, output = ir.DataType.from_numpy(zero.dtype), f"{value.name}_quantized"
        quantize, codes = self._node("QuantizeLinear", [value, *operands], output, kind, value.shape)
        dequantize, result = self._insert_dequantize([codes, *operands], value)
        producer = value.producer()
        if producer is None:
            self._graph.insert_before(self._graph[0], [quantize, dequantize])
        else:
            self._graph.insert_after(producer, [quantize, dequantize])
        return result

    def _quantize_weights(self, node: ir.Node) -> None:
        weight, axis = input_of(node, 1), weight_axis(node)
        shared = node_name(node) in self._per_tensor
        key = ("weights", weight, axis, shared)
        if key not in self._constants:
            steps, scales = quantize_weights(
                array_of(weight), axis, self._weight_levels, shared=shared, codes=self._codes
            )
            operands = [
                self._constant(f"{weight.name}_{self._codes.precision}", steps),
                self._constant(f"{weight.name}_scale", scales),
                self._constant(f"{weight.name}_zero", np.zeros(scales.shape, self._kind)),
            ]
            dequantize, self._constants[key] = self._insert_dequantize(operands, weight, axis=axis)
            self._graph.insert_before(node, dequantize)
        node.replace_input_with(1, self._constants[key])
        if not weight.uses() and not weight.is_graph_output():
            producer = weight.producer()
            if producer is None:
                self._graph.initializers.pop(str(weight.name), None)
            else:
                self._graph.remove(producer, safe=True)

    def _insert_dequantize(
        self, operands: list[ir.Value], value: ir.Value, **attributes: int
    ) -> tuple[ir.Node, ir.Value]:
        output = f"{value.name}_dequantized"
        return self._node("DequantizeLinear", operands, output, ir.DataType.FLOAT, value.shape, **attributes)

    def _node(
        self, op: str, inputs: list[ir.Value], output: str, dtype: Any, shape: ir.Shape | None, **attributes: int
    ) -> tuple[ir.Node, ir.Value]:
        """A node, and its only result."""
        name = unused_name(f"{output}_{op}", self._taken)
        result = ir.Value(name=unused_name(output, self._taken), type=ir.TensorType(dtype), shape=shape)
        return ir.node(op, inputs, attributes, outputs=[result], name=name), result

    def _constant(self, name: str, array: npt.ArrayLike, key: tuple[object, ...] = ()) -> ir.Value:
        if key in self._constants:
            return self._constants[key]
        value = add_constant(self._graph, name, array, self._taken)
        if key:
            self._constants[key] = value
        return value
