"""Kernels on a GPU: loaded and launched by CUDA's driver, in the context and on the arrays of CuPy or PyCUDA."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy.typing as npt

from ...errors import UnavailableError
from ...utils.optional import require
from ...utils.override import override
from ..bindings import device_array
from ..compiler import compile_unit, newest_architecture
from ..driver import Function, Launch, Module, current_context, driver
from ..record import Constant
from ..source import CompileUnit, find_symbol

__all__ = [
    "CupyLibrary",
    "Library",
    "PycudaLibrary",
    "StreamAddress",
    "address",
    "close",
    "cupy_array",
    "gpu_reason",
    "library",
    "stream_handle",
]

Grid = tuple[int, int, int]
Prepare = Callable[[Grid, Grid, Sequence[Any], int], Launch]
"""Grid, block, values of ctypes for the parameters, bytes of shared memory → a launch."""


class Library(ABC):
    """Whose context and arrays kernels use; CUDA's driver loads and launches them.

    Args:
        compiler: ``"auto"`` or ``"nvcc"``, as `compile_unit` takes it.
    """

    def __init__(self, compiler: str) -> None:
        driver()  # a missing package is named here
        self._compiler = compiler

    def context(self) -> int:
        """The thread's current context."""
        return current_context()

    @abstractmethod
    def capability(self) -> int:
        """Compute capability of the current GPU, 90 for 9.0."""

    @abstractmethod
    def stream(self) -> int:
        """The stream of launches that name none."""

    @abstractmethod
    def copy(self, array: npt.NDArray[Any]) -> Any:
        """Copy an array to the current GPU; any stream may read it then."""

    def load(self, unit: CompileUnit) -> Prepare:
        """Compile a kernel for the current GPU, or find it in the cache, and load it into the current context."""
        capability = self.capability()
        architecture = f"sm_{capability}" if self._compiler == "nvcc" else newest_architecture(capability)
        code = compile_unit(unit, architecture, self._compiler)
        module, symbol = Module(code), find_symbol(code, unit.signature.name, unit.label)
        return lambda grid, block, arguments, shared_bytes: Launch(
            Function(module, symbol, shared_bytes), grid, block, arguments
        )

    def upload(self, constant: Constant) -> int:
        """Address of a constant's copy in the current context, made once."""
        key = self.context()
        if key not in constant.copies:
            constant.copies[key] = self.copy(constant.array)
        return address(constant.copies[key])


class CupyLibrary(Library):
    """CuPy.

    Raises:
        UnavailableError: there is no GPU.
    """

    def __init__(self, compiler: str = "auto") -> None:
        self.cupy = require("cupy", extra="cuda", package="cupy-cuda13x", feature="a CUDA kernel on a GPU")
        runtime = self.cupy.cuda.runtime
        try:
            count = int(runtime.getDeviceCount())
        except runtime.CUDARuntimeError as error:
            raise UnavailableError(f"no NVIDIA GPU can be used: {error}") from error
        if not count:
            raise UnavailableError("no NVIDIA GPU can be used: CUDA finds none")
        super().__init__(compiler)

    @override
    def context(self) -> int:
        try:
            return current_context()
        except UnavailableError:  # in a new thread
            self.cupy.cuda.Device().use()
            return current_context()

    @override
    def capability(self) -> int:
        return int(self.cupy.cuda.Device().compute_capability)

    @override
    def stream(self) -> int:
        return int(self.cupy.cuda.get_current_stream().ptr)

    @override
    def copy(self, array: npt.NDArray[Any]) -> Any:
        made = self.cupy.asarray(array)
        self.cupy.cuda.get_current_stream().synchronize()  # the launch may be on another stream
        return made


class PycudaLibrary(Library):
    """PyCUDA, in the primary context, which is CuPy's and PyTorch's too; nvcc is the compiler.

    Raises:
        UnavailableError: there is no GPU.
    """

    def __init__(self) -> None:
        self.cuda: Any = require("pycuda.driver", extra="pycuda", package="pycuda", feature="backend 'pycuda'")
        try:
            self.cuda.init()
            if self.cuda.Context.get_current() is None:
                require("pycuda.autoprimaryctx", extra="pycuda", package="pycuda", feature="backend 'pycuda'")
        except (self.cuda.Error, RuntimeError) as error:
            raise UnavailableError(f"no NVIDIA GPU can be used: {error}") from error
        super().__init__("nvcc")

    @override
    def capability(self) -> int:
        major, minor = self.cuda.Context.get_device().compute_capability()
        return 10 * int(major) + int(minor)

    @override
    def stream(self) -> int:
        return 0

    @override
    def copy(self, array: npt.NDArray[Any]) -> Any:
        return self.cuda.to_device(array)


class StreamAddress:
    """What launches of CuPy's graphs need of a stream."""

    __slots__ = ("ptr",)

    def __init__(self, address: int) -> None:
        self.ptr = address


def stream_handle(stream: Any) -> int:
    """The number of a stream of CuPy, PyTorch or PyCUDA, or the number itself."""
    for name in ("ptr", "cuda_stream", "handle"):
        found = getattr(stream, name, None)
        if found is not None:
            return int(found)
    return int(stream)


_libraries: dict[str, Library] = {}
_closed = ""


def close(reason: str) -> None:
    """From here on there is no GPU in this process, and `gpu_reason` says why: one that was forked cannot use its parent's."""
    global _closed
    _closed = reason
    _libraries.clear()


def library(backend: str) -> Library:
    """The library of a backend, found once: ``"cupy"``, ``"nvcc"`` or ``"pycuda"``.

    Raises:
        UnavailableError: there is no GPU.
    """
    if _closed:
        raise UnavailableError(_closed)
    if backend not in _libraries:
        made: Library = PycudaLibrary() if backend == "pycuda" else CupyLibrary("nvcc" if backend == "nvcc" else "auto")
        _libraries[backend] = made
    return _libraries[backend]


def cupy_array() -> Any:
    """CuPy's array type, once kernels were launched through CuPy; None before."""
    found = _libraries.get("cupy") or _libraries.get("nvcc")
    return found.cupy.ndarray if isinstance(found, CupyLibrary) else None


def address(array: Any) -> int:
    """Where an array on a GPU begins."""
    data = getattr(array, "data", None)
    return device_array(array).address if data is None or not hasattr(data, "ptr") else int(data.ptr)


def gpu_reason(backend: str = "cupy") -> str:
    """Why kernels cannot run on a GPU here; empty when they can."""
    try:
        library(backend)
    except (ImportError, UnavailableError) as error:
        return str(error)
    return ""
