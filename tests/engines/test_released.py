"""However a run ends, the next one can begin and the context can be closed: held against time, since a lost lock hangs."""

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.engines.base.exclusive import Exclusive
from pytrtplugins.errors import BindingError, EngineError
from pytrtplugins.vision import Head
from tests.engines.networks import Calling, conv_net, image

SOON = 20  # seconds; what is tested takes milliseconds
DATA = {"data": image()}


class Broken(Exception):
    """What a run raises."""


def broken(*_):
    raise Broken


def soon(function):
    """What a function gives, or raises, in a thread of its own; the test fails where it does not end."""
    found = []

    def call():
        try:
            found.append((function(), None))
        except Exception as error:
            found.append((None, error))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(SOON)
    assert found, "it hangs"
    value, error = found[0]
    if error is not None:
        raise error
    return value


class Runs(Exclusive):
    """Nothing but the order of runs."""

    made_by = "Runs()"

    def __init__(self):
        super().__init__(SimpleNamespace(name="fake", nests=True, check_process=lambda: None))


def begins(runs):
    return runs._start(lambda: lambda: "done")


WAYS = {
    "ends": lambda runs: begins(runs).result(),
    "fails to begin": lambda runs: runs._start(broken),
    "fails in the end": lambda runs: runs._start(lambda: broken).result(),
    "is interrupted at its begin": lambda runs: runs._start(interrupted),
}


def interrupted():
    raise KeyboardInterrupt


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_after_a_run_that_was_begun_another_begins_and_the_context_closes(way, again):
    runs = Runs()
    for _ in range(1 + again):
        try:
            WAYS[way](runs)
        except (Broken, KeyboardInterrupt):
            assert way != "ends"
        if again:
            assert begins(runs).result() == "done"
    soon(lambda: runs.close(SOON / 2))
    with pytest.raises(EngineError, match="closed"):
        begins(runs)


def test_a_run_that_is_refused_does_not_end_the_one_that_goes_on():
    runs = Runs()
    future = begins(runs)
    for _ in range(2):
        with pytest.raises(EngineError, match="not finished"), runs._running():
            pass
    assert future.result() == future.result() == "done"
    assert begins(runs).result() == "done"


def test_of_two_that_close_neither_waits_for_the_other():
    runs = Runs()
    runs._take()
    closed, threads = list[Any](), []
    for _ in range(2):
        threads.append(threading.Thread(target=lambda: closed.append(runs.close(SOON)), daemon=True))
        threads[-1].start()
    runs._busy.release()
    for thread in threads:
        thread.join(SOON / 2)
    assert closed == [None, None]


@pytest.fixture(scope="module")
def engine():
    return ptp.build(conv_net(Calling()), engine="reference")


RUNS = {
    "run": lambda context, *given: context.run(DATA, *given),
    "run_async": lambda context, *given: context.run_async(DATA, *given).result(SOON),
}


@pytest.mark.parametrize("way", RUNS)
def test_after_a_plugin_that_raises_the_context_runs_and_closes(engine, way, monkeypatch):
    wanted = engine.create_context().run(DATA)["y"]
    context = engine.create_context()
    for _ in range(2):
        monkeypatch.setattr(Calling, "hook", staticmethod(broken))
        with pytest.raises(Broken):
            RUNS[way](context)
        np.testing.assert_array_equal(soon(lambda: RUNS[way](context))["y"], wanted)
    soon(lambda: context.close(SOON / 2))


@pytest.mark.parametrize("way", RUNS)
def test_after_arrays_that_do_not_fit_the_context_runs_and_closes(engine, way):
    context = engine.create_context()
    for _ in range(2):
        with pytest.raises(BindingError):
            RUNS[way](context, {"y": np.zeros((1, 1), np.float32)})
        assert soon(lambda: RUNS[way](context)).keys() == {"y"}
    soon(lambda: context.close(SOON / 2))


def test_after_a_detection_that_raises_the_context_detects_and_closes(monkeypatch):
    built = ptp.build(conv_net(Calling(), channels=14), engine="reference")
    detection = built.create_detection_context([Head("y", "region", (1.0, 1.0, 3.0, 2.0), 2)], (8, 8))
    image = np.full((20, 30, 3), 128, np.uint8)
    for way in (detection.detect, lambda images: detection.detect_async(images).result()):
        monkeypatch.setattr(Calling, "hook", staticmethod(broken))
        with pytest.raises(Broken):
            way([image])
        assert len(soon(lambda way=way: way([image]))) == 1
    soon(lambda: detection.close(SOON / 2))


@pytest.mark.parametrize("survives", [True, False])
def test_a_forked_child_releases_only_what_it_can_use(survives, monkeypatch):
    released = []
    runs = Runs()
    runs.engine.survives_fork = survives
    monkeypatch.setattr(runs, "_close", lambda: released.append("here"))
    runs._leave_parent()  # what a child does first
    runs.close()
    assert released == (["here"] if survives else [])
    with pytest.raises(EngineError, match="closed"):
        begins(runs)
