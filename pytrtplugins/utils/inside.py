"""Open files in folders that may come from somebody else: no step below the folder may be a link.

A link in such a folder could name any file of the user's, and a FIFO or a device may never end. Each step of a path is opened relative to
the folder before it, so that a folder that is changed meanwhile gains nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..errors import FormatError, PytrtpluginsError

__all__ = ["Failure", "check_inside", "holder", "kind_text", "list_inside", "open_below", "open_inside"]

Failure = Callable[..., PytrtpluginsError]
"""Makes an error of a message and ``path=``: an exception class of this package, or a partial of one."""

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a link",
}
_HAS_DIR_FD = os.open in os.supports_dir_fd  # not on Windows, where making links takes rights of its own
_NO_LINK = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))
_FOLDER = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC"))


def kind_text(mode: int) -> str:
    """The kind of a file in words, from its mode."""
    return _KINDS.get(stat.S_IFMT(mode), "something else")


def open_below(folder: Path, steps: Sequence[str], flags: int, *, make: bool = False) -> int:
    """A descriptor of a file, which is reached from a folder on through folders alone; the folder itself may be a link.

    Args:
        folder: Where the steps begin.
        steps: Names of folders, and of the file at last; no ``..``.
        flags: For `os.open`.
        make: Make folders that are missing.

    Raises:
        OSError: a step is a link or missing, or the file cannot be opened.
    """
    if not _HAS_DIR_FD:
        for count in range(len(steps)):
            if folder.joinpath(*steps[: count + 1]).is_symlink():
                raise OSError(errno.ELOOP, "a link", str(folder.joinpath(*steps[: count + 1])))
        if make:
            folder.joinpath(*steps[:-1]).mkdir(parents=True, exist_ok=True)
        return os.open(folder.joinpath(*steps), flags | _NO_LINK, 0o666)
    here = os.open(folder, _FOLDER & ~getattr(os, "O_NOFOLLOW", 0))
    try:
        for step in steps[:-1]:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(step, dir_fd=here)
            inner = os.open(step, _FOLDER, dir_fd=here)
            os.close(here)
            here = inner
        return os.open(steps[-1] if steps else ".", flags | _NO_LINK, 0o666, dir_fd=here)
    finally:
        os.close(here)


@contextmanager
def holder(
    path: str | Path, within: str | Path, *, error: Failure = FormatError, make: bool = False
) -> Iterator[tuple[int | None, str]]:
    """The folder that a file is in, as an open descriptor, and the file's name there; on Windows None, and the whole path.

    Args:
        path: Of the file, which need not be there.
        within: A folder above it; nothing below it is reached through a link.
        error: Makes the error for a step that is no folder.
        make: Make folders that are missing.

    Raises:
        PytrtpluginsError: a folder on the way is a link, or no folder; as ``error`` makes it, with ``.path``.
        OSError: a folder is missing, or cannot be opened.
    """
    path, within = Path(path), Path(within)
    steps = path.relative_to(within).parts
    if not steps or ".." in steps:
        raise ValueError(f"{path}: no file in {within}")
    handle = None
    try:
        handle = open_below(within, (*steps[:-1], "."), _FOLDER, make=make)
    except OSError as problem:
        _raise_for_steps(within, steps[:-1], error, problem)
        raise
    try:
        if _HAS_DIR_FD:
            yield handle, steps[-1]
        else:
            yield None, str(path)
    finally:
        os.close(handle)


def open_inside(path: str | Path, flags: int, *, within: str | Path, error: Failure = FormatError) -> int:
    """A descriptor of a regular file below a folder; anything else is refused by its name, without waiting for it.

    With ``O_CREAT`` among the flags, missing folders are made too. A file that is opened for writing must have one name: another one
    could be that of a file outside.

    Raises:
        PytrtpluginsError: the file is a folder, or it, or a folder on the way, is a link, a FIFO, a device or a socket; as ``error``
            makes it.
        OSError: there is no such file, or it cannot be opened.
    """
    with holder(path, within, error=error, make=bool(flags & os.O_CREAT)) as (folder, name):
        with contextlib.suppress(FileNotFoundError):
            _check_status(path, os.stat(name, dir_fd=folder, follow_symlinks=False), flags, error)
        try:
            handle = os.open(name, flags | _NO_LINK, 0o666, dir_fd=folder)
        except OSError as problem:
            if problem.errno == errno.ELOOP:
                raise _not_regular_error(path, stat.S_IFLNK, error) from problem
            raise _error_with_path(problem, path) from None
        try:
            _check_status(path, os.fstat(handle), flags, error)  # nobody has put another in its place
        except BaseException:
            os.close(handle)
            raise
        return handle


def list_inside(folder: str | Path, *, within: str | Path, error: Failure = FormatError) -> dict[str, bool]:
    """The names in a folder, in order, and whether each is a folder; anything but folders and regular files is refused by its name.

    Raises:
        PytrtpluginsError: there is a link, a FIFO, a device or a socket; as ``error`` makes it.
        OSError: there is no such folder, or it cannot be read.
    """
    folder = Path(folder)
    with holder(folder / ".names", within, error=error) as (handle, _), os.scandir(handle or folder) as entries:
        names = {entry.name: entry for entry in entries}
        for name, entry in names.items():
            if not (entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)):
                with contextlib.suppress(FileNotFoundError):
                    raise _not_regular_error(folder / name, entry.stat(follow_symlinks=False).st_mode, error)
        return {name: names[name].is_dir(follow_symlinks=False) for name in sorted(names)}


def check_inside(folder: str | Path, *, error: Failure = FormatError, skip: Collection[str] = ()) -> None:
    """Refuse a folder that holds anything but folders and regular files, at any depth: for libraries that open its files themselves.

    Args:
        folder: The folder.
        error: Makes the error.
        skip: Names in the folder of what is not looked at.

    Raises:
        PytrtpluginsError: there is a link, a FIFO, a device or a socket; as ``error`` makes it.
    """
    root = Path(folder)
    pending = [root]
    while pending:
        place = pending.pop()
        with contextlib.suppress(FileNotFoundError):
            for name, is_folder in list_inside(place, within=root, error=error).items():
                if is_folder and not (place == root and name in skip):
                    pending.append(place / name)


def _check_status(path: str | Path, status: os.stat_result, flags: int, error: Failure) -> None:
    """Refuse anything but a regular file, and, for writing, a file with several hard links."""
    if not stat.S_ISREG(status.st_mode):
        raise _not_regular_error(path, status.st_mode, error)
    if flags & (os.O_WRONLY | os.O_RDWR) and status.st_nlink > 1:
        raise error(
            f"{path}: expected a file with one name, found a hard link.\nDo: look where the folder comes from; rm {path}",
            path=path,
        )


def _not_regular_error(path: str | Path, mode: int, error: Failure) -> PytrtpluginsError:
    """The error for a path that is not a regular file."""
    why = ", which could name any file" if stat.S_ISLNK(mode) else ""
    return error(
        f"{path}: expected a regular file, found {kind_text(mode)}{why}.\nDo: look where the folder comes from; rm {path}",
        path=path,
    )


def _raise_for_steps(within: Path, steps: Sequence[str], error: Failure, cause: OSError) -> None:
    """Raise an error that names the first step of a path that is not a folder, if there is one."""
    place = within
    for step in steps:
        place = place / step
        with contextlib.suppress(OSError):
            mode = os.lstat(place).st_mode
            if not stat.S_ISDIR(mode):
                why = ", which could name any folder" if stat.S_ISLNK(mode) else ""
                raise error(
                    f"{place}: expected a folder, found {_KINDS.get(stat.S_IFMT(mode), 'a file')}{why}.\n"
                    f"Do: look where {within} comes from; rm {place}",
                    path=place,
                ) from cause


def _error_with_path(problem: OSError, path: str | Path) -> OSError:
    """The same error with the whole path instead of a name."""
    return type(problem)(problem.errno, problem.strerror, str(path))
