"""Order the steps of a plan on streams, and allocate its tensors."""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence

from ....errors import BuildError
from .arena import Block, Layout, place
from .plan import Placed, Step, step_accesses
from .schedule import Schedule, one_stream, schedule

__all__ = ["check_sizes", "plan_memory", "plan_order"]

_MAX_VALUES = (1 << 32) - 1
"""What a thread's number goes up to."""


def check_sizes(steps: Sequence[Step], tensors: Mapping[str, Placed]) -> None:
    """Refuse tensors with more values than the kernels' 32-bit indices can count.

    Raises:
        BuildError: there is one; it has the tensor's name.
    """
    pooled = {name for step in steps if step.attributes.get("pool") for name in step.outputs}
    for name, placed in tensors.items():
        if placed.format.elements * (4 if name in pooled else 1) > _MAX_VALUES:
            raise BuildError(
                f"engine 'cuda': tensor {name!r}, {placed.format}, has more values than kernels of this engine count.\n"
                "Do: run smaller batches",
                engine="cuda",
            )


def plan_order(steps: Sequence[Step], tensors: Mapping[str, Placed], is_parallel: bool) -> Schedule:
    """Return the streams of the steps: several where independent ones may run at the same time, and all are in the CUDA graph."""
    if not is_parallel or not all(step.capturable for step in steps):
        return one_stream(len(steps))
    return schedule([step_accesses(step, tensors) for step in steps])


def plan_memory(
    steps: Sequence[Step],
    tensors: Mapping[str, Placed],
    order: Schedule,
    ends: tuple[Collection[str], Collection[str]],
    is_shared: bool,
) -> Layout:
    """Return where each tensor begins; those that are never in use at the same time may share memory.

    Args:
        steps: In the order in which they are queued.
        tensors: All, by name.
        order: What runs before what.
        ends: Names of the network's inputs and outputs.
        is_shared: Whether tensors share memory.
    """
    given, written = ({tensors[name].storage for name in names} for names in ends)
    users: dict[str, list[int]] = {storage: [] for storage in (*given, *written)}
    for index, step in enumerate(steps):
        for name in (*step.inputs, *step.outputs):
            if name in tensors:
                users.setdefault(tensors[name].storage, []).append(index)
    blocks = {
        storage: Block(tensors[storage].format.bytes, min(places, default=-1), max(places, default=-1))
        for storage, places in users.items()
    }

    used = {storage: _bits(places) for storage, places in users.items()}
    done = {  # steps that are sure to be done before any that uses the storage begins
        storage: functools.reduce(operator.and_, (order.before[place] for place in places), -1)
        for storage, places in users.items()
    }

    def ends_before(one: str, other: str) -> bool:
        if one in written or other in given or one in given:
            return False
        return not used[one] & ~done[other]

    return place(blocks, is_shared, lambda one, other: ends_before(one, other) or ends_before(other, one))


def _bits(places: Iterable[int]) -> int:
    """A number with these bits set."""
    return functools.reduce(operator.or_, (1 << place for place in places), 0)
