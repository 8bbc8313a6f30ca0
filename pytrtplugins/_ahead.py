"""Work done ahead in threads, results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from queue import SimpleQueue
from typing import TypeVar

__all__ = ["map_ahead", "map_in_contexts"]

Item = TypeVar("Item")
Result = TypeVar("Result")
Context = TypeVar("Context")


def map_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], *, threads: int, ahead: int | None = None
) -> Iterator[Result]:
    """Call a function for each item in threads, and give the results in the order of the items.

    Items are taken in the caller's thread, when a result is asked for.

    Args:
        function: Must be able to run side by side in ``threads`` threads.
        items: Anything; may be endless.
        threads: At least 1.
        ahead: Most items that are taken ahead of the result that is given next; None: as many as there are threads.

    Raises:
        Exception: what the items or the function raised, at their item's turn: results before it are given first.
    """
    waiting: deque[Future[Result]] = deque()
    executor = ThreadPoolExecutor(threads, thread_name_prefix="pytrtplugins-ahead")
    iterator, failed = iter(items), list[Exception]()
    try:
        while True:
            while not failed and len(waiting) < (ahead or threads):
                try:
                    item = next(iterator)
                except StopIteration:
                    break
                except Exception as error:  # raised below, when the results before it are given
                    failed.append(error)
                    break
                waiting.append(executor.submit(function, item))
            if not waiting:
                break
            yield waiting.popleft().result()
        if failed:
            raise failed[0]
    finally:
        for future in waiting:
            future.cancel()
        executor.shutdown()


def map_in_contexts(
    function: Callable[[Context, Item], Result],
    items: Iterable[Item],
    *,
    contexts: Iterable[AbstractContextManager[Context]],
    ahead: int | None = None,
) -> Iterator[Result]:
    """The same, each call with a context that no other call has at that time; there are as many threads as contexts.

    The contexts are closed in the end.
    """
    with ExitStack() as stack:
        free: SimpleQueue[Context] = SimpleQueue()
        count = 0
        for context in contexts:
            free.put(stack.enter_context(context))
            count += 1

        def work(item: Item) -> Result:
            context = free.get()
            try:
                return function(context, item)
            finally:
                free.put(context)

        yield from map_ahead(work, items, threads=count, ahead=ahead)
