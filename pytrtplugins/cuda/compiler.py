"""CUDA C++ → cubin or PTX, without a GPU: by NVRTC through NVIDIA's own bindings, or by nvcc where there is no NVRTC."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ..errors import MissingExtraError, PytrtpluginsError, UnavailableError
from ..utils.optional import require
from .cache import cached_bytes
from .source import CompileUnit, compile_error

__all__ = ["compile_source", "compile_unit", "find_nvcc", "find_nvrtc", "newest_architecture"]

_FLAGS = ("-std=c++17", "-lineinfo")
_MISSING = {
    "auto": 'neither NVRTC nor nvcc is installed.\nDo: pip install "pytrtplugins[nvrtc]", or install CUDA\'s toolkit',
    "nvcc": "nvcc is not installed.\nDo: install CUDA's toolkit, or use backend='cupy', which needs only NVRTC",
}


@functools.cache
def find_nvrtc() -> tuple[Any, str]:
    """Find NVIDIA's bindings of NVRTC, and its version; None and an empty text where either is not installed."""
    try:
        nvrtc = require("cuda.bindings.nvrtc", extra="nvrtc", package="cuda-bindings", feature="NVRTC")
        _, major, minor = nvrtc.nvrtcVersion()
    except (MissingExtraError, RuntimeError):  # the bindings look for the library at the first call
        return None, ""
    return nvrtc, f"{major}.{minor}"


@functools.cache
def find_nvcc() -> tuple[str, str]:
    """Path and version of nvcc; empty where there is none."""
    candidates = [shutil.which("nvcc"), *(f"{folder}/bin/nvcc" for folder in _toolkits())]
    path = next((candidate for candidate in candidates if candidate and os.access(candidate, os.X_OK)), "")
    if not path:
        return "", ""
    return path, _run([path, "--version"]).stdout.strip().rpartition("\n")[2]


def newest_architecture(capability: int) -> str:
    """Choose the architecture to compile for.

    Args:
        capability: Compute capability of the GPU, 90 for 9.0.

    Returns:
        ``"sm_90"``; where NVRTC is older than the GPU the newest that it knows, as PTX: ``"compute_89"``.
    """
    nvrtc, _ = find_nvrtc()
    known = nvrtc.nvrtcGetSupportedArchs()[1] if nvrtc else [capability]
    return f"sm_{capability}" if capability in known else f"compute_{max(each for each in known if each < capability)}"


def compile_source(
    code: str,
    architecture: str,
    name: str,
    error: Callable[[str, str], PytrtpluginsError],
    *,
    options: Iterable[str] = (),
    compiler: str = "auto",
) -> bytes:
    """Compile a source, or find the result in the cache. Any thread may ask.

    Args:
        code: All of it, with ``#line`` where messages shall name a file.
        architecture: ``"sm_90"`` for a cubin, ``"compute_90"`` for PTX.
        name: What needs it, for the message where there is no compiler: ``"kernel reorg"``.
        error: Makes the error for a source that does not compile, from the compiler's log and name.
        options: More options for the compiler.
        compiler: ``"auto"``, NVRTC if it is installed; or ``"nvcc"``.

    Raises:
        PytrtpluginsError: it does not compile; as ``error`` makes it.
        UnavailableError: there is no compiler.
    """
    nvrtc, version = find_nvrtc() if compiler == "auto" else (None, "")
    kind = "ptx" if architecture.startswith("compute_") else "cubin"
    build: Callable[[], tuple[bytes, str]]
    if nvrtc is not None:
        title = f"NVRTC {version}"
        command = [
            f"--gpu-architecture={architecture}",
            "-default-device",
            *_FLAGS,
            *options,
            *_include_options(code, name),
        ]
        build = functools.partial(_by_nvrtc, nvrtc, code, kind, command)
    else:
        path, title = find_nvcc()
        if not path:
            raise UnavailableError(f"{name}: {_MISSING[compiler]}")
        command = [f"-{kind}", f"-arch={architecture}", "-O3", *_FLAGS, *options]
        build = functools.partial(_by_nvcc, path, code, command)

    def make() -> bytes:
        result, log = build()
        if not result:
            raise error(log, f"{title}, {architecture}")
        return result

    return cached_bytes([code, *command, title], f".{kind}", make)


def compile_unit(unit: CompileUnit, architecture: str, compiler: str = "auto") -> bytes:
    """Compile a kernel for one element type, or find it in the cache; arguments as for `compile_source`.

    Raises:
        KernelError: it does not compile; the message shows the lines of its source.
        UnavailableError: there is no compiler.
    """
    name, error = f"kernel {unit.signature.name}", functools.partial(compile_error, unit)
    return compile_source(unit.device_code(), architecture, name, error, options=unit.options, compiler=compiler)


def _by_nvrtc(nvrtc: Any, code: str, kind: str, options: Sequence[str]) -> tuple[bytes, str]:
    """Compile by NVRTC; return the code, empty on failure, and the log."""
    status, program = nvrtc.nvrtcCreateProgram(code.encode(), b"kernel.cu", 0, [], [])
    if status:
        return b"", f"nvrtcCreateProgram gives {nvrtc.nvrtcResult(status).name}"

    def read(what: str) -> bytes:
        data = bytes(getattr(nvrtc, f"nvrtcGet{what}Size")(program)[1])
        getattr(nvrtc, f"nvrtcGet{what}")(program, data)
        return data

    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        log = read("ProgramLog").rstrip(b"\0").decode(errors="replace")
        return b"" if status else read("CUBIN") if kind == "cubin" else read("PTX").rstrip(b"\0"), log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _by_nvcc(path: str, code: str, options: Sequence[str]) -> tuple[bytes, str]:
    """Compile by nvcc; return the code, empty on failure, and the log."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "kernel.cu", Path(folder) / "kernel.out"
        source.write_text(code, encoding="utf-8")
        done = _run([path, *options, str(source), "-o", str(target)])
        return b"" if done.returncode else target.read_bytes(), done.stderr + done.stdout


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)


def _include_options(code: str, name: str) -> list[str]:
    """Options with the folders of CUDA's headers, for a source that includes any; nvcc needs none."""
    if "#include" not in code:
        return []
    options = [f"-I{folder}" for folder in _header_folders()]
    if not options and "cuda_fp16.h" in code:
        raise UnavailableError(
            f"{name}: CUDA's headers, which it includes, are not installed.\nDo: install CUDA's toolkit"
        )
    return options


@functools.cache
def _header_folders() -> list[Path]:
    """Folders with CUDA's headers, of toolkits and of NVIDIA's wheels."""
    folders = [Path(base) / "include" for base in _toolkits()]
    wheels = importlib.util.find_spec("nvidia")
    for base in (wheels.submodule_search_locations or ()) if wheels else ():
        folders += [*Path(base).glob("cu*/include"), Path(base) / "cuda_runtime" / "include"]
    return [folder for folder in dict.fromkeys(folders) if (folder / "cuda_fp16.h").is_file()]


def _toolkits() -> list[str]:
    """Where CUDA's toolkit may be installed."""
    nvcc = shutil.which("nvcc")
    folders = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), nvcc and str(Path(nvcc).resolve().parents[1])]
    return [folder for folder in (*folders, "/usr/local/cuda") if folder]
