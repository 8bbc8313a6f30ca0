"""A CUDA kernel as one source: run on a GPU, run on a CPU, recorded for an export."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from ..errors import KernelError, UsageError
from ..tensor import Dim, DType, SymbolicDim
from ..utils.forks import ForkLock
from .arguments import bind, spread
from .backends import gpu, host, watched
from .bindings import DeviceArray
from .compiler import compile_unit
from .record import Constant, LaunchRecord, SymbolicNumber, record
from .signature import C_TYPES, ELEMENT_TYPES, Signature, parse_signature
from .source import CompileUnit
from .stand_in import check_stream
from .watch import current

__all__ = ["BACKENDS", "CudaKernel", "launches_kernels"]

BACKENDS = ("auto", "cupy", "nvcc", "pycuda", "host")
Sizes = int | SymbolicDim | Sequence[Dim]
_GRID_LIMITS = (2**31 - 1, 65535, 65535)
_KEPT_PLANS = 256
_PLAIN = {int, float, bool, type(None), Constant}


class CudaKernel:
    """One kernel of a ``.cu`` source, compiled when it is first launched and kept on disk.

    The entry point is ``__global__ void name(...)``, or ``template <typename T> __global__ void name(...)``: T is then the
    element type of the arrays given for ``T*``. Parameters are pointers and numbers; what `launch` gets is checked against
    them. The source is one file; without any include it has the types ``__half``, ``int8_t`` … ``uint64_t``.

    It runs where its arrays are: on a GPU compiled by NVRTC, or nvcc where there is none (backend ``"cupy"``), or by nvcc
    (``"nvcc"``, ``"pycuda"``), on NumPy arrays compiled by a C++ compiler, one thread after the other: for tests, not for speed.
    With symbolic arrays a launch is recorded (`pytrtplugins.cuda.record_launches`).

    A plugin keeps its kernel as a class attribute:

        @ptp.plugin(namespace="acme")
        class Double(ptp.Plugin):
            kernel = ptp.CudaKernel.from_file("double.cu", "twice")

            def enqueue(self, inputs, outputs, workspace, stream):
                (x,), (y,) = inputs, outputs
                self.kernel.launch(x, y, x.size, threads=x.size, stream=stream)

    Attributes:
        source: CUDA C++.
        name: Of the entry point.
        label: What messages call the source: its path.
        options: For the compiler, such as ``("-use_fast_math",)``; on a CPU only ``-D`` and ``-I`` count.
        backend: ``"auto"``, or one of ``"cupy"``, ``"nvcc"`` (CuPy with nvcc as the compiler), ``"pycuda"``, ``"host"``.
        signature: Parameters, read from the source.

    Raises:
        KernelError: the source has no such kernel, or a parameter of a type that cannot be passed.
        UsageError: the backend is unknown.

    Example:
        >>> kernel = CudaKernel.from_source('''
        ...     template <typename T> __global__ void twice(const T* x, T* y, int n) {
        ...         int i = blockIdx.x * blockDim.x + threadIdx.x;
        ...         if (i < n) y[i] = x[i] + x[i];
        ...     }''', "twice")
        >>> str(kernel.signature)
        'twice(const T* x, T* y, int n)'
    """

    def __init__(
        self, source: str, name: str, *, label: str = "kernel.cu", options: Iterable[str] = (), backend: str = "auto"
    ) -> None:
        if backend not in BACKENDS:
            raise UsageError(f"kernel {name}: backend {backend!r} is unknown. Known: {', '.join(BACKENDS)}.")
        self.source, self.name, self.label, self.options, self.backend = source, name, label, tuple(options), backend
        self.signature: Signature = parse_signature(source, name, label)
        self._loaded: dict[Any, Callable[..., Any]] = {}
        self._failed: dict[Any, KernelError] = {}
        self._plans: dict[Any, _Plan] = {}
        self._lock = ForkLock()

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], name: str, *, options: Iterable[str] = (), backend: str = "auto"
    ) -> CudaKernel:
        """Read the source from a file.

        Args:
            path: Of the ``.cu`` file; relative to the Python file that calls.
            name: Of the entry point.
            options: For the compiler.
            backend: Where it is to run on a GPU.

        Raises:
            KernelError: the file cannot be read, or as the class says.
        """
        caller = sys._getframe(1).f_globals.get("__file__")
        folder = Path(caller).parent if caller else Path()
        try:
            source = (folder / path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise KernelError(f"kernel {name}: {folder / path} cannot be read: {error}", path=str(path)) from error
        return cls(source, name, label=Path(path).name, options=options, backend=backend)

    @classmethod
    def from_source(cls, source: str, name: str, *, options: Iterable[str] = (), backend: str = "auto") -> CudaKernel:
        """Take the source from a text; messages call it ``<name>.cu``."""
        return cls(source, name, label=f"{name}.cu", options=options, backend=backend)

    def launch(
        self,
        *arguments: Any,
        threads: Sizes,
        block: int | Sequence[int] = 256,
        shared_bytes: Dim = 0,
        stream: Any = None,
    ) -> None:
        """Run the kernel, or record it.

        Args:
            *arguments: One for each parameter, in order; a tuple, such as ``x.shape``, counts each of its numbers. Arrays are
                NumPy's, or of any library on a GPU (CuPy, PyCUDA, PyTorch, …), contiguous; None is a null pointer.
            threads: How many threads in all; one number, or up to three. The grid is that divided by ``block``, rounded
                up, so that the last block may have threads behind the end.
            block: Threads of a block; one number, or up to three.
            shared_bytes: Dynamic shared memory of a block.
            stream: Of CuPy, PyTorch or PyCUDA, or its number; None is CuPy's current one. Unused on a CPU.

        Raises:
            KernelError: wrong arguments; the parameter is named. Or the source does not compile.
            UnavailableError: the kernel cannot run here: NumPy arrays without a C++ compiler, or no GPU.
        """
        flat = spread(arguments)
        key = self._plan_key(flat, threads, block, shared_bytes)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plan(flat, threads, block, shared_bytes)
            if plan is None:
                return
            if key is not None:
                if len(self._plans) >= _KEPT_PLANS:
                    self._plans.clear()
                self._plans[key] = plan
        plan(flat, stream)

    def prepare(self, dtype: DType | str | None = None) -> None:
        """Compile for the current GPU before the first launch; where there is no GPU, nothing happens.

        Args:
            dtype: What T is; None for a kernel that is not a template.

        Raises:
            KernelError: the source does not compile.
        """
        self.prepare_element(self._element(dtype))

    def prepare_element(self, element: str | None, constants: Iterable[Constant] = ()) -> None:
        """Compile for the current GPU by the C type that replaces T; ``constants`` are copied to the GPU."""
        if self.backend != "host" and not gpu.gpu_reason(self._gpu_backend()):
            self._load("device", element)
            for constant in constants:
                gpu.library(self._gpu_backend()).upload(constant)

    def compile(self, dtype: DType | str | None = None, *, architecture: str = "sm_75") -> bytes:
        """Compile for any GPU, without one; by nvcc with backend ``"nvcc"`` or ``"pycuda"``, otherwise by NVRTC if it is installed.

        Args:
            dtype: What T is; None for a kernel that is not a template.
            architecture: ``"sm_90"`` for a cubin, ``"compute_90"`` for PTX.

        Raises:
            UnavailableError: there is no compiler.
            KernelError: the source does not compile.
        """
        compiler = "nvcc" if self.backend in ("nvcc", "pycuda") else "auto"
        return compile_unit(self.unit(dtype), architecture, compiler)

    def unit(self, dtype: DType | str | None = None) -> CompileUnit:
        """The unit to compile for an element type."""
        return CompileUnit(self.source, self.label, self.signature, self._element(dtype), self.options)

    def __deepcopy__(self, memo: dict[int, Any]) -> CudaKernel:
        return self

    def __repr__(self) -> str:
        return f"CudaKernel({self.label}: {self.signature})"

    # -- inside ------------------------------------------------------------------------------------------------------

    def _element(self, dtype: DType | str | None) -> str | None:
        if (dtype is None) != (self.signature.element is None):
            wanted = f"an element type for {self.signature.element}" if self.signature.element else "no element type"
            raise KernelError(f"kernel {self.signature}: expected {wanted}, found {dtype}")
        if dtype is None:
            return None
        name = DType.of(dtype).value
        if name not in ELEMENT_TYPES:
            raise KernelError(f"kernel {self.signature}: {self.signature.element} cannot be {name}", dtype=name)
        return ELEMENT_TYPES[name]

    def _gpu_backend(self) -> str:
        if self.backend != "auto":
            return self.backend
        return "pycuda" if gpu.gpu_reason("cupy") and not gpu.gpu_reason("pycuda") else "cupy"

    def _plan_key(self, flat: list[Any], threads: Any, block: Any, shared_bytes: Any) -> Any:
        """The cache key of a launch plan, for launches on CuPy's arrays; None for others."""
        array = gpu.cupy_array()
        if array is None or self.backend not in ("auto", "cupy", "nvcc"):
            return None
        facts: list[Any] = []
        for value in flat:
            if type(value) is array:
                facts.append((value.dtype, value.flags.c_contiguous))
            elif type(value) is float and not value:
                facts.append(repr(value))  # 0.0 and -0.0 are equal, and other bits
            elif type(value) in _PLAIN:
                facts.append((type(value), value))  # 1, 1.0 and True are equal, and not taken alike
            else:
                return None
        if type(threads) is list or type(block) is list:
            return None
        return (tuple(facts), threads, block, shared_bytes, gpu.library("cupy").context())

    def _plan(self, flat: list[Any], threads: Sizes, block: int | Sequence[int], shared_bytes: Dim) -> _Plan | None:
        """Check everything and load the kernel; None where nothing is left to do: recorded, or no threads."""
        values, element, place = bind(self.signature, flat)
        total, side = _three(threads, f"kernel {self.name}: threads"), _three(block, f"kernel {self.name}: block")
        if place == "symbolic":
            record(LaunchRecord(self, tuple(values), total, _numbers(side), shared_bytes, element))
            return None
        grid = self._grid(_numbers(total), _numbers(side))
        if 0 in grid:
            return None
        if place in ("host", "stand-in"):
            run = self._load("host", element)

            def run_here(flat: list[Any], stream: Any) -> None:
                check_stream(self.name, flat, stream)
                run(grid, _numbers(side), values)

            return run_here
        if self.backend == "host":
            raise KernelError(f"kernel {self.name}: backend 'host' takes NumPy arrays, found arrays on a GPU")
        return self._device_plan(values, element, grid, _numbers(side), int(shared_bytes))

    def _device_plan(
        self, values: list[Any], element: str | None, grid: _Three, block: _Three, shared_bytes: int
    ) -> _Plan:
        prepare, library = self._load("device", element), gpu.library(self._gpu_backend())
        arguments = [
            ctypes.c_void_p(
                None if value is None else library.upload(value) if isinstance(value, Constant) else value.address
            )
            if parameter.pointer
            else _by_value(value, C_TYPES[parameter.type])
            for parameter, value in zip(self.signature.parameters, values, strict=True)
        ]
        with self._lock:
            launch = prepare(grid, block, arguments, shared_bytes)
        name, lock = self.name, Lock()
        indices = [index for index, value in enumerate(values) if isinstance(value, DeviceArray)]

        def run(flat: list[Any], stream: Any) -> None:
            handle = library.stream() if stream is None else gpu.stream_handle(stream)
            addresses = [gpu.address(flat[index]) for index in indices]
            with lock:
                for index, address in zip(indices, addresses, strict=True):
                    arguments[index].value = address
                try:
                    launch(handle)
                except KernelError as error:
                    raise KernelError(f"kernel {name}: {error}", **error.facts) from error

        return run

    def _grid(self, threads: _Three, block: _Three) -> _Three:
        if min(block) < 1 or block[0] * block[1] * block[2] > 1024:
            raise KernelError(f"kernel {self.name}: block {block}: expected 1 to 1024 threads in all")
        if min(threads) < 0:
            raise KernelError(f"kernel {self.name}: threads {threads}: expected at least 0")
        x, y, z = (-(-total // side) for total, side in zip(threads, block, strict=True))
        for size, limit, axis in zip((x, y, z), _GRID_LIMITS, "xyz", strict=True):
            if size > limit:
                raise KernelError(f"kernel {self.name}: threads {threads}: {size} blocks along {axis}, at most {limit}")
        return x, y, z

    def _load(self, place: str, element: str | None) -> Callable[..., Any]:
        backend = "host" if place == "host" else self._gpu_backend()
        load: Callable[[CompileUnit], Callable[..., Any]]
        if backend == "host":
            load, device = (host.load, -1) if current() is None else (watched.load, -2)
        else:
            load, device = gpu.library(backend).load, gpu.library(backend).context()
        key = (backend, element, device)
        with self._lock:
            if key in self._failed:
                raise self._failed[key]
            if key not in self._loaded:
                unit = CompileUnit(self.source, self.label, self.signature, element, self.options)
                try:
                    self._loaded[key] = load(unit)
                except KernelError as error:
                    if "log" in error.facts:  # the compiler's: again it would take as long and say the same
                        self._failed[key] = error.with_traceback(None)
                    raise
            return self._loaded[key]


_Plan = Callable[[list[Any], Any], None]
_Three = tuple[int, int, int]


def _three(sizes: Sizes, what: str) -> tuple[Dim, Dim, Dim]:
    given = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
    if not 1 <= len(given) <= 3 or not all(
        isinstance(size, (int, np.integer, SymbolicDim, SymbolicNumber)) for size in given
    ):
        raise KernelError(f"{what}: expected one to three whole numbers, found {sizes!r}")
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z


def _by_value(number: Any, dtype: str) -> Any:
    """A scalar argument as bytes of the parameter's type."""
    data = np.dtype(dtype).type(number).tobytes()
    return ctypes.create_string_buffer(data, len(data))


def _numbers(sizes: Sequence[Dim]) -> _Three:
    x, y, z = (int(size) for size in sizes)  # a symbolic one raises DimsError
    return x, y, z


def launches_kernels(plugin: type) -> bool:
    """Whether a plugin class has an `enqueue` of its own and kernels among its attributes."""
    return any(isinstance(value, CudaKernel) for base in plugin.__mro__ for value in vars(base).values())
