"""A single operator in INT8: the model that engine ``cuda`` gets, and what PyTorch computes from the same scales."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from pytrtplugins.calibration import CalibrationTable, MinMaxCalibrator
from pytrtplugins.engines import calibrate
from pytrtplugins.engines.cuda import CudaEngine
from pytrtplugins.passes import prepare, quantize
from pytrtplugins.passes.prepare import in_opset_of_precision

from .operator_cases import Case, exported
from .subject import cpu_engine

__all__ = ["has_int8", "quantized", "quantized_values", "round_weights"]

_LAYERS, _POOLS = ("Conv", "ConvTranspose", "Gemm", "MatMul"), ("MaxPool", "AveragePool")
_SCALE = "x0_scale"


def has_int8(case: Case) -> bool:
    """Whether engine ``cuda`` computes a case from codes: layers with constant weights, and pools but means of volumes."""
    if case.operator == "AveragePool" and case.form.startswith("3-D"):
        return False
    return case.operator in _POOLS or (case.operator in _LAYERS and "two tensors" not in case.form)


def round_weights(module: nn.Module) -> None:
    """Round a layer's weights, in place, to multiples of a float16 scale for each output channel, as INT8 has them."""
    weights = getattr(module, "weight", None)
    if weights is None:
        return
    axis = int(isinstance(module, (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)))
    scales = (
        (weights.detach().abs().amax([other for other in range(weights.dim()) if other != axis]) / 127).half().float()
    )
    zeros = torch.zeros_like(scales, dtype=torch.int32)
    weights.data = torch.fake_quantize_per_channel_affine(weights.detach(), scales, zeros, axis, -127, 127)


def quantized(case: Case, module: nn.Module, inputs: Sequence[torch.Tensor]) -> onnx.ModelProto:
    """The case as ONNX with Q/DQ, its floats in float16.

    Args:
        case: Which.
        module: Its module in float32 on the CPU, with weights by `round_weights`, whose codes are then the same here.
        inputs: Its inputs in float32 on the CPU, from which the scales come, by min-max.
    """
    model = in_opset_of_precision(
        prepare(exported(module, inputs)), "fp8"
    )  # the first in which QuantizeLinear reads float16
    arrays = {f"x{index}": each.numpy() for index, each in enumerate(inputs)}
    table = calibrate(model, MinMaxCalibrator([arrays]), engine=cpu_engine(), progress=False)
    if case.operator in _POOLS:
        written = _with_pairs(model, table, both=case.operator == "MaxPool")
    else:
        written = quantize(model, table, float_last=False, **CudaEngine.quantize_options("int8"))
    return _in_float16(written)


def quantized_values(model: onnx.ModelProto, x: torch.Tensor) -> torch.Tensor:
    """What the codes of the first input stand for, by PyTorch, with the scale that the model has."""
    scale = next(numpy_helper.to_array(each) for each in model.graph.initializer if each.name == _SCALE)
    return torch.fake_quantize_per_tensor_affine(x.float(), float(scale), 0, -128, 127)


def _with_pairs(model: onnx.ModelProto, table: CalibrationTable, both: bool) -> onnx.ModelProto:
    """A pool between Q/DQ as it stands in a network: behind it too where it writes codes."""
    written = onnx.ModelProto()
    written.CopyFrom(model)
    graph, (pool,) = written.graph, written.graph.node
    graph.initializer.append(numpy_helper.from_array(np.array(table["x0"], np.float32), _SCALE))
    graph.initializer.append(numpy_helper.from_array(np.zeros((), np.int8), "zero"))
    before = _pair("x0", "x0_dequantized")
    after = _pair("pooled", pool.output[0]) if both else []
    pool.input[0] = "x0_dequantized"
    if both:
        pool.output[0] = "pooled"
    del graph.node[:], graph.value_info[:]
    graph.node.extend([*before, pool, *after])
    return written


def _pair(x: str, y: str) -> list[onnx.NodeProto]:
    codes = f"{x}_quantized"
    return [
        helper.make_node("QuantizeLinear", [x, _SCALE, "zero"], [codes]),
        helper.make_node("DequantizeLinear", [codes, _SCALE, "zero"], [y]),
    ]


def _in_float16(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with float16 in the place of float32: inputs, outputs, weights and scales."""
    graph = model.graph
    for info in (*graph.input, *graph.output):
        info.type.tensor_type.elem_type = TensorProto.FLOAT16
    del graph.value_info[:]
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name))
    return model
