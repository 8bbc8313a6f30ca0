"""Convert int8 activations to uint8 with zero point 128: the same numbers, in the form that CPU libraries compute fastest."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ...model.ir import add_constant, is_op, remove_unused, set_dtype
from ...passes import Pass, PassResult
from ...utils.optional import ir
from ...utils.override import override

__all__ = ["UnsignedActivations"]


class UnsignedActivations(Pass):
    """Shift the codes of quantized activations by 128, scales unchanged.

    A value x has the code q = round(x / scale), -128 to 127; it becomes q + 128, 0 to 255, with zero point 128:
    every dequantized value is the same. CPUs multiply uint8 by int8, and OpenVINO's results for int8 activations through
    Concat are wrong. Weights, which are constants, stay int8.
    """

    name: ClassVar[str] = "unsigned-activations"
    needs: ClassVar[tuple[str, ...]] = ("QuantizeLinear",)

    @override
    def call(self, model: ir.Model) -> PassResult:
        zero_points: dict[tuple[tuple[int, ...], bytes], ir.Value] = {}
        modified = False
        for node in [node for node in model.graph if is_op(node, "QuantizeLinear")]:
            zero = node.inputs[2].const_value if len(node.inputs) > 2 and node.inputs[2] is not None else None
            if zero is None or zero.dtype != ir.DataType.INT8:
                continue
            codes = node.outputs[0]
            readers = [use.node for use in codes.uses()]
            if codes.is_graph_output() or any(reader.op_type != "DequantizeLinear" for reader in readers):
                continue
            shifted = (zero.numpy().astype(np.int16) + 128).astype(np.uint8)
            key = (shifted.shape, shifted.tobytes())
            if key not in zero_points:
                zero_points[key] = add_constant(model.graph, f"uint8_zero_{len(zero_points)}", shifted)
            for reader in (node, *readers):
                reader.replace_input_with(2, zero_points[key])
            set_dtype(codes, ir.DataType.UINT8)
            modified = True
        if modified:
            remove_unused(model)
        return PassResult(model, modified)
