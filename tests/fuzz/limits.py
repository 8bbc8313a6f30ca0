"""What one input may cost, and what may come of it."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import resource
import signal
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pytrtplugins.errors import PytrtpluginsError

__all__ = ["LONGEST_MESSAGE", "MAX_BYTES", "MAX_SECONDS", "LimitError", "Spent", "checked", "limit_address_space"]

MAX_SECONDS = 5.0
"""Processor time of one input; a hundred times what the slowest takes on an idle core."""

MAX_BYTES = 512 << 20
"""Memory that a process may take beside what it has when it begins."""

LONGEST_MESSAGE = 2000
_RECORD = struct.Struct("<Qdq")


class LimitError(AssertionError):
    """An input took too long, too much memory, or led to a message that nobody reads."""


@dataclass
class Spent:
    """What the inputs of a process have taken, kept in a file, since a fuzzer ends without saying so.

    Attributes:
        inputs: How many there were.
        seconds: Processor time of the slowest.
        bytes: Memory at the peak beside what the process had at the beginning.
    """

    inputs: int = 0
    seconds: float = 0.0
    bytes: int = 0

    @classmethod
    def read(cls, path: Path) -> Spent:
        """What a process has kept."""
        return cls(*_RECORD.unpack(path.read_bytes())) if path.exists() else cls()

    def keep(self, memory: mmap.mmap | None) -> None:
        """Write it down."""
        if memory is not None:
            _RECORD.pack_into(memory, 0, self.inputs, self.seconds, self.bytes)


def checked(
    target: Callable[[bytes], object], record: Path | None = None, *, alarm: bool = True
) -> Callable[[bytes], None]:
    """A target that ends with nothing, or with an exception for what must not happen.

    Args:
        target: Takes an input.
        record: Where to keep what was spent; an input that ends badly is kept beside it, as ``crash-*``.
        alarm: Interrupt what takes too long; a fuzzer has an alarm of its own.

    Raises:
        LimitError: by the function, for an input that cost too much.
        Exception: by the function, whatever the target raises that is none of this package's errors.
    """
    memory = None
    if record is not None:
        record.write_bytes(bytes(_RECORD.size))
        with record.open("r+b") as opened:
            memory = mmap.mmap(opened.fileno(), _RECORD.size)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew: others may have had more before
    spent, base = Spent(), _peak()

    def run(data: bytes) -> None:
        spent.inputs += 1
        spent.keep(memory)
        before = time.process_time()
        if alarm:
            signal.signal(signal.SIGPROF, _too_long)
            signal.setitimer(signal.ITIMER_PROF, 2 * MAX_SECONDS)
        try:
            try:
                target(data)
            except PytrtpluginsError as error:
                if len(str(error)) > LONGEST_MESSAGE:
                    raise LimitError(f"a message of {len(str(error)):,} characters: {str(error)[:200]}") from error
            finally:
                if alarm:
                    signal.setitimer(signal.ITIMER_PROF, 0)
                spent.seconds = max(spent.seconds, time.process_time() - before)
                spent.bytes = max(spent.bytes, _peak() - base)
                spent.keep(memory)
            if spent.seconds > MAX_SECONDS:
                raise LimitError(f"{spent.seconds:.1f} s of processor time, expected at most {MAX_SECONDS}")
            if spent.bytes > MAX_BYTES:
                raise LimitError(f"{spent.bytes:,} bytes of memory, expected at most {MAX_BYTES:,}")
        except Exception:
            if record is not None:
                record.with_name(f"crash-{hashlib.sha256(data).hexdigest()[:16]}").write_bytes(data)
            raise

    return run


def limit_address_space() -> None:
    """From now on this process may ask for `MAX_BYTES` more than it has, whether it uses them or not."""
    lines = Path("/proc/self/status").read_text().splitlines()
    held = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmSize:"))
    resource.setrlimit(resource.RLIMIT_AS, (held + MAX_BYTES,) * 2)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _too_long(*_: object) -> None:
    raise LimitError(f"more than {2 * MAX_SECONDS} s of processor time")
