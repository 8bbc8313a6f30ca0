"""What a process of a check may take."""

import mmap
import sys

import pytest

from pytrtplugins.check import isolate

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="checks run in a process of their own on Linux only")
resource = pytest.importorskip("resource")
GIB = 1 << 30


@pytest.mark.parametrize(
    ("hard", "limit"), [(resource.RLIM_INFINITY, 68 * GIB), (100 * GIB, 68 * GIB), (66 * GIB, 66 * GIB)]
)
def test_it_may_take_4_gib_more_than_its_parent_has_or_what_the_system_allows(monkeypatch, hard, limit):
    found, read = list[object](), resource.getrlimit
    monkeypatch.setattr(isolate, "_data_bytes", lambda: 64 * GIB)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (0, hard))
    assert isolate.run(lambda send: send(read(resource.RLIMIT_DATA)), found.append, 20) == ""
    assert found == [[limit, hard]]


def test_the_memory_of_a_process_is_counted_in_bytes():
    size = 64 << 20
    before = isolate._data_bytes()
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE):
        assert size <= isolate._data_bytes() - before < 2 * size


def test_what_would_have_ended_the_process_is_named_with_the_innermost_place():
    def leave():
        sys.exit(3)

    end = isolate.run(lambda send: leave(), print, 20)
    assert end.startswith(f"crash: SystemExit(3) is raised ({__file__}:{leave.__code__.co_firstlineno + 1}, in leave)")
