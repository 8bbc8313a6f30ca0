"""Kernels on a GPU: loaded and launched through CuPy, or through PyCUDA."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ...errors import UnavailableError
from ...utils.optional import require
from ..bindings import device_array
from ..compiler import compile_unit, newest_architecture
from ..record import Constant
from ..source import CompileUnit, find_symbol

__all__ = [
    "CupyDriver",
    "Driver",
    "PycudaDriver",
    "address",
    "close",
    "cupy_array",
    "driver",
    "gpu_reason",
    "stream_handle",
]

Grid = tuple[int, int, int]
Launch = Callable[[Grid, Grid, Sequence[Any], int, Any], None]
"""Grid, block, numbers as NumPy scalars, bytes of shared memory, stream."""


class Driver(Protocol):
    """What loads and launches."""

    def device(self) -> int:
        """Number of the current GPU."""

    def load(self, unit: CompileUnit) -> Launch:
        """Compile a kernel for the current GPU, or find it in the cache."""

    def upload(self, constant: Constant) -> int:
        """Address of a constant's copy on the current GPU, made once."""


class _Stream:
    """What CuPy's launch needs of a stream."""

    def __init__(self, address: int) -> None:
        self.ptr = address


class CupyDriver:
    """CuPy.

    Args:
        compiler: ``"auto"`` or ``"nvcc"``, as `compile_unit` takes it.

    Raises:
        MissingExtraError: CuPy is not installed.
        UnavailableError: there is no GPU.
    """

    def __init__(self, compiler: str = "auto") -> None:
        self.cupy = require("cupy", extra="tensorrt", package="cupy-cuda13x", feature="a CUDA kernel on a GPU")
        self._compiler = compiler
        try:
            count = int(self.cupy.cuda.runtime.getDeviceCount())
        except self.cupy.cuda.runtime.CUDARuntimeError as error:
            raise UnavailableError(f"no NVIDIA GPU can be used: {error}") from error
        if not count:
            raise UnavailableError("no NVIDIA GPU can be used: CUDA finds none")
        self.device = self.cupy.cuda.runtime.getDevice

    def load(self, unit: CompileUnit) -> Launch:
        """Compile a kernel for the current GPU, or find it in the cache."""
        cuda = self.cupy.cuda
        capability = int(cuda.Device().compute_capability)
        architecture = f"sm_{capability}" if self._compiler == "nvcc" else newest_architecture(capability)
        code = compile_unit(unit, architecture, self._compiler)
        module = cuda.Module()
        module.load(code)
        function = module.get_function(find_symbol(code, unit.signature.name, unit.label))

        def launch(grid: Grid, block: Grid, values: Sequence[Any], shared_bytes: int, stream: Any) -> None:
            if stream is not None and not hasattr(stream, "ptr"):
                stream = _Stream(stream_handle(stream))
            function(grid, block, values, shared_bytes, stream)

        return launch

    def upload(self, constant: Constant) -> int:
        """Address of a constant's copy on the current GPU, made once."""
        key = self.device()
        if key not in constant.copies:
            constant.copies[key] = self.cupy.asarray(constant.array)
            self.cupy.cuda.get_current_stream().synchronize()  # the launch may be on another stream
        return int(constant.copies[key].data.ptr)


class PycudaDriver:
    """PyCUDA, in the primary context, which is CuPy's and PyTorch's too; nvcc is the compiler.

    Raises:
        MissingExtraError: PyCUDA is not installed.
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

    def device(self) -> int:
        """Number of the current GPU."""
        current = self.cuda.Context.get_device()
        return next(index for index in range(self.cuda.Device.count()) if self.cuda.Device(index) == current)

    def load(self, unit: CompileUnit) -> Launch:
        """Compile a kernel for the current GPU, or find it in the cache."""
        major, minor = self.cuda.Context.get_device().compute_capability()
        code = compile_unit(unit, f"sm_{major}{minor}", "nvcc")
        module = self.cuda.module_from_buffer(code)
        function = module.get_function(find_symbol(code, unit.signature.name, unit.label))

        def launch(grid: Grid, block: Grid, values: Sequence[Any], shared_bytes: int, stream: Any) -> None:
            if stream is not None and not isinstance(stream, self.cuda.Stream):
                _require_default(stream)
                stream = None
            numbers = [_number(value) for value in values]
            function(*numbers, grid=grid, block=block, shared=shared_bytes, stream=stream)

        launch.module = module  # type: ignore[attr-defined]  # keeps it loaded
        return launch

    def upload(self, constant: Constant) -> int:
        """Address of a constant's copy on the current GPU, made once."""
        key = "pycuda", self.device()
        if key not in constant.copies:
            constant.copies[key] = self.cuda.to_device(constant.array)
        return int(constant.copies[key])


def _number(value: Any) -> Any:
    """PyCUDA packs NumPy's numbers, but not its bool."""
    if isinstance(value, int):
        return np.uint64(value)  # an address
    return value.astype(np.uint8) if value.dtype.kind == "b" else value


def _require_default(stream: Any) -> None:
    """PyCUDA cannot launch on another library's stream."""
    if stream_handle(stream) != 0:
        raise UnavailableError(
            "backend 'pycuda' launches on PyCUDA's streams only.\n"
            "Do: stream=pycuda.driver.Stream(), or take backend='cupy', which launches on any library's streams"
        )


def stream_handle(stream: Any) -> int:
    """The number of a stream of CuPy, PyTorch or PyCUDA, or the number itself."""
    for name in ("ptr", "cuda_stream", "handle"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    return int(stream)


_drivers: dict[str, Driver] = {}
_closed = ""


def close(reason: str) -> None:
    """From here on there is no GPU in this process: one that was forked cannot use its parent's.

    Args:
        reason: What `gpu_reason` says from here on.
    """
    global _closed
    _closed = reason
    _drivers.clear()


def driver(backend: str) -> Driver:
    """The driver of a backend, made once: ``"cupy"``, ``"nvcc"`` or ``"pycuda"``.

    Raises:
        MissingExtraError: its package is not installed.
        UnavailableError: there is no GPU.
    """
    if _closed:
        raise UnavailableError(_closed)
    if backend not in _drivers:
        made: Driver = PycudaDriver() if backend == "pycuda" else CupyDriver("nvcc" if backend == "nvcc" else "auto")
        _drivers[backend] = made
    return _drivers[backend]


def cupy_array() -> Any:
    """CuPy's array type, once kernels were launched through CuPy; None before."""
    found = _drivers.get("cupy") or _drivers.get("nvcc")
    return found.cupy.ndarray if isinstance(found, CupyDriver) else None


def address(array: Any) -> int:
    """Where an array on a GPU begins."""
    data = getattr(array, "data", None)
    return device_array(array).address if data is None or not hasattr(data, "ptr") else int(data.ptr)


def gpu_reason(backend: str = "cupy") -> str:
    """Why kernels cannot run on a GPU here; empty when they can."""
    try:
        driver(backend)
    except (ImportError, UnavailableError) as error:
        return str(error)
    return ""
