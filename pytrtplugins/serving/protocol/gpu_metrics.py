"""Utilization and memory of this machine's GPUs, from NVML."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from ...errors import MissingExtraError
from ...utils.optional import require

__all__ = ["Gpu", "gpus"]


@dataclass(frozen=True)
class Gpu:
    """The state of a GPU.

    Attributes:
        index: As nvidia-smi numbers it.
        name: Of the product.
        utilization: Share of the last sampling period in which a kernel ran, 0..1.
        used_bytes: Memory in use, by every process.
        total_bytes: Memory.
    """

    index: int
    name: str
    utilization: float
    used_bytes: int
    total_bytes: int


def gpus() -> list[Gpu]:
    """The state of all GPUs that report it; empty if there is no driver."""
    library = _library()
    if library is None:
        return []
    try:
        count = library.nvmlDeviceGetCount()
    except library.NVMLError:  # the driver is gone since
        return []
    return [gpu for index in range(count) for gpu in _of(library, index)]


def _of(library: Any, index: int) -> list[Gpu]:
    try:
        device = library.nvmlDeviceGetHandleByIndex(index)
        name, memory = library.nvmlDeviceGetName(device), library.nvmlDeviceGetMemoryInfo(device)
        share = library.nvmlDeviceGetUtilizationRates(device).gpu / 100
    except library.NVMLError:  # such as of a part of a GPU (MIG), which has no utilization
        return []
    return [Gpu(index, name if isinstance(name, str) else name.decode(), share, memory.used, memory.total)]


@functools.cache
def _library() -> Any:
    """NVML, initialized; None if it or the driver is missing."""
    try:
        library = require("pynvml", extra="serve", package="nvidia-ml-py")
        library.nvmlInit()
    except MissingExtraError:
        return None
    except library.NVMLError:
        return None
    return library
