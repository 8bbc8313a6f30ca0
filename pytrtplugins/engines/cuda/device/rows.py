"""Generate kernels of reductions: an expression with reductions over some axes → CUDA C++, one warp or block per row."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from .device import Device, HostDevice
from .expression import REDUCTIONS, Expression, computed_in
from .generated import GeneratedKernel, largest_cluster
from .index import Index
from .layout import Format
from .loops import index_lines, offset_terms
from .moves import Move
from .operands import Operand, operands, results
from .row_loops import THREADS, RowLoops, row_loops
from .source import sources
from .text import C_TYPES, library_text, operand_text, operation_line

__all__ = ["rows_kernel", "rows_text"]

_MAX_KEPT = 64
"""Values of a row that a thread keeps in registers of each tensor, at most; values of longer rows are loaded again."""
_HOST_THREADS = 128
"""Threads of a block on the host, where one block has all threads of a cluster: each is a fiber."""


def rows_text(
    expression: Expression,
    dims: Sequence[int],
    axes: Sequence[int],
    inputs: Sequence[Format],
    outputs: Sequence[Format],
    reads: Sequence[Move] = (),
    writes: Mapping[int, Move] = MappingProxyType({}),
    cluster: int = 1,
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
        cluster: Blocks that may share a row, as a thread block cluster.
    """
    return _writer(expression, dims, axes, inputs, outputs, reads, writes, cluster).text()


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
    max_threads = _HOST_THREADS if isinstance(device, HostDevice) else THREADS
    writer = _writer(expression, dims, axes, inputs, outputs, reads, writes, largest_cluster(device), max_threads)
    loops = writer.loops
    blocks, threads = -(-loops.count // loops.rows) * loops.blocks, loops.block_threads
    return GeneratedKernel(device, writer.text(), "rows", blocks, threads, in_turns=False, cluster=loops.blocks)


def _writer(
    expression: Expression,
    dims: Sequence[int],
    axes: Sequence[int],
    inputs: Sequence[Format],
    outputs: Sequence[Format],
    reads: Sequence[Move],
    writes: Mapping[int, Move],
    cluster: int = 1,
    threads: int = THREADS,
) -> _KernelWriter:
    """The writer of a kernel's source; arguments as for `rows_text`."""
    written = results(outputs, writes)
    wide = next((form for form in outputs if form.dims == tuple(dims)), outputs[0])
    read = operands(inputs, reads, wide)
    loops = row_loops(
        dims, axes, [operand.form for operand in read], [result.form for result in written], cluster, threads
    )
    return _KernelWriter(expression, loops, len(dims), read, written, len(inputs))


@functools.cache
def _library() -> str:
    return f"{library_text()}\n{sources('cluster.cu', 'rows.cu')}"


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
        for each in expression.operations:
            reads = [operand for operand in each.operands if isinstance(operand, int)]
            reduces = each.op in REDUCTIONS
            self.wide.append(not reduces and any(self.wide[value] for value in reads))
            self.phase.append(max((self.phase[value] for value in reads), default=0) + reduces)
        self.kept = loops.turns * loops.lanes <= _MAX_KEPT
        self._slots = [index for index, each in enumerate(expression.operations) if each.op in REDUCTIONS]
        """The operations whose parts the blocks of a cluster exchange, each in a place of its own."""

    def text(self) -> str:
        """The whole source."""
        loops = self.loops
        block = loops.block_threads
        body = [f"__shared__ float scratch[{block} * host_blocks({loops.blocks})];"]
        if loops.blocks > 1:
            body.append(f"__shared__ float parts[{max(1, len(self._slots))}];")
        body += ["begin_kernel();", *self._place_lines()]
        body += [self._row_load(index) for index, wide in enumerate(self.wide[: len(self.inputs)]) if not wide]
        if self.kept:
            body += self._loop([], range(len(self.inputs)), load_only=True)
        body += self._row_lines(0)
        for phase in range(1, max(self.phase) + 1):
            body += [*self._reductions(phase), *self._row_lines(phase)]
        arrive, leave = (["arrive_in_cluster();"], ["wait_for_cluster();"]) if loops.blocks > 1 else ([], [])
        body += [*arrive, *self._stores(), *leave]
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
        me, own = parts if loops.columns else reversed(parts)
        lines = [f"unsigned const me = {me}, row = blockIdx.x * {loops.rows}u + {own};"]
        if loops.blocks > 1:
            lines = [f"constexpr unsigned blocks = {loops.blocks} / host_blocks({loops.blocks});"]
            me = f"blockIdx.x % blocks * {loops.block_threads}u + threadIdx.x"
            lines.append(f"unsigned const me = {me}, row = blockIdx.x / blocks;")
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
            for index, each in enumerate(self.expression.operations)
            if not self.wide[first + index] and self.phase[first + index] == phase and each.op not in REDUCTIONS
        ]

    def _reductions(self, phase: int) -> list[str]:
        """C++ code: the reductions of a phase, first of a thread's values, then over the row's threads."""
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
            call = f"over_row<{loops.threads // loops.blocks}, {loops.rows}, {columns}, {loops.blocks}>(r{value}, scratch, {kind}())"
            if loops.blocks > 1:
                call = f"over_cluster<{loops.blocks}>({call}, parts + {self._slots.index(index)}, {kind}())"
            behind.append(f"float const v{value} = {call};")
            needed += [operand for operand in each.operands if isinstance(operand, int)]
        return [*before, *self._loop(inside, needed), *behind]

    def _stores(self) -> list[str]:
        """C++ code: store all results."""
        first, lanes = len(self.inputs), self.loops.lanes
        lines, inside, behind, needed = list[str](), list[str](), list[str](), list[int]()
        before = []
        for index, (value, result) in enumerate(zip(self.expression.results, self.outputs, strict=True)):
            name, tensor = C_TYPES[result.dtype], first + index
            # the value may be the same for a whole row
            is_wide = any(axis.strides[tensor] for axis in self.loops.inner)
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
