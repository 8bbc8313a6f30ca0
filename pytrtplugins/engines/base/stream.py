"""Throughput: runs that overlap, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ...tensor import Array
from ...utils.numbers import check_whole
from ...utils.prefetch import map_async, map_in_contexts
from .context import Arrays, ContextMaker, ExecutionContext

__all__ = ["stream"]

MAX_SLOTS = 256


def stream(
    engine: ContextMaker,
    source: Iterable[Any],
    *,
    prepare: Callable[[Any], Mapping[str, Array]] | None = None,
    slots: int = 2,
) -> Iterator[Arrays]:
    """Run an engine over an iterable as a software pipeline: while one run computes, the next is read, prepared, copied.

    Each slot has a context of its own, so a stream and page-locked memory of its own: copies in, the network and copies out of
    different slots overlap. At most ``slots`` items are taken ahead of the results. What is prepared has threads; inputs that are
    there already are queued by the caller's thread, since that takes less time than to wake another.

    Args:
        engine: Any engine; its contexts must be able to run side by side.
        source: Inputs by name, or anything that ``prepare`` makes inputs of.
        prepare: Called in the slot's thread: read a file, preprocess.
        slots: How many runs overlap, 1 to 256; each has a context and a thread of its own.

    Yields:
        The outputs of each item, in the order of the items.

    Raises:
        UsageError: ``slots`` is outside, at once.
        Exception: what the source, ``prepare`` or a run raised, at its item's turn; results before it are given first.
    """
    contexts = (engine.create_context() for _ in range(check_whole("stream: slots", slots, 1, MAX_SLOTS)))
    if prepare is None:
        return map_async(
            ExecutionContext.run_async, source, contexts=contexts, finish=lambda context, item, outputs: outputs
        )
    made = prepare

    def work(context: ExecutionContext, item: Any) -> Arrays:
        return context.run(made(item))

    return map_in_contexts(work, source, contexts=contexts)
