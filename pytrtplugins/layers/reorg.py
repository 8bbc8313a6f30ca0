"""darknet's reorg: the passthrough of YOLOv2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from ..cuda import CudaKernel
from ..errors import DimsError, FieldError
from ..plugin.base import Plugin
from ..plugin.decorator import plugin
from ..tensor import Array, Dims, DType, SymbolicDim, TensorDesc, array_namespace, check_divisible, check_rank
from ._kernels import KERNELS, same_layout

if TYPE_CHECKING:
    from ..model.op_builder import OpBuilder, Value

__all__ = ["Reorg"]


@plugin(namespace="darknet")
class Reorg(Plugin):
    """Rearrange blocks of pixels into channels, in darknet's order.

    This is not ONNX SpaceToDepth: darknet first re-reads the buffer as [N, C/s², H·s, W·s]. The two agree on few
    elements, the boxes still look plausible, and accuracy drops.

    Fields:
        stride (int): side s of a block in pixels, at least 1; s² must divide C, and s both H and W
            (with reverse C only).
        reverse (bool): channels into blocks of pixels: the k-th C/s² channels are the k-th pixels of the blocks. This
            is darknet's reverse; it undoes the forward form of SpaceToDepth, not darknet's own forward form.
    Inputs:
        x: [N, C, H, W], float32, float16 or int8, linear or NHWC layout, any unit.
    Outputs:
        y: [N, C·s², H/s, W/s], or [N, C/s², H·s, W·s] with reverse; dtype, layout and unit of x. A permutation: no value changes.
    INT8: passes through with x's scale. Workspace: 0 bytes. Tactics: one.

    Raises:
        DimsError: a divisibility rule is broken; from output_dims, so before anything is launched.
    Source:
        pjreddie/darknet f6afaabc, src/blas.c reorg_cpu, called in src/reorg_layer.c.

    Example:
        >>> x = np.arange(16, dtype=np.float32).reshape(1, 4, 2, 2)
        >>> Reorg(stride=2).compute(x)[0, :4, 0, 0].tolist()
        [0.0, 2.0, 8.0, 10.0]
    """

    stride: int = 1
    reverse: bool = False

    int8: ClassVar[str] = "pass_through"
    kernel: ClassVar[CudaKernel] = CudaKernel.from_file(KERNELS / "reorg.cu", "reorg")
    kernel_nhwc: ClassVar[CudaKernel] = CudaKernel.from_file(KERNELS / "reorg.cu", "reorg_nhwc")
    _nhwc = False

    def validate(self) -> None:
        """Require a stride of at least 1."""
        if self.stride < 1:
            raise FieldError(f"Reorg.stride: expected at least 1, found {self.stride}", name="stride")

    def output_dims(self, x: Dims) -> Dims:
        """C·s², H/s, W/s; with reverse the other way round."""
        check_rank(x, 4, repr(self))
        n, c, h, w = x
        s = self.stride
        check_divisible(c, s * s, f"{self!r}: channels")
        if self.reverse:
            return n, c // (s * s), h * s, w * s
        check_divisible(h, s, f"{self!r}: height")
        check_divisible(w, s, f"{self!r}: width")
        return n, c * (s * s), h // s, w // s

    def compute(self, x: Array) -> Array:
        """The permutation, as a copy."""
        xp = array_namespace(x)
        blocks, order, shape = self._steps(*x.shape)
        y = xp.reshape(xp.transpose(xp.reshape(x, blocks), order), shape)
        return cast(Array, y.copy() if xp.may_share_memory(x, y) else y)

    def supports_format(self, position: int, descs: Sequence[TensorDesc]) -> bool:
        """Linear or NHWC, the same for both."""
        return same_layout(position, descs, (DType.FLOAT32, DType.FLOAT16, DType.INT8))

    def configure(self, inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc]) -> None:
        """Learn the layout."""
        self._nhwc = inputs[0].layout == "nhwc"
        _, c, h, w = inputs[0].dims
        size = c * h * w
        if not isinstance(size, SymbolicDim) and size >= 2**31:
            raise DimsError(f"{self!r}: one image has {size} values; the kernel takes fewer than 2^31", found=size)

    def enqueue(self, inputs: Sequence[Array], outputs: Sequence[Array], workspace: Array | None, stream: Any) -> None:
        """One kernel: reorg.cu."""
        (x,), (y,) = inputs, outputs
        n, c, h, w = x.shape
        s, vector = self.stride, 16 // x.dtype.itemsize
        maps = c // (s * s)
        kernel = self.kernel_nhwc if self._nhwc else self.kernel
        values, each = (c * h * w, 2 * vector) if self._nhwc else (maps * h * w, vector)
        threads = ((values + (each - 1)) // each, 1 if self._nhwc else s, n)
        kernel.launch(x, y, maps, h, w, s, self.reverse, threads=threads, stream=stream)

    def decompose(self, op: OpBuilder, x: Value) -> Any:
        """Reshape, Transpose, Reshape."""
        _, c, h, w = x.dims
        blocks, order, shape = self._steps(-1, c, h, w)
        return op.Reshape(op.Transpose(op.Reshape(x, blocks), perm=order), shape)

    def _steps(self, n: Any, c: Any, h: Any, w: Any) -> tuple[list[Any], list[int], list[Any]]:
        """The view of the buffer, the order of its axes and the final shape."""
        s = self.stride
        if self.reverse:
            return [n, s, s, c // s**2, h, w], [0, 3, 4, 1, 5, 2], [n, c // s**2, h * s, w * s]
        return [n, c // s**2, h, s, w, s], [0, 3, 5, 1, 2, 4], [n, c * s**2, h // s, w // s]
