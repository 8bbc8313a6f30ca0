"""Bodies that wait."""

import threading
from contextlib import contextmanager

from pytrtplugins.serving.http import body


@contextmanager
def no_thread_to_decompress():
    """Let compressed bodies wait until the event is set."""
    free = threading.Event()
    try:
        for _ in range(body._THREADS._max_workers):
            body._THREADS.submit(free.wait, 20)
        yield free
    finally:
        free.set()
