"""The lock of a run's folder: otherwise two runs could write the same files, and both would appear to succeed."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import distributed

from pytrtplugins.errors import UsageError
from pytrtplugins.utils.file_lock import take_lock

from .ranks import Ranks, is_restarted

__all__ = ["check_unlocked", "locked_run"]

_LOCK = ".lock"
_LEASE_S = 120.0  # after which a file server frees the locks of a machine that died


@contextmanager
def locked_run(out: Path, ranks: Ranks) -> Iterator[None]:
    """Hold the lock of a run's folder; rank 0 holds it for all ranks, which must all enter the block.

    The operating system frees the lock when the process ends, however it ends. Where the file system has no locks, none is held.

    Args:
        out: The folder, which is made if it is not there.
        ranks: The processes of the run.

    Raises:
        UsageError: another run holds the lock, or the folder cannot be written.
    """
    handle, problem = -1, ""
    if ranks.is_first:
        restarted = ranks.joined and (is_restarted() or not distributed.is_torchelastic_launched())
        try:
            handle = _lock(out, patience=_LEASE_S if restarted else 0.0)
        except UsageError as error:
            problem = str(error)
    try:
        if ranks.max_over_ranks([bool(problem)])[0]:
            raise UsageError(problem or f"{out}: rank 0 could not take it for this run, and says why")
        yield
    finally:
        if handle >= 0:
            os.close(handle)


def check_unlocked(out: Path) -> None:
    """Refuse a folder that another run has locked, before any rank starts.

    Raises:
        UsageError: a run holds its lock.
    """
    if (out / _LOCK).exists():
        with locked_run(out, Ranks(0, 1, torch.device("cpu"), joined=False)):
            pass


def _lock(out: Path, patience: float) -> int:
    """The descriptor of the locked lock file, which must not be a link."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        handle = os.open(out / _LOCK, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except OSError as error:
        raise UsageError(f"--output {out}: cannot be written: {error.strerror}.\nDo: give another --output") from error
    end = time.monotonic() + patience
    while not take_lock(handle, wait=False):
        if time.monotonic() > end:
            with contextlib.suppress(OSError):
                holder = os.pread(handle, 300, 0).decode("ascii", "replace").strip()
            os.close(handle)
            raise UsageError(
                f"--output {out}: another run writes there now ({holder or 'process unknown'}).\n"
                "Do: wait until it has ended, or give another --output"
            )
        time.sleep(0.5)
    with contextlib.suppress(OSError):  # a full disk
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} of {socket.gethostname()}\n".encode(), 0)
    return handle
