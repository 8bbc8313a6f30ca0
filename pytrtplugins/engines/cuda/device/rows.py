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

_MAX_KEPT = 64
"""Values of a row that a thread keeps in registers of each tensor, at most; values of longer rows are loaded again."""
_MANY_ROWS = 1024
"""With fewer, more threads share a row."""
_COLUMNS = 32
"""Rows of a block where neighbouring rows, not values of a row, are contiguous."""


@dataclass(frozen=True)
class RowLoops:
    """Where the rows of a reduction are, and how threads share them.

    Attributes:
        outer: Axes along which there are rows, the innermost last.
        inner: Axes of a row.
        lanes: Contiguous values of a row that a thread has.
        threads: Threads of a row, a power of two.
        rows: Rows of a block.
        columns: Whether neighbouring rows, not values of a row, are contiguous in memory.
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
        """How many times a thread takes ``lanes`` values of its row."""
        return -(-self.length // (self.lanes * self.threads))

    def at(self, rank: int, run: int, lane: Index, wide: bool = True) -> list[Index]:
        """Indices along the dims of a value, or with ``wide`` False of a row; other arguments as for `Loops.at`."""
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
    """Choose the loops of a reduction: order of axes, lanes, threads of a row, rows of a block.

    Args:
        dims: Dims that are reduced.
        axes: Axes of a row, over which is reduced.
        inputs: Formats of the inputs, which are broadcast to the dims.
        outputs: Formats of the outputs: of all dims, or with one value for each row, with axes of size 1 or without.
    """
    tensors = [*inputs, *outputs]
    strides = [
        *(aligned_strides(form, dims) for form in inputs),
        *(_output_strides(form, dims, axes) for form in outputs),
    ]
    all_axes = [Axis(size, tuple(each[index] for each in strides), ((index, size),)) for index, size in enumerate(dims)]
    lead = next((index for index, each in enumerate(strides) if all(each[axis] or dims[axis] == 1 for axis in axes)), 0)
    order = sorted(range(len(dims)), key=lambda index: (-strides[lead][index], index))
    order = [index for index in order if dims[index] > 1]
    outer = collapsed([all_axes[index] for index in order if index not in axes])
    inner = collapsed([all_axes[index] for index in order if index in axes])
    columns = order[-1] not in axes
    last, others = inner[-1], [*outer, *inner[:-1]]

    def packed(tensor: int, lanes: int) -> bool:
        """Whether ``lanes`` values of a tensor are contiguous and aligned."""
        return last.strides[tensor] == 1 and all(axis.strides[tensor] % lanes == 0 for axis in others)

    sizes = [form.dtype.itemsize for form, stride in zip(tensors, last.strides, strict=True) if stride]
    lanes = 1 if columns else min(8, 16 // min(sizes, default=4))
    while lanes > 1 and not (packed(lead, lanes) and last.size % lanes == 0):
        lanes //= 2
    pieces, count = math.prod(axis.size for axis in inner) // lanes, math.prod(axis.size for axis in outer)
    if columns:
        threads, rows = min(32, _power_of_two(-(-pieces // 4))), _COLUMNS
    else:
        max_values = 8 if count < _MANY_ROWS else 32
        threads = min(32, _power_of_two(pieces))
        while threads < 1024 and -(-pieces // threads) * lanes > max_values:
            threads *= 2
        rows = max(1, 128 // threads)
    are_packed = tuple(packed(tensor, lanes) for tensor in range(len(tensors)))
    return RowLoops(tuple(outer), tuple(inner), lanes, threads, rows, columns, are_packed)


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
        dims: Dims that are reduced.
        axes: Axes of a row, over which is reduced.
        inputs: Formats of the tensors that are read.
        outputs: Formats of the results: of all dims, or with one value for each row.
        reads: Operands of the expression, broadcast to the dims: moves of the inputs, by their places; empty: the inputs themselves.
        writes: Result → where in its output each value goes; results that are not named are written as they are.
    """
    return _writer(expression, dims, axes, inputs, outputs, reads, writes).text()


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
    writer = _writer(expression, dims, axes, inputs, outputs, reads, writes)
    loops = writer.loops
    blocks = -(-loops.count // loops.rows)
    return GeneratedKernel(device, writer.text(), "rows", blocks, loops.threads * loops.rows, in_turns=False)


def _writer(
    expression: Expression,
    dims: Sequence[int],
    axes: Sequence[int],
    inputs: Sequence[Format],
    outputs: Sequence[Format],
    reads: Sequence[Move],
    writes: Mapping[int, Move],
) -> _KernelWriter:
    """The writer of a kernel's source; arguments as for `rows_text`."""
    written = results(outputs, writes)
    wide = next((form for form in outputs if form.dims == tuple(dims)), outputs[0])
    read = operands(inputs, reads, wide)
    loops = row_loops(dims, axes, [operand.form for operand in read], [result.form for result in written])
    return _KernelWriter(expression, loops, len(dims), read, written, len(inputs))


def _power_of_two(least: int) -> int:
    """The smallest power of two that is not below a number."""
    return 1 << (least - 1).bit_length()


def _output_strides(form: Format | Strides, dims: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """Strides of an output along the dims; 0 along axes that are reduced."""
    if len(form.dims) < len(dims):
        row_strides = iter(form.strides)
        return tuple(0 if axis in axes else next(row_strides) for axis in range(len(dims)))
    return aligned_strides(form, dims)


@functools.cache
def _library() -> str:
    return f"{library_text()}\n{sources('rows.cu')}"


class _KernelWriter:
    """Writes the source of one kernel: reductions in phases, each after the reductions that it reads, then the stores."""

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
        """Whether each value differs within a row; else there is one for each row."""
        self.phase = [0] * len(inputs)
        """Number of reduction phases before each value is known."""
        for operation in expression.operations:
            reads = [operand for operand in operation.operands if isinstance(operand, int)]
            reduces = operation.op in REDUCTIONS
            self.wide.append(not reduces and any(self.wide[value] for value in reads))
            self.phase.append(max((self.phase[value] for value in reads), default=0) + reduces)
        self.kept = loops.turns * loops.lanes <= _MAX_KEPT

    def text(self) -> str:
        """The whole source."""
        loops = self.loops
        block = loops.threads * loops.rows
        body = [f"__shared__ float scratch[{block}];", "begin_kernel();", *self._place_lines()]
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

    def _place_lines(self) -> list[str]:
        """C++ code: a thread's row, its place in the row's threads (``me``), and the row's indices ``o0``, ``o1``, …."""
        loops = self.loops
        divisor = loops.rows if loops.columns else loops.threads
        parts = [f"threadIdx.x / {divisor}u", f"threadIdx.x % {divisor}u"]
        me, row_of_block = parts if loops.columns else reversed(parts)
        lines = [f"unsigned const me = {me}, row = blockIdx.x * {loops.rows}u + {row_of_block};"]
        lines += [f"bool const live = row < {loops.count}u;", f"unsigned left = live ? row : {loops.count - 1}u;"]
        return [*lines, *index_lines(loops.outer, "o", "left")]

    def _offset(self, tensor: int, wide: bool) -> str:
        """C++ code: the offset of a value, or with ``wide`` False of a row, in a tensor."""
        terms = offset_terms(self.loops.outer, "o", tensor)
        if wide:
            terms += offset_terms(self.loops.inner, "i", tensor)
        return " + ".join(terms) or "0u"

    def _row_load(self, index: int) -> str:
        """C++ code: load an input with one value for each row."""
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
        """C++ code: operations with one result for each row that are known after this phase."""
        first = len(self.inputs)
        return [
            operation_line(self.expression, index)
            for index, operation in enumerate(self.expression.operations)
            if not self.wide[first + index] and self.phase[first + index] == phase and operation.op not in REDUCTIONS
        ]

    def _reductions(self, phase: int) -> list[str]:
        """C++ code: the reductions of a phase, first of a thread's values, then over the row's threads."""
        first, loops = len(self.inputs), self.loops
        reductions = [
            index
            for index, operation in enumerate(self.expression.operations)
            if operation.op in REDUCTIONS and self.phase[first + index] == phase
        ]
        before, inside, behind, needed = [], [], [], list[int]()
        for index in reductions:
            operation, value = self.expression.operations[index], first + index
            kind, begin = REDUCTIONS[operation.op]
            before.append(f"float r{value} = {begin};")
            inside.append(f"r{value} = {kind}()(r{value}, static_cast<float>({operand_text(operation.operands[0])}));")
            columns = "true" if loops.columns else "false"
            call = f"over_row<{loops.threads}, {loops.rows}, {columns}>(r{value}, scratch, {kind}())"
            behind.append(f"float const v{value} = {call};")
            needed += [operand for operand in operation.operands if isinstance(operand, int)]
        return [*before, *self._loop(inside, needed), *behind]

    def _stores(self) -> list[str]:
        """C++ code: store all results."""
        first, lanes = len(self.inputs), self.loops.lanes
        lines, inside, behind, needed = list[str](), list[str](), list[str](), list[int]()
        before = []
        for index, (value, result) in enumerate(zip(self.expression.results, self.outputs, strict=True)):
            name, tensor = C_TYPES[result.dtype], first + index
            is_wide = any(
                axis.strides[tensor] for axis in self.loops.inner
            )  # the value may be the same for a whole row
            target = f"static_cast<{name}*>(y{index}) + ({self._offset(tensor, is_wide)})"
            if not is_wide:
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
                stride = self.loops.inner[-1].strides[tensor]
                behind.append(f"if (live) store_lanes<{lanes}>({target}, {stride}u, q{index}, {lanes});")
        return [*lines, *(self._loop(inside, needed, before, behind) if needed else [])]

    def _loop(
        self,
        lines: Sequence[str],
        needed: Iterable[int],
        before: Sequence[str] = (),
        behind: Sequence[str] = (),
        load_only: bool = False,
    ) -> list[str]:
        """C++ code: a loop over a thread's values of a row, ``lanes`` at a time.

        Args:
            lines: Body for one value.
            needed: Values that the body reads; they are loaded, unless they are kept, and computed.
            before: Lines before the values of a turn.
            behind: Lines after the values of a turn.
            load_only: Whether the loop only loads inputs into the registers that keep them.
        """
        loops, first = self.loops, len(self.inputs)
        values = self._closure(needed)
        inputs = [value for value in values if value < first]
        head = []
        if load_only:
            head = [
                f"Pack<{C_TYPES[self.inputs[index].dtype]}, {loops.lanes}> p{index}[{loops.turns}];" for index in inputs
            ]
        inner = index_lines(loops.inner, "i", "place")
        if any(operand.parameter is None for operand in (*self.inputs, *self.outputs)):
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
        """C++ code: load ``lanes`` values of an input, with ``kept`` into the registers of this turn."""
        operand, lanes = self.inputs[index], self.loops.lanes
        name = C_TYPES[operand.dtype]
        if operand.parameter is None:
            lines = operand.load(f"m{index}" if kept else f"p{index}", lanes, str(lanes), self._at)
            return [*lines, f"p{index}[turn] = m{index};"] if kept else lines
        source = f"static_cast<const {name}*>(x{operand.parameter}) + ({self._offset(index, True)})"
        pack = f"load_pack<{lanes}>({source}, {lanes})"
        if not self.loops.packed[index]:
            pack = f"load_lanes<{lanes}>({source}, {self.loops.inner[-1].strides[index]}u, {lanes})"
        return [f"p{index}[turn] = {pack};" if kept else f"Pack<{name}, {lanes}> const p{index} = {pack};"]

    def _at(self, run: int, lane: Index) -> list[Index]:
        return self.loops.at(self.rank, run, lane)

    def _closure(self, needed: Iterable[int]) -> list[int]:
        """All values that differ within a row and that the needed ones are computed from, with these, in order."""
        values, stack = set[int](), list(needed)
        while stack:
            value = stack.pop()
            if self.wide[value] and value not in values:
                values.add(value)
                if value >= len(self.inputs):
                    operands = self.expression.operations[value - len(self.inputs)].operands
                    stack += [operand for operand in operands if isinstance(operand, int)]
        return sorted(values)
