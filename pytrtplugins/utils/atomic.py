"""Write files as a whole or not at all: under a temporary name, which is renamed at the end."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ..errors import UsageError
from .file_lock import take_lock
from .files import check_path
from .inside import holder, kind_text

__all__ = ["atomic_file", "atomic_path", "check_target", "remove_abandoned", "write_atomic"]

_NAME_LENGTH, _SUFFIX_LENGTH = 32, 16  # of a target, in the name of its temporary file: names may have 255 bytes
_BINARY = getattr(os, "O_BINARY", 0)
_ABANDONED_AFTER_S = 3600  # a temporary file that nobody has locked, though a process of its writer's number lives
_active: set[str] = set()  # temporary files of this process


@contextmanager
def atomic_path(path: str | Path, *, durable: bool = True, within: str | Path | None = None) -> Iterator[Path]:
    """Yield a temporary path, which is renamed to ``path`` when the block succeeds, and deleted when it fails.

    Readers of ``path`` see the old file or the new one, never a part; so it is after a crash, too, since the contents
    are on the disk before the name is taken. Links are followed: the file behind them is replaced, with its permissions
    and, where that is allowed, its owner. What writers left behind that were killed is removed by the next write to the
    same path. A character device or a FIFO is written in place: ``/dev/null`` stays what it is.

    Args:
        path: The target. The temporary path has its suffix.
        durable: Put the contents on the disk before the name is taken, and look for what killed writers left behind. One of
            thousands of results, which can be made again, needs neither; both take longer than to write it.
        within: A folder above the target that may come from somebody else, such as a set of shards: a link there could name any
            file of the user's. Then nothing below it is reached through a link, nothing but a regular file is replaced, and folders
            that are missing are made.

    Raises:
        UsageError: the target is a folder, a socket, a block device, or a FIFO that nobody reads; with ``within``, anything but a
            regular file.
        OSError: the folder does not exist, or cannot be written.
    """
    check_path(path, error=UsageError)
    old = _status(path) if within is None else None
    if old is not None and not stat.S_ISREG(old.st_mode):
        with open(_open_writable(path, old.st_mode), "wb") as stream, tempfile.TemporaryDirectory() as folder:
            temporary = Path(folder) / f"output{Path(path).suffix}"
            temporary.touch()
            yield temporary
            with temporary.open("rb") as file:
                shutil.copyfileobj(file, stream)
        return
    with _temporary(path, durable, within) as (temporary, _):
        yield temporary


@contextmanager
def atomic_file(path: str | Path, *, durable: bool = True, within: str | Path) -> Iterator[BinaryIO]:
    """Yield a temporary file, which is renamed to ``path``, below a folder, when the block succeeds, else deleted; see `atomic_path`."""
    check_path(path, error=UsageError)
    with _temporary(path, durable, within) as (_, handle), os.fdopen(os.dup(handle), "wb") as file:
        yield file


def write_atomic(path: str | Path, data: bytes, *, durable: bool = True, within: str | Path | None = None) -> None:
    """Write ``data`` to ``path``; readers see the old file or the new one, never a part. See `atomic_path`."""
    if within is not None:
        with atomic_file(path, durable=durable, within=within) as file:
            file.write(data)
        return
    with atomic_path(path, durable=durable) as temporary:
        temporary.write_bytes(data)


def remove_abandoned(folder: Path) -> None:
    """Remove all temporary files in a folder whose writers were killed."""
    _remove_abandoned(folder, None, None)


def check_target(path: str | Path, what: str = "file", suffixes: Collection[str] = ()) -> Path:
    """Return a path that a file can be written to; ``what`` names the file in the message."""
    path = Path(path)
    check_path(path, error=UsageError)
    if suffixes and path.suffix.lower() not in suffixes:
        known_suffixes = " ".join(suffixes)
        raise UsageError(f"{what} {str(path)!r}: unknown suffix {path.suffix!r}. Known: {known_suffixes}.", path=path)
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"{what} {str(path)!r}: the folder does not exist.\nDo: mkdir -p {folder}", path=path)
    return path


# --- inside -----------------------------------------------------------------------------------------------------------


@contextmanager
def _temporary(path: str | Path, durable: bool, within: str | Path | None) -> Iterator[tuple[Path, int]]:
    """Yield the path and descriptor of a temporary file that replaces a regular one at the end."""
    with contextlib.ExitStack() as stack:
        folder: int | None = None
        if within is None:
            target = Path(os.path.realpath(path))
        else:
            target = Path(path)
            folder, _ = stack.enter_context(holder(target, within, error=UsageError, make=True))

        def place(name: str) -> str:  # what functions of the system get beside the folder
            return str(target.with_name(name)) if folder is None else name

        old = _old_status(target, place(target.name), folder, within)
        if durable:
            _remove_abandoned(target.parent, target, folder)
        name = f"{_prefix(target)}{os.getpid()}-{secrets.token_hex(4)}.part{_suffix(target)}"
        if folder is None:
            check_path(place(name), error=UsageError)
        _active.add(name)
        try:
            handle = os.open(place(name), os.O_RDWR | os.O_CREAT | os.O_EXCL | _BINARY, 0o666, dir_fd=folder)
            try:
                take_lock(handle)
                mode = os.fstat(handle).st_mode
                yield target.with_name(name), handle
                _set_attributes(place(name), folder, mode, old, durable)
                try:
                    os.replace(place(name), place(target.name), src_dir_fd=folder, dst_dir_fd=folder)
                except IsADirectoryError as error:  # made while the file was written
                    raise _not_a_file_error(target, stat.S_IFDIR) from error
            finally:
                os.close(handle)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(place(name), dir_fd=folder)
            _active.discard(name)


def _old_status(target: Path, name: str, folder: int | None, within: str | Path | None) -> os.stat_result | None:
    """The status of the file that is replaced; None: there is none. Within a folder it must be a regular one."""
    try:
        old = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if within is not None and not stat.S_ISREG(old.st_mode):
        raise _not_a_file_error(target, old.st_mode)
    return old


def _not_a_file_error(target: Path, mode: int) -> UsageError:
    """The error for a target that exists and is not a regular file."""
    what = "a link, and could name any file" if stat.S_ISLNK(mode) else kind_text(mode)
    remove = "rm -r" if stat.S_ISDIR(mode) else "rm"
    return UsageError(
        f"{target}: expected a file to write, found {what}.\nDo: look where the folder comes from; {remove} {target}",
        path=target,
    )


def _status(path: str | Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _open_writable(path: str | Path, mode: int) -> int:
    """A descriptor of a device or FIFO that exists; nothing is created or cut."""
    if not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
        raise UsageError(f"{path}: expected a file to write, found {kind_text(mode)}.", path=path)
    try:
        handle = os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise UsageError(f"{path}: nobody reads this FIFO.\nDo: start its reader first", path=path) from error
        raise
    if sys.platform != "win32":
        os.set_blocking(handle, True)
    return handle


def _set_attributes(temporary: str, folder: int | None, mode: int, old: os.stat_result | None, durable: bool) -> None:
    """Give the temporary file the target's permissions and owner, and flush it to the disk if ``durable``."""
    handle = os.open(temporary, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), dir_fd=folder)
    try:
        target_mode = stat.S_IMODE(mode if old is None else old.st_mode)
        if sys.platform == "win32":
            os.chmod(temporary, target_mode)
        else:
            present = os.fstat(handle)
            if old is not None and (present.st_uid, present.st_gid) != (old.st_uid, old.st_gid):
                with contextlib.suppress(PermissionError):
                    os.fchown(handle, old.st_uid, old.st_gid)
            os.fchmod(handle, target_mode)
        if durable:
            os.fsync(handle)
    finally:
        os.close(handle)


def _prefix(target: Path) -> str:
    return f".{target.name[:_NAME_LENGTH]}."


def _suffix(target: Path) -> str:
    return target.suffix if len(target.suffix) <= _SUFFIX_LENGTH else ""


def _remove_abandoned(folder: Path, target: Path | None, handle: int | None) -> None:
    """Remove temporary files whose writers were killed, of one target or of all; ``handle``: the open folder."""
    name = r"\..*\." if target is None else re.escape(_prefix(target))
    suffix = ".*" if target is None else re.escape(_suffix(target))
    pattern = re.compile(rf"{name}(\d+)-[0-9a-f]{{8}}\.part{suffix}", re.S)
    with contextlib.suppress(OSError), os.scandir(folder if handle is None else handle) as entries:
        for entry in entries:
            match = pattern.fullmatch(entry.name)
            if match and entry.name not in _active and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    if _is_abandoned(entry.path, int(match[1]), handle):
                        os.unlink(entry.path, dir_fd=handle)


def _is_abandoned(path: str, pid: int, folder: int | None) -> bool:
    """Whether a temporary file has no writer: nobody locks it, and the process that made it has ended.

    The lock tells of writers in other containers, the number of those whose compiler has made the file anew, which frees
    the lock. A number may have been given to another process since: after an hour without a change it says nothing.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(path, flags, dir_fd=folder), "rb") as file:
        if not take_lock(file.fileno(), wait=False):
            return False
        old = time.time() - os.fstat(file.fileno()).st_mtime > _ABANDONED_AFTER_S
    return old or pid == os.getpid() or not _is_alive(pid)


def _is_alive(pid: int) -> bool:
    if sys.platform == "win32":
        return True  # there is no harmless signal
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
