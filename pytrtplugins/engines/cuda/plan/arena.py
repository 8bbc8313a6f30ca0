"""Allocate tensors in one arena; tensors whose lifetimes do not overlap share memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["ALIGNMENT", "Block", "Layout", "place"]

ALIGNMENT = 256
"""Bytes; what cudaMalloc gives, and more than any kernel asks."""


@dataclass(frozen=True)
class Block:
    """A block of memory and its lifetime in steps.

    Attributes:
        bytes: How much.
        first: The step that writes it first.
        last: The last step that reads it.
    """

    bytes: int
    first: int
    last: int

    def overlaps(self, other: Block) -> bool:
        """Whether the lifetimes of two blocks overlap."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Layout:
    """The offset of each block in the arena.

    Attributes:
        offsets: Block → byte where it begins.
        bytes: Of the whole arena.
    """

    offsets: Mapping[str, int]
    bytes: int


def place(blocks: Mapping[str, Block], reuse: bool = True, apart: Callable[[str, str], bool] | None = None) -> Layout:
    """Allocate blocks in one arena: the largest first, each at the lowest offset that is free during its lifetime.

    Args:
        blocks: By name.
        reuse: Let blocks share memory; without, each has its own.
        apart: Whether two blocks, by name, are never needed at the same time, where steps run side by side; None: steps run
            one after the other.

    Returns:
        Offsets, multiples of `ALIGNMENT`.
    """
    placed: list[tuple[str, int]] = []
    order = sorted(blocks, key=lambda name: (-blocks[name].bytes, blocks[name].first, name))
    for name in order:
        block = blocks[name]
        taken = sorted(
            (offset, offset + _align(blocks[other].bytes))
            for other, offset in placed
            if not reuse or (block.overlaps(blocks[other]) if apart is None else not apart(name, other))
        )
        placed.append((name, _lowest_gap(taken, _align(block.bytes))))
    end = max((offset + _align(blocks[name].bytes) for name, offset in placed), default=0)
    return Layout(dict(placed), end)


def _align(size: int) -> int:
    return -(-max(size, 1) // ALIGNMENT) * ALIGNMENT


def _lowest_gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    at = 0
    for begin, end in taken:
        if begin - at >= size:
            break
        at = max(at, end)
    return at
