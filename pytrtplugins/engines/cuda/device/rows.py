"""Generate kernels of reductions: an expression with reductions over some axes → CUDA C++, one warp or block per row."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from .device import Device
from .expression import REDUCTIONS, Expression, computed_in
from .generated import GeneratedKernel
from .index import Index
from .layout import Format, Strides
from .loops import Axis, aligned_strides, collapsed, index_lines, indices, offset_terms
from .moves import Move
from .operands import Operand, operands, results
from .source import sources
from .text import C_TYPES, library_text, operand_text, operation_line

__all__ = ["RowLoops", "row_loops", "rows_kernel", "rows_text"]

_KEPT = 64
"""Values of a row that a thread keeps of each tensor, at most; of longer rows they are read again."""
_MANY_ROWS = 1024
"""With fewer, more threads share a row."""
_COLUMNS = 32
"""Rows of a block whose neighbours lie side by side."""


@dataclass(frozen=True)
class RowLoops:
    """Where the rows are, and how threads share them.

    Attributes:
        outer: Axes along which there are rows, the innermost last.
        inner: Axes of a row.
        lanes: Values of a row that a thread has side by side.
        threads: Of a row, a power of two.
        rows: Of a block.
        columns: Whether rows lie side by side in memory.
        packed: Which tensors are accessed ``lanes`` values at a time.
    """

    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    lanes: int
    threads: int
    rows: int
    columns: bool
    packed: tuple[bool, ...]

    @property
    def count(self) -> int:
        """How many rows there are."""
        return math.prod(axis.size for axis in self.outer)

    @property
    def length(self) -> int:
        """The number of values of a row."""
        return math.prod(axis.size for axis in self.inner)

    @property
    def turns(self) -> int:
        """How often a thread has ``lanes`` values."""
        return -(-self.length // (self.lanes * self.threads))

    def at(self, rank: int, run: int, lane: Index, wide: bool = True) -> list[Index]:
        """Where a value, or with ``wide`` False a row, is on each axis of the dims; arguments as for `Loops.at`."""
        places = [(axis, Index.counter(f"o{index}", axis.size)) for index, axis in enumerate(self.outer)]
        if wide:
            *others, last = self.inner
            places += [(axis, Index.counter(f"i{index}", axis.size)) for index, axis in enumerate(others)]
            group = Index.counter("group", last.size // self.lanes) * self.lanes
            places.append((last, group + Index.counter("part", self.lanes // run) * run + lane))
        return indices(rank, places)


def row_loops(
    dims: Sequence[int], axes: Sequence[int], inputs: Sequence[Format | Strides], outputs: Sequence[Format | Strides]
) -> RowLoops:
    """Loops over tensors.

    Args:
        dims: Of the elements.
        axes: Of a row.
        inputs: How inputs lie, which are broadcast to the dims.
        outputs: How outputs lie: of all elements, or of one value for each row, with axes of size 1 or without.
    """
    tensors = [*inputs, *outputs]
    strides = [*(aligned_strides(form, dims) for form in inputs), *(_strides(form, dims, axes) for form in outputs)]
    every = [Axis(size, tuple(each[index] for each in strides), ((index, size),)) for index, size in enumerate(dims)]
    lead = next((index for index, each in enumerate(strides) if all(each[axis] or dims[axis] == 1 for axis in axes)), 0)
    order = sorted(range(len(dims)), key=lambda index: (-strides[lead][index], index))
    order = [index for index in order if dims[index] > 1]
    outer = collapsed([every[index] for index in order if index not in axes])
    inner = collapsed([every[index] for index in order if index in axes])
    columns = order[-1] not in axes
    last, others = inner[-1], [*outer, *inner[:-1]]

    def packed(tensor: int, lanes: int) -> bool:
        return last.strides[tensor] == 1 and all(axis.strides[tensor] % lanes == 0 for axis in others)

    sizes = [form.dtype.itemsize for form, stride in zip(tensors, last.strides, strict=True) if stride]
    lanes = 1 if columns else min(8, 16 // min(sizes, default=4))
    while lanes > 1 and not (packed(lead, lanes) and last.size % lanes == 0):
        lanes //= 2
    pieces, count = math.prod(axis.size for axis in inner) // lanes, math.prod(axis.size for axis in outer)
    if columns:
        threads, rows = min(32, _power_of_two(-(-pieces // 4))), _COLUMNS
    else:
        most = 8 if count < _MANY_ROWS else 32
        threads = min(32, _power_of_two(pieces))
        while threads < 1024 and -(-pieces // threads) * lanes > most:
            threads *= 2
        rows = max(1, 128 // threads)
    which = tuple(packed(tensor, lanes) for tensor in range(len(tensors)))
    return RowLoops(tuple(outer), tuple(inner), lanes, threads, rows, columns, which)


def rows_text(
    expression: Expression,
    dims: Sequence[int],
    axes: Sequence[int],
    inputs: Sequence[Format],
    outputs: Sequence[Format],
    reads: Sequence[Move] = (),
    writes: Mapping[int, Move] = MappingProxyType({}),
) -> str:
    """The source of the kernel ``rows``, whose parameters are the addresses of inputs and outputs.

    Args:
        expression: What is computed.
        dims: Of the elements.
        axes: Of a row.
        inputs: How tensors lie that are read.
        outputs: How the results lie: of all elements, or one value for each row.
        reads: What the expression is computed of, which is broadcast to the dims: moves of the inputs, by their places; none:
            the inputs are.
        writes: Result → where in that output each of its values goes; the others go where they lie.
    """
    return _rows(expression, dims, axes, inputs, outputs, reads, writes).text()


def rows_kernel(
    device: Device,
    expression: Expression,
    dims: Sequence[int],
    axes: Sequence[int],
    inputs: Sequence[Format],
    outputs: Sequence[Format],
    reads: Sequence[Move] = (),
    writes: Mapping[int, Move] = MappingProxyType({}),
) -> GeneratedKernel:
    """The kernel on a device; arguments as for `rows_text`, no tensor empty."""
    rows = _rows(expression, dims, axes, inputs, outputs, reads, writes)
    loops = rows.loops
    blocks = -(-loops.count // loops.rows)
    return GeneratedKernel(device, rows.text(), "rows", blocks, loops.threads * loops.rows, in_turns=False)


def _rows(
    expression: Expression,
    dims: Sequence[int],
    axes: Sequence[int],
    inputs: Sequence[Format],
    outputs: Sequence[Format],
    reads: Sequence[Move],
    writes: Mapping[int, Move],
) -> _Rows:
    written = results(outputs, writes)
    wide = next((form for form in outputs if form.dims == tuple(dims)), outputs[0])
    read = operands(inputs, reads, wide)
    loops = row_loops(dims, axes, [each.form for each in read], [each.form for each in written])
    return _Rows(expression, loops, len(dims), read, written, len(inputs))


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _strides(form: Format | Strides, dims: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    if len(form.dims) < len(dims):
        own = iter(form.strides)
        return tuple(0 if axis in axes else next(own) for axis in range(len(dims)))
    return aligned_strides(form, dims)


@functools.cache
def _library() -> str:
    return f"{library_text()}\n{sources('rows.cu')}"


class _Rows:
    """Writes one kernel: reductions in phases, each after those that it needs the results of; then what is written."""

    def __init__(
        self,
        expression: Expression,
        loops: RowLoops,
        rank: int,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        parameters: int,
    ) -> None:
        self.expression, self.loops, self.rank = expression, loops, rank
        self.inputs, self.outputs, self.parameters = inputs, outputs, parameters
        self.wide = [any(axis.strides[index] for axis in loops.inner) for index in range(len(inputs))]
        """Whether each value is one of an element, not of a row."""
        self.phase = [0] * len(inputs)
        """How many phases of reductions are done when a value is known."""
        for each in expression.operations:
            reads = [operand for operand in each.operands if isinstance(operand, int)]
            reduces = each.op in REDUCTIONS
            self.wide.append(not reduces and any(self.wide[value] for value in reads))
            self.phase.append(max((self.phase[value] for value in reads), default=0) + reduces)
        self.kept = loops.turns * loops.lanes <= _KEPT

    def text(self) -> str:
        """The whole source."""
        loops = self.loops
        block = loops.threads * loops.rows
        body = [f"__shared__ float scratch[{block}];", "begin_kernel();", *self._places()]
        body += [self._row_load(index) for index, wide in enumerate(self.wide[: len(self.inputs)]) if not wide]
        if self.kept:
            body += self._loop([], range(len(self.inputs)), load_only=True)
        body += self._row_lines(0)
        for phase in range(1, max(self.phase) + 1):
            body += [*self._reductions(phase), *self._row_lines(phase)]
        body += self._stores()
        parameters = [f"const void* x{index}" for index in range(self.parameters)]
        parameters += [f"void* y{index}" for index in range(len(self.outputs))]
        lines = "\n".join(f"    {line}" for line in body)
        head = f'extern "C" __global__ void __launch_bounds__({block}) rows({", ".join(parameters)})'
        return f"{_library()}\n{head} {{\n{lines}\n}}\n"

    def _places(self) -> list[str]:
        loops = self.loops
        divisor = loops.rows if loops.columns else loops.threads
        parts = [f"threadIdx.x / {divisor}u", f"threadIdx.x % {divisor}u"]
        me, own = parts if loops.columns else reversed(parts)
        lines = [f"unsigned const me = {me}, row = blockIdx.x * {loops.rows}u + {own};"]
        lines += [f"bool const live = row < {loops.count}u;", f"unsigned left = live ? row : {loops.count - 1}u;"]
        return [*lines, *index_lines(loops.outer, "o", "left")]

    def _offset(self, tensor: int, wide: bool) -> str:
        terms = offset_terms(self.loops.outer, "o", tensor)
        if wide:
            terms += offset_terms(self.loops.inner, "i", tensor)
        return " + ".join(terms) or "0u"

    def _row_load(self, index: int) -> str:
        name = C_TYPES[self.inputs[index].dtype]
        kind = C_TYPES[computed_in(self.inputs[index].dtype)]
        operand = self.inputs[index]
        if operand.parameter is None:
            at = self.loops.at(self.rank, 1, Index(), wide=False)
            return f"{kind} const v{index} = {operand.scalar(at)};"
        return (
            f"{kind} const v{index} = static_cast<const {name}*>(x{operand.parameter})[{self._offset(index, False)}];"
        )

    def _row_lines(self, phase: int) -> list[str]:
        """What is computed once for each row, when that many phases are done."""
        first = len(self.inputs)
        return [
            operation_line(self.expression, index)
            for index, each in enumerate(self.expression.operations)
            if not self.wide[first + index] and self.phase[first + index] == phase and each.op not in REDUCTIONS
        ]

    def _reductions(self, phase: int) -> list[str]:
        first, loops = len(self.inputs), self.loops
        found = [
            index
            for index, each in enumerate(self.expression.operations)
            if each.op in REDUCTIONS and self.phase[first + index] == phase
        ]
        before, inside, behind, needed = [], [], [], list[int]()
        for index in found:
            each, value = self.expression.operations[index], first + index
            kind, begin = REDUCTIONS[each.op]
            before.append(f"float r{value} = {begin};")
            inside.append(f"r{value} = {kind}()(r{value}, static_cast<float>({operand_text(each.operands[0])}));")
            columns = "true" if loops.columns else "false"
            call = f"over_row<{loops.threads}, {loops.rows}, {columns}>(r{value}, scratch, {kind}())"
            behind.append(f"float const v{value} = {call};")
            needed += [operand for operand in each.operands if isinstance(operand, int)]
        return [*before, *self._loop(inside, needed), *behind]

    def _stores(self) -> list[str]:
        first, lanes = len(self.inputs), self.loops.lanes
        lines, inside, behind, needed = list[str](), list[str](), list[str](), list[int]()
        before = []
        for index, (value, result) in enumerate(zip(self.expression.results, self.outputs, strict=True)):
            name, tensor = C_TYPES[result.dtype], first + index
            each = any(axis.strides[tensor] for axis in self.loops.inner)  # also what is the same for a whole row
            target = f"static_cast<{name}*>(y{index}) + ({self._offset(tensor, each)})"
            if not each:
                lines.append(f"if (live && me == 0) *({target}) = static_cast<{name}>(v{value});")
                continue
            needed.append(value)
            before.append(f"Pack<{name}, {lanes}> q{index};")
            inside.append(f"q{index}.values[lane] = static_cast<{name}>(v{value});")
            if result.parameter is None:
                lines_of = result.store(f"q{index}", lanes, str(lanes), self._at)
                behind += ["if (live) {", *lines_of, "}"]
            elif self.loops.packed[tensor]:
                behind.append(f"if (live) store_pack<{lanes}>({target}, q{index}, {lanes});")
            else:
                apart = self.loops.inner[-1].strides[tensor]
                behind.append(f"if (live) store_lanes<{lanes}>({target}, {apart}u, q{index}, {lanes});")
        return [*lines, *(self._loop(inside, needed, before, behind) if needed else [])]

    def _loop(
        self,
        lines: Sequence[str],
        needed: Iterable[int],
        before: Sequence[str] = (),
        behind: Sequence[str] = (),
        load_only: bool = False,
    ) -> list[str]:
        """C: all values of a row that a thread has, in turns; what the lines need is loaded, if it is not kept, and computed."""
        loops, first = self.loops, len(self.inputs)
        values = self._closure(needed)
        inputs = [value for value in values if value < first]
        head = []
        if load_only:
            head = [
                f"Pack<{C_TYPES[self.inputs[index].dtype]}, {loops.lanes}> p{index}[{loops.turns}];" for index in inputs
            ]
        inner = index_lines(loops.inner, "i", "place")
        if any(each.parameter is None for each in (*self.inputs, *self.outputs)):
            inner.append(f"unsigned const group = i{len(loops.inner) - 1} / {loops.lanes}u;")
        for index in inputs:
            if load_only or not self.kept:
                inner += self._load(index, load_only)
        inner += before
        if not load_only:
            inner += ["#pragma unroll", f"for (int lane = 0; lane < {loops.lanes}; ++lane) {{"]
            for value in values:
                if value < first:
                    kind = C_TYPES[computed_in(self.inputs[value].dtype)]
                    turn = "[turn]" if self.kept else ""
                    inner.append(f"    {kind} const v{value} = p{value}{turn}.values[lane];")
                else:
                    inner.append(f"    {operation_line(self.expression, value - first)}")
            inner += [*(f"    {line}" for line in lines), "}", *behind]
        step = loops.threads * loops.lanes
        return [
            *head,
            "#pragma unroll" if self.kept else "#pragma unroll 4",
            f"for (unsigned turn = 0; turn < {loops.turns}u; ++turn) {{",
            f"    unsigned place = turn * {step}u + me * {loops.lanes}u;",
            f"    if (place < {loops.length}u) {{",
            *(f"        {line}" for line in inner),
            "    }",
            "}",
        ]

    def _load(self, index: int, kept: bool) -> list[str]:
        operand, lanes = self.inputs[index], self.loops.lanes
        name = C_TYPES[operand.dtype]
        if operand.parameter is None:
            lines = operand.load(f"m{index}" if kept else f"p{index}", lanes, str(lanes), self._at)
            return [*lines, f"p{index}[turn] = m{index};"] if kept else lines
        source = f"static_cast<const {name}*>(x{operand.parameter}) + ({self._offset(index, True)})"
        found = f"load_pack<{lanes}>({source}, {lanes})"
        if not self.loops.packed[index]:
            found = f"load_lanes<{lanes}>({source}, {self.loops.inner[-1].strides[index]}u, {lanes})"
        return [f"p{index}[turn] = {found};" if kept else f"Pack<{name}, {lanes}> const p{index} = {found};"]

    def _at(self, run: int, lane: Index) -> list[Index]:
        return self.loops.at(self.rank, run, lane)

    def _closure(self, needed: Iterable[int]) -> list[int]:
        """Values of elements that these are computed from, and these, in order."""
        found, left = set[int](), list(needed)
        while left:
            value = left.pop()
            if self.wide[value] and value not in found:
                found.add(value)
                if value >= len(self.inputs):
                    operands = self.expression.operations[value - len(self.inputs)].operands
                    left += [operand for operand in operands if isinstance(operand, int)]
        return sorted(found)
