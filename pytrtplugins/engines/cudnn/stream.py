"""Throughput: runs that overlap, in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ...tensor import Array
from ..base import Engine
from ..context import Arrays, ExecutionContext

__all__ = ["stream"]


def stream(
    engine: Engine,
    source: Iterable[Any],
    *,
    prepare: Callable[[Any], Mapping[str, Array]] | None = None,
    slots: int = 2,
) -> Iterator[Arrays]:
    """Run an engine over an iterable as a software pipeline: while one run computes, the next is read, prepared, copied.

    Each slot has a context of its own, so a stream and pinned memory of its own: copies in, the network and copies out of
    different slots overlap. At most ``slots`` items are taken ahead of the results.

    Args:
        engine: Any engine; its contexts must be able to run side by side.
        source: Inputs by name, or anything that ``prepare`` makes inputs of.
        prepare: Called in the slot's thread: read a file, preprocess.
        slots: How many runs overlap, at least 1.

    Yields:
        The outputs of each item, in the order of the items.

    Raises:
        Exception: what the source, ``prepare`` or a run raised, at its item's turn; results before it are given first.
    """
    contexts = _Contexts(engine)
    waiting: deque[Future[Arrays]] = deque()
    executor = ThreadPoolExecutor(max(1, slots), thread_name_prefix=f"{engine.name}-stream")

    def work(item: Any) -> Arrays:
        return contexts.mine().run(item if prepare is None else prepare(item))

    try:
        for item in source:
            waiting.append(executor.submit(work, item))
            if len(waiting) >= max(1, slots):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
        executor.shutdown()
        contexts.close()


class _Contexts:
    """A context for each thread that asks for one."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._local = threading.local()
        self._lock = threading.Lock()
        self._all: list[ExecutionContext] = []

    def mine(self) -> ExecutionContext:
        found: ExecutionContext | None = getattr(self._local, "context", None)
        if found is None:
            found = self._local.context = self.engine.create_context()
            with self._lock:
                self._all.append(found)
        return found

    def close(self) -> None:
        for context in self._all:
            context.close()
