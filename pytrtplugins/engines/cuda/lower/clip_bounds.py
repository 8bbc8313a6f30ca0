"""Write the default bounds of a bfloat16 Clip, since kernels compute in float32, which has larger numbers."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ....model.ir import add_constant, dtype_of, is_op, operand
from ....passes import Pass, PassResult
from ....tensor import DType
from ....utils.optional import ir
from ....utils.override import override

__all__ = ["WriteClipBounds"]

_LARGEST = 3.3895313892515355e38
"""Of bfloat16: 255 · 2^120."""


class WriteClipBounds(Pass):
    """Write the bounds, which are the least and the largest finite number of the type (ONNX, Clip)."""

    name: ClassVar[str] = "clip-bounds"

    @override
    def call(self, model: ir.Model) -> PassResult:
        modified = False
        for node in model.graph:
            x = operand(node, 0)
            if not is_op(node, "Clip") or x is None or dtype_of(x) is not DType.BFLOAT16:
                continue
            for index, bound in ((1, -_LARGEST), (2, _LARGEST)):
                if operand(node, index) is None:
                    node.resize_inputs(max(len(node.inputs), index + 1))
                    array = np.array(bound, DType.BFLOAT16.numpy)
                    node.replace_input_with(
                        index, add_constant(model.graph, f"{node.outputs[0].name}_bound{index}", array)
                    )
                    modified = True
        return PassResult(model, modified)
