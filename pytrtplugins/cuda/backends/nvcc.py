"""nvcc, where CUDA's toolkit is installed: cubins without a GPU, for any architecture."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from ...errors import UnavailableError
from ..cache import cached_file
from ..source import CompileUnit, compile_error

__all__ = ["available", "compile_file", "find_nvcc"]

_FLAGS = ("-std=c++17", "-O3", "-lineinfo")


@functools.cache
def find_nvcc() -> tuple[str, str]:
    """Path and version of nvcc; empty where there is none."""
    folders = [Path(os.environ[name]) / "bin" for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    candidates = [shutil.which("nvcc"), *(folder / "nvcc" for folder in folders), "/usr/local/cuda/bin/nvcc"]
    path = next((str(candidate) for candidate in candidates if candidate and os.access(candidate, os.X_OK)), "")
    if not path:
        return "", ""
    shown = subprocess.run(
        [path, "--version"], capture_output=True, encoding="utf-8", errors="replace", check=False
    ).stdout
    return path, shown.strip().rpartition("\n")[2]


def available() -> bool:
    """Whether nvcc is installed."""
    return bool(find_nvcc()[0])


def compile_file(unit: CompileUnit, architecture: str, form: str = "cubin") -> Path:
    """Compile a kernel, or find it in the cache.

    Args:
        unit: The kernel.
        architecture: ``"sm_90"``; for PTX ``"compute_90"``.
        form: ``"cubin"`` or ``"ptx"``.

    Raises:
        UnavailableError: nvcc is not installed.
        KernelError: the kernel does not compile.
    """
    path, version = find_nvcc()
    if not path:
        raise UnavailableError(
            f"kernel {unit.signature.name}: nvcc is not installed.\n"
            "Do: install CUDA's toolkit, or take backend='cupy', which brings its own compiler"
        )
    code = unit.device_code()

    def compile_to(target: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "kernel.cu"
            source.write_text(code, encoding="utf-8")
            command = [
                path,
                f"-{form}",
                f"-arch={architecture}",
                *_FLAGS,
                *unit.options,
                str(source),
                "-o",
                str(target),
            ]
            done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
        if done.returncode:
            raise compile_error(unit, done.stderr + done.stdout, f"{version}, {architecture}")

    return cached_file([code, *unit.options, *_FLAGS, architecture, form, version], f".{form}", compile_to)
