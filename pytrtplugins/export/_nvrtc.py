"""NVRTC as its own library: PTX where CUDA's toolkit is not installed, and no GPU either."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..errors import ExportError

__all__ = ["compile_ptx", "find_nvrtc"]

_OPTIONS = (b"--gpu-architecture=compute_75", b"--std=c++17", b"-default-device", b"-lineinfo")


@functools.cache
def find_nvrtc() -> Any:
    """The library: the system's, or that of NVIDIA's packages, which CuPy brings; None where there is none."""
    for path in _candidates():
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    return None


def _candidates() -> Iterator[str]:
    for name in (ctypes.util.find_library("nvrtc"), "libnvrtc.so.13", "libnvrtc.so.12"):
        if name:
            yield name
    wheels = importlib.util.find_spec("nvidia")
    for base in (wheels.submodule_search_locations or ()) if wheels else ():
        yield from sorted(map(str, Path(base).glob("*/lib/libnvrtc.so*")), reverse=True)
    yield "/usr/local/cuda/lib64/libnvrtc.so"


def compile_ptx(code: str, label: str, options: Iterable[str] = ()) -> bytes:
    """PTX for compute capability 7.5 and all newer ones.

    Raises:
        ExportError: the source does not compile.
    """
    library, program = find_nvrtc(), ctypes.c_void_p()
    made = library.nvrtcCreateProgram(ctypes.byref(program), code.encode(), label.encode(), 0, None, None)
    if made:
        raise ExportError(f"{label}: NVRTC gives code {made}")
    try:
        given = [*_OPTIONS, *(option.encode() for option in options)]
        failed = library.nvrtcCompileProgram(program, len(given), (ctypes.c_char_p * len(given))(*given))
        if failed:
            log = _read(library, program, "ProgramLog").decode(errors="replace")
            complaints = [line for line in log.splitlines() if "error" in line][:5]
            raise ExportError("the kernels do not compile (NVRTC):\n" + "\n".join(complaints or [log]), log=log)
        return _read(library, program, "PTX")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _read(library: Any, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{what}")(program, text)
    return text.value
