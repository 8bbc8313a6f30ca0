"""Limits of model size, far above the networks in use."""

from __future__ import annotations

__all__ = [
    "MAX_COMPUTED_BYTES",
    "MAX_DEPTH",
    "MAX_FILE_BYTES",
    "MAX_GROWTH",
    "MAX_NODES",
    "MAX_RANK",
    "MAX_TENSOR_BYTES",
    "size_text",
]

MAX_FILE_BYTES = 2**31
"""Bytes of an ONNX file without its external data: protobuf reads no more."""
MAX_NODES = 1_000_000
"""Nodes, with those of bodies, and of local functions as often as they are called."""
MAX_DEPTH = 24
"""Graphs within each other: bodies of If, Loop and Scan. protobuf itself reads about 30."""
MAX_RANK = 64
"""Dims of one tensor, as in NumPy."""
MAX_TENSOR_BYTES = 2**34
"""Bytes of one tensor whose dims are known."""
MAX_COMPUTED_BYTES = 2**32
"""Bytes of all tensors that are computed from constants alone, and so while an engine is built."""
MAX_GROWTH = 16
"""As many times the bytes of its weights a model may compute from them besides: int4 to float32 is 8."""

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def size_text(count: int) -> str:
    """A number of bytes for messages: ``4 TiB``; what is beyond all units is a power of two."""
    if count >= 1 << 70:
        return f"2^{count.bit_length() - 1} bytes"
    unit = max(0, (count.bit_length() - 1) // 10)
    value = f"{count / (1 << 10 * unit):.1f}"
    return f"{value.removesuffix('.0')} {_UNITS[unit]}"
