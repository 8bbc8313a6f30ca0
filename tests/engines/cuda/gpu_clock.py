"""A GPU's streams and events that know nothing but a clock, in milliseconds as CUDA counts."""

from contextlib import nullcontext
from types import SimpleNamespace


class _Stream(nullcontext):
    def synchronize(self):
        pass


class GpuClock:
    """What CuPy's ``cuda`` has for times.

    Attributes:
        now: Milliseconds.
    """

    def __init__(self):
        self.now = 7.0

    def Stream(self, non_blocking=True):
        return _Stream()

    def Event(self):
        event = SimpleNamespace(synchronize=lambda: None)
        event.record = lambda stream: setattr(event, "at", self.now)
        return event

    def get_elapsed_time(self, first, last):
        return last.at - first.at

    def work(self, milliseconds):
        """What queues work of this length."""

        def queue(*arguments):
            self.now += milliseconds

        return queue
