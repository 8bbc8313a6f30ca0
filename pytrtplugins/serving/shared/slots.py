"""Shared memory between a CPU process and the engine processes: slots for a request and its answer.

The memory has no name (memfd): it is gone with the last process that has it, however these end, so nothing can be left over.
"""

from __future__ import annotations

import mmap
import os

from ...errors import FormatError, RequestError
from .anonymous_memory import anonymous_memory

__all__ = ["UNIT", "Block", "Slots"]

UNIT = 64 << 10
"""Bytes that slots are multiples of."""

_GENERATION_BYTES = 4


class Block:
    """Mapped shared memory: units, a table of generations, and a table of generations whose computation has begun.

    Args:
        descriptor: Of the memory, from `create`.

    Attributes:
        units: Of how many units slots are made.
    """

    def __init__(self, descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        self.units = size // (UNIT + 2 * _GENERATION_BYTES)
        self._mapped = mmap.mmap(descriptor, size)
        self._view = memoryview(self._mapped)
        tables = self._view[self.units * UNIT :][: 2 * _GENERATION_BYTES * self.units].cast("I")
        self._generations, self._begun = tables[: self.units], tables[self.units :]

    @staticmethod
    def create(units: int, name: str = "pytrt-slots") -> int:
        """Create memory of so many units, and return its descriptor; pages that were never written take no memory."""
        return anonymous_memory(name, units * (UNIT + 2 * _GENERATION_BYTES))

    def part(self, first: int, start: int, size: int) -> memoryview:
        """Bytes of the slot that begins with unit ``first``.

        Raises:
            FormatError: they lie outside of the memory.
        """
        begin = first * UNIT + start
        if not (0 <= first < self.units and start >= 0 and size >= 0 and begin + size <= self.units * UNIT):
            raise FormatError(f"slot {first}: {size:,} bytes from {start:,} on lie outside of {self.units} units")
        return self._view[begin : begin + size]

    def generation(self, first: int) -> int:
        """How often the slot was allocated."""
        if not 0 <= first < self.units:
            raise FormatError(f"slot {first}: there are {self.units} units")
        return self._generations[first]

    def advance(self, first: int) -> int:
        """Count an allocation of the slot, and return the new count."""
        count = (self.generation(first) + 1) & 0xFFFFFFFF
        self._generations[first] = count
        return count

    def begin(self, first: int, generation: int) -> None:
        """Say that the request in a slot is being computed."""
        self._begun[first] = generation

    def has_begun(self, first: int) -> bool:
        """Whether the request in a slot is being computed, or was when a process died."""
        return self._begun[first] == self._generations[first]


class Slots:
    """Allocates and frees slots of a block; used by the one process that owns the block.

    Half of the memory is shared out among the models, so that a flood of requests for one of them leaves room for the others; who needs
    more than that takes it from the other half.

    Args:
        block: Its memory.
        models: How many there are.
    """

    def __init__(self, block: Block, models: int = 1) -> None:
        self.block = block
        self._taken = bytearray(block.units)
        self._own = block.units // (2 * models)
        self._common = block.units - models * self._own
        self._used = [0] * models

    def take(self, size: int, model: int = 0) -> tuple[int, int, int]:
        """Find room: the first unit, the number of units, and the slot's generation.

        Raises:
            RequestError: so much will never be free for a model (413), or is not now (503).
        """
        count = max(1, -(-size // UNIT))
        most = self._own + self._common
        if count > most:
            raise RequestError(
                f"the tensors of the request take {size} bytes, which exceeds the maximum allowed value of {most * UNIT} bytes",
                status=413,
            )
        first = self._taken.find(bytes(count)) if self._may_have(count, model) else -1
        if first < 0:
            raise RequestError(
                "Exceeds maximum queue size: all memory for requests is in use", status=503, retry_after=1
            )
        self._taken[first : first + count] = b"\x01" * count
        self._used[model] += count
        return first, count, self.block.advance(first)

    def give_back(self, first: int, count: int, model: int = 0) -> None:
        """Free what `take` allocated."""
        self._taken[first : first + count] = bytes(count)
        self._used[model] -= count

    @property
    def free_units(self) -> int:
        """Units that are not allocated."""
        return self._taken.count(0)

    def _may_have(self, count: int, model: int) -> bool:
        """Whether a model may get so many more units: from its own share, or from the common one."""
        from_shared = self._used[model] + count - self._own
        if from_shared <= 0:
            return True
        others = sum(max(0, used - self._own) for other, used in enumerate(self._used) if other != model)
        return from_shared + others <= self._common
