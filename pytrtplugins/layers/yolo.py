"""darknet's yolo: the head of YOLOv3 and its relatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..cuda import Constant, CudaKernel
from ..errors import FieldError
from ..plugin.base import Plugin, plugin
from ..tensor import Array, Dims, DType, TensorDesc, check_equal, check_rank
from ._activations import Part, compute_parts, decompose_parts
from ._kernels import HEAD, head_slots, launch_head, same_layout

if TYPE_CHECKING:
    from ..model.op_builder import OpBuilder, Value

__all__ = ["Yolo"]


@plugin(namespace="darknet")
class Yolo(Plugin):
    """Turn the raw values of a YOLOv3 output convolution into positions, sizes, objectness and class probabilities.

    It gives darknet's ``layer.output``, not boxes: `pytrtplugins.vision.decode_yolo` makes boxes of it.

    Fields:
        anchors (tuple of float): width and height of every anchor of the network in pixels of its input; carried for
            the decoder.
        mask (tuple of int): which anchors this layer uses; one box per cell for each.
        classes (int): number of classes, at least 0.
        scale_x_y (float): stretches x and y about the middle of the cell, as AlexeyAB's fork does: x · s - (s - 1) / 2.
        new_coords (bool): the values come from a logistic convolution already, and w and h are squared by the decoder
            (the fork's YOLOv4-csp and later): no logistic here.
    Inputs:
        x: [N, len(mask)·(5 + classes), H, W], float32 or float16, linear or NHWC layout, raw values.
    Outputs:
        y: dims, dtype and layout of x, [anchor][x, y, w, h, objectness, classes][H][W]: logistic of all but w and h, which stay
            raw; with new_coords no logistic at all.
    INT8: stays in float. Workspace: 0 bytes. Tactics: one.

    Raises:
        DimsError: the channels are not len(mask)·(5 + classes).
    Source:
        pjreddie/darknet f6afaabc, src/yolo_layer.c forward_yolo_layer; scale_x_y and new_coords: AlexeyAB/darknet
        59596d78, the function of that name.

    Example:
        >>> Yolo(anchors=(10, 13), mask=(0,), classes=1).compute(np.zeros((1, 6, 1, 1), np.float32)).ravel().tolist()
        [0.5, 0.5, 0.0, 0.0, 0.5, 0.5]
    """

    anchors: tuple[float, ...]
    mask: tuple[int, ...]
    classes: int = 20
    scale_x_y: float = 1.0
    new_coords: bool = False

    kernel: ClassVar[CudaKernel] = HEAD
    _nhwc = False
    _slots: Constant | None = None

    def validate(self) -> None:
        """Check the fields against each other."""
        if self.classes < 0:
            raise FieldError(f"Yolo.classes: expected at least 0, found {self.classes}", name="classes")
        if not self.mask or any(not 0 <= index < len(self.anchors) // 2 for index in self.mask):
            raise FieldError(
                f"Yolo.mask: expected indices of the {len(self.anchors) // 2} anchors, found {self.mask}", name="mask"
            )

    @property
    def entries(self) -> int:
        """Values per box."""
        return 5 + self.classes

    def output_dims(self, x: Dims) -> Dims:
        """The dims of x."""
        check_rank(x, 4, repr(self))
        check_equal(x[1], len(self.mask) * self.entries, f"{self!r}: channels (len(mask) · (5 + classes))")
        return x

    def compute(self, x: Array) -> Array:
        """Apply each activation to its part."""
        return compute_parts(x, self.entries, self.parts(), self._xy())

    def supports_format(self, position: int, descs: Sequence[TensorDesc]) -> bool:
        """Linear or NHWC, float32 or float16, the same for both."""
        return same_layout(position, descs, (DType.FLOAT32, DType.FLOAT16))

    def configure(self, inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc]) -> None:
        """Learn the layout, and make the kernel's table."""
        self._nhwc = inputs[0].layout == "nhwc"
        self._slots = head_slots(self.parts(), scaled=self._xy() != (1.0, 0.0))

    def enqueue(self, inputs: Sequence[Array], outputs: Sequence[Array], workspace: Array | None, stream: Any) -> None:
        """One kernel: head.cu."""
        (x,), (y,) = inputs, outputs
        slots = self._slots or head_slots(self.parts(), scaled=self._xy() != (1.0, 0.0))
        launch_head(x, y, slots, self.entries, nhwc=self._nhwc, stream=stream, first=self._xy())

    def decompose(self, op: OpBuilder, x: Value) -> Any:
        """One 4-D tensor per anchor: Split, Sigmoid on two parts, Concat."""
        return decompose_parts(op, x, self.entries, self.parts(), self._xy())

    def parts(self) -> list[Part]:
        """What is applied to which entries of a box."""
        if self.new_coords:
            return [("as-is", 0, 2), ("as-is", 2, self.entries)]
        return [("logistic", 0, 2), ("as-is", 2, 4), ("logistic", 4, self.entries)]

    def _xy(self) -> tuple[float, float]:
        """Factor and summand of x and y."""
        return self.scale_x_y, -0.5 * (self.scale_x_y - 1)
