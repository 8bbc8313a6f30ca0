"""NonMaxSuppression → a kernel of the graph with room for all rows that can stay; of its results only their number is read back."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ....model.ir import array_of, dims_of, dtype_of, is_op, operand
from ....passes import Pass, PassResult
from ....tensor import DType
from ....utils.optional import ir
from ....utils.override import override
from .data_dependent import data_dependent_values
from .padded_results import write_padded

__all__ = ["WriteSuppressions"]

_MAX_SCORES = 1 << 21
"""Of an image, for which the kernel has 8 bytes each."""


class WriteSuppressions(Pass):
    """NonMaxSuppression with constant limits → ``Suppress`` and a Slice.

    ``Suppress`` has the attributes ``iou_threshold``, ``score_threshold`` and ``center_point_box``. It gives (images · classes · limit, 3)
    int64, of which the first rows are those that stay, and their number, (1,) int64. The Slice ends at that number, so that it and
    what reads it run node by node, as they did before. With a free number of images the rows are (images, classes · limit, 3), and
    a Reshape stands behind them.

    What does not match: (1) limits that are computed, or none may stay; (2) boxes or scores of data-dependent dims; (3) numbers of
    boxes or classes that are unknown before the run, or too many; (4) other types than float32.
    """

    name: ClassVar[str] = "suppressions"

    @override
    def call(self, model: ir.Model) -> PassResult:
        nodes = [node for node in model.graph if is_op(node, "NonMaxSuppression")]
        dependent = data_dependent_values(model.graph) if nodes else set()
        matches = [node for node in nodes if dependent.isdisjoint(node.inputs) and _matches(node)]  # case 2
        for node in matches:
            _rewrite(model.graph, node)
        return PassResult(model, bool(matches))


def _limits(node: ir.Node) -> tuple[int, float, float] | None:
    """How many boxes of a class may stay, the overlap, and the score that those that stay exceed; None in case 1."""
    values = [(operand(node, place), array_of(operand(node, place))) for place in (2, 3, 4)]
    if any(value is not None and (array is None or array.size != 1) for value, array in values):
        return None
    most, overlap, lowest = (None if array is None else array.reshape(()) for _, array in values)
    if most is None or int(most) <= 0:
        return None
    return int(most), float(0 if overlap is None else overlap), float(-np.inf if lowest is None else lowest)


def _matches(node: ir.Node) -> bool:
    boxes, scores = (dims_of(value) or () for value in node.inputs[:2])
    if _limits(node) is None or len(boxes) != 3 or len(scores) != 3:
        return False
    known = all(isinstance(dim, int) and dim > 0 for dim in scores[1:]) and boxes[1:] == (scores[2], 4)
    if not known or scores[1] * scores[2] > _MAX_SCORES:  # case 3
        return False
    return all(value is not None and dtype_of(value) is DType.FLOAT32 for value in node.inputs[:2])  # case 4


def _rewrite(graph: ir.Graph, node: ir.Node) -> None:
    limits, scores = _limits(node), node.inputs[1]
    assert limits is not None
    assert scores is not None
    assert scores.shape is not None
    images, classes, boxes = scores.shape
    assert isinstance(classes, int)
    assert isinstance(boxes, int)
    rows = classes * min(limits[0], boxes)
    attributes = {
        "iou_threshold": limits[1],
        "score_threshold": limits[2],
        "center_point_box": node.attributes.get_int("center_point_box", 0),
    }
    room = [images * rows, 3] if isinstance(images, int) else [images, rows, 3]
    write_padded(graph, node, "Suppress", node.inputs[:2], attributes, room, (-1, 3), 0)
