"""What Python's collector leaves alone, and what it still finds."""

from __future__ import annotations

import gc
import weakref

import pytest

from pytrtplugins.utils.heap import settle, settle_again


class Circle:
    """Is garbage that only the collector can find."""

    def __init__(self):
        self.own = self


@pytest.fixture(autouse=True)
def unfrozen():
    """As in a process that never settled; afterwards as before, or the collector goes through all of pytest's objects from here on."""
    gc.unfreeze()
    yield
    gc.freeze()


def test_what_is_there_is_left_alone_and_garbage_is_gone():
    circle = weakref.ref(Circle())
    settle()
    assert gc.get_freeze_count() > 1000
    assert circle() is None


def test_what_has_become_garbage_since_is_found_by_the_next_call_alone():
    settled = Circle()
    found = weakref.ref(settled)
    settle()
    del settled
    gc.collect()
    assert found() is not None
    settle_again()
    assert found() is None
    assert gc.get_freeze_count() > 1000


def test_nothing_is_settled_again_that_never_was():
    settle_again()
    assert gc.get_freeze_count() == 0
