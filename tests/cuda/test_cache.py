"""Where what takes long to make is kept; a machine without a place for it works all the same."""

import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pytrtplugins.cuda import cache
from pytrtplugins.errors import UsageError

MIB = 1 << 20
WRITER = """
from pytrtplugins.cuda import cache
cache._IN_USE_S = 0
for number in [*range(30), *range(30)]:
    contents = f"{number} ".encode() * 20_000
    assert cache.cached_bytes([str(number)], ".cubin", lambda: contents) == contents
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Folders are looked for once in a process."""
    cache.cache_folder.cache_clear()
    for name in ("XDG_CACHE_HOME", cache.CACHE_MIB):
        monkeypatch.delenv(name, raising=False)
    yield
    cache.cache_folder.cache_clear()


def _made():
    return cache.cached_file(["some", "text"], ".txt", lambda path: path.write_text("made", encoding="utf-8"))


def _read():
    return cache.cached_bytes(["some", "text"], ".txt", lambda: b"made")


def test_the_users_cache_is_taken(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _made().parent == tmp_path / ".cache" / "pytrtplugins" / "kernels"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    cache.cache_folder.cache_clear()
    assert _made().parent == tmp_path / "x" / "pytrtplugins" / "kernels"


def test_a_home_that_cannot_be_written_costs_the_cache_alone(monkeypatch, caplog):
    monkeypatch.setenv("HOME", "/proc/nowhere")
    with caplog.at_level(logging.WARNING):
        assert _read() == b"made"
    assert "cannot be written" in caplog.text


def test_a_user_without_a_home_needs_none(monkeypatch):
    def nobody(cls):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", classmethod(nobody))
    assert _read() == b"made"


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """An empty cache of at most 1 MiB."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(cache.CACHE_MIB, "1")
    return cache.cache_folder()


def kept(name, size=300_000):
    """An entry, used just now: its path, and whether it was made."""
    made = []
    path = cache.cached_file([name], ".cubin", lambda path: made.append(path.write_bytes(b"." * size)))
    return path, bool(made)


def used(path, seconds_ago):
    os.utime(path, (time.time() - seconds_ago,) * 2)


def test_the_entries_that_were_used_least_recently_make_room_for_new_ones(folder):
    paths = [kept(name)[0] for name in "abc"]
    for path, ago in zip(paths, (300, 200, 100), strict=True):
        used(path, ago)
    assert kept("a") == (paths[0], False)  # a use
    other = folder / "choices.json"
    other.write_bytes(b"." * MIB)
    used(other, 1000)
    fourth = kept("d")[0]
    assert set(folder.iterdir()) == {paths[0], paths[2], fourth, other}
    assert kept("b") == (paths[1], True)


def test_what_was_used_a_moment_ago_and_what_is_being_written_stay(folder):
    part = folder / ".0123.cubin.1-abcd.part.cubin"
    part.write_bytes(b"." * MIB)
    used(part, 1000)
    paths = {kept(name, MIB)[0] for name in "abc"}
    assert set(folder.iterdir()) == paths | {part}


def test_small_entries_keep_the_limit_too(folder, monkeypatch):
    monkeypatch.setattr(cache, "_IN_USE_S", 0)
    for number in range(400):
        kept(str(number), 4000)
        assert sum(path.stat().st_size for path in folder.glob("*.cubin")) <= MIB
    assert kept("399", 4000)[1] is False


@pytest.mark.parametrize(("more", "removed"), [(0, 0), (1, 1)])
def test_entries_may_fill_the_limit_to_the_last_byte(folder, more, removed):
    """One byte too many costs the one that was used least recently."""
    paths = [folder / f"{number:040}.cubin" for number in range(4)]
    for number, path in enumerate(paths):
        path.write_bytes(b"." * (MIB // 4 + (more if number == 3 else 0)))
        used(path, 1000 - number)
    left = cache._evict(folder, MIB)
    assert [path.exists() for path in paths] == [number >= removed for number in range(4)]
    assert left == MIB + more - removed * (MIB // 4)


@pytest.mark.parametrize(
    ("text", "limit"), [(None, 1 << 30), ("", 1 << 30), ("0", 0), ("1", 1 << 20), ("1048576", 1 << 40)]
)
def test_the_limit_is_a_number_of_mib(monkeypatch, text, limit):
    if text is not None:
        monkeypatch.setenv(cache.CACHE_MIB, text)
    assert cache._limit_bytes() == limit


@pytest.mark.parametrize("place", [0, 1, 2])
def test_each_part_that_a_result_depends_on_makes_it_another_entry(folder, place):
    parts = ["source", "-O2", "gcc 14"]
    first = cache.cached_file(parts, ".so", lambda path: path.write_text("first"))
    other = [f"{part}x" if index == place else part for index, part in enumerate(parts)]
    assert cache.cached_bytes(other, ".so", lambda: b"other") == b"other"
    assert cache.cached_bytes(parts, ".so", lambda: b"other") == b"first"
    assert cache.cached_bytes(["source-O2", "gcc 14"], ".so", lambda: b"joined") == b"joined"
    assert cache.cached_bytes(parts, ".cubin", lambda: b"cubin") == b"cubin"
    assert first.exists()


def test_a_folder_with_room_is_not_looked_at_for_each_entry(folder, monkeypatch):
    looks, evict = [], cache._evict
    monkeypatch.setattr(cache, "_evict", lambda *arguments: looks.append(arguments) or evict(*arguments))
    for number in range(100):
        kept(str(number), 1000)
    assert looks == [(folder, MIB)]


def test_a_limit_of_zero_keeps_what_is_in_use(folder, monkeypatch):
    monkeypatch.setenv(cache.CACHE_MIB, "0")
    first = kept("a")[0]
    used(first, 100)
    second = kept("b")[0]
    assert set(folder.iterdir()) == {second}


@pytest.mark.parametrize("text", ["many", "-1", "1.5"])
def test_a_limit_that_is_no_number_is_refused_before_anything_is_made(folder, monkeypatch, text):
    monkeypatch.setenv(cache.CACHE_MIB, text)
    with pytest.raises(UsageError, match="PYTRT_CACHE_MIB, an environment variable: expected a whole number from 0 to"):
        kept("a")
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: data[:-40], lambda data: b"x" + data[1:], lambda data: data + b"x"]
)
def test_a_damaged_entry_is_made_again(folder, damage):
    path = kept("a")[0]
    data = path.read_bytes()
    path.write_bytes(damage(data))
    assert kept("a") == (path, True)
    assert path.read_bytes() == data
    assert kept("a") == (path, False)


def test_an_entry_that_vanishes_is_made_again(folder):
    path = kept("a")[0]
    path.unlink()
    assert kept("a") == (path, True)


def test_a_failure_leaves_nothing(folder):
    def fail(path):
        path.write_bytes(b"half")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cache.cached_file(["a"], ".cubin", fail)
    assert not list(folder.iterdir())
    assert not cache.compiling()


def test_processes_that_write_and_evict_at_once_read_whole_entries(folder):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    writers = [subprocess.Popen([sys.executable, "-c", WRITER], env=environment) for _ in range(2)]
    for writer in writers:
        writer.wait()
    assert [writer.returncode for writer in writers] == [0, 0]
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    assert sum(path.stat().st_size for path in folder.iterdir()) <= MIB


def test_compiling_tells_that_a_thread_waits_for_a_compiler(folder):
    begun, go_on = threading.Event(), threading.Event()

    def make():
        begun.set()
        go_on.wait()
        return b"made"

    thread = threading.Thread(target=cache.cached_bytes, args=(["a"], ".cubin", make))
    thread.start()
    begun.wait()
    assert cache.compiling()
    go_on.set()
    thread.join()
    assert not cache.compiling()
