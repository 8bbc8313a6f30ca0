"""What darknet's layers share: their kernels' folder, the layouts that they take, and the base of the heads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..cuda import Constant, CudaKernel
from ..plugin.base import Plugin
from ..tensor import Array, DType, TensorDesc
from ._activations import Part, compute_parts, decompose_parts

if TYPE_CHECKING:
    from ..model.op_builder import OpBuilder, Value

__all__ = ["KERNELS", "Head", "same_layout"]

KERNELS = Path(__file__).parents[1] / "kernels"
_KINDS = {"as-is": 0, "logistic": 1, "softmax": 2}
_SCALED = 4


def same_layout(position: int, descs: Sequence[TensorDesc], dtypes: Sequence[Any]) -> bool:
    """Whether a tensor is linear or NHWC, of one of these types, and like the first one."""
    desc, first = descs[position], descs[0]
    return (
        desc.layout in ("linear", "nhwc")
        and desc.dtype in dtypes
        and (desc.layout, desc.dtype) == (first.layout, first.dtype)
    )


class Head(Plugin):
    """Base of darknet's heads, which apply activations to the parts of each box: as `compute`, as operators and in head.cu."""

    kernel: ClassVar[CudaKernel] = CudaKernel.from_file(KERNELS / "head.cu", "head")
    _nhwc = False
    _slots: Constant | None = None

    @property
    def entries(self) -> int:
        """Values per box."""
        raise NotImplementedError

    def parts(self) -> list[Part]:
        """What is applied to which entries of a box, without gaps."""
        raise NotImplementedError

    def _xy(self) -> tuple[float, float]:
        """Factor and summand of the first part."""
        return 1.0, 0.0

    def compute(self, x: Array) -> Array:
        """Apply each activation to its part."""
        return compute_parts(x, self.entries, self.parts(), self._xy())

    def decompose(self, op: OpBuilder, x: Value) -> Any:
        """One 4-D tensor per box: Split, an activation of each part, Concat."""
        return decompose_parts(op, x, self.entries, self.parts(), self._xy())

    def supports_format(self, position: int, descs: Sequence[TensorDesc]) -> bool:
        """Linear or NHWC, float32 or float16, the same for both."""
        return same_layout(position, descs, (DType.FLOAT32, DType.FLOAT16))

    def configure(self, inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc]) -> None:
        """Learn the layout, and make the kernel's table."""
        self._nhwc = inputs[0].layout == "nhwc"
        self._slots = self._table()

    def enqueue(self, inputs: Sequence[Array], outputs: Sequence[Array], workspace: Array | None, stream: Any) -> None:
        """One kernel: head.cu."""
        (x,), (y,), slots = inputs, outputs, self._slots or self._table()
        n, c, h, w = x.shape
        count, boxes, area = len(slots.array), c // self.entries, h * w
        inner, outer = (boxes * count, area) if self._nhwc else (area, boxes * count)
        arguments = (x, y, slots, count, boxes, self.entries, area, self._nhwc, self._xy())
        self.kernel.launch(*arguments, threads=(inner, outer, n), block=(64, 4), stream=stream)

    def _table(self) -> Constant:
        """What the kernel does with which entries: one slot per entry, or per softmax."""
        slots = []
        for number, (kind, begin, end) in enumerate(self.parts()):
            code = _KINDS[kind] + (_SCALED if number == 0 and self._xy() != (1.0, 0.0) else 0)
            ranges = [(begin, end)] if kind == "softmax" else [(entry, entry + 1) for entry in range(begin, end)]
            slots += [(code, low, high) for low, high in ranges]
        return Constant(np.array(slots, np.int32))
