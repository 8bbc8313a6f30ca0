"""Forked children of a process that holds an engine; `tests.engines.base.closing` runs these cases."""

import gc
import os
import signal
import traceback
import warnings
from typing import Any

import numpy as np

from tests.engines.base.world import DATA, LONG, Held, error_of


def in_a_child(function):
    """Call something in a forked process, and require that it ends well."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks of processes with threads
        pid = os.fork()
    if pid == 0:
        signal.alarm(LONG)
        code = 1
        try:
            function()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_forked_child_uses_the_engine_or_is_told_that_it_cannot(world):
    engine, context, other = world.engine, world.context, world.other

    def works(function):
        if engine.survives_fork:
            np.testing.assert_array_equal(function()["y"], world.plain)
        else:
            assert "before this process was forked" in error_of(function)

    def fresh():
        with engine.create_context() as made:
            return made.run(DATA)

    context.run_async(DATA).result()  # from here on the context has a thread, which no child has
    in_a_child(lambda: works(lambda: context.run(DATA)))
    in_a_child(lambda: works(lambda: context.run_async(DATA).result()))
    in_a_child(lambda: works(fresh))
    in_a_child(context.close)

    queued = other._start(lambda: lambda: {"y": world.plain})

    def abandoned():
        assert "ends in the parent alone" in error_of(queued.result)
        found = error_of(lambda: other.run(DATA))
        assert "closed" in found or not engine.survives_fork, found
        other.close()

    in_a_child(abandoned)
    queued.result()
    np.testing.assert_array_equal(other.run(DATA)["y"], world.plain)


def test_a_child_that_is_forked_while_another_thread_runs_the_engine_waits_for_nothing(world):
    engine, context = world.engine, world.context
    held = Held(world.other)

    def use():
        found = error_of(lambda: np.testing.assert_array_equal(context.run(DATA)["y"], world.plain))
        assert found == "no error" if engine.survives_fork else "before this process was forked" in found, found
        assert "closed" in error_of(lambda: world.other.run(DATA)) or not engine.survives_fork
        if held._queued.is_set():
            called = list[Any]()
            held.future.add_done_callback(called.append)
            for ask in (held.future.result, held.future.result):
                assert "ends in the parent alone" in error_of(ask)
            assert called == [held.future]

    in_a_child(use)
    held.let_go()
    np.testing.assert_array_equal(held.future.result()["y"], world.plain)


def test_a_forked_child_lets_go_of_its_parents_engine(world):
    engines = [world.built()]
    contexts = [engines[0].create_context()]
    contexts[0].run_async(DATA).result()

    def let_go():
        contexts.pop().close()
        engines.pop()
        gc.collect()

    in_a_child(let_go)
    contexts.pop().close()
