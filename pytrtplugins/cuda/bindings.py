"""Arrays of other libraries, used without a copy: PyCUDA, PyTorch, JAX, anything with ``__cuda_array_interface__`` or DLPack."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import BindingError
from ..tensor import DType
from ..utils.optional import require

__all__ = [
    "DeviceArray",
    "array_at",
    "as_cupy",
    "device_array",
    "is_device_array",
    "stream_at",
    "wait_for",
]


class DeviceArray(NamedTuple):
    """Memory on a GPU, whoever owns it.

    Attributes:
        address: Where it begins.
        dtype: Element type; None for memory without one, such as PyCUDA's DeviceAllocation.
        shape: Its dims; None likewise.
        contiguous: Whether it is row-major without gaps.
        owner: What keeps it alive.
    """

    address: int
    dtype: np.dtype[Any] | None
    shape: tuple[int, ...] | None
    contiguous: bool
    owner: Any


def is_device_array(value: Any) -> bool:
    """Whether an object is memory on a GPU that `device_array` understands."""
    if isinstance(value, (np.ndarray, np.generic)):
        return False
    return (
        hasattr(value, "__cuda_array_interface__")
        or _is_allocation(value)
        or (hasattr(value, "__dlpack_device__") and value.__dlpack_device__()[0] == 2)
    )


def device_array(value: Any) -> DeviceArray:
    """What a kernel needs to know of an array on a GPU; nothing is copied.

    Args:
        value: An array with ``__cuda_array_interface__`` or DLPack, or PyCUDA's DeviceAllocation.

    Raises:
        BindingError: the object is nothing of the kind.
    """
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        dtype, shape = np.dtype(interface["typestr"]), tuple(interface["shape"])
        strides = interface.get("strides")
        contiguous = strides is None or _row_major(shape, strides, dtype.itemsize)
        return DeviceArray(int(interface["data"][0] or 0), dtype, shape, contiguous, value)
    if _is_allocation(value):
        return DeviceArray(int(value), None, None, True, value)
    if hasattr(value, "__dlpack_device__") and value.__dlpack_device__()[0] == 2:
        array = require("cupy", extra="cuda", package="cupy-cuda13x", feature="a DLPack array on a GPU").from_dlpack(
            value
        )
        return DeviceArray(array.data.ptr, array.dtype, array.shape, array.flags.c_contiguous, array)
    raise BindingError(
        f"{type(value).__name__} is not an array on a GPU: expected __cuda_array_interface__, DLPack on a CUDA device, or "
        "PyCUDA's DeviceAllocation"
    )


def as_cupy(value: Any, dims: Sequence[int] | None = None, dtype: DType | npt.DTypeLike | None = None) -> Any:
    """The same memory as a CuPy array, without a copy; what an engine does with a binding.

    Args:
        value: As for `device_array`.
        dims: What the dims must be; needed for memory without dims of its own.
        dtype: What the element type must be; needed likewise.

    Raises:
        BindingError: it is not an array on a GPU, or has other dims or another element type.
        MissingExtraError: CuPy is not installed.
    """
    cupy = require("cupy", extra="cuda", package="cupy-cuda13x", feature="an array on a GPU as a binding")
    wanted = None if dtype is None else DType.of(dtype).numpy
    found = device_array(value)
    if found.dtype is None or found.shape is None:
        return _over_allocation(cupy, found, dims, wanted)
    expected = found.shape if dims is None else tuple(dims)
    if found.shape != expected or (wanted is not None and found.dtype != wanted):
        raise BindingError(
            f"binding: expected {found.dtype if wanted is None else wanted}{list(expected)}, found "
            f"{found.dtype}{list(found.shape)}",
            expected=(wanted, expected),
            found=(found.dtype, found.shape),
        )
    if not found.contiguous:
        raise BindingError(
            f"binding {found.dtype}{list(found.shape)} is not contiguous.\nDo: cupy.ascontiguousarray(...)"
        )
    return (
        value
        if isinstance(value, cupy.ndarray)
        else array_at(cupy, found.address, found.shape, found.dtype, found.owner)
    )


def wait_for(value: Any, stream: Any) -> None:
    """Let a stream wait for the work that still writes an array of another library, as far as that tells.

    Args:
        value: An array on a GPU. One with a ``stream`` in its ``__cuda_array_interface__`` (version 3) names it; one that knows
            DLPack too lets ``stream`` wait for its library's current one. `as_cupy` does so where DLPack is all that it knows.
        stream: CuPy's.
    """
    interface = getattr(value, "__cuda_array_interface__", None)
    cupy = require("cupy", extra="cuda", package="cupy-cuda13x", feature="an array on a GPU as a binding")
    if interface is None or isinstance(value, cupy.ndarray):
        return
    if interface.get("stream") is not None:
        event = cupy.cuda.Event(disable_timing=True)
        cupy.cuda.runtime.eventRecord(event.ptr, interface["stream"])
        stream.wait_event(event)
    elif hasattr(value, "__dlpack__"):
        value.__dlpack__(stream=stream.ptr)


def array_at(cupy: Any, address: int, dims: tuple[int, ...], dtype: npt.DTypeLike, owner: Any) -> Any:
    """A CuPy array over memory that somebody else owns, and that ``owner`` keeps alive."""
    size = math.prod(dims) * np.dtype(dtype).itemsize
    if not size:
        return cupy.empty(dims, dtype)
    memory = cupy.cuda.UnownedMemory(address, size, owner)
    return cupy.ndarray(dims, dtype, cupy.cuda.MemoryPointer(memory, 0))


def stream_at(cupy: Any, address: int) -> Any:
    """CuPy's object for a CUDA stream that somebody else owns."""
    return cupy.cuda.Stream.from_external(_Stream(address))


class _Stream(NamedTuple):
    """A stream's address, in the form that libraries exchange streams in."""

    address: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.address


def _over_allocation(cupy: Any, found: DeviceArray, dims: Sequence[int] | None, dtype: np.dtype[Any] | None) -> Any:
    if dims is None or dtype is None:
        raise BindingError(f"{type(found.owner).__name__} has no dims and no element type: they must be given")
    return array_at(cupy, found.address, tuple(dims), dtype, found.owner)


def _is_allocation(value: Any) -> bool:
    kind = type(value)
    return kind.__module__.partition(".")[0] == "pycuda" and kind.__name__.endswith("DeviceAllocation")


def _row_major(shape: tuple[int, ...], strides: Sequence[int], itemsize: int) -> bool:
    expected = itemsize
    for size, stride in zip(reversed(shape), reversed(tuple(strides)), strict=True):
        if size > 1 and stride != expected:
            return 0 in shape
        expected *= size
    return True
