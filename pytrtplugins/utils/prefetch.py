"""Work done ahead, in threads or on a device, results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress
from queue import SimpleQueue
from typing import TypeVar

__all__ = ["map_ahead", "map_begun", "map_in_contexts"]

Item = TypeVar("Item")
Result = TypeVar("Result")
Context = TypeVar("Context")


def map_ahead(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    threads: int,
    ahead: int | None = None,
    quick: Callable[[Item], bool] = lambda item: False,
) -> Iterator[Result]:
    """Call a function for each item in threads, and give the results in the order of the items.

    Items are taken in the caller's thread, when a result is asked for.

    Args:
        function: Must be able to run side by side in ``threads`` threads.
        items: Anything; may be endless.
        threads: At least 1.
        ahead: Most items that are taken ahead of the result that is given next; None: as many as there are threads.
        quick: For which items the function takes less time than a thread to wake up; for them the caller's thread calls it.

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
                waiting.append(_called(function, item) if quick(item) else executor.submit(function, item))
            if not waiting:
                break
            yield waiting.popleft().result()
        if failed:
            raise failed[0]
    finally:
        for future in waiting:
            future.cancel()
        executor.shutdown()


def _called(function: Callable[[Item], Result], item: Item) -> Future[Result]:
    done: Future[Result] = Future()
    try:
        done.set_result(function(item))
    except Exception as error:
        done.set_exception(error)
    return done


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


def map_begun(
    begin: Callable[[Context, Item], Callable[[], Result]],
    items: Iterable[Item],
    *,
    contexts: Iterable[AbstractContextManager[Context]],
) -> Iterator[Result]:
    """Begin the work of some items, each on a context of its own, before the first one's result is given.

    All calls are made in the caller's thread, when a result is asked for: for work that goes on by itself once it has begun, as
    on a GPU. As many items are on their way as there are contexts, which are closed in the end.

    Args:
        begin: Begins an item's work on a context that has none, and gives what waits for its result.
        items: Anything; may be endless.
        contexts: At least one.

    Raises:
        Exception: what the items, ``begin`` or the wait raised, at their item's turn: results before it are given first.
    """
    with ExitStack() as stack:
        free = deque(stack.enter_context(context) for context in contexts)
        begun: deque[tuple[Context, Callable[[], Result]]] = deque()
        iterator, failed = iter(items), list[Exception]()

        def fill() -> None:
            try:
                while free and not failed:
                    begun.append((free[0], begin(free[0], next(iterator))))
                    free.popleft()
            except StopIteration:
                return
            except Exception as error:  # raised below, when the results before it are given
                failed.append(error)

        try:
            fill()
            while begun:
                context, finish = begun.popleft()
                result = finish()
                free.append(context)
                fill()
                yield result
            if failed:
                raise failed[0]
        finally:
            for _, finish in begun:
                with suppress(Exception):  # nobody asks for these any more
                    finish()
