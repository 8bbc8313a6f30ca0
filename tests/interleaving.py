"""Two threads of which the second always comes while the first is inside of what a lock protects."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Interleaving:
    """Runs two calls: the second begins when the first is inside, which goes on when the second waits, or is done without waiting.

    Args:
        lock: The lock; put `lock` of this object in its place.

    Attributes:
        order: Which call was done, one after the other: ``["first", "second"]`` where a lock keeps them apart.
    """

    def __init__(self, lock: Any) -> None:
        self._real = lock
        self._inside, self._second_came = threading.Event(), threading.Event()
        self.lock, self.order = self, list[str]()

    def __enter__(self) -> None:
        if threading.current_thread().name == "second":
            self._second_came.set()
        self._real.__enter__()

    def __exit__(self, *raised: object) -> None:
        self._real.__exit__(*raised)

    def inside(self) -> None:
        """What the protected part calls."""
        self._inside.set()
        if threading.current_thread().name == "first":
            assert self._second_came.wait(30)

    def run(self, first: Callable[[], object], second: Callable[[], object]) -> list[object]:
        """What both give."""
        results: dict[str, object] = {}

        def call(function: Callable[[], object]) -> None:
            name = threading.current_thread().name
            try:
                results[name] = function()
            finally:
                self.order.append(name)
                (self._second_came if name == "second" else self._inside).set()

        threads = [
            threading.Thread(target=call, args=(each,), name=name)
            for each, name in ((first, "first"), (second, "second"))
        ]
        threads[0].start()
        assert self._inside.wait(30)
        threads[1].start()
        for thread in threads:
            thread.join(30)
        return [results.get("first"), results.get("second")]
