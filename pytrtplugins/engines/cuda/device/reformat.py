"""Kernels that convert a tensor's element type, layout or scale (reformat)."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ....tensor import DType
from ....utils.override import override
from .device import Device, Tensor
from .generated import GeneratedKernel, address_of
from .layout import VECTOR_BYTES, Format
from .nhwc import KINDS, Launch
from .source import nhwc_kernel, sources

__all__ = ["reformat", "transpose_text"]

_Grid = tuple[int, int, int]
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
    kernels: _Kernels | None = None
    if image.nhwc == form.nhwc:
        kernels = _Conversion(device, image, form, padded, x_scale, y_scale)
    elif image.dims == form.dims and h * w > 1:
        kernels = _Transposition(device, image, form, padded, x_scale, y_scale)
    if kernels is not None and kernels.fits and 0 not in form.dims:
        kernels.load()
        return kernels.launch
    x_numbers = (KINDS[x.dtype], image.strides, x_scale)
    y_numbers = (KINDS[y.dtype], form.strides, y_scale, n, c, padded, h, w, form.nhwc)
    threads = n * padded * h * w
    return lambda x, y, stream: _REFORMAT.launch(x.flat, *x_numbers, y.flat, *y_numbers, threads=threads, stream=stream)


class _Kernels(ABC):
    """Kernels of ``transpose.cu`` for tensors that lie in some way.

    Args:
        device: Where they run.
        x: How the images lie: NHWC, or linear.
        y: Likewise; of the same dims.
        padded: Channels that are written in NHWC, those behind the images' own as zeros.
        x_scale: The step of x's codes; 1 for floats.
        y_scale: Likewise of y's.
    """

    def __init__(self, device: Device, x: Format, y: Format, padded: int, x_scale: float, y_scale: float) -> None:
        self._device, self._x, self._y, self._padded = device, x, y, padded
        self._scales = float(x_scale), float(y_scale)
        self._kernels: dict[tuple[str, _Grid], GeneratedKernel] = {}
        self._launches: dict[tuple[int, int], Launch] = {}

    @property
    @abstractmethod
    def fits(self) -> bool:
        """Whether a GPU runs grids of that size, and tensors of these formats can be read so."""

    @abstractmethod
    def _chosen(self, x_address: int, y_address: int) -> tuple[str, _Grid, tuple[int, ...]]:
        """Name, grid and numbers of the kernel for tensors at these addresses."""

    def load(self) -> None:
        """Load the kernel for tensors at multiples of 16 bytes, so that its first launch may be captured."""
        name, grid, _ = self._chosen(0, 0)
        self._kernel(name, grid).load()

    def launch(self, x: Tensor, y: Tensor, stream: Any) -> None:
        """Queue the kernel that the tensors' addresses allow."""
        key = address_of(x.flat), address_of(y.flat)
        if (queue := self._launches.get(key)) is None:
            name, grid, numbers = self._chosen(*key)
            queue = self._kernel(name, grid).bound([x.flat, y.flat, *map(int, numbers), *self._scales])
            self._launches[key] = queue
        queue(stream)

    def _kernel(self, name: str, grid: _Grid) -> GeneratedKernel:
        if (name, grid) not in self._kernels:
            text = transpose_text(name, self._x.dtype, self._y.dtype, self._scales != (1.0, 1.0))
            self._kernels[name, grid] = GeneratedKernel(self._device, text, name, grid, _THREADS, in_turns=False)
        return self._kernels[name, grid]


class _Transposition(_Kernels):
    """Planes of channels become pixels, or pixels planes."""

    @property
    @override
    def fits(self) -> bool:
        return max(self._tiles[1:]) <= _MOST_BLOCKS

    @property
    def _area(self) -> int:
        return self._y.dims[2] * self._y.dims[3]

    @property
    def _sizes(self) -> tuple[int, int, int]:
        """Rows and columns of each image of x, and the rows that are written, with padding."""
        c, area = self._y.dims[1], self._area
        return (area, c, area) if self._x.nhwc else (c, area, self._padded)

    @property
    def _tiles(self) -> _Grid:
        _, columns, rows = self._sizes
        return -(-columns // (8 * self._x.vector)), -(-rows // (8 * self._y.vector)), self._y.dims[0]

    @override
    def _chosen(self, x_address: int, y_address: int) -> tuple[str, _Grid, tuple[int, ...]]:
        x, y, (n, c, _, _), area = self._x, self._y, self._y.dims, self._area
        form, address = (x, x_address) if x.nhwc else (y, y_address)
        whole = c <= x.vector if x.nhwc else self._padded == y.vector
        if whole and form.pitch % form.vector == 0 and address % VECTOR_BYTES == 0:  # a thread moves a whole pixel
            return "planes" if x.nhwc else "pixels", (-(-area // _THREADS), n, 1), (c, area, form.pitch)
        pitches, rows = (x.pitch or area, y.pitch or area), self._sizes[2]
        x_bytes = math.gcd(VECTOR_BYTES, x_address, pitches[0] * x.dtype.itemsize)
        y_bytes = math.gcd(VECTOR_BYTES, y_address, pitches[1] * y.dtype.itemsize, rows * y.dtype.itemsize)
        return "transpose", self._tiles, (*self._sizes, *pitches, x_bytes, y_bytes)


class _Conversion(_Kernels):
    """Values lie in the same order as before, with another type, scale or pitch."""

    @property
    @override
    def fits(self) -> bool:
        lanes, pitches = self._lanes, (self._x.pitch, self._y.pitch)
        return not any(pitch % lanes for pitch in pitches) and self._rows * self._columns < 2**31

    @property
    def _lanes(self) -> int:
        return min(self._x.vector, self._y.vector)

    @property
    def _rows(self) -> int:
        n, _, h, w = self._y.dims
        return n * h * w if self._y.nhwc else 1

    @property
    def _columns(self) -> int:
        """Values of a row that are written."""
        return self._padded if self._y.nhwc else math.prod(self._y.dims)

    @override
    def _chosen(self, x_address: int, y_address: int) -> tuple[str, _Grid, tuple[int, ...]]:
        lanes, columns = self._lanes, self._columns
        if x_address % (lanes * self._x.dtype.itemsize) or y_address % (lanes * self._y.dtype.itemsize):
            lanes = 1
        groups = -(-columns // lanes)
        items = self._rows * groups
        channels = self._y.dims[1] if self._y.nhwc else columns
        numbers = (items, groups, lanes, channels, columns, self._x.pitch, self._y.pitch)
        return "convert", (-(-items // _THREADS), 1, 1), numbers


@functools.cache
def transpose_text(name: str, x: DType, y: DType, is_scaled: bool) -> str:
    """The source of one of the kernels ``transpose``, ``pixels``, ``planes`` and ``convert``.

    Args:
        name: Which.
        x: Element type of the input.
        y: Element type of the output.
        is_scaled: Whether values change even where both types are the same.
    """
    lines = [f"#define KERNEL_{name.upper()}", f"constexpr int X_KIND = {KINDS[x]}, Y_KIND = {KINDS[y]};"]
    lines.append(f"constexpr bool SCALED = {int(is_scaled)};")
    return "\n".join((sources("early.cu", "codes.cu", "activations.cu", "nhwc.cu"), *lines, sources("transpose.cu")))


def _as_image(form: Format) -> Format:
    if len(form.dims) == 4:
        return form
    return replace(form, dims=(1, 1, 1, form.elements))
