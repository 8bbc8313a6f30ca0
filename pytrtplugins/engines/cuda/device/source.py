"""This engine's kernels: constants put before their source, compiled, loaded while anyone holds them."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....cuda import CudaKernel
from ....cuda import source as cuda_source
from ....cuda.compiler import compile_source, newest_architecture
from ....cuda.driver import Function, Module, current_context
from ....errors import KernelError
from ....tensor import DType
from ....utils.files import sha256_hex
from .activation import activation_numbers
from .layout import FP8, KIND

__all__ = [
    "KERNELS",
    "compile_kernel",
    "kernel_text",
    "kernels_digest",
    "load_cubin",
    "load_kernel",
    "nhwc_kernel",
    "sources",
    "wgmma_text",
]

KERNELS = cuda_source.KERNELS / "engine"
"""The folder of the sources that this engine compiles itself."""
_ELEMENTS = {number: dtype for dtype, number in KIND.items()}
_HOPPER = ("conv_hopper.cu", "conv_halo.cu")
"""Kernels that use what only compute capability 9.0 has."""
_WGMMA = {
    DType.FLOAT16: ("k16.f32.f16.f16", "1, 1, 1, 0, 0"),
    DType.INT8: ("k32.s32.s8.s8", "1"),
    FP8: ("k32.f32.e4m3.e4m3", "1, 1, 1"),
}
"""Element type → depth and types of the instruction, and whether it adds, which signs it changes, and what it transposes."""


def sources(*files: str) -> str:
    """The texts of files of `KERNELS`, one behind the other."""
    return "\n".join(_before(file) + _text(KERNELS / file) for file in files)


def nhwc_kernel(name: str) -> CudaKernel:
    """A kernel of nhwc.cu."""
    return CudaKernel(sources("codes.cu", "activations.cu", "nhwc.cu"), name, label="nhwc.cu")


@functools.cache
def kernels_digest() -> str:
    """Of all sources of kernels of this package, headers too: what was packed or chosen for other ones is not valid."""
    folder = KERNELS.parent
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".cu", ".h"))
    return sha256_hex(b"\0".join([activation_numbers().encode(), *(path.read_bytes() for path in files)]))[:16]


def wgmma_text(columns: int, element: DType) -> str:
    """``multiply``: 64 rows by ``columns`` filters by 32 bytes on Hopper's matrix units, sums in registers.

    Written here because the instruction names each of its registers.

    Args:
        columns: How many.
        element: float16, int8 or FP8.
    """
    count = columns // 2
    registers = ", ".join(f"%{index}" for index in range(count))
    constraint, kind = ("+r", "int") if element is DType.INT8 else ("+f", "float")
    operands = ", ".join(f'"{constraint}"(d[{index}])' for index in range(count))
    types, flags = _WGMMA[element]
    name = f"m64n{columns}{types}"
    return (
        f"__device__ __forceinline__ void multiply({kind} (&d)[{count}], u64 rows, u64 filters) {{\n"
        f'    asm volatile("wgmma.mma_async.sync.aligned.{name} {{{registers}}}, %{count}, %{count + 1}, {flags};"\n'
        f'                 : {operands} : "l"(rows), "l"(filters));\n}}\n'
    )


def kernel_text(file: str, definitions: Mapping[str, int]) -> str:
    """A kernel's whole source: constants, what it shares with others, for Hopper the matrix instruction, the file."""
    parts = ["".join(f"#define {name} {value}\n" for name, value in definitions.items())]
    if file.startswith("conv_"):
        parts += [_numbered("activations.cu"), _numbered("common.cu")]
    if file == "stem.cu":
        parts.append(_numbered("codes.cu"))
    if file in _HOPPER:
        parts.append(wgmma_text(definitions["TILE_N"], _ELEMENTS[definitions["ELEMENT"]]))
        parts.append(_numbered("hopper.cu"))
    return "\n".join([*parts, _numbered(file)])


def _numbered(file: str) -> str:
    """A file's text, whose lines compilers name."""
    return f'{_before(file)}#line 1 "{file}"\n{_text(KERNELS / file)}'


@functools.cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _before(file: str) -> str:
    """What is written here for a file, and stands before it."""
    return activation_numbers() if file == "activations.cu" else ""


def compile_kernel(file: str, definitions: Mapping[str, int], capability: int) -> bytes:
    """Compile a kernel, or find it in the cache. Any thread may ask.

    Args:
        file: Of `KERNELS`.
        definitions: Its constants.
        capability: Compute capability of the GPU, 90 for 9.0.

    Raises:
        KernelError: it does not compile.
        UnavailableError: there is no compiler.
    """

    def error(log: str, compiler: str) -> KernelError:
        text = f"engine 'cuda': {file} does not compile ({compiler}):\n{log.strip()}"
        return KernelError(text, path=file, line=None, log=log)

    if file in _HOPPER:
        text, architecture = kernel_text(file, definitions), "sm_90a"
    else:
        text = kernel_text(file, {**definitions, "DEPENDENT": int(capability >= 90)})
        architecture = newest_architecture(capability)
    return compile_source(text, architecture, f"engine 'cuda': {file}", error)


_functions: weakref.WeakValueDictionary[tuple[Any, ...], Function] = weakref.WeakValueDictionary()


def load_kernel(file: str, definitions: Mapping[str, int], capability: int, shared_bytes: int = 0) -> Function:
    """The kernel that is named like its file, in the current context; one for all who hold it at the same time.

    Args:
        file: As for `compile_kernel`, which says what is raised.
        definitions: Likewise.
        capability: Likewise.
        shared_bytes: Dynamic shared memory of its blocks.
    """
    key = current_context(), file, tuple(sorted(definitions.items())), capability, shared_bytes
    function = _functions.get(key)
    if function is None:
        module = Module(compile_kernel(file, definitions, capability))
        function = _functions[key] = Function(module, Path(file).stem, shared_bytes)
    return function


def load_cubin(code: bytes, name: str, shared_bytes: int = 0) -> Function:
    """A kernel of compiled code in the current context; one for all who hold it at the same time.

    Args:
        code: Of a module.
        name: The linker's, of the kernel.
        shared_bytes: Dynamic shared memory of its blocks.
    """
    key = current_context(), sha256_hex(code), name, shared_bytes
    function = _functions.get(key)
    if function is None:
        function = _functions[key] = Function(Module(code), name, shared_bytes)
    return function
