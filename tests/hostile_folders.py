"""What a folder from somebody else may hold in the place of a file, and how a command that meets it is watched."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytrtplugins.errors import PytrtpluginsError

__all__ = ["KINDS", "assert_refused", "put", "snapshot"]

KINDS = ("link to a file", "link to a folder", "dangling link", "FIFO", "socket", "device")
_SECONDS = 60  # after which a command counts as one that hangs
_PRECIOUS = b"precious"


def put(kind: str, place: Path, outside: Path) -> None:
    """Put something into the place of a file or a folder; what was there is what a link leads to."""
    outside.mkdir()
    (outside / "folder").mkdir()
    (outside / "folder" / "file").write_bytes(_PRECIOUS)
    (outside / "file").write_bytes(_PRECIOUS)
    place.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(place):
        inner = outside / ("folder/tree" if place.is_dir() else "copy")
        shutil.move(place, inner)
    else:
        inner = outside / "file"
    if kind == "link to a file":
        place.symlink_to(inner if inner.is_file() else outside / "file")
    elif kind == "link to a folder":
        place.symlink_to(inner if inner.is_dir() else outside / "folder")
    elif kind == "dangling link":
        place.symlink_to(outside / "nothing")
    elif kind == "FIFO":
        os.mkfifo(place)
    elif kind == "socket":
        with contextlib.chdir(place.parent), socket.socket(socket.AF_UNIX) as made:  # the address of a socket is short
            made.bind(place.name)
    else:
        try:
            os.mknod(place, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # zero, which never ends
            with place.open("rb"):
                pass
        except OSError as error:
            pytest.skip(f"no device can be made here: {error}")


def snapshot(folder: Path) -> dict[str, tuple[object, ...]]:
    """Kind, permissions and contents of all that is in a folder."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            path.lstat().st_nlink,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(folder.rglob("*"))
    }


def assert_refused(command: Callable[[], object], place: Path, outside: Path) -> None:
    """Require an error of this package that names the place, soon, while nothing outside of the folder changes."""
    before = snapshot(outside)
    with _limited(), pytest.raises(PytrtpluginsError) as caught:
        command()
    assert str(place) in str(caught.value)
    assert len(str(caught.value)) < 1500
    assert snapshot(outside) == before


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def hang(*_: object) -> None:
        raise AssertionError(f"a command hung for {_SECONDS} s")

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
