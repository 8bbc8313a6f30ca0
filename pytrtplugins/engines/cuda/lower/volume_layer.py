"""A convolution or a pool of volumes that is written as one of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ....model.ir import dims_of
from ....utils.optional import ir
from ..operators.windows import Windows
from .new_nodes import NewNodes
from .volume_forms import Dims, VolumeForms

__all__ = ["Found", "Layer", "frames_at"]

Found = tuple[Any, ...]
"""The form and the image of what a layer gives; where that is dequantized, also the image of its codes, and their scale and zero point."""


@dataclass(frozen=True)
class Layer:
    """A convolution or a pool of volumes.

    Attributes:
        forms: The volumes of the graph.
        node: The node.
        dims: (N, C, D, H, W) of what it reads.
        result: Those of what it gives.
        at: Its attributes.
        window: Where its windows lie.
    """

    forms: VolumeForms
    node: ir.Node
    dims: Dims
    result: Dims
    at: dict[str, Any]
    window: Windows

    @property
    def x(self) -> ir.Value:
        """The volume that the layer reads."""
        value = self.node.inputs[0]
        assert value is not None
        return value

    @property
    def new(self) -> NewNodes:
        """Adds nodes before the layer's node."""
        return NewNodes(self.forms.graph, self.node)

    def is_plain(self, axes: Sequence[int]) -> bool:
        """Whether the window has size 1, stride 1 and no pads along some axes."""
        window = self.window
        one = all(numbers[axis] == 1 for numbers in (window.kernel, window.strides) for axis in axes)
        return one and not any(pads[axis] for pads in (window.begins, window.ends) for axis in axes)

    def window_of(self, axes: tuple[int, int] | tuple[int]) -> dict[str, list[int]]:
        """The 2-D strides, dilations and pads along two axes of the volume; one axis alone is that of lines."""
        window, alone = self.window, len(axes) == 1

        def numbers(values: Sequence[int], other: int) -> list[int]:
            return [*(values[axis] for axis in axes), *([other] if alone else [])]

        pads = [*numbers(window.begins, 0), *numbers(window.ends, 0)]
        return {"strides": numbers(window.strides, 1), "dilations": numbers(window.dilations, 1), "pads": pads}


def frames_at(
    new: NewNodes,
    x: ir.Value,
    room: tuple[int, int],
    places: npt.NDArray[np.int64],
    what: str,
    across: tuple[int, int] = (0, 0),
) -> ir.Value:
    """Frames of a tensor (N, D, C, H, W), at places that may have several axes.

    Args:
        new: Adds the nodes.
        x: The tensor.
        room: Frames of zeros before and behind its own.
        places: Of frames among all these, (D') or (D', kD).
        what: For the names of the nodes.
        across: Columns of zeros at both sides.

    Returns:
        (N, D', C, H, W) or (N, D', kD, C, H, W), with the columns.
    """
    dims = list(dims_of(x) or ())
    pairs = [room, (0, 0), (0, 0), across]
    if any(map(any, pairs)):
        pads = np.array([0, *(before for before, _ in pairs), 0, *(behind for _, behind in pairs)])
        dims = [dims[0], *(dim + sum(pair) for dim, pair in zip(dims[1:], pairs, strict=True))]
        x = new.add("Pad", [x, pads], f"{what}.padded", dims, like=x)
    if not np.array_equal(places, np.arange(dims[1])):
        dims = [dims[0], *places.shape, *dims[2:]]
        x = new.add("Gather", [x, places.astype(np.int64)], f"{what}.frames", dims, like=x, axis=1)
    return x
