"""Locks between processes."""

import contextlib
import errno
import os
import subprocess
import sys

import pytest

from pytrtplugins.utils.file_lock import held_lock, take_lock

fcntl = pytest.importorskip("fcntl")
HOLD = "import os, sys; from pytrtplugins.utils.file_lock import take_lock; h = os.open(sys.argv[1], os.O_RDONLY); " + (
    "print(take_lock(h, shared=sys.argv[2] == 'shared'), flush=True); sys.stdin.read()"
)


@pytest.fixture
def handle(tmp_path):
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize(
    ("held", "wanted", "free"), [("own", "own", 0), ("own", "shared", 0), ("shared", "own", 0), ("shared", "shared", 1)]
)
def test_a_lock_is_taken_until_its_process_ends(tmp_path, handle, held, wanted, free):
    line = [sys.executable, "-c", HOLD, str(tmp_path), held]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "True\n"
        assert take_lock(handle, shared=wanted == "shared", wait=False) is bool(free)
        other.kill()
    assert take_lock(handle, shared=wanted == "shared", wait=False)


def test_who_waits_gets_it_next(tmp_path, handle):
    assert take_lock(handle)
    line = [sys.executable, "-c", HOLD, str(tmp_path), "own"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        fcntl.flock(handle, fcntl.LOCK_UN)
        assert other.stdout.readline() == "True\n"
        assert not take_lock(handle, wait=False)
        other.kill()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF])
def test_a_file_system_without_locks_keeps_nobody_out_and_other_errors_are_told(monkeypatch, handle, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    if number == errno.EBADF:
        with pytest.raises(OSError, match="Bad file descriptor"):
            take_lock(handle)
    else:
        assert take_lock(handle, wait=False)


@pytest.mark.parametrize("error", [None, KeyError])
def test_a_lock_that_a_block_holds_ends_with_it(tmp_path, handle, error):
    def hold():
        with held_lock(os.open(tmp_path, os.O_RDONLY)) as is_held:
            assert is_held
            assert not take_lock(handle, wait=False)
            with held_lock(os.open(tmp_path, os.O_RDONLY), wait=False) as second:
                assert not second
            if error:
                raise error

    with pytest.raises(error) if error else contextlib.nullcontext():
        hold()
    assert take_lock(handle, wait=False)
