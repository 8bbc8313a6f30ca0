"""Copies of several arrays on a GPU by one kernel."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from ....cuda.driver import Launch
from .source import load_kernel

__all__ = ["Copier"]

_MOST = 8
_THREADS, _WORD = 256, 16
_WAVES = 4  # blocks of a row for each multiprocessor, at most


class _Args(ctypes.Structure):
    _fields_ = [
        ("targets", ctypes.c_void_p * _MOST),
        ("sources", ctypes.c_void_p * _MOST),
        ("bytes", ctypes.c_longlong * _MOST),
    ]


class Copier:
    """Copies between arrays of certain sizes, wherever they lie on the GPU.

    Args:
        capability: The GPU's compute capability, 90 for 9.0.
        multiprocessors: How many it has.
        sizes: Bytes of each array.
    """

    def __init__(self, capability: int, multiprocessors: int, sizes: Sequence[int]) -> None:
        self._parts: list[tuple[int, int, _Args, Launch]] = []
        function = load_kernel("copies.cu", {}, capability)
        for begin in range(0, len(sizes), _MOST):
            part = sizes[begin : begin + _MOST]
            arguments = _Args(bytes=(ctypes.c_longlong * _MOST)(*part))
            columns = min(max(-(-max(part) // (_THREADS * _WORD)), 1), _WAVES * multiprocessors)
            launch = Launch(function, (columns, len(part), 1), _THREADS, [arguments])
            self._parts.append((begin, len(part), arguments, launch))

    def queue(self, targets: Sequence[int], sources: Sequence[int], stream: int) -> None:
        """Queue the copies.

        Args:
            targets: Addresses, in the order of the sizes.
            sources: Likewise.
            stream: The stream's number.

        Raises:
            KernelError: the driver refuses.
        """
        for begin, count, arguments, launch in self._parts:
            arguments.targets[:count] = targets[begin : begin + count]
            arguments.sources[:count] = sources[begin : begin + count]
            launch(stream)
