"""The CUDA driver, as far as kernels need it: modules, tensor maps, launches with clusters and programmatic dependent launch.

Through NVIDIA's own bindings, because CuPy's launches know neither. All calls use the thread's current context.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import weakref
from collections.abc import Sequence
from typing import Any

from ..errors import KernelError, UnavailableError
from ..utils.optional import require

__all__ = [
    "LIBRARY",
    "Driver",
    "Function",
    "Launch",
    "Module",
    "check_driver",
    "current_context",
    "driver",
    "kernel_fields",
    "tensor_map",
]

LIBRARY = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"
"""The driver's file."""
_PORTABLE_CLUSTER = 8
"""Blocks of a cluster that every GPU with clusters takes."""
_log = logging.getLogger(__name__)


class TensorMap(ctypes.Structure):
    """A tensor as the copy engine knows it: 128 bytes, which a kernel takes by value."""

    _fields_ = [("words", ctypes.c_uint64 * 16)]


def kernel_fields(
    *, pointers: str = "", longs: str = "", ints: str = "", floats: str = ""
) -> list[tuple[str, type[ctypes._SimpleCData[Any]]]]:
    """The fields of the structure that a kernel gets, in this order; each argument has names with spaces between."""
    kinds = ((pointers, ctypes.c_void_p), (longs, ctypes.c_longlong), (ints, ctypes.c_int), (floats, ctypes.c_float))
    return [(name, kind) for names, kind in kinds for name in names.split()]


def check_driver() -> None:
    """Require NVIDIA's driver, before large packages are imported or installed that are of no use without it."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise UnavailableError(
            f"engine 'cuda': NVIDIA's driver is not installed ({error}).\n"
            'Do: build with engine="cpu", or install the driver for an NVIDIA GPU; nvidia-smi lists them then'
        ) from error


class Driver:
    """The driver's functions."""

    def __init__(self, api: Any) -> None:
        self.api = api

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a driver function and return its result; an error code is raised as a KernelError."""
        code, *values = getattr(self.api, name)(*arguments)
        self.check(name, code)
        return values[0] if values else None

    def check(self, name: str, code: Any) -> None:
        """Raise a KernelError if a function returned an error code."""
        if code:
            text = self.api.cuGetErrorString(code)[1] or b"?"
            raise KernelError(f"CUDA: {name} gives {code.name} ({text.decode()})", path=name, line=None)


@functools.cache
def driver() -> Driver:
    """NVIDIA's driver.

    Raises:
        UnavailableError: the driver is not installed.
    """
    check_driver()
    return Driver(
        require("cuda.bindings.driver", extra="nvrtc", package="cuda-bindings", feature="a CUDA kernel on a GPU")
    )


def current_context() -> int:
    """The thread's current context, so that what is loaded into one is not taken for another's.

    Raises:
        UnavailableError: there is none yet.
    """
    context = int(driver().call("cuCtxGetCurrent"))
    if not context:
        raise UnavailableError("this thread has no CUDA context.\nDo: cupy.cuda.Device(0).use()")
    return context


class Module:
    """A cubin or PTX in the current context, unloaded when nothing refers to it any more.

    Functions and launches refer to it. A CUDA graph does not: whoever keeps one that launches its kernels keeps a `Launch` too.

    Args:
        code: From `compile_source`.
        on: The driver; None: NVIDIA's.
    """

    def __init__(self, code: bytes, on: Driver | None = None) -> None:
        self.driver = on or driver()
        self.shared_bytes: dict[str, int] = {}  # the most dynamic shared memory that a kernel was allowed
        self.handle = self.driver.call("cuModuleLoadData", code)
        unload = weakref.finalize(
            self, _unload, self.driver, self.handle, self.driver.call("cuCtxGetCurrent"), os.getpid()
        )
        unload.atexit = False  # the driver may be gone by then, and takes everything with it


def _unload(on: Driver, handle: Any, context: Any, process: int) -> None:
    """Unload a module, from any thread; do nothing in a forked child process, which cannot use CUDA."""
    if os.getpid() != process:
        return
    try:
        on.call("cuCtxPushCurrent", context)
        try:
            on.call("cuModuleUnload", handle)
        finally:
            on.call("cuCtxPopCurrent")
    except KernelError as error:  # the context is gone, or a kernel has failed in it
        _log.debug("a module stays loaded: %s", error)


class Function:
    """One kernel of a module, which it keeps loaded."""

    def __init__(self, module: Module, name: str, shared_bytes: int = 0) -> None:
        self.module, self.shared_bytes = module, shared_bytes
        self.handle = module.driver.call("cuModuleGetFunction", module.handle, name.encode())
        # with what the kernel declares perhaps more than the 48 KiB that all may have
        if shared_bytes > max(32 * 1024, module.shared_bytes.get(name, 0)):
            attribute = module.driver.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            module.driver.call("cuFuncSetAttribute", self.handle, attribute, shared_bytes)
            module.shared_bytes[name] = shared_bytes


class Launch:
    """A launch whose arguments are converted once; one thread at a time may queue it.

    Args:
        function: The kernel.
        grid: Blocks: along x, or along x, y and z.
        threads: Of a block, likewise.
        arguments: Structures and numbers of ctypes, by value; who changes one changes the next launches.
        cluster: Blocks of a cluster.
        programmatic_launch: Use programmatic dependent launch: the kernel starts before the previous one ends, and waits for it itself.
        cooperative: All blocks run at the same time: the kernel starts when there is room for all of them, and the driver
            refuses it if there never is.
    """

    def __init__(
        self,
        function: Function,
        grid: int | tuple[int, int, int],
        threads: int | tuple[int, int, int],
        arguments: Sequence[Any],
        cluster: int = 1,
        programmatic_launch: bool = False,
        cooperative: bool = False,
    ) -> None:
        self._function, self._driver, self._arguments = function, function.module.driver, arguments
        self._handle, api = function.handle, self._driver.api
        self._launch, self._new_stream, self._stream = api.cuLaunchKernelEx, api.CUstream, 0
        self._pointers = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        self._address = ctypes.addressof(self._pointers)
        attributes = []
        if programmatic_launch:
            attributes.append(api.CUlaunchAttribute())
            attributes[-1].id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attributes[-1].value.programmaticStreamSerializationAllowed = 1
        if cooperative:
            attributes.append(api.CUlaunchAttribute())
            attributes[-1].id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            attributes[-1].value.cooperative = 1
        if cluster > _PORTABLE_CLUSTER:
            allowed = api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            self._driver.call("cuFuncSetAttribute", self._handle, allowed, 1)
        if cluster > 1:
            attributes.append(api.CUlaunchAttribute())
            attributes[-1].id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            size = attributes[-1].value.clusterDim
            size.x, size.y, size.z = cluster, 1, 1
        config = self._config = api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid if isinstance(grid, tuple) else (grid, 1, 1)
        block = threads if isinstance(threads, tuple) else (threads, 1, 1)
        config.blockDimX, config.blockDimY, config.blockDimZ = block
        config.sharedMemBytes = function.shared_bytes
        config.attrs, config.numAttrs = attributes, len(attributes)

    def max_clusters(self) -> int:
        """How many of its clusters the GPU can run at the same time; 0 where it cannot run one."""
        return int(self._driver.call("cuOccupancyMaxActiveClusters", self._handle, self._config))

    def __call__(self, stream: int) -> None:
        """Queue it on a stream; nothing is allocated on the device, so that it can be captured."""
        if stream != self._stream:
            self._config.hStream, self._stream = self._new_stream(stream), stream
        (code,) = self._launch(self._config, self._handle, self._address, 0)
        if code:
            self._driver.check("cuLaunchKernelEx", code)


def tensor_map(
    address: int,
    itemsize: int,
    sizes: Sequence[int],
    strides: Sequence[int],
    depth: int,
    pixels: int | tuple[int, int],
    corners: Sequence[Sequence[int]] = (),
    steps: tuple[int, int] = (1, 1),
) -> TensorMap:
    """For copies of boxes of pixels, or with corners of successive places of a filter; zeros outside of the tensor.

    Args:
        address: Of the tensor.
        itemsize: Bytes of a value: float16, or bytes as they are.
        sizes: Channels, columns, rows, images.
        strides: Bytes between columns, rows, images.
        depth: Bytes of channels that a copy brings of each pixel.
        pixels: Columns and rows of a box, or with corners how many places.
        corners: Column and row of the first place of the filter's first tap, and of the last one, counted from the last pixel.
        steps: Strides of the convolution, across and down.
    """
    api, kinds, number = driver().api, driver().api.CUtensorMapDataType, driver().api.cuuint32_t
    if corners:
        name, box = "cuTensorMapEncodeIm2col", [*map(list, corners), depth // itemsize, pixels]
    else:
        columns, rows = pixels if isinstance(pixels, tuple) else (pixels, 1)
        name, box = "cuTensorMapEncodeTiled", [[number(size) for size in (depth // itemsize, columns, rows, 1)]]
    encoded = driver().call(
        name,
        kinds.CU_TENSOR_MAP_DATA_TYPE_UINT8 if itemsize == 1 else kinds.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        4,
        address,
        [api.cuuint64_t(size) for size in sizes],
        [api.cuuint64_t(stride) for stride in strides],
        *box,
        [number(step) for step in (1, *steps, 1)],
        api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(api.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{depth}B"),
        api.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    return TensorMap.from_buffer_copy(ctypes.string_at(encoded.getPtr(), ctypes.sizeof(TensorMap)))
