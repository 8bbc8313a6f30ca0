"""Fixtures of the tests of the training engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

LIMIT = 60  # seconds until a test that waits for a thread fails


@pytest.fixture
def no_thread_is_left() -> Iterator[None]:
    """What a test began ends with it."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(LIMIT)
        assert not thread.is_alive(), thread
