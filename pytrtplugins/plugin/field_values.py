"""Values that callers pass for a field: their origin, for messages, and arrays in the field's element type."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ARRAY_DTYPES", "as_array", "origin_of", "value_origin"]

ARRAY_DTYPES = ("float32", "float16", "int8", "uint8", "int32", "int64", "bool", "float64")
"""Element types of array fields, by NumPy's names."""

_ORIGIN = ContextVar("_ORIGIN", default="the argument {}")
_KEEPS = {
    "f": "fiu",
    "i": "iu",
    "u": "iu",
    "b": "b",
}  # kinds of NumPy's types whose values a type of this kind can hold


@contextlib.contextmanager
def value_origin(text: str) -> Iterator[None]:
    """In the block, messages about a refused value name this origin; ``{}`` stands for the field's name."""
    token = _ORIGIN.set(text)
    try:
        yield
    finally:
        _ORIGIN.reset(token)


def origin_of(name: str) -> str:
    """The origin of a field's value, for messages."""
    return _ORIGIN.get().replace("{}", name)


def as_array(value: Any, dtype: str) -> npt.NDArray[Any]:
    """A contiguous copy of an array, a number or nested lists.

    Args:
        value: Python's own floats become float32 where ``dtype`` names nothing else, as floats do in every other field.
        dtype: The element type; empty for the value's own. Numbers are converted where the type can hold them, floats rounded.

    Raises:
        ValueError: the type cannot hold the values; the message says what was found.
        TypeError: it is not an array.
    """
    array = np.array(value, copy=True, order="C")
    has_dtype = hasattr(value, "dtype") or hasattr(value, "__array__") or hasattr(value, "__array_interface__")
    target_dtype = dtype or ("float32" if array.dtype == np.float64 and not has_dtype else array.dtype.name)
    if target_dtype not in ARRAY_DTYPES:
        raise ValueError(f"an array of {array.dtype}")
    if array.dtype.name == target_dtype:
        return array
    with np.errstate(all="ignore"):
        converted = (
            array.astype(target_dtype)
            if array.dtype.kind in _KEEPS[np.dtype(target_dtype).kind] or not array.size
            else None
        )
        if converted is None:
            raise ValueError(f"an array of {array.dtype}")
        lost = np.isfinite(converted) != np.isfinite(array) if converted.dtype.kind == "f" else converted != array
    if lost.any():
        raise ValueError(f"{array[lost].flat[0]}, which does not fit into {target_dtype}")
    return converted
