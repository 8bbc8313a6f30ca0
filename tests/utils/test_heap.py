"""What Python's collector leaves alone, and what it still finds."""

import ctypes
import gc
import os
import subprocess
import sys
import weakref

import pytest

from pytrtplugins.utils import heap
from pytrtplugins.utils.heap import collect_and_freeze, no_collection, refreeze
from tests.small_process import in_small_process


class Circle:
    """Is garbage that only the collector can find."""

    def __init__(self):
        self.own = self


@pytest.mark.parametrize(
    ("variables", "options"),
    [({"HOME": "/"}, 2), ({"HOME": "/", "MALLOC_ARENA_MAX": "1"}, 0), ({"A": "1", "GLIBC_TUNABLES": "x"}, 0), ({}, 2)],
)
def test_the_c_library_keeps_memory_unless_the_user_has_set_it(monkeypatch, variables, options):
    calls = []
    library = type("Library", (), {"mallopt": staticmethod(lambda *given: calls.append(given))})
    monkeypatch.setattr(heap.ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(heap.os, "environ", variables)
    heap.reuse_memory()
    assert calls == [(-3, 4 << 20), (-1, 16 << 20)][:options]


@in_small_process  # for the collector, which goes through all objects here
def test_what_is_there_is_left_alone_and_garbage_is_gone():
    gc.unfreeze()
    circle = weakref.ref(Circle())
    collect_and_freeze()
    assert gc.get_freeze_count() > 1000
    assert circle() is None


@in_small_process
def test_what_has_become_garbage_since_is_found_by_the_next_call_alone():
    gc.unfreeze()
    settled = Circle()
    found = weakref.ref(settled)
    collect_and_freeze()
    del settled
    gc.collect()
    assert found() is not None
    refreeze()
    assert found() is None
    assert gc.get_freeze_count() > 1000


@in_small_process
def test_nothing_is_settled_again_that_never_was():
    gc.unfreeze()
    refreeze()
    assert gc.get_freeze_count() == 0


PHOTOS = """
import resource, sys, threading
from pytrtplugins.utils.heap import reuse_memory
if sys.argv[1] == "reuse":
    reuse_memory()

def serve():
    for _ in range(30):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        photos = [b"x" * (150_000 + size) for size in range(16)]
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
        del photos

faults = []
thread = threading.Thread(target=serve)
thread.start()
thread.join()
print(sorted(faults)[15])
"""


def faults(way, **environment):
    """Pages that the kernel had to give for 16 photos, after others were freed."""
    without = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    command = [sys.executable, "-c", PHOTOS, way]
    return int(
        subprocess.run(command, env={**without, **environment}, capture_output=True, text=True, check=True).stdout
    )


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library has no mallopt")
def test_memory_that_was_freed_is_used_again_unless_the_user_says_otherwise():
    assert faults("as it is") > 300
    assert faults("reuse") < 30
    assert faults("reuse", MALLOC_TRIM_THRESHOLD_="0") > 300


@pytest.fixture
def collector_as_before():
    was_on = gc.isenabled()
    yield
    (gc.enable if was_on else gc.disable)()


@pytest.mark.usefixtures("collector_as_before")
def test_nothing_is_collected_within_it_and_again_afterwards():
    gc.enable()
    with no_collection():
        assert not gc.isenabled()
        with no_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.usefixtures("collector_as_before")
def test_an_error_ends_it():
    gc.enable()
    with pytest.raises(ValueError, match="wrong"), no_collection():
        raise ValueError("wrong")
    assert gc.isenabled()


@pytest.mark.usefixtures("collector_as_before")
def test_who_has_turned_it_off_finds_it_off():
    gc.disable()
    with no_collection():
        pass
    assert not gc.isenabled()
