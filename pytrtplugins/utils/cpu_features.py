"""The instruction sets of the processor, read from the operating system: a library's hint may promise more.

``ONEDNN_MAX_CPU_ISA`` (or ``DNNL_MAX_CPU_ISA``) keeps oneDNN, and with it OpenVINO, from newer instructions; it counts here too.
"""

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
_AVX512 = frozenset({"avx2", "avx512"})
_LIMITS = {  # oneDNN's names, which it compares in lower case; it takes any other value for no limit
    "sse41": frozenset[str](),
    "avx": frozenset[str](),
    "avx2": frozenset({"avx2"}),
    "avx2_vnni": frozenset({"avx2", "vnni"}),
    "avx2_vnni_2": frozenset({"avx2", "vnni"}),
    "avx512_core": _AVX512,
    "avx512_core_vnni": _AVX512 | {"vnni"},
    "avx512_core_bf16": _AVX512 | {"vnni", "bf16"},
    "avx512_core_fp16": _AVX512 | {"vnni", "bf16"},
    "avx10_1_512": _AVX512 | {"vnni", "bf16"},
}


def cpu_features(cpuinfo: str = "/proc/cpuinfo") -> frozenset[str]:
    """Names among avx2, avx512, vnni, bf16, amx-bf16, amx-int8, neon, dotprod, i8mm; empty where it cannot be read.

    Those of the processor, without those that ``ONEDNN_MAX_CPU_ISA`` excludes.
    """
    facts = _read_cpuinfo(cpuinfo)
    flags = facts.get("flags", facts.get("Features", "")).split()
    features = frozenset(_FLAGS[flag] for flag in flags if flag in _FLAGS)
    return features & _LIMITS.get(_limit().lower(), features)


def _limit() -> str:
    """The newest instructions that oneDNN may use, in its own words; empty for no limit."""
    return os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or ""


@functools.cache
def _read_cpuinfo(cpuinfo: str) -> dict[str, str]:
    """The first processor's entry in /proc/cpuinfo; empty if it cannot be read."""
    try:
        lines = Path(cpuinfo).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in reversed(lines))}


def default_threads() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe_cpu(cpuinfo: str = "/proc/cpuinfo") -> str:
    """The processor's name and features, for people."""
    features = ", ".join(sorted(cpu_features(cpuinfo))) or "no known vector extensions"
    limit = f", limited to {_limit()} by ONEDNN_MAX_CPU_ISA" if _limit().lower() in _LIMITS else ""
    return f"{_read_cpuinfo(cpuinfo).get('model name', 'CPU')} ({features}{limit}), {default_threads()} cores"
