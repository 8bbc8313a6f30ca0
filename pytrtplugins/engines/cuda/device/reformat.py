"""Kernels that convert a tensor's element type, layout or scale (reformat)."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ....tensor import DType
from .device import Device, Tensor
from .generated import GeneratedKernel, address_of
from .layout import VECTOR_BYTES, Format
from .nhwc import KINDS, Launch
from .source import nhwc_kernel, sources

__all__ = ["reformat", "transpose_text"]

_REFORMAT = nhwc_kernel("reformat")
_THREADS = 256
_MOST_BLOCKS = 65535
"""Along the second and the third axis of a grid."""


def reformat(
    device: Device, x: Format, y: Format, x_scale: float = 1.0, y_scale: float = 1.0, alone: bool = True
) -> Callable[[Tensor, Tensor, Any], None]:
    """Make a launch, of an input, an output and a stream, that gives the same values another type, layout or scale.

    Args:
        device: Where the tensors will be.
        x: How the input lies.
        y: How the output lies.
        x_scale: The step of the input's codes; 1 for floats.
        y_scale: Likewise of the output's.
        alone: Whether channels that fill the last 16 bytes of a pixel of y become zero; otherwise other tensors may lie there.
    """
    form = _as_image(y)
    image = replace(x, dims=form.dims) if form.nhwc and len(x.dims) > 4 else _as_image(x)  # a volume
    n, c, h, w = form.dims
    padded = min(form.pitch, -(-c // form.vector) * form.vector) if alone and form.nhwc and c % form.vector else c
    if image.nhwc != form.nhwc and image.dims == form.dims and h * w > 1:
        transposition = _Transposition(device, image, form, padded, x_scale, y_scale)
        if transposition.fits:
            transposition.load()
            return transposition.launch
    x_numbers = (KINDS[x.dtype], image.strides, x_scale)
    y_numbers = (KINDS[y.dtype], form.strides, y_scale, n, c, padded, h, w, form.nhwc)
    threads = n * padded * h * w
    return lambda x, y, stream: _REFORMAT.launch(x.flat, *x_numbers, y.flat, *y_numbers, threads=threads, stream=stream)


class _Transposition:
    """The kernels of ``transpose.cu``: planes of channels become pixels, or pixels planes.

    Args:
        device: Where they run.
        x: How the images lie: NHWC, or linear.
        y: Likewise; the other of the two.
        padded: Channels that are written in NHWC, those behind the images' own as zeros.
        x_scale: The step of x's codes; 1 for floats.
        y_scale: Likewise of y's.
    """

    def __init__(self, device: Device, x: Format, y: Format, padded: int, x_scale: float, y_scale: float) -> None:
        n, self._channels, h, w = y.dims
        area, self._x, self._y, self._device = h * w, x, y, device
        self._scales = float(x_scale), float(y_scale)
        self._area, self._padded = area, padded
        rows, columns = (area, self._channels) if x.nhwc else (self._channels, area)
        self._numbers = rows, columns, area if x.nhwc else padded, x.pitch or area, y.pitch or area
        tile = 8 * x.vector, 8 * VECTOR_BYTES // y.dtype.itemsize
        self._grid = -(-columns // tile[0]), -(-self._numbers[2] // tile[1]), n
        self._kernels: dict[str, GeneratedKernel] = {}
        self._launches: dict[tuple[int, int], Launch] = {}

    @property
    def fits(self) -> bool:
        """Whether the grid is one that a GPU runs."""
        return max(self._grid[1:]) <= _MOST_BLOCKS

    def load(self) -> None:
        """Load the kernel for tensors at multiples of 16 bytes, so that its first launch may be captured."""
        self._kernel(self._name(0, 0)).load()

    def launch(self, x: Tensor, y: Tensor, stream: Any) -> None:
        """Queue the kernel that the tensors' addresses allow."""
        key = address_of(x.flat), address_of(y.flat)
        if (queue := self._launches.get(key)) is None:
            queue = self._launches[key] = self._bound(x.flat, y.flat, *key)
        queue(stream)

    def _bound(self, x: Any, y: Any, x_address: int, y_address: int) -> Launch:
        name = self._name(x_address, y_address)
        numbers: tuple[int, ...]
        if name != "transpose":
            numbers = self._channels, self._area, self._x.pitch or self._y.pitch
        else:
            _, _, rows, x_pitch, y_pitch = self._numbers
            x_size, y_size = self._x.dtype.itemsize, self._y.dtype.itemsize
            x_bytes = math.gcd(VECTOR_BYTES, x_address, x_pitch * x_size)
            y_bytes = math.gcd(VECTOR_BYTES, y_address, y_pitch * y_size, rows * y_size)
            numbers = (*self._numbers, x_bytes, y_bytes)
        return self._kernel(name).bound([x, y, *numbers, *self._scales])

    def _name(self, x_address: int, y_address: int) -> str:
        """The kernel for tensors at these addresses: where pixels have 16 bytes, a thread moves one."""
        form, address = (self._x, x_address) if self._x.nhwc else (self._y, y_address)
        channels = self._channels if self._x.nhwc else self._padded
        whole = channels <= form.vector if self._x.nhwc else channels == form.vector
        if whole and form.pitch % form.vector == 0 and address % VECTOR_BYTES == 0:
            return "planes" if self._x.nhwc else "pixels"
        return "transpose"

    def _kernel(self, name: str) -> GeneratedKernel:
        if name not in self._kernels:
            blocks = self._grid if name == "transpose" else (-(-self._area // _THREADS), self._grid[2], 1)
            text = transpose_text(self._x.dtype, self._y.dtype, self._scales != (1.0, 1.0))
            self._kernels[name] = GeneratedKernel(self._device, text, name, blocks, _THREADS, in_turns=False)
        return self._kernels[name]


@functools.cache
def transpose_text(x: DType, y: DType, is_scaled: bool) -> str:
    """The source of the kernels ``transpose``, ``pixels`` and ``planes``.

    Args:
        x: Element type of the input.
        y: Element type of the output.
        is_scaled: Whether values change even where both types are the same.
    """
    lines = [f"constexpr int X_KIND = {KINDS[x]}, Y_KIND = {KINDS[y]};", f"constexpr bool SCALED = {int(is_scaled)};"]
    return "\n".join((sources("early.cu", "codes.cu", "activations.cu", "nhwc.cu"), *lines, sources("transpose.cu")))


def _as_image(form: Format) -> Format:
    if len(form.dims) == 4:
        return form
    return replace(form, dims=(1, 1, 1, form.elements))
