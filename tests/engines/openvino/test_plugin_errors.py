"""What plugins raise while OpenVINO runs waits for the thread that called it, however long that thread is held up."""

import pytest

from pytrtplugins.engines.openvino import plugin_errors
from pytrtplugins.engines.openvino.plugin_errors import PluginErrors


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 1000.0

    monkeypatch.setattr(plugin_errors.time, "monotonic", lambda: Clock.now)
    return Clock


def test_an_exception_is_found_by_its_number_once(clock):
    errors = PluginErrors()
    mine, others = ValueError("mine"), KeyError("other")
    text, _ = str(errors.keep(mine)), errors.keep(others)
    assert errors.take(f"Exception from node: {text}\nAt: …") is mine
    assert errors.take(text) is None
    assert errors.take("no plugin's") is None


def test_many_newer_exceptions_do_not_drop_one_that_is_still_awaited(clock):
    errors = PluginErrors()
    mine = ValueError("mine")
    text = str(errors.keep(mine))
    for _ in range(1000):
        errors.keep(ValueError("of another thread"))
    assert errors.take(text) is mine


def test_exceptions_that_openvino_swallowed_do_not_stay_for_ever(clock):
    errors = PluginErrors()
    texts = [str(errors.keep(ValueError("swallowed"))) for _ in range(100)]
    clock.now += 61
    for _ in range(10):
        errors.keep(ValueError("new"))
    assert [errors.take(text) is None for text in texts] == [True] * 46 + [False] * 54
