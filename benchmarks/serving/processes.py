"""A server's processes: CPU time, memory, descriptors, from /proc."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def tree(pid: int) -> list[int]:
    """A process and all that it, or one of these, has started."""
    found = [pid]
    for each in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{each}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has taken; 0 once it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pss_bytes(pid: int) -> int:
    """Memory of a process, shared pages divided among those that share them; 0 once it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def descriptors(pid: int) -> int:
    """Files that a process has open; 0 once it is gone."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0
