"""Address and form of arrays on a GPU, read quickly enough for every call."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .dlpack import WorkStream, exchange_reader, read_dlpack

__all__ = ["READERS", "ArrayKey", "Reader", "names_device", "reader_of", "writers"]

ArrayKey = tuple[Any, ...]
"""The library, what tells dims, element type, strides and, where it is said, the GPU; last the array's origin, or None: what `writers`
asks for a stream.

Contiguous arrays of one form differ in nothing but where they lie. What was found out of one holds for all of its form, so nothing is
remembered of an array itself.
"""
Reader = Callable[[Any, int], "tuple[int, ArrayKey] | None"]
"""An array, the number of the stream that will use it → its address and form; None: `device_array` knows more about it."""

_LEGACY = 1
"""Number of the default stream for other libraries; 0 is ambiguous there."""


def reader_of(array: Any) -> Reader:
    """Return the reader of arrays of this class, and store it in `READERS`."""
    kind = type(array)
    roots = ((base.__module__.partition(".")[0], base.__name__) for base in kind.__mro__)
    reader = next((_LIBRARIES[root] for root in roots if root in _LIBRARIES), None)
    READERS[kind] = reader or _protocol_reader(array)
    return READERS[kind]


def writers(forms: tuple[ArrayKey, ...]) -> tuple[Callable[[], int], ...]:
    """For each origin of some arrays a function that gives the stream which their library writes them on."""
    origins = dict.fromkeys(form[-1] for form in forms if form[-1] is not None)
    return tuple(_stream_of(origin) for origin in origins)


def names_device(form: ArrayKey) -> bool:
    """Whether arrays of a form all lie on one GPU."""
    return form[0] not in ("interface", "pycuda")


def _stream_of(origin: Any) -> Callable[[], int]:
    if isinstance(origin, WorkStream):
        return origin.current
    if isinstance(origin, int):
        return lambda: origin
    torch = sys.modules["torch"]
    quick = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)  # the public call makes an object
    if quick is not None:
        return partial(quick, origin.index)
    return lambda: int(torch.cuda.current_stream(origin).cuda_stream)


def _protocol_reader(array: Any) -> Reader:
    if isinstance(array, (np.ndarray, np.generic)):
        return _unread
    if hasattr(array, "__cuda_array_interface__"):
        return _read_interface
    if (described := exchange_reader(type(array))) is not None:
        return partial(_read_exchanged, described)
    return _read_dlpack if hasattr(array, "__dlpack__") else _unread


def _read_cupy(array: Any, stream: int) -> tuple[int, ArrayKey] | None:
    memory = array.data
    return memory.ptr, ("cupy", array.shape, array.dtype, array.strides, memory.device_id, None)


def _read_torch(tensor: Any, stream: int) -> tuple[int, ArrayKey] | None:
    if tensor.requires_grad or not tensor.is_contiguous() or tensor.is_neg():
        return None
    return tensor.data_ptr(), ("torch", tensor.shape, tensor.dtype, tensor.device)


def _read_pycuda(array: Any, stream: int) -> tuple[int, ArrayKey] | None:
    return int(array.gpudata), ("pycuda", array.shape, array.dtype, array.strides, None)


def _read_interface(array: Any, stream: int) -> tuple[int, ArrayKey] | None:
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is None:
        return None
    origin, strides = interface.get("stream"), interface.get("strides")
    if origin is None and hasattr(array, "__dlpack__"):
        return _read_dlpack(array, stream)  # which asks the library to let the stream wait
    shape = tuple(interface["shape"])
    form = (
        "interface",
        shape,
        interface["typestr"],
        strides and tuple(strides),
        None if origin is None else int(origin),
    )
    return int(interface["data"][0] or 0), form


def _read_dlpack(array: Any, stream: int) -> tuple[int, ArrayKey] | None:
    seen = read_dlpack(array, stream or _LEGACY)
    return None if seen is None else (seen[0], ("dlpack", *seen[1], None))


def _read_exchanged(described: Callable[[Any], Any], array: Any, stream: int) -> tuple[int, ArrayKey] | None:
    seen = described(array)
    return None if seen is None else (seen[0][0], ("dlpack", *seen[0][1], seen[1]))


def _unread(array: Any, stream: int) -> tuple[int, ArrayKey] | None:
    return None


_LIBRARIES: dict[tuple[str, str], Reader] = {
    ("cupy", "ndarray"): _read_cupy,
    ("torch", "Tensor"): _read_torch,
    ("pycuda", "GPUArray"): _read_pycuda,
}
READERS: dict[type, Reader] = {}
"""By the class of an array."""
