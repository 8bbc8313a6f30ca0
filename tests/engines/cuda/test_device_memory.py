"""The check of growing memory finds work that keeps memory, and is skipped where others share the card."""

from __future__ import annotations

import pytest

from tests.engines.cuda.device_memory import ALLOWED, assert_needs_no_more_memory


@pytest.fixture
def alone(monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("kept", [0, ALLOWED])
def test_work_that_keeps_little_passes(kept):
    free = iter([1 << 30, (1 << 30) - kept])
    assert_needs_no_more_memory(lambda: None, lambda: next(free))


@pytest.mark.usefixtures("alone")
def test_work_that_keeps_memory_is_found():
    free = iter([1 << 30, (1 << 30) - ALLOWED - 1])
    with pytest.raises(AssertionError, match=f"took {ALLOWED + 1} bytes"):
        assert_needs_no_more_memory(lambda: None, lambda: next(free))


@pytest.mark.usefixtures("alone")
def test_what_the_first_run_keeps_does_not_count():
    runs: list[int] = []
    assert_needs_no_more_memory(lambda: runs.append(1), lambda: (1 << 30) - (10 * ALLOWED if runs else 0))
    assert len(runs) == 2


def test_it_is_skipped_beside_other_workers(monkeypatch):
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    with pytest.raises(pytest.skip.Exception, match="without -n"):
        assert_needs_no_more_memory(lambda: None, lambda: 0)
