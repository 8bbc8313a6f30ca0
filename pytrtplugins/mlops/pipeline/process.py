"""Run a step's processes as one group, within limits, and end them together."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ...utils.optional import require

__all__ = ["Ended", "ProcessLimits", "Stopped", "end_abandoned", "run_watched"]

_GRACE_S, _LOOK_EVERY_S = 5.0, 0.2
_PR_SET_PDEATHSIG = 1  # sys/prctl.h
_MASK = b"***"
_SHORTEST_SECRET = 4  # characters
_LONGEST_LOG, _LONGEST_LINE = 64 << 20, 1 << 16
_MARK = "PYTRT_STEP_FOLDER"
"""The variable of the environment by which the processes of a step are known."""


class Stopped(BaseException):
    """This process received a signal to end."""


@dataclass(frozen=True)
class ProcessLimits:
    """Limits of a step's processes.

    Attributes:
        time_limit: Seconds.
        memory: Bytes of all together.
    """

    time_limit: float | None = None
    memory: int | None = None


@dataclass(frozen=True)
class Ended:
    """How a step's processes ended.

    Attributes:
        code: The exit code; a signal's number is negative.
        reason: Why they were ended; empty: they ended by themselves.
    """

    code: int
    reason: str = ""


def run_watched(
    argv: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    log: Path,
    limits: ProcessLimits,
    *,
    stdout: Path | None = None,
    secrets: Iterable[str] = (),
) -> Ended:
    """Run a program until it ends or exceeds its limits; all processes of its group have ended afterwards.

    Args:
        argv: Program and words.
        folder: Its working directory, by which its processes are known to `end_abandoned`.
        environment: All variables.
        log: Gets what it prints, at the end.
        limits: At which it is ended.
        stdout: Gets its standard output instead.
        secrets: Texts that are masked in the log.

    Raises:
        OSError: the program cannot be started, or the log cannot be written.
    """
    masked = [text.encode() for text in secrets if len(text) >= _SHORTEST_SECRET]
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(stdout.open("wb")) if stdout else subprocess.PIPE
        process = subprocess.Popen(
            argv,
            cwd=folder,
            env={**environment, _MARK: str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE if stdout else subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        )
        stream = process.stderr if stdout else process.stdout
        assert stream is not None
        writer = _LogWriter(stream, stack.enter_context(log.open("ab")), masked)
        try:
            writer.start()
            reason = _watch(process, limits)
        finally:
            try:
                _end_group(process)
            finally:
                writer.join(_GRACE_S)
                if not writer.is_alive():  # else a process that left the group still holds the other end
                    stream.close()
    if writer.problem:
        raise writer.problem
    return Ended(process.returncode, reason)


def end_abandoned(folder: Path) -> int:
    """End processes of steps in folders below this one whose run was killed; returns their number."""
    count, mark = 0, f"\0{_MARK}={folder}{os.sep}".encode()
    with contextlib.suppress(OSError):
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != os.getpid():
                with contextlib.suppress(OSError):
                    if mark in b"\0" + Path("/proc", entry, "environ").read_bytes():
                        os.kill(int(entry), signal.SIGKILL)
                        count += 1
    return count


class _LogWriter(threading.Thread):
    """Copies a process's output to its log, with secrets masked."""

    def __init__(self, source: IO[bytes], target: IO[bytes], masked: Sequence[bytes]) -> None:
        super().__init__(daemon=True)
        self._source, self._target, self._masked = source, target, masked
        self.problem: OSError | None = None

    def run(self) -> None:
        left = _LONGEST_LOG
        for line in iter(lambda: self._source.readline(_LONGEST_LINE), b""):
            for secret in self._masked:
                line = line.replace(secret, _MASK)
            if left > 0 and self.problem is None:
                left -= len(line)
                try:
                    self._target.write(line if left > 0 else b"\nThe log ends here: it would be too long.\n")
                    self._target.flush()
                except OSError as error:  # the process goes on, or it would wait for its reader
                    self.problem = error


def _die_with_parent() -> None:
    """Have the kernel end this process when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _watch(process: subprocess.Popen[bytes], limits: ProcessLimits) -> str:
    """Wait for the end of a process; or until it is at its limits, and say which."""
    begin = time.monotonic()
    pause = 0.005
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if limits.time_limit is not None and time.monotonic() - begin > limits.time_limit:
            return f"was ended at its time limit of {limits.time_limit:g} s"
        if limits.memory is not None and (used := _memory(process.pid)) > limits.memory:
            return f"was ended since it used {used / 2**20:,.0f} MiB of memory, more than its {limits.memory / 2**20:,.0f} MiB"
        time.sleep(pause)
        pause = min(1.5 * pause, _LOOK_EVERY_S)
    return ""


def _memory(pid: int) -> int:
    """Bytes that a process and its descendants hold alone."""
    psutil = require("psutil", extra="pipeline", feature="a limit of memory")
    total = 0
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                used = process.memory_info()
                total += used.rss - getattr(used, "shared", 0)
    return int(total)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a process's group: asked at first, then killed. The process keeps the group's number until it is waited for."""
    if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGTERM)
    begin = time.monotonic()
    try:
        while (
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
            and time.monotonic() - begin < _GRACE_S
        ):
            time.sleep(0.02)
    finally:  # also after a second Ctrl-C
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
