"""The CUDA driver, as far as these kernels need it: modules, tensor maps, launches with clusters and early starts.

Through ctypes, because CuPy's launches know neither. All calls use the thread's current context, which is CuPy's.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Sequence
from typing import Any

from ....errors import KernelError, UnavailableError

__all__ = ["Function", "Module", "TensorMap", "check_driver", "current_context", "im2col_map", "patch_map"]

_CLUSTER, _EARLY = 4, 6  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, …_PROGRAMMATIC_STREAM_SERIALIZATION
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_BYTES, _HALVES = 0, 6  # CU_TENSOR_MAP_DATA_TYPE_UINT8, …_FLOAT16
_SWIZZLES = {32: 1, 64: 2, 128: 3}
_PROMOTE_TO_256 = 3  # CU_TENSOR_MAP_L2_PROMOTION_L2_256B


class _Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint * 16)]


class _Config(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    ]


class TensorMap(ctypes.Structure):
    """A tensor as the copy engine knows it: 128 bytes, which a kernel takes by value."""

    _fields_ = [("words", ctypes.c_uint64 * 16)]


@functools.cache
def _library() -> Any:
    try:
        return ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError as error:
        raise UnavailableError(
            f"engine 'cuda': NVIDIA's driver is not here ({error}).\n"
            'Do: build with engine="cpu", or install the driver for an NVIDIA GPU; nvidia-smi lists them then'
        ) from error


def check_driver() -> None:
    """Require NVIDIA's driver.

    Raises:
        UnavailableError: it is not installed.
    """
    _library()


def _call(name: str, *arguments: Any) -> None:
    code = getattr(_library(), name)(*arguments)
    if code:
        text = ctypes.c_char_p()
        _library().cuGetErrorString(code, ctypes.byref(text))
        raise KernelError(
            f"engine 'cuda': {name} gives error {code} ({(text.value or b'?').decode()})", path=name, line=None
        )


def kernel_fields(
    *, pointers: str = "", longs: str = "", ints: str = "", floats: str = ""
) -> list[tuple[str, type[ctypes._SimpleCData[Any]]]]:
    """The fields of the structure that a kernel gets, in this order; each argument has names with spaces between."""
    kinds = ((pointers, ctypes.c_void_p), (longs, ctypes.c_longlong), (ints, ctypes.c_int), (floats, ctypes.c_float))
    return [(name, kind) for names, kind in kinds for name in names.split()]


def current_context() -> int:
    """The thread's current context, so that what is loaded into one is not taken for another's.

    Raises:
        UnavailableError: there is none yet.
    """
    context = ctypes.c_void_p()
    _call("cuCtxGetCurrent", ctypes.byref(context))
    if not context.value:
        raise UnavailableError("engine 'cuda': this thread has no CUDA context.\nDo: cupy.cuda.Device(0).use()")
    return context.value


class Function:
    """One kernel of a module.

    Args:
        module: Keeps it loaded.
        name: Its name.
        shared_bytes: Dynamic shared memory of its blocks.
    """

    def __init__(self, module: Module, name: str, shared_bytes: int) -> None:
        self.module, self.shared_bytes, self._handle = module, shared_bytes, ctypes.c_void_p()
        _call("cuModuleGetFunction", ctypes.byref(self._handle), module.handle, name.encode())
        if (
            shared_bytes > 32 * 1024
        ):  # with what the kernel declares itself perhaps more than the 48 KiB that all may have
            _call("cuFuncSetAttribute", self._handle, _MAX_DYNAMIC_SHARED, shared_bytes)

    def launch(
        self,
        grid: tuple[int, int, int],
        threads: int,
        arguments: Sequence[ctypes.Structure],
        stream: int,
        cluster: int = 1,
        early: bool = False,
    ) -> None:
        """Queue it.

        Args:
            grid: Blocks.
            threads: Of a block.
            arguments: Structures, by value.
            stream: The stream's number.
            cluster: Blocks of a cluster, along x.
            early: Whether it may start while the kernel before it ends (it waits for it itself).

        Raises:
            KernelError: the driver refuses.
        """
        attributes, count = (_Attribute * 2)(), 0
        if early:
            attributes[count].id, attributes[count].value[0] = _EARLY, 1
            count += 1
        if cluster > 1:
            attributes[count].id, attributes[count].value[0:3] = _CLUSTER, (cluster, 1, 1)
            count += 1
        config = _Config(
            grid, (threads, 1, 1), self.shared_bytes, stream, ctypes.cast(attributes, ctypes.POINTER(_Attribute)), count
        )
        pointers = (ctypes.c_void_p * len(arguments))(*[ctypes.addressof(argument) for argument in arguments])
        _call("cuLaunchKernelEx", ctypes.byref(config), self._handle, pointers, None)


class Module:
    """A cubin in the current context; unloaded when nothing refers to it any more.

    Args:
        cubin: From `compile_cubin`.
    """

    def __init__(self, cubin: bytes) -> None:
        self.handle = ctypes.c_void_p()
        _call("cuModuleLoadData", ctypes.byref(self.handle), cubin)


def _encode(
    name: str, itemsize: int, address: int, sizes: Sequence[int], strides: Sequence[int], *rest: Any
) -> TensorMap:
    raw = ctypes.create_string_buffer(ctypes.sizeof(TensorMap) + 64)
    aligned = (ctypes.addressof(raw) + 63) & ~63
    _call(
        name,
        ctypes.c_void_p(aligned),
        _BYTES if itemsize == 1 else _HALVES,
        4,
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * 4)(*sizes),
        (ctypes.c_uint64 * 3)(*strides),
        *rest,
    )
    return TensorMap.from_buffer_copy(ctypes.string_at(aligned, ctypes.sizeof(TensorMap)))


def patch_map(
    address: int, itemsize: int, sizes: Sequence[int], strides: Sequence[int], depth: int, rows: int
) -> TensorMap:
    """For copies of 8 columns by ``rows`` rows; zeros outside of the tensor.

    Args:
        address: Of the tensor.
        itemsize: Bytes of a value.
        sizes: Channels, columns, rows, images.
        strides: Bytes between columns, rows, images.
        depth: Bytes of channels that a copy brings of each pixel.
        rows: Of a patch.
    """
    box = (ctypes.c_uint32 * 4)(depth // itemsize, 8, rows, 1)
    tail = (0, _SWIZZLES[depth], _PROMOTE_TO_256, 0)
    return _encode(
        "cuTensorMapEncodeTiled", itemsize, address, sizes, strides, box, (ctypes.c_uint32 * 4)(1, 1, 1, 1), *tail
    )


def im2col_map(
    address: int,
    itemsize: int,
    sizes: Sequence[int],
    strides: Sequence[int],
    depth: int,
    pixels: int,
    lower: tuple[int, int],
    upper: tuple[int, int],
    steps: tuple[int, int],
) -> TensorMap:
    """For copies of ``pixels`` successive places of a filter; zeros outside of the tensor.

    Args:
        address: Of the tensor.
        itemsize: Bytes of a value.
        sizes: Channels, columns, rows, images.
        strides: Bytes between columns, rows, images.
        depth: Bytes of channels that a copy brings of each pixel.
        pixels: Of a copy.
        lower: Column and row of the first place of the filter's first tap.
        upper: Column and row of the last one, counted from the last pixel.
        steps: Strides of the convolution, across and down.
    """
    corners = (ctypes.c_int * 2)(*lower), (ctypes.c_int * 2)(*upper)
    walk = (ctypes.c_uint32 * 4)(1, steps[0], steps[1], 1)
    tail = (0, _SWIZZLES[depth], _PROMOTE_TO_256, 0)
    return _encode(
        "cuTensorMapEncodeIm2col", itemsize, address, sizes, strides, *corners, depth // itemsize, pixels, walk, *tail
    )
