"""Kernels that go along one axis: where a row is, and a place on its axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .....tensor import DType
from ..index import Index
from ..layout import Format
from ..loops import Axis, index_lines
from ..source import sources
from .table import Node, library

__all__ = ["Rows", "entry_bytes", "power_of_two", "row_kernel_text"]


@dataclass(frozen=True)
class Rows:
    """The rows of a tensor along an axis, numbered row-major.

    Attributes:
        dims: The tensor's.
        axis: Along which a row is.
    """

    dims: tuple[int, ...]
    axis: int

    @property
    def length(self) -> int:
        """Values of a row."""
        return self.dims[self.axis]

    @property
    def count(self) -> int:
        """How many rows there are."""
        return math.prod(self.dims) // self.length

    def lines(self) -> list[str]:
        """C: where ``row`` is on each other axis."""
        return ["unsigned left = row;", *index_lines(self._others, "i", "left")]

    def at(self, place: Index) -> list[Index]:
        """Where the value at a place on the axis is on each axis."""
        found = [Index.counter(f"i{number}", axis.size) for number, axis in enumerate(self._others)]
        return [*found[: self.axis], place, *found[self.axis :]]

    def address(self, form: Format, name: str, place: Index) -> str:
        """C: where a value of a tensor with these rows, maybe of another length, lies; the parameter has a type already."""
        offset = Index()
        for index, stride in zip(self.at(place), form.strides, strict=True):
            offset = offset + index * stride
        return f"{name} + ({offset.text})"

    @property
    def _others(self) -> list[Axis]:
        return [Axis(size, ()) for number, size in enumerate(self.dims) if number != self.axis]


def power_of_two(number: int) -> int:
    """The least that is not below a number."""
    return 1 << max(0, number - 1).bit_length()


def entry_bytes(dtype: DType) -> int:
    """Bytes of a key and a place, as sort.cu sorts them."""
    return 16 if dtype.itemsize == 8 else 8


def row_kernel_text(
    node: Node,
    threads: int,
    files: Sequence[str],
    constants: Mapping[str, int | str],
    body: Sequence[str],
    last: int = 1,
) -> str:
    """The source of a kernel of rows.

    Args:
        node: What is computed.
        threads: Of a block.
        files: Of `KERNELS`.
        constants: Whole numbers, and types.
        body: C: the kernel's, behind `begin_kernel`.
        last: How many of the files, the last ones, need the constants and stand behind them.
    """
    lines = [
        f"typedef {value} {name};" if isinstance(value, str) else f"constexpr unsigned {name} = {value}u;"
        for name, value in constants.items()
    ]
    return "\n".join(
        (
            library(*files[:-last]), *lines, sources(*files[-last:]),
            f'extern "C" __global__ void __launch_bounds__({threads}) indexed({", ".join(node.parameters)}) {{',
            "    begin_kernel();", *(f"    {line}" for line in body), "}\n",
        )
    )  # fmt: skip
