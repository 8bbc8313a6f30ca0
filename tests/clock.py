"""A clock that tests set: it stands in the place of the module ``time``."""

import time


class Clock:
    """Seconds from 1,024 on; steps of binary fractions, such as 1/16 s, stay exact."""

    def __init__(self):
        self.now = 1024.0

    def monotonic(self):
        return self.now

    perf_counter = monotonic

    def monotonic_ns(self):
        return int(1e9 * self.now)

    time_ns = monotonic_ns
    gmtime, strftime = staticmethod(time.gmtime), staticmethod(time.strftime)
