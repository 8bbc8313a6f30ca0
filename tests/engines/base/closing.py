"""Closing, nesting and forking, in a process of its own, since what is wrong there hangs: ``python -m tests.engines.base.closing cpu``.

Each function whose name begins with ``test_``, here and in `forking`, is one case; how it ended is printed as a line
of JSON. `test_closing` reads them.
"""

import json
import sys
import threading
import traceback
from functools import partial
from typing import Any

import numpy as np

import pytrtplugins as ptp
from pytrtplugins.errors import EngineError
from pytrtplugins.vision import Head
from tests.engines.base import forking
from tests.engines.base.world import DATA, LONG, Held, World, error_of, in_a_thread, in_threads, ways
from tests.engines.networks import Calling, conv_net


def test_closing_a_context_inside_its_own_run_is_an_error(world):
    found = world.inside(world.context.close)
    assert "close() was called from inside a run of this context" in found, found
    for run in ways(world.context):
        found = world.inside(world.context.close, run)
        assert "close() was called from inside a run" in found, found
    np.testing.assert_array_equal(world.context.run(DATA)["y"], world.plain)


def test_closing_another_context_inside_a_run_closes_it_where_it_is_idle(world):
    assert world.inside(world.other.close) == "no error"
    assert "closed" in error_of(lambda: world.other.run(DATA))


def test_closing_another_context_inside_a_run_is_an_error_where_it_runs(world):
    found = []

    def nested():
        Calling.hook = lambda: found.append(error_of(world.context.close))
        with world.built().create_context() as inner:
            inner.run(DATA)

    assert world.inside(nested) == "no error"
    assert "close() was called from inside a run of this context" in found[0], found
    queued = world.other._start(lambda: lambda: DATA)
    assert "this context has runs that are not finished" in world.inside(world.other.close)
    queued.result()


def test_closing_gives_up_where_the_run_waits_for_the_thread_that_closes(world):
    told = []

    def close():
        told.append(in_a_thread(lambda: world.context.close(timeout=0.2)))

    for run in ways(world.context):
        assert world.inside(close, run) == "no error"
        assert "close() has waited 0.2 seconds" in told[-1], told


def test_a_run_inside_a_run_of_the_same_context_is_an_error(world):
    for outer in ways(world.context):
        for run in ways(world.context):
            found = world.inside(lambda run=run: run(DATA), outer)
            assert "begun from inside a run of the same" in found or "another thread" in found, found
    assert "begun from inside a run of the same context" in world.inside(lambda: world.context.run(DATA))


def test_a_run_of_another_context_inside_a_run_works_or_is_refused(world):
    for run in ways(world.other):
        found = world.inside(lambda run=run: run(DATA))
        if world.engine.nests:
            assert found == "no error", found
        else:
            assert "begun from inside a run of the same engine" in found, found
    with world.built().create_context() as inner:
        for run in ways(inner):
            assert world.inside(lambda run=run: run(DATA)) == "no error"


def test_an_engine_is_built_inside_a_run(world):
    def build():
        with world.built().create_context() as made:
            made.run(DATA)

    assert world.inside(build) == "no error"


def test_closing_in_the_callback_of_a_run_is_an_error_while_others_are_queued(world):
    held = Held(world.context)
    closing = held.close_in_callback()
    if world.name == "cuda":  # whose context queues a run when the one before is finished: nothing else is queued
        held.let_go()
        assert closing() == "no error"
        assert "closed" in error_of(lambda: world.context.run_async(DATA))
        return
    second = world.context.run_async(DATA)
    held.let_go()
    found = closing()
    assert "a callback of a run, and this context has runs that are not finished" in found
    np.testing.assert_array_equal(second.result()["y"], world.plain)


def test_closing_in_the_callback_of_the_last_run_closes(world):
    held = Held(world.context)
    closing = held.close_in_callback()
    held.let_go()
    assert closing() == "no error"
    assert "closed" in error_of(lambda: world.context.run(DATA))
    for thread in threading.enumerate():
        if "-context" in thread.name:
            thread.join(LONG)


def test_closing_waits_for_a_run_in_another_thread(world):
    held = Held(world.context)
    closed = threading.Thread(target=world.context.close)
    closed.start()
    closed.join(0.2)
    assert closed.is_alive()
    held.let_go()
    closed.join(LONG)
    assert not closed.is_alive()
    np.testing.assert_array_equal(held.future.result()["y"], world.plain)


def test_closing_waits_for_a_run_that_another_thread_is_just_queueing(world):
    started, go, queued = threading.Event(), threading.Event(), list[Any]()

    def begin():
        started.set()
        go.wait(LONG)
        return lambda: {"y": world.plain}

    threading.Thread(target=lambda: queued.append(world.context._start(begin)), daemon=True).start()
    assert started.wait(LONG)
    closed = threading.Thread(target=world.context.close, daemon=True)
    closed.start()
    closed.join(0.2)
    assert closed.is_alive()
    go.set()
    closed.join(LONG)  # though nobody asks for the result
    assert not closed.is_alive()
    np.testing.assert_array_equal(queued[0].result()["y"], world.plain)


def test_a_detection_context_closed_inside_its_own_run_is_an_error(world):
    head = Head("y", "region", (1.0, 1.0, 3.0, 2.0), 2)
    net = conv_net(Calling(), channels=14)
    with ptp.build(net, engine=world.name).create_detection_context([head], (8, 8)) as detection:
        image = np.full((20, 30, 3), 128, np.uint8)
        ways = (detection.detect, lambda images: detection.detect_async(images).result())
        words = ["close() was called from inside a run", "begun from inside a run"]
        words.append("another thread is running this context")
        for way in ways:
            for used in (detection.close, *(partial(each, [image]) for each in ways)):
                found = list[Any]()
                Calling.hook = lambda used=used, found=found: found.append(error_of(used))
                assert len(way([image])) == 1
                assert any(text in found[0] for text in words), found
        assert len(detection.detect([image])) == 1


def test_runs_queued_while_the_context_is_closed_end_with_an_error(world):
    for _ in range(10):
        shared, found = world.engine.create_context(), list[Any]()

        def queue(shared=shared, found=found):
            try:
                while True:
                    shared.run_async(DATA).result()
            except EngineError as error:  # closed, or being closed at that moment
                found.append(str(error))

        threads = [threading.Thread(target=queue) for _ in range(3)]
        for thread in threads:
            thread.start()
        shared.run_async(DATA).result()
        shared.close()
        for thread in threads:
            thread.join(LONG)
        assert len(found) == 3, found
        assert all("closed" in text or "another thread" in text for text in found), found
        assert "closed" in error_of(lambda shared=shared: shared.run_async(DATA))


def test_two_threads_close_at_once(world):
    world.context.run_async(DATA)
    in_threads(lambda _: world.context.close())
    assert "closed" in error_of(lambda: world.context.run(DATA))


def cases():
    """Name of a case → its function, those of forks last."""
    return {
        name: value for held in (globals(), vars(forking)) for name, value in held.items() if name.startswith("test_")
    }


def main(engine_name):
    for name, case in cases().items():
        failure = ""
        try:
            world = World(engine_name)
            case(world)
            world.close()
        except BaseException:
            failure = traceback.format_exc()
        print(json.dumps({"case": name, "failure": failure}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
