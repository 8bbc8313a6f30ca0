"""NVRTC, which CuPy brings: kernels compiled at run time, without CUDA's toolkit."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

from ..cache import cached_file
from ..source import CompileUnit, compile_error

__all__ = ["compile_file"]

_FLAGS = ("--std=c++17", "-lineinfo", "-default-device")


def compile_file(unit: CompileUnit, cupy: Any, architecture: int) -> Path:
    """Compile a kernel, or find it in the cache.

    Args:
        unit: The kernel.
        cupy: The package.
        architecture: Compute capability, 90 for 9.0. Where NVRTC is older than the GPU, the newest that it knows, as PTX.

    Raises:
        KernelError: the kernel does not compile.
    """
    nvrtc = cupy.cuda.nvrtc
    version = ".".join(map(str, nvrtc.getVersion()))
    known = [int(arch) for arch in nvrtc.getSupportedArchs()]
    exact = architecture in known
    target = f"sm_{architecture}" if exact else f"compute_{max(arch for arch in known if arch < architecture)}"
    code = unit.device_code()
    options = [f"--gpu-architecture={target}", *_FLAGS, *unit.options]
    if unit.needs_cuda_headers:
        options += [f"-I{folder}" for folder in _include_folders(cupy)]

    def compile_to(path: Path) -> None:
        program = nvrtc.createProgram(code, "kernel.cu", (), ())
        try:
            nvrtc.compileProgram(program, options)
            path.write_bytes(nvrtc.getCUBIN(program) if exact else nvrtc.getPTX(program))
        except nvrtc.NVRTCError as error:
            log = nvrtc.getProgramLog(program)
            raise compile_error(unit, log, f"NVRTC {version}, {target}") from error
        finally:
            nvrtc.destroyProgram(program)

    return cached_file([code, *options, "nvrtc", version], ".cubin" if exact else ".ptx", compile_to)


def _include_folders(cupy: Any) -> list[Path]:
    """Folders with CUDA's own headers, such as cuda_fp16.h."""
    bases = [os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"), cupy.cuda.get_cuda_path(), "/usr/local/cuda"]
    folders = [Path(base) / "include" for base in bases if base]
    wheels = importlib.util.find_spec("nvidia")
    for base in (wheels.submodule_search_locations or ()) if wheels else ():
        folders += [*Path(base).glob("cu*/include"), Path(base) / "cuda_runtime" / "include"]
    return [folder for folder in dict.fromkeys(folders) if (folder / "cuda_fp16.h").is_file()]
