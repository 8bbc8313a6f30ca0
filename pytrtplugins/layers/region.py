"""darknet's region: the head of YOLOv2."""

from __future__ import annotations

from ..errors import FieldError
from ..plugin.decorator import plugin
from ..tensor import Dims, check_equal, check_rank
from ..utils.override import override
from ._activations import Part, sibling_groups
from ._kernels import Head

__all__ = ["Region"]


@plugin(namespace="darknet")
class Region(Head):
    """Turn the raw values of YOLOv2's last convolution into positions, sizes, objectness and class probabilities.

    It gives darknet's ``layer.output``, not boxes: `pytrtplugins.vision.decode_region` makes boxes of it.

    Fields:
        anchors (tuple of float): width and height of each anchor in grid cells, 2·num values; carried for the decoder.
            Empty: all 0.5, darknet's default.
        classes (int): number of classes, at least 0.
        coords (int): values per box before the objectness; the logistic is applied to the first two.
        num (int): boxes per cell, at least 1.
        softmax (bool): softmax over the classes instead of one logistic each.
        background (bool): the value at the objectness's place is a class of its own: it takes part in the softmax.
        tree (tuple of int): parent of each class, -1 for a root, as in darknet's ``tree=`` file: one softmax per group
            of siblings, which stand side by side. Empty: no tree.
    Inputs:
        x: [N, num·(coords + 1 + classes), H, W], float32 or float16, linear or NHWC layout, raw values.
    Outputs:
        y: dims, dtype and layout of x, ``[anchor][coords, objectness, classes][H][W]``: logistic of x, y and objectness; w and h
            raw; class probabilities.
    INT8: stays in float. Workspace: 0 bytes. Tactics: one.

    Raises:
        DimsError: the channels are not num·(coords + 1 + classes).
    Source:
        pjreddie/darknet f6afaabc, src/region_layer.c forward_region_layer. With a tree its CPU form is wrong
        (temperature 0, groups offset by values instead of maps); this is its GPU form.

    Example:
        >>> Region(classes=1, softmax=True).compute(np.zeros((1, 6, 1, 1), np.float32)).ravel().tolist()
        [0.5, 0.5, 0.0, 0.0, 0.5, 1.0]
    """

    anchors: tuple[float, ...] = ()
    classes: int = 20
    coords: int = 4
    num: int = 1
    softmax: bool = False
    background: bool = False
    tree: tuple[int, ...] = ()

    def validate(self) -> None:
        """Check the fields against each other."""
        for name, least in (("classes", 0), ("coords", 2), ("num", 1)):
            if getattr(self, name) < least:
                raise FieldError(f"Region.{name}: expected at least {least}, found {getattr(self, name)}", name=name)
        if self.anchors and len(self.anchors) != 2 * self.num:
            raise FieldError(
                f"Region.anchors: expected {2 * self.num} values for num={self.num}, found {len(self.anchors)}",
                name="anchors",
            )
        if self.tree and len(self.tree) != self.classes:
            raise FieldError(f"Region.tree: expected {self.classes} parents, found {len(self.tree)}", name="tree")
        if any(not -1 <= parent < index for index, parent in enumerate(self.tree)):
            raise FieldError("Region.tree: each parent must be -1 or a class before its child", name="tree")

    @property
    @override
    def entries(self) -> int:
        return self.coords + 1 + self.classes

    def output_dims(self, x: Dims) -> Dims:
        """The dims of x."""
        check_rank(x, 4, repr(self))
        check_equal(x[1], self.num * self.entries, f"{self!r}: channels (num · (coords + 1 + classes))")
        return x

    def parts(self) -> list[Part]:
        """What is applied to which entries of a box: ``("logistic" | "softmax" | "as-is", begin, end)``, without gaps."""
        classes, end = self.coords + 1, self.entries
        parts = [
            ("logistic", 0, 2),
            ("as-is", 2, self.coords),
            ("as-is" if self.background else "logistic", self.coords, classes),
        ]
        if self.tree:
            parts += [("softmax", classes + begin, classes + end) for begin, end in sibling_groups(self.tree)]
        elif self.softmax and self.background:
            parts[-1] = ("softmax", self.coords, end)
        else:
            parts.append(("softmax" if self.softmax else "logistic", classes, end))
        return [part for part in parts if part[1] < part[2]]
