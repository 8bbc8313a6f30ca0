"""Kernels whose threads compute a few elements of the output each, from values of inputs at computed positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..index import Index
from ..layout import Format
from ..loops import Loops
from ..operands import Operand, results
from ..pointwise import THREADS, count_lines, element_text, pointwise_loops, store_lines
from ..text import C_TYPES
from .table import KernelSource, Node, library

__all__ = ["At", "ElementKernel", "table_text"]

At = Callable[[Sequence[Index]], Sequence[Index]]
"""Place in the output → the place in an input."""


class ElementKernel:
    """What the writer of such a kernel uses.

    Args:
        node: What is computed.
        data: Place in the output → that in the first input, whose values a thread reads side by side where they lie so.
        fixed: Axes of the output along which a position changes.
        files: Of functions that the kernel calls.
        lanes: Values of a thread, which lie side by side in the output; 0: as many as do in the first input, too.
    """

    def __init__(self, node: Node, data: At, fixed: Sequence[int], files: Sequence[str] = (), lanes: int = 0) -> None:
        self.node, self._data, self._files = node, data, files
        self.output: Format = node.output
        self.rank = len(node.output.dims)
        self.loops = pointwise_loops((), [self.output], lanes) if lanes else self._loops(fixed)
        self.type = C_TYPES[node.output.dtype]
        self.at = self.loops.at(self.rank, 1, Index())

    @property
    def lanes(self) -> int:
        """Values of a thread."""
        return self.loops.lanes

    def load(self, name: str, count: str = "count") -> list[str]:
        """C: a thread's values of the first input, as a pack."""
        x = self.node.inputs[0]
        return x.load(name, self.lanes, count, lambda run, lane: self._data(self.loops.at(self.rank, run, lane)))

    def source(self, body: Sequence[str], tables: Sequence[str] = ()) -> KernelSource:
        """The kernel.

        Args:
            body: C: gives each ``q0.values[lane]``, which is zero before, its value.
            tables: C: constants that it reads.
        """
        lines = [*self.loops.place(), *count_lines(self.loops)]
        lines += [
            f"Pack<{self.type}, {self.lanes}> q0 = {{}};",
            "if (count > 0) {",
            *(f"    {line}" for line in body),
            "}",
        ]
        (result,) = results([self.output], {})
        lines += store_lines(self.loops, 0, 0, result, self.rank)
        items = self.loops.items
        text = element_text("indexed", self.node.parameters, items, lines, "\n".join((library(*self._files), *tables)))
        return KernelSource(text, -(-items // THREADS), THREADS)

    def _loops(self, fixed: Sequence[int]) -> Loops:
        """Loops with as many lanes as lie side by side in the input, of which a position is the same for all."""
        lanes = 8
        while lanes > 1:
            loops = pointwise_loops((), [self.output], lanes)
            lanes = loops.lanes
            if lanes == 1 or self._fit(loops, fixed):
                return loops
            lanes //= 2
        return pointwise_loops((), [self.output], 1)

    def _fit(self, loops: Loops, fixed: Sequence[int]) -> bool:
        rank, lanes = self.rank, loops.lanes
        lane = loops.at(rank, lanes, Index.counter("lane", lanes))
        if any("lane" in lane[axis].names for axis in fixed):
            return False
        x: Operand = self.node.inputs[0]
        return x.run(lanes, lambda run, lane: self._data(loops.at(rank, run, lane))) == lanes


def table_text(kind: str, name: str, numbers: Sequence[float]) -> str:
    """C: constants that each thread reads by their places."""
    return f"__device__ const {kind} {name}[] = {{{', '.join(map(repr, numbers))}}};"
