"""MaxPool and AveragePool of one, two or three spatial axes on row-major tensors, in one pass.

A thread computes neighbouring outputs of a row. For each row of a window it loads the values that all of them need once, in accesses
of up to 16 bytes, and takes each output's part from registers. Rows that are too long for registers, those of a constant Pad, and
those of a MaxPool whose Indices are read, are read value by value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .....tensor import DType
from ...operators.windows import Windows
from ..expression import computed_in
from ..index import Index
from ..operands import Operand
from ..text import C_TYPES
from .elements import ElementKernel, table_text
from .table import FRACTIONS, Described, KernelSource, Node, indexed

__all__: list[str] = []

_ROW = 32
"""Values of a window's row that a thread keeps in registers, at most."""
_UNROLLED = 128
"""Values that a thread takes from its windows, up to which all loops over them are unrolled."""
_THREADS = 1 << 17
"""Fewer are not started to give a thread more than one output: they would not fill a GPU."""
_MAX_NUMBERS = 1 << 14
"""Of the tables of how many values a mean has."""


def _windows(at: Any, dims: Sequence[int], outputs: Sequence[int]) -> Windows:
    return Windows.of(at, at["kernel_shape"], dims[2:], outputs[2:])


def _fits(at: Any, inputs: Sequence[Described], outputs: Sequence[Described | None], mean: bool) -> bool:
    ((_, dtype),), output = inputs, outputs[0]
    if output is None or output[1] is not dtype or min(at.get("pads", (0,))) < 0:
        return False
    if mean:
        return dtype in FRACTIONS and sum(output[0][2:]) <= _MAX_NUMBERS
    return dtype in (*FRACTIONS, DType.INT8, DType.UINT8)


def _max_fits(at: Any, inputs: Sequence[Described], outputs: Sequence[Described | None]) -> bool:
    return _fits(at, inputs, outputs, False)


def _mean_fits(at: Any, inputs: Sequence[Described], outputs: Sequence[Described | None]) -> bool:
    return _fits(at, inputs, outputs, True)


@indexed("MaxPool", fits=_max_fits, reads=(0,), fills=True)
def _max_pool(node: Node) -> KernelSource:
    kind = C_TYPES[computed_in(node.output.dtype)]
    fraction = node.output.dtype in FRACTIONS
    lowest = "-__int_as_float(0x7F800000)" if fraction else str(np.iinfo(node.output.dtype.numpy).min)
    pool = _Pool(node)
    return pool.source(f"static_cast<{kind}>({lowest})", "larger(total, value)", "", (), pool.place_lines())


@indexed("AveragePool", fits=_mean_fits, reads=(0,), fills=True)
def _average_pool(node: Node) -> KernelSource:
    pool, sizes, outputs = _Pool(node), node.inputs[0].move.dims[2:], node.output.dims[2:]
    factors, tables = [], []
    for axis, counts in enumerate(pool.window.counts(node.attributes, sizes, outputs)):
        numbers = [float(count) for count in counts]
        if len(set(numbers)) == 1:
            factors.append(f"{numbers[0]}f")
            continue
        tables.append(table_text("float", f"counts{axis}", numbers))
        lane = " + lane" if axis == len(sizes) - 1 else ""
        factors.append(f"counts{axis}[{pool.first[2 + axis].text}{lane}]")
    return pool.source("0.0f", "total + value", f" / ({' * '.join(factors)})", tables)


class _Pool:
    """The kernel of a node.

    Attributes:
        window: Where the windows are.
        lanes: Outputs of a thread, side by side in a row.
        first: Where the first of them is along each axis of the output.
    """

    def __init__(self, node: Node) -> None:
        self._node, self._x = node, node.inputs[0]
        self.window = window = _windows(node.attributes, self._x.move.dims, node.output.dims)
        step, reach = window.strides[-1], (window.kernel[-1] - 1) * window.dilations[-1] + 1
        self._reach = (
            0 if reach > _ROW or self._x.move.numbers or self._has_indices else reach
        )  # a Pad's number is not that of a window's border
        columns, size, items = node.output.dims[-1], node.output.dtype.itemsize, math.prod(node.output.dims)
        self.lanes = next(
            lanes
            for lanes in (8, 4, 2, 1)
            if lanes == 1
            or (
                columns % lanes == 0
                and lanes * size <= 16
                and items // lanes >= _THREADS
                and 0 < self._reach <= _ROW - (lanes - 1) * step
            )
        )
        self._kernel = ElementKernel(node, list, (), ("pools.cu",), self.lanes)
        self.first = self._kernel.loops.at(len(node.output.dims), self.lanes, Index())

    def place_lines(self) -> tuple[str, str, str] | None:
        """C: declare the place of a window's largest value, note that of a value, and write it; None: nobody reads Indices.

        It is that of the first of equal values, and of the first NaN, as in the function of arrays.
        """
        if not self._has_indices:
            return None
        form, sizes = self._node.outputs[1], self._x.move.dims[2:]
        assert form is not None
        axes = range(len(sizes)) if self._node.attributes.get("storage_order", 0) else reversed(range(len(sizes)))
        place, factor, offset = "0ll", 1, Index()
        for axis in axes:
            place += f" + place{2 + axis} * {factor}ll"
            factor *= sizes[axis]
        for index, stride in zip(self.first, form.strides, strict=True):
            offset = offset + index * stride
        image = f"(({self.first[0].text}) * {self._x.move.dims[1]}ll + ({self.first[1].text})) * {factor}ll"
        return (
            "long long best = -1;",
            f"if (best < 0 || value > total || (value != value && total == total)) best = {place};",
            f"static_cast<long long*>(y1)[{offset.text}] = best + {image};",
        )

    def source(
        self, start: str, combined: str, finish: str, tables: Sequence[str], places: Sequence[str] | None = None
    ) -> KernelSource:
        """The kernel's source.

        Args:
            start: C: the value of a window without values.
            combined: C: ``total``, with ``value`` added.
            finish: C: what stands behind ``totals[lane]`` in the result.
            tables: C: constants that it reads.
            places: Of `place_lines`.
        """
        declared, noted, written = ([line] for line in places) if places else ([], [], [])
        kind, real = C_TYPES[self._node.output.dtype], C_TYPES[computed_in(self._node.output.dtype)]
        loop = ["#pragma unroll", f"for (int lane = 0; lane < {self.lanes}; ++lane)"]
        body = [*declared, f"{real} totals[{self.lanes}];", *loop, f"    totals[lane] = {start};"]
        looped = len(self.window.kernel) - bool(self._reach)
        body += [line for axis in range(looped) for line in self._loop(axis)]
        body += self._row(start) if self._reach else self._value()
        body += [*loop, "{"]
        span, (step, dilation) = "", (self.window.strides[-1], self.window.dilations[-1])
        if self._reach:
            body += ["#pragma unroll", f"for (int tap = 0; tap < {self.window.kernel[-1]}; ++tap) {{"]
            span = f"{self._lead} + lane * {step} + tap * {dilation}"
        body += [f"{real} const total = totals[lane], value = row[{span or 0}];", *noted, f"totals[lane] = {combined};"]
        body += ["}"] * (looped + 1 + bool(self._reach))
        body += [*loop, f"    q0.values[lane] = static_cast<{kind}>(totals[lane]{finish});"]
        return self._kernel.source([*body, *written], tables)

    # -- inside ----------------------------------------------------------------------------------------------------------

    @property
    def _has_indices(self) -> bool:
        return any(self._node.outputs[1:])

    @property
    def _lead(self) -> int:
        """Values of a row before those of the first window, so that accesses are aligned."""
        return -self.window.begins[-1] % self._run

    @property
    def _run(self) -> int:
        """Values of an access to a row: each lies in the row wholly or not at all, and is aligned."""
        width, step = self._x.move.dims[-1], self.window.strides[-1] * self.lanes
        needed = (self.lanes - 1) * self.window.strides[-1] + self._reach
        runs = [run for run in (8, 4, 2) if run * self._x.dtype.itemsize <= 16 and run < 2 * needed]
        return next((run for run in runs if step % run == 0 and width % run == 0 and self._is_run(self._x, run)), 1)

    def _is_run(self, x: Operand, run: int) -> bool:
        dims = x.move.dims
        others = [Index.counter(f"place{axis}", size) for axis, size in enumerate(dims[:-1])]
        parts = Index.counter("part", dims[-1] // run) * run
        return x.run(run, lambda length, lane: [*others, parts + lane]) == run if run > 1 else True

    def _loop(self, axis: int) -> list[str]:
        """C: the loop over a window along an axis, up to the place in the input."""
        window, size = self.window, self._x.move.dims[2 + axis]
        unrolled = math.prod(window.kernel) * self.lanes <= _UNROLLED
        place = f"({self.first[2 + axis].text}) * {window.strides[axis]}u + t{axis} * {window.dilations[axis]}u"
        lines = [f"#pragma unroll {window.kernel[axis] if unrolled else 1}"]
        lines.append(f"for (unsigned t{axis} = 0; t{axis} < {window.kernel[axis]}u; ++t{axis}) {{")
        lines.append(f"unsigned const place{2 + axis} = {place} - {window.begins[axis]}u;")
        return [*lines, f"if (place{2 + axis} >= {size}u) continue;"] if any(window.room(axis)) else lines

    def _places(self) -> list[Index]:
        """Where a value of the input is; ``place2``, ``place3``, … are the kernel's variables."""
        sizes = self._x.move.dims[2:]
        return [*self.first[:2], *(Index.counter(f"place{2 + axis}", size) for axis, size in enumerate(sizes))]

    def _value(self) -> list[str]:
        kind = C_TYPES[self._x.dtype]
        return [f"{kind} const row[1] = {{{self._x.scalar(self._places())}}};"]

    def _row(self, start: str) -> list[str]:
        """C: load the values of a row that the thread's windows need, in ``row``."""
        window, run, kind = self.window, self._run, C_TYPES[self._x.dtype]
        width, last = self._x.move.dims[-1], len(self._x.move.dims) - 1
        parts = -(-(self._lead + (self.lanes - 1) * window.strides[-1] + self._reach) // run)
        place = f"({self.first[-1].text}) * {window.strides[-1]}u + part * {run}u - {window.begins[-1] + self._lead}u"
        address = self._x.address(self._places())
        if any(window.room(len(window.kernel) - 1)):
            address = f"place{last} < {width}u ? {address} : static_cast<const {kind}*>(nullptr)"
        return [
            f"{kind} row[{parts * run}];",
            "#pragma unroll",
            f"for (unsigned part = 0; part < {parts}u; ++part) {{",
            f"    unsigned const place{last} = {place};",
            f"    load_part<{run}>(row, part * {run}u, {address}, static_cast<{kind}>({start}));",
            "}",
        ]
