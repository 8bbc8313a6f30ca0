"""Kernel, strides and pads of a MaxPool or AveragePool node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Window"]


@dataclass(frozen=True, kw_only=True)
class Window:
    """A pool over images.

    Attributes:
        kernel: Rows and columns of the window.
        strides: Between windows.
        pads: Above, at the left, below, at the right.
        mean: Take the mean instead of the largest value.
        count_padding: Whether padding counts for the mean.
    """

    kernel: tuple[int, int] = (2, 2)
    strides: tuple[int, int] = (2, 2)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    mean: bool = False
    count_padding: bool = False

    @classmethod
    def of(cls, op: str, attributes: Mapping[str, Any]) -> Window:
        """The window of a node MaxPool or AveragePool."""
        return cls(
            kernel=tuple(attributes["kernel_shape"]),
            strides=tuple(attributes.get("strides", (1, 1))),
            pads=tuple(attributes.get("pads", (0, 0, 0, 0))),
            mean=op == "AveragePool",
            count_padding=bool(attributes.get("count_include_pad", 0)),
        )

    def inside(self, size: tuple[int, int], outputs: tuple[int, int]) -> bool:
        """Whether every window lies in an image of ``size`` rows and columns."""
        axes = zip(self.kernel, self.strides, size, outputs, strict=True)
        return not any(self.pads[:2]) and all((o - 1) * stride + k <= d for k, stride, d, o in axes)
