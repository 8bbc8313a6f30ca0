"""The GPU, through CuPy, which only this file and `memory` use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import UnavailableError
from ...utils.forks import forks_as_cause
from ...utils.optional import require

__all__ = ["Device", "find_device"]


@dataclass(frozen=True)
class Device:
    """One GPU; its capability is written ``"9.0"``."""

    index: int
    name: str
    capability: str
    cupy: Any

    def __str__(self) -> str:
        return f"{self.name}, compute capability {self.capability}"


def find_device(name: str | None = None, engine: str = "tensorrt") -> Device:
    """The GPU of a name such as ``"cuda:1"``, for an engine; None is the first."""
    extra = "tensorrt" if engine == "tensorrt" else "cuda"
    cupy = require(
        "cupy", extra=extra, feature=f"running engine {engine!r}" if extra == "cuda" else f"engine {engine!r}"
    )
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise UnavailableError(f"no NVIDIA GPU can be used: {error}\n{forks_as_cause()}".rstrip()) from error
    names = [f"cuda:{index}" for index in range(count)]
    wanted = "cuda:0" if name in (None, "cuda") else name
    if wanted not in names:
        raise UnavailableError(f"device {wanted!r} is not here; there are: {', '.join(names) or 'none'}", device=name)
    index = names.index(wanted)
    facts = cupy.cuda.runtime.getDeviceProperties(index)
    return Device(index, facts["name"].decode(), f"{facts['major']}.{facts['minor']}", cupy)
