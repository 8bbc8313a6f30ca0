"""darknet's yolo: the head of YOLOv3 and its relatives."""

from __future__ import annotations

from ..errors import FieldError
from ..plugin.decorator import plugin
from ..tensor import Dims, check_equal, check_rank
from ..utils.override import override
from ._activations import Part
from ._kernels import Head

__all__ = ["Yolo"]


@plugin(namespace="darknet")
class Yolo(Head):
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
        y: dims, dtype and layout of x, ``[anchor][x, y, w, h, objectness, classes][H][W]``: logistic of all but w and h, which stay
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

    def validate(self) -> None:
        """Check the fields against each other."""
        if self.classes < 0:
            raise FieldError(f"Yolo.classes: expected at least 0, found {self.classes}", name="classes")
        if not self.mask or any(not 0 <= index < len(self.anchors) // 2 for index in self.mask):
            raise FieldError(
                f"Yolo.mask: expected indices of the {len(self.anchors) // 2} anchors, found {self.mask}", name="mask"
            )

    @property
    @override
    def entries(self) -> int:
        return 5 + self.classes

    def output_dims(self, x: Dims) -> Dims:
        """The dims of x."""
        check_rank(x, 4, repr(self))
        check_equal(x[1], len(self.mask) * self.entries, f"{self!r}: channels (len(mask) · (5 + classes))")
        return x

    def parts(self) -> list[Part]:
        """What is applied to which entries of a box."""
        if self.new_coords:
            return [("as-is", 0, 2), ("as-is", 2, self.entries)]
        return [("logistic", 0, 2), ("as-is", 2, 4), ("logistic", 4, self.entries)]

    def _xy(self) -> tuple[float, float]:
        """Factor and summand of x and y."""
        return self.scale_x_y, -0.5 * (self.scale_x_y - 1)
