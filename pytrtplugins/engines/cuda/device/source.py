"""Kernels as text and as cubins: constants put before the source, compiled by NVRTC or nvcc, kept on disk."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....cuda import source as cuda_source
from ....cuda.backends.nvcc import find_nvcc
from ....cuda.cache import cached_file
from ....errors import KernelError, MissingExtraError, UnavailableError
from ....utils.files import sha256_hex
from ....utils.optional import require

__all__ = ["KERNELS", "compile_cubin", "kernel_text", "kernels_digest", "wgmma_text"]

KERNELS = cuda_source.KERNELS / "engine"
"""The folder of the sources that this engine compiles itself."""


@functools.cache
def kernels_digest() -> str:
    """Of all sources of kernels of this package, headers too: what was packed or chosen for other ones is not valid."""
    folder = KERNELS.parent
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".cu", ".h"))
    return sha256_hex(b"\0".join(path.read_bytes() for path in files))[:16]


def wgmma_text(columns: int, int8: bool) -> str:
    """``multiply``: 64 rows by ``columns`` filters by 32 bytes on Hopper's matrix units, sums in registers.

    Written here because the instruction names each of its registers.
    """
    count = columns // 2
    registers = ", ".join(f"%{index}" for index in range(count))
    constraint, kind = ("+r", "int") if int8 else ("+f", "float")
    operands = ", ".join(f'"{constraint}"(d[{index}])' for index in range(count))
    name, flags = (f"m64n{columns}k32.s32.s8.s8", "1") if int8 else (f"m64n{columns}k16.f32.f16.f16", "1, 1, 1, 0, 0")
    return (
        f"__device__ __forceinline__ void multiply({kind} (&d)[{count}], u64 rows, u64 filters) {{\n"
        f'    asm volatile("wgmma.mma_async.sync.aligned.{name} {{{registers}}}, %{count}, %{count + 1}, {flags};"\n'
        f'                 : {operands} : "l"(rows), "l"(filters));\n}}\n'
    )


def kernel_text(file: str, definitions: Mapping[str, int]) -> str:
    """A kernel's whole source: constants, for convolutions common.cu, for Hopper the matrix instruction, the file."""
    constants = "".join(f"#define {name} {value}\n" for name, value in definitions.items())
    parts = (
        [constants]
        if not file.startswith("conv_")
        else [constants, (KERNELS / "common.cu").read_text(encoding="utf-8")]
    )
    if file == "conv_hopper.cu":
        parts.append(wgmma_text(definitions["TILE_N"], definitions["ELEMENT"] == 2))
    return "\n".join([*parts, (KERNELS / file).read_text(encoding="utf-8")])


def compile_cubin(file: str, definitions: Mapping[str, int], architecture: str) -> bytes:
    """Compile a kernel, or find it in the cache.

    Args:
        file: Of `KERNELS`.
        definitions: Its constants.
        architecture: ``"90a"``, ``"80"``.

    Raises:
        KernelError: it does not compile.
        UnavailableError: there is no compiler.
    """
    text = kernel_text(file, definitions)
    try:
        nvrtc: Any = require("cupy.cuda.nvrtc", extra="cuda", package="cupy-cuda13x", feature="engine 'cuda'")
    except MissingExtraError:
        return _with_nvcc(file, text, architecture)
    version = ".".join(map(str, nvrtc.getVersion()))
    options = (f"--gpu-architecture=sm_{architecture}", "--std=c++17", "-lineinfo")

    def compile_to(path: Path) -> None:
        program = nvrtc.createProgram(text, file, (), ())
        try:
            nvrtc.compileProgram(program, options)
            path.write_bytes(nvrtc.getCUBIN(program))
        except nvrtc.NVRTCError as error:
            raise _error(file, nvrtc.getProgramLog(program)) from error
        finally:
            nvrtc.destroyProgram(program)

    return cached_file([text, *options, "nvrtc", version], ".cubin", compile_to).read_bytes()


def _with_nvcc(file: str, text: str, architecture: str) -> bytes:
    path, version = find_nvcc()
    if not path:
        raise UnavailableError(
            f"engine 'cuda': {file}: there is no compiler for kernels.\nDo: pip install cupy-cuda13x   (brings NVRTC)"
        )
    options = [f"-gencode=arch=compute_{architecture},code=sm_{architecture}", "-std=c++17", "-O3", "-lineinfo"]

    def compile_to(target: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / file
            source.write_text(text, encoding="utf-8")
            command = [path, "-cubin", *options, str(source), "-o", str(target)]
            done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
        if done.returncode:
            raise _error(file, done.stderr)

    return cached_file([text, *options, version], ".cubin", compile_to).read_bytes()


def _error(file: str, log: str) -> KernelError:
    return KernelError(f"engine 'cuda': {file} does not compile:\n{log.strip()}", path=file, line=None, log=log)
