"""Convert the start and end of an ONNX Slice to a Python slice; the two clamp differently."""

from __future__ import annotations

__all__ = ["bounded_slice"]


def bounded_slice(size: int, start: int, end: int, step: int) -> slice:
    """Return the Python slice of one axis that equals an ONNX Slice.

    A start outside moves to the nearest element; Python's ``[-9::-1]`` of four elements is empty, ONNX's is the first one.

    Args:
        size: Of the axis.
        start: Its first element; a negative one counts from the end.
        end: The element behind its last one, likewise.
        step: Not 0.
    """
    low, high = (0, size) if step > 0 else (-1, size - 1)
    first = min(max(start + size * (start < 0), 0), high)
    last = min(max(end + size * (end < 0), low), high)
    return slice(first, None if last < 0 else last, step)
