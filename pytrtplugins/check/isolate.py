"""Run work in a separate process, so that a crash or a hang is a result and does not end the caller."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import json
import os
import re
import select
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from ..cuda.backends import gpu
from ..cuda.cache import compiling
from ..errors import PytrtpluginsError
from ..native import NativePlugin
from ..plugin.base import Plugin
from ..utils.signal_stack import new_signal_stack

__all__ = ["MemoryUpError", "Send", "TimeUpError", "inside", "limited", "run", "unavailable_reason", "unlimited_memory"]

Send = Callable[[Any], None]
"""Takes what JSON can hold to the caller's ``receive``."""

_MORE_MEMORY = 4 << 30
_MAX_COMPILING_S = 300.0
_OPENMP = re.compile(r"/lib[gi]?omp[^/]*\.so")
_inside = False


class TimeUpError(BaseException):
    """The time limit of `limited` has passed; no Exception, so that no plugin's ``except Exception`` catches it."""


class MemoryUpError(BaseException):
    """The plugin has reached its memory limit; no Exception, for the same reason."""


def unavailable_reason(plugin: Plugin) -> str:
    """Why work on a plugin cannot run in a separate process; empty if it can."""
    not_caught = "a check runs in this process: crashes, hangs and accesses outside of arrays are not caught"
    if sys.platform != "linux" or not hasattr(os, "fork"):
        return f"on {sys.platform} {not_caught}"
    if isinstance(plugin, NativePlugin) and plugin.handle.runs_on_gpu() and _cuda_is_initialized():
        return (
            f"the plugin's C++ code may call CUDA, which this process uses and a forked one cannot: {not_caught}.\n"
            "Do: check it before the GPU is used, or in a shell: pytrt check-plugin"
        )
    return ""


def inside() -> bool:
    """Whether this is such a process."""
    return _inside


def run(work: Callable[[Send], None], receive: Callable[[Any], None], silence: float) -> str:
    """Run ``work`` in a process that is forked from this one, and wait for its end.

    The process knows everything that this one knows, classes without a module too. It shares no memory with it, has no GPU,
    and may take 4 GiB more than this one has. It is gone when this function returns or raises.

    ``work`` gets a function that takes messages to ``receive``, which is called here; after so many seconds of silence between two of
    them the process counts as hung.

    Returns:
        How the process ended before ``work`` did: the signal, the exit code, or SystemExit and KeyboardInterrupt that were raised, and the
        line of Python; empty where it did not.

    Raises:
        PytrtpluginsError: ``work`` raised something.
    """
    with tempfile.TemporaryFile() as trace:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about threads of this process, which the new one does not have
            child = os.fork()
        if child == 0:
            os.close(reading)
            _child(work, writing, trace)
        os.close(writing)
        status, last = None, dict[str, str]()

        def take(message: Any) -> None:
            if isinstance(message, dict):
                last.update(message)
            else:
                receive(message)

        try:
            hung = _receive_all(child, reading, take, silence)
            if hung:
                _exit_with_place(child)
            status = os.waitpid(child, 0)[1]
        finally:
            os.close(reading)
            if status is None:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        if "ended" in last:
            return last["ended"]
        if status == 0 and "done" in last:
            return ""
        trace.seek(0)
        place = _innermost_line(trace.read().decode(errors="replace"))
    if hung:
        return f"hang: no answer for {silence:.0f} s{place}"
    if os.WIFSIGNALED(status):
        return f"crash: the process ends with {signal.Signals(os.WTERMSIG(status)).name}{place}"
    return f"crash: the process ends itself, with exit code {os.waitstatus_to_exitcode(status)}{place}"


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[Callable[[], None]]:
    """Raise `TimeUpError` inside the block when the time is up; has no effect outside a process of `run`.

    Compiling kernels does not count. The block gets a function that begins the time anew.
    """
    if not _inside:
        yield lambda: None
        return

    def on_alarm(number: int, frame: FrameType | None) -> None:
        if not compiling():
            stack = traceback.extract_stack(frame)
            raise TimeUpError(f"hang: still running after {seconds:g} s ({stack[-1].filename}:{stack[-1].lineno})")

    def begin() -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)

    signal.signal(signal.SIGALRM, on_alarm)
    begin()
    try:
        yield begin
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextlib.contextmanager
def unlimited_memory() -> Iterator[None]:
    """Lift the memory limit inside the block, for large arrays of which few pages are touched."""
    import resource

    before, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, hard))


def _receive_all(child: int, reading: int, receive: Callable[[Any], None], silence: float) -> bool:
    """Receive messages until the pipe is closed; returns whether it was silent for too long."""
    buffer = b""
    now = time.monotonic()
    deadline, last = now + silence, now + silence + _MAX_COMPILING_S
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            if time.monotonic() > last or not _waits_for_others(child):
                return True
            deadline = time.monotonic() + 1
            continue
        data = os.read(reading, 1 << 16)
        if not data:
            return False
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            receive(_message(line))
        now = time.monotonic()
        deadline, last = now + silence, now + silence + _MAX_COMPILING_S


def _waits_for_others(child: int) -> bool:
    """Whether a process has started others, such as a compiler."""
    try:
        return bool(Path(f"/proc/{child}/task/{child}/children").read_text())
    except OSError:
        return False


def _message(line: bytes) -> Any:
    message = json.loads(line)
    if isinstance(message, dict) and "raised" in message:
        raise PytrtpluginsError(f"check_plugin itself failed:\n{message['raised']}")
    return message


def _exit_with_place(child: int) -> None:
    """Report the current place in the code, and end the process."""
    os.kill(child, signal.SIGABRT)
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)


def _innermost_line(trace: str) -> str:
    """The innermost line of Python in a trace of faulthandler."""
    match = re.search(r'\(most recent call first\):\n\s+File "([^"]*)", line (\d+) in (\S+)', trace)
    return f" ({match[1]}:{match[2]}, in {match[3]})" if match else ""


def _child(work: Callable[[Send], None], writing: int, trace: Any) -> None:
    code = 1
    try:
        _prepare_child(trace)

        def send(message: Any) -> None:
            data = json.dumps(message).encode() + b"\n"
            while data:
                data = data[os.write(writing, data) :]

        try:
            work(send)
            send({"done": ""})
            code = 0
        except (SystemExit, KeyboardInterrupt, MemoryUpError) as error:
            send({"ended": _exit_text(error)})
        except BaseException:  # nothing may leave this process
            send({"raised": traceback.format_exc()})
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
    finally:
        os._exit(code)


def _exit_text(error: BaseException) -> str:
    """An exception of the plugin that would have ended its process, such as SystemExit, and its place."""
    if isinstance(error, MemoryUpError):
        return str(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"crash: {type(error).__name__}({', '.join(map(str, error.args))}) is raised ({frame.filename}:{frame.lineno}, in {frame.name})"


def _prepare_child(trace: Any) -> None:
    """Undo in a forked process what must not be inherited, and set what it needs."""
    import resource

    global _inside
    _inside = True
    os.dup2(2, 1)  # what a plugin prints is none of the caller's output
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG: never longer there than the parent
    gc.freeze()  # what the parent made is not taken apart here: threads that it would wait for are not here
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    new_signal_stack()  # the parent's may be of a library that has freed it
    faulthandler.enable(trace)
    gpu.close("a check runs kernels on NumPy arrays in a process without a GPU")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = _data_bytes() + _MORE_MEMORY
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    _limit_openmp()


def _cuda_is_initialized() -> bool:
    """Whether cuInit was called in this process; CUDA's library is neither loaded nor initialized to find out."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False
    not_initialized = 3  # CUDA_ERROR_NOT_INITIALIZED
    return bool(cuda.cuCtxGetCurrent(ctypes.byref(ctypes.c_void_p())) != not_initialized)


def _data_bytes() -> int:
    """Bytes of data of this process (VmData)."""
    match = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(match[1]) << 10 if match else 0


def _limit_openmp() -> None:
    """Set GNU's OpenMP to one thread: in a forked process it would wait forever for the threads of its parent."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    loaded = {line.split(maxsplit=5)[5] for line in lines if _OPENMP.search(line)}
    for path in sorted(loaded):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(path).omp_set_num_threads(1)
