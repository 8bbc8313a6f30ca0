"""Ends a test that hangs, as pytest-timeout does, but with one thread for all tests: starting one for each takes longer than most tests."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

PERIOD_SECONDS = 0.25


class Watchdog:
    """Calls ``pytest_timeout.timeout_timer``, which prints where every thread stands and ends the process, once a test's time is over."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._watched: tuple[float, pytest.Item, Any] | None = None

    def watch(self, item: pytest.Item, settings: Any) -> None:
        """Give the test the seconds of pytest-timeout's ``settings`` from now on; ``item.cancel_timeout()`` ends the watch."""
        self._watched = time.monotonic() + settings.timeout, item, settings
        item.cancel_timeout = self._rest
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="watchdog of tests", daemon=True)
            self._thread.start()

    def _rest(self) -> None:
        self._watched = None

    def _run(self) -> None:
        from pytest_timeout import timeout_timer  # type: ignore[import-untyped]

        while True:
            time.sleep(PERIOD_SECONDS)
            if (watched := self._watched) and time.monotonic() >= watched[0]:
                self._watched = None
                timeout_timer(*watched[1:])
