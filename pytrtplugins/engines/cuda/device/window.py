"""Kernel, strides and pads of a MaxPool or AveragePool of images, or of volumes whose frames are images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Window"]


@dataclass(frozen=True, kw_only=True)
class Window:
    """A pool over images, or over volumes whose frames are images.

    Attributes:
        kernel: Rows and columns of the window.
        strides: Between windows.
        pads: Above, at the left, below, at the right.
        mean: Take the mean instead of the largest value.
        count_padding: Whether padding counts for the mean.
        frames: Images that are the frames of one volume: that are read, and that are written.
        depth: Frames of a window, and from one to the next.
        depth_pads: Frames before and behind those of a volume.
    """

    kernel: tuple[int, int] = (2, 2)
    strides: tuple[int, int] = (2, 2)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    mean: bool = False
    count_padding: bool = False
    frames: tuple[int, int] = (1, 1)
    depth: tuple[int, int] = (1, 1)
    depth_pads: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, op: str, attributes: Mapping[str, Any]) -> Window:
        """The window of a node MaxPool or AveragePool, or of a VolumePool on frames."""
        if op == "VolumePool":
            (size, *kernel), (step, *strides) = attributes["kernel_shape"], attributes["strides"]
            before, *begins, behind, bottom, right = attributes["pads"]
            return cls(
                kernel=tuple(kernel), strides=tuple(strides), pads=(*begins, bottom, right), mean=bool(attributes["mean"]),
                count_padding=bool(attributes["count_include_pad"]), frames=tuple(attributes["frames"]), depth=(size, step),
                depth_pads=(before, behind),
            )  # fmt: skip
        return cls(
            kernel=tuple(attributes["kernel_shape"]),
            strides=tuple(attributes.get("strides", (1, 1))),
            pads=tuple(attributes.get("pads", (0, 0, 0, 0))),
            mean=op == "AveragePool",
            count_padding=bool(attributes.get("count_include_pad", 0)),
        )

    def inside(self, size: tuple[int, int], outputs: tuple[int, int]) -> bool:
        """Whether every window lies in an image of ``size`` rows and columns."""
        (taps, step), (frames, written) = self.depth, self.frames
        axes = zip((taps, *self.kernel), (step, *self.strides), (frames, *size), (written, *outputs), strict=True)
        begins = (self.depth_pads[0], *self.pads[:2])
        return not any(begins) and all((o - 1) * stride + k <= d for k, stride, d, o in axes)
