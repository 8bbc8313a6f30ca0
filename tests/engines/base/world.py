"""An engine whose plugin calls back, and a run that waits, for the cases of `closing` and `forking`."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import pytrtplugins as ptp
from pytrtplugins.errors import EngineError
from tests.engines.networks import Calling, conv_net, image

DATA = {"data": image()}
LONG = 30
"""Seconds after which a thread that waits for another gives up, so that a case that hangs does so in the code under test."""


class World:
    """An engine, two of its contexts, and what they give."""

    def __init__(self, name):
        self.name = name
        self.engine = self.built()
        self.context, self.other = self.engine.create_context(), self.engine.create_context()
        self.plain = self.context.run(DATA)["y"]

    def built(self):
        return ptp.build(conv_net(Calling()), engine=self.name)

    def inside(self, function, run=None):
        """What a function raises that is called in `compute`; the run around it goes on, and its numbers are right."""
        found = []
        Calling.hook = lambda: found.append(error_of(function))
        try:
            y = (run or self.context.run)(DATA)["y"]
        finally:
            Calling.hook = None
        np.testing.assert_array_equal(y, self.plain)
        return found[0]

    def close(self):
        self.context.close()
        self.other.close()
        left = [thread.name for thread in threading.enumerate() if "-context" in thread.name]
        assert left == [], left


class Held:
    """A run that waits in `compute` until it is let go: in the context's own thread, or on a GPU in the one that queues it."""

    def __init__(self, context):
        self._context = context
        self.started, self._go = threading.Event(), threading.Event()
        Calling.hook = self._wait
        self._future, self._queued = None, threading.Event()
        threading.Thread(target=self._queue, daemon=True).start()
        assert self.started.wait(LONG)
        if context.engine.name != "cuda":
            assert self._queued.wait(LONG)

    @property
    def future(self):
        assert self._queued.wait(LONG)
        return self._future

    def _queue(self):
        self._future = self._context.run_async(DATA)
        self._queued.set()

    def _wait(self):
        self.started.set()
        self._go.wait(LONG)

    def let_go(self):
        self._go.set()

    def close_in_callback(self):
        """Close the context in the callback of this run; what is returned waits for that, and says how it ended."""
        found, called = [], threading.Event()

        def callback(future):
            found.append(error_of(self._context.close))
            called.set()

        def closing():
            assert called.wait(LONG)
            return found[0]

        if self._queued.is_set():
            self.future.add_done_callback(callback)
        else:
            threading.Thread(target=lambda: self.future.add_done_callback(callback), daemon=True).start()
        return closing


def error_of(function):
    try:
        function()
    except EngineError as error:
        return str(error)
    return "no error"


def in_threads(function, count=4):
    """What each of several threads gets that begin at the same time."""
    barrier = threading.Barrier(count)

    def begin(number):
        barrier.wait(30)
        return function(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def in_a_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(error_of(function)))
    thread.start()
    thread.join()
    return found[0]


def ways(context):
    return context.run, lambda data: context.run_async(data).result()
