"""Devices that hold an engine's arrays: a GPU through CuPy, or the host through NumPy for tests."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ....cuda import pinned_empty
from ....cuda.driver import LIBRARY, check_driver
from ....cuda.waits import choose_wait
from ....errors import UnavailableError
from ....utils.forks import forks_as_cause
from ....utils.optional import require
from .copier import Copier
from .elements import stored
from .layout import FP8, Format, as_bytes, as_rows

__all__ = [
    "NETWORK_PRIORITY",
    "Copies",
    "CudaDevice",
    "Device",
    "HostDevice",
    "Tensor",
    "bytes_of",
    "rows_of",
    "tensor_at",
]

_CURRENT = nullcontext()
_PINNED = 1  # cudaMemoryTypeHost
NETWORK_PRIORITY = -1
"""Of streams with a network's kernels: they go before those on other streams, such as of decoding, whose priority is 0."""
_OLDEST = 75
"""Compute capability that cuDNN 9 and the kernels of nhwc.cu need."""


@dataclass(frozen=True)
class Tensor:
    """A tensor in an arena.

    Attributes:
        flat: One-dimensional array of its element type that begins at its first value.
        format: How it lies.
        view: The same memory with the tensor's dims.
    """

    flat: Any
    format: Format
    view: Any


class Device(Protocol):
    """The interface of a device: memory, copies and streams."""

    xp: Any
    """NumPy or CuPy."""
    number: int
    """Of the GPU."""

    @property
    def queue_copy(self) -> int:
        """Address of a C function that queues a copy from page-locked memory, as cuMemcpyHtoDAsync does; 0: there is none."""

    def usable(self) -> bool:
        """Whether the device still works; False once a kernel has failed so that this process's context is lost."""

    def is_pinned(self, array: npt.NDArray[Any]) -> bool:
        """Whether an array of the host lies in page-locked memory."""

    def allocate(self, size: int) -> Any:
        """Allocate zeroed bytes, aligned for every kernel."""

    def upload(self, array: npt.NDArray[Any]) -> Any:
        """Copy an array of the host to the device."""

    def download(self, array: Any) -> npt.NDArray[Any]:
        """Copy an array of the device to the host, as NumPy's."""

    def current(self) -> AbstractContextManager[Any]:
        """Inside the block, this device is CUDA's current one."""

    def mapped_memory(self, size: int) -> tuple[npt.NDArray[np.uint8], Any]:
        """Allocate mapped host memory; returns its host view and its device view."""

    def pinned_memory(self, size: int) -> npt.NDArray[np.uint8]:
        """Allocate page-locked host memory for asynchronous copies; its values are undefined."""

    def send(self, array: npt.NDArray[Any], memory: Any, stream: Any, begin: int = 0) -> None:
        """Queue a copy of a contiguous array of the host to memory of the device, from a byte on.

        The array may change when this returns; one in page-locked memory must neither change nor go before the copy is done.
        """

    def copy_rows(self, address: int, pitch: int, memory: Any, row: int, rows: int, stream: Any) -> None:
        """Queue a copy on the device: rows of so many bytes, each ``pitch`` behind the one before, close together into memory."""

    def copier(self, sizes: Sequence[int]) -> Copies:
        """Make the copier of arrays on the device of these sizes in bytes."""

    def new_pool(self) -> Any:
        """Make a memory pool for one context, so that captured graphs can reuse its arrays."""

    def allocating(self, pool: Any) -> AbstractContextManager[Any]:
        """Inside the block, new arrays come from the pool."""

    def new_streams(self, count: int) -> list[Any]:
        """Make streams for the branches of a plan."""


class Copies(Protocol):
    """Queues copies of arrays of fixed sizes."""

    def queue(self, targets: Sequence[int], sources: Sequence[int], stream: int) -> None:
        """Queue copies to these addresses from these ones."""


class _HostCopier:
    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes

    def queue(self, targets: Sequence[int], sources: Sequence[int], stream: int) -> None:
        for target, source, size in zip(targets, sources, self._sizes, strict=True):
            ctypes.memmove(target, source, size)


class HostDevice:
    """NumPy: kernels run through a C++ compiler, for tests."""

    xp: Any = np
    number = 0
    queue_copy = 0

    def is_pinned(self, array: npt.NDArray[Any]) -> bool:
        """False: no host array is page-locked."""
        return False

    def allocate(self, size: int) -> Any:
        """Allocate zeroed bytes at a multiple of 256."""
        raw = np.zeros(size + 256, np.uint8)
        begin = -raw.ctypes.data % 256
        return raw[begin : begin + size]

    def upload(self, array: npt.NDArray[Any]) -> Any:
        """Copy the array."""
        return array.copy()

    def download(self, array: Any) -> npt.NDArray[Any]:
        """Copy the array."""
        return np.array(array)

    def current(self) -> AbstractContextManager[Any]:
        """Does nothing: the host is the only device."""
        return nullcontext()

    def mapped_memory(self, size: int) -> tuple[npt.NDArray[np.uint8], Any]:
        """Return the same bytes as both views."""
        memory = self.allocate(size)
        return memory, memory

    def usable(self) -> bool:
        """The host always computes."""
        return True

    def pinned_memory(self, size: int) -> npt.NDArray[np.uint8]:
        """Allocate ordinary memory."""
        return np.empty(size, np.uint8)

    def send(self, array: npt.NDArray[Any], memory: Any, stream: Any, begin: int = 0) -> None:
        """Copy at once."""
        memory[begin : begin + array.nbytes] = array.reshape(-1).view(np.uint8)

    def copy_rows(self, address: int, pitch: int, memory: Any, row: int, rows: int, stream: Any) -> None:
        """Copy at once."""
        for number in range(rows):
            ctypes.memmove(memory.ctypes.data + number * row, address + number * pitch, row)

    def copier(self, sizes: Sequence[int]) -> Copies:
        """Make a copier that copies at once."""
        return _HostCopier(sizes)

    def new_pool(self) -> Any:
        """None."""
        return None

    def allocating(self, pool: Any) -> AbstractContextManager[Any]:
        """Does nothing: NumPy allocates."""
        return nullcontext()

    def new_streams(self, count: int) -> list[Any]:
        """Return no streams: steps run one after the other."""
        return []


class CudaDevice:
    """A GPU, through CuPy.

    Args:
        number: Of the GPU.

    Attributes:
        model: Its name.
        number_of_devices: GPUs that this process can use.
        capability: Compute capability, 90 for 9.0.
        driver: Version of the driver's CUDA, 13000 for 13.0.
        multiprocessors: How many it has.
        cache: Bytes of its second-level cache.

    Raises:
        MissingExtraError: CuPy or NVIDIA's bindings are not installed.
        UnavailableError: there is no such GPU, or it is too old.
    """

    def __init__(self, number: int = 0) -> None:
        check_driver()  # before CuPy is imported, which takes long
        self.xp: Any = require("cupy", extra="cuda", package="cupy-cuda13x", feature="engine 'cuda'")
        require("cuda.bindings.driver", extra="cuda", package="cuda-bindings", feature="engine 'cuda'")
        choose_wait(number)
        runtime = self.xp.cuda.runtime
        try:
            count = int(runtime.getDeviceCount())
        except runtime.CUDARuntimeError as error:
            raise UnavailableError(
                f"engine 'cuda': no NVIDIA GPU can be used: {error}.\n{forks_as_cause()}"
                'Do: nvidia-smi   (the driver lists its GPUs), or build with engine="cpu"'
            ) from error
        if number >= count:
            raise UnavailableError(
                f"engine 'cuda': there is no GPU {number}; CUDA finds {count}.\nDo: pytrt devices", device=number
            )
        self.number, self.number_of_devices = number, count
        properties = runtime.getDeviceProperties(number)
        self.model = str(properties["name"].decode())
        self.capability = int(properties["major"]) * 10 + int(properties["minor"])
        self.driver = int(runtime.driverGetVersion())
        self.multiprocessors = int(properties["multiProcessorCount"])
        self.cache = int(properties["l2CacheSize"])
        if self.capability < _OLDEST:
            raise UnavailableError(
                f"engine 'cuda': GPU {number}, {self.model}, has compute capability {self.capability / 10}; it needs "
                f'{_OLDEST / 10} or newer.\nDo: build with engine="cpu", or device="cuda:N" for another of {count} GPUs',
                device=number,
                capability=self.capability,
            )

    def allocate(self, size: int) -> Any:
        """Allocate zeroed bytes; cudaMalloc aligns to 256.

        Raises:
            UnavailableError: the GPU's memory does not suffice.
        """
        with self.explaining_memory(size):
            return self.xp.zeros(max(size, 1), self.xp.uint8)

    def upload(self, array: npt.NDArray[Any]) -> Any:
        """Copy an array to the GPU; complete when this returns.

        Raises:
            UnavailableError: the GPU's memory does not suffice.
        """
        with self.explaining_memory(array.nbytes):
            copy = self.xp.asarray(array)
        self.xp.cuda.get_current_stream().synchronize()
        return copy

    @contextmanager
    def explaining_memory(self, size: int | None = None) -> Iterator[None]:
        """Inside the block, explain CuPy's out-of-memory errors: how much memory there is, and what needs less.

        Args:
            size: Bytes that are asked for; None: CuPy's own message tells.

        Raises:
            UnavailableError: the GPU's memory does not suffice.
        """
        try:
            yield
        except self.xp.cuda.memory.OutOfMemoryError as error:
            free, total = self.xp.cuda.runtime.memGetInfo()
            needed = str(error) if size is None else f"{size / 2**20:.0f} MiB more are needed"
            raise UnavailableError(
                f"engine 'cuda': the memory of {self.model} does not suffice: {needed}, {free / 2**20:.0f} of "
                f"{total / 2**20:.0f} MiB are free.\n"
                'Do: run smaller batches, or use precision="fp16" or "int8", or keep "reuse" out of disable, or end other '
                "programs that use the GPU (nvidia-smi lists them)",
                needed=size,
                free=free,
            ) from error

    def current(self) -> AbstractContextManager[Any]:
        """Inside the block, this is CUDA's current GPU."""
        if self.xp.cuda.runtime.getDevice() == self.number:
            return _CURRENT
        return self.xp.cuda.Device(self.number)  # type: ignore[no-any-return]

    def holder(self, array: Any) -> int:
        """Number of the GPU whose memory holds an array."""
        return int(self.xp.cuda.runtime.pointerGetAttributes(array.data.ptr).device)

    def download(self, array: Any) -> npt.NDArray[Any]:
        """Copy an array to the host; complete when this returns."""
        return np.asarray(self.xp.asnumpy(array))

    def mapped_memory(self, size: int) -> tuple[npt.NDArray[np.uint8], Any]:
        """Allocate mapped page-locked memory; host and device use one address."""
        host = pinned_empty(size, np.uint8)
        host.fill(0)
        cuda = self.xp.cuda
        memory = cuda.UnownedMemory(host.ctypes.data, size, host, self.number)
        return host, self.xp.ndarray((size,), np.uint8, cuda.MemoryPointer(memory, 0))

    def pinned_memory(self, size: int) -> npt.NDArray[np.uint8]:
        """Allocate page-locked memory from CuPy's pool, which reuses it once it is released.

        Raises:
            UnavailableError: the host has not so much memory that can be locked.
        """
        with self.current():
            return pinned_empty(size, np.uint8)

    @functools.cached_property
    def queue_copy(self) -> int:
        """The driver's own function, which the native part calls."""
        return ctypes.cast(ctypes.CDLL(LIBRARY).cuMemcpyHtoDAsync_v2, ctypes.c_void_p).value or 0

    def usable(self) -> bool:
        """Whether CUDA can wait for the device: errors of a kernel, such as an illegal address, are told at each call from then on."""
        for _ in range(2):  # an error that ends nothing is told once
            with suppress(Exception):  # of the library's own type
                with self.current():
                    self.xp.cuda.runtime.deviceSynchronize()
                return True
        return False

    def is_pinned(self, array: npt.NDArray[Any]) -> bool:
        """Ask CUDA, which also knows memory that other libraries have page-locked."""
        return bool(self.xp.cuda.runtime.pointerGetAttributes(array.ctypes.data).type == _PINNED)

    def send(self, array: npt.NDArray[Any], memory: Any, stream: Any, begin: int = 0) -> None:
        """Queue a copy; the driver has read ordinary arrays when this returns, the GPU reads page-locked ones itself."""
        runtime = self.xp.cuda.runtime
        target = memory.data.ptr + begin
        runtime.memcpyAsync(target, array.ctypes.data, array.nbytes, runtime.memcpyHostToDevice, stream.ptr)

    def copy_rows(self, address: int, pitch: int, memory: Any, row: int, rows: int, stream: Any) -> None:
        """Queue the copy."""
        runtime = self.xp.cuda.runtime
        kind = runtime.memcpyDeviceToDevice
        runtime.memcpy2DAsync(memory.data.ptr, row, address, pitch, row, rows, kind, stream.ptr)

    def copier(self, sizes: Sequence[int]) -> Copies:
        """Make the copier, which is one kernel."""
        return Copier(self.capability, self.multiprocessors, sizes)

    def new_pool(self) -> Any:
        """Make a CuPy memory pool."""
        return self.xp.cuda.MemoryPool()

    def allocating(self, pool: Any) -> AbstractContextManager[Any]:
        """Inside the block, new arrays come from the pool."""
        return self.xp.cuda.using_allocator(pool.malloc)  # type: ignore[no-any-return]

    def new_streams(self, count: int) -> list[Any]:
        """Make non-blocking streams."""
        return [self.xp.cuda.Stream(non_blocking=True, priority=NETWORK_PRIORITY) for _ in range(count)]


def tensor_at(xp: Any, memory: Any, offset: int, form: Format) -> Tensor:
    """The tensor at a byte of an arena."""
    kind = stored(form.dtype)
    usable = (len(memory) - offset) // kind.itemsize * kind.itemsize
    wanted = min(usable, form.elements * kind.itemsize)
    flat = memory[offset : offset + wanted].view(kind)
    strides = tuple(stride * kind.itemsize for stride in form.strides)
    view = xp.lib.stride_tricks.as_strided(flat, form.dims, strides)
    return Tensor(flat, form, view)


def bytes_of(tensor: Tensor) -> Tensor:
    """The tensor as plugins see it; see `as_bytes`."""
    if tensor.format.dtype is not FP8:
        return tensor
    return Tensor(tensor.flat.view(np.int8), as_bytes(tensor.format), tensor.view.view(np.int8))


def rows_of(xp: Any, tensor: Tensor) -> Tensor:
    """The tensor's rows as pixels; see `as_rows`."""
    form = as_rows(tensor.format)
    strides = tuple(stride * form.dtype.itemsize for stride in form.strides)
    return Tensor(tensor.flat, form, xp.lib.stride_tricks.as_strided(tensor.flat, form.dims, strides))
