"""What the processor can do; read from the operating system, since a library's hint may promise more."""

from __future__ import annotations

import functools
import os
from pathlib import Path

__all__ = ["cpu_features", "default_threads", "describe_cpu"]

_FLAGS = {
    "avx2": "avx2",
    "avx512f": "avx512",
    "avx512_vnni": "vnni",
    "avx_vnni": "vnni",
    "avx512_bf16": "bf16",
    "amx_bf16": "amx-bf16",
    "amx_int8": "amx-int8",
    "asimd": "neon",
    "asimddp": "dotprod",
    "i8mm": "i8mm",
}


@functools.cache
def cpu_features(cpuinfo: str = "/proc/cpuinfo") -> frozenset[str]:
    """Names among avx2, avx512, vnni, bf16, amx-bf16, amx-int8, neon, dotprod, i8mm; empty where it cannot be read."""
    try:
        text = Path(cpuinfo).read_text()
    except OSError:
        return frozenset()
    lines = (line.partition(":") for line in text.splitlines())
    flags = next((value.split() for key, _, value in lines if key.strip() in ("flags", "Features")), [])
    return frozenset(_FLAGS[flag] for flag in flags if flag in _FLAGS)


def default_threads() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def describe_cpu(cpuinfo: str = "/proc/cpuinfo") -> str:
    """The processor's name and features, for people."""
    try:
        lines = (line.partition(":") for line in Path(cpuinfo).read_text().splitlines())
        name = next((value.strip() for key, _, value in lines if key.strip() == "model name"), "CPU")
    except OSError:
        name = "CPU"
    return f"{name} ({', '.join(sorted(cpu_features(cpuinfo))) or 'no known vector extensions'}), {default_threads()} cores"
