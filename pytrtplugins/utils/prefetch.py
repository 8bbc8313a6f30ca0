"""Run work in threads or on a device, ahead of or after the caller, with results in order."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from queue import SimpleQueue
from typing import TypeVar

from .forks import fail_future_in_child

__all__ = ["BackgroundCalls", "map_ahead", "map_async", "map_in_contexts", "prefetch", "threads_for_files"]

Item = TypeVar("Item")
Result = TypeVar("Result")
Context = TypeVar("Context")
Value = TypeVar("Value")


_MOST = 64


def threads_for_files() -> int:
    """How many threads read or write files: one for each core that this process may use, 64 at most."""
    return min(_MOST, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def map_ahead(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    threads: int,
    ahead: int | None = None,
    inline: Callable[[Item], bool] = lambda item: False,
) -> Generator[Result, None, None]:
    """Call a function for each item in threads, and give the results in the order of the items.

    Items are taken in the caller's thread, when a result is asked for.

    Args:
        function: Must be able to run side by side in ``threads`` threads.
        items: Anything; may be endless.
        threads: At least 1.
        ahead: Most items that are taken ahead of the result that is given next; None: as many as there are threads.
        inline: For which items the caller's thread calls the function: those for which it takes less time than a thread to wake up.

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
                waiting.append(_call_now(function, item) if inline(item) else executor.submit(function, item))
                fail_future_in_child(waiting[-1])
            if not waiting:
                break
            yield waiting.popleft().result()
        if failed:
            raise failed[0]
    finally:
        for future in waiting:
            future.cancel()
        executor.shutdown()


def prefetch(items: Iterator[Item], ahead: int) -> Generator[Item, None, None]:
    """Yield the items of an iterator, which a thread reads ahead of the caller, by at most ``ahead`` items.

    Raises:
        Exception: what the items raised, at their turn.
    """
    end = object()
    prefetched = map_ahead(lambda _: next(items, end), itertools.repeat(None), threads=1, ahead=ahead)
    try:
        for item in prefetched:
            if item is end:
                return
            yield item  # type: ignore[misc]  # it is not the end
    finally:
        prefetched.close()  # which waits for the thread


class BackgroundCalls:
    """Run calls in threads while the caller goes on, a few at a time. `close` waits for all of them.

    Args:
        threads: At least 1; with 1 the calls keep their order.
    """

    def __init__(self, threads: int) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="pytrtplugins-behind")
        self._waiting, self._most = deque[Future[object]](), 2 * threads

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Run the function in a thread; wait first if too many calls are queued.

        Raises:
            Exception: what an earlier call raised.
        """
        if len(self._waiting) >= self._most:
            self._waiting.popleft().result()
        self._waiting.append(self._executor.submit(function, *arguments))
        fail_future_in_child(self._waiting[-1])

    def close(self) -> None:
        """Wait for all calls.

        Raises:
            Exception: what the first of them raised that failed.
        """
        self._executor.shutdown()
        while self._waiting:
            self._waiting.popleft().result()


def _call_now(function: Callable[[Item], Result], item: Item) -> Future[Result]:
    """Call the function in this thread, and return its result as a finished future."""
    future: Future[Result] = Future()
    try:
        future.set_result(function(item))
    except Exception as error:
        future.set_exception(error)
    return future


def map_in_contexts(
    function: Callable[[Context, Item], Result],
    items: Iterable[Item],
    *,
    contexts: Iterable[AbstractContextManager[Context]],
    ahead: int | None = None,
) -> Iterator[Result]:
    """Map like `map_ahead`; each call gets a context that no other call uses at that time. There are as many threads as contexts.

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


def map_async(
    start: Callable[[Context, Item], Future[Result]],
    items: Iterable[Item],
    *,
    contexts: Iterable[AbstractContextManager[Context]],
    finish: Callable[[Context, Item, Result], Value],
) -> Iterator[Value]:
    """Start the work of several items, each on its own context, before the first result is yielded.

    All calls are made in the caller's thread, when a result is asked for: for work that goes on by itself once it has begun, as
    on a GPU. As many items are on their way as there are contexts, which are closed in the end.

    Args:
        start: Starts an item's work on a context that has none.
        items: Anything; may be endless.
        contexts: At least one.
        finish: Makes what is given of a result, before its context gets another item.

    Raises:
        Exception: what the items, the functions or the work raised, at their item's turn: results before it are given first.
    """
    with ExitStack() as stack:
        free = deque(stack.enter_context(context) for context in contexts)
        started: deque[tuple[Context, Item, Future[Result]]] = deque()
        iterator, failed = iter(items), list[Exception]()

        def fill() -> None:
            try:
                while free and not failed:
                    item = next(iterator)
                    started.append((free[0], item, start(free[0], item)))
                    free.popleft()
            except StopIteration:
                return
            except Exception as error:  # raised below, when the results before it are given
                failed.append(error)

        try:
            fill()
            while started:
                context, item, future = started.popleft()
                result = finish(context, item, future.result())
                free.append(context)
                fill()
                yield result
            if failed:
                raise failed[0]
        finally:
            for _, _, future in started:
                future.exception()  # nobody asks for these any more
