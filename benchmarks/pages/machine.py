"""What a record says beside its rows: the machine, versions, the day and the command."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ["about", "machine_text", "processor_name", "version_text", "versions"]

_ROOT = Path(__file__).parents[2]


def about(packages: Iterable[str], command: str = "", note: str = "", processor: str = "") -> dict[str, Any]:
    """Return the facts of a record."""
    return {
        "processor": processor or f"{os.cpu_count()} cores of {processor_name()}",
        "python": platform.python_version(),
        "versions": versions(packages),
        "date": date.today().isoformat(),
        "commit": _commit(),
        "command": command,
        "note": note,
    }


def machine_text(record: Mapping[str, Any]) -> str:
    """Return where and how a record was measured, as a line of a page."""
    parts = (f"{record['processor']}, Python {record['python']}", version_text(record), record["date"])
    command = f" Command: `{record['command']}`." if record["command"] else ""
    note = f" {record['note']}" if record["note"] else ""
    return f"{'; '.join(filter(None, parts))}.{command}{note}"


def version_text(record: Mapping[str, Any]) -> str:
    """Return the versions of a record, in words."""
    return ", ".join(f"{name} {number}" for name, number in record["versions"].items())


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed, without local parts."""
    found = {}
    for name in packages:
        try:
            found[name] = version(name).partition("-")[0]
        except PackageNotFoundError:
            continue
    return found


def processor_name() -> str:
    """Return the name of the host's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _commit() -> str:
    """Return the commit of this checkout; empty outside one."""
    command = ["git", "-C", str(_ROOT), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
