"""Export a plugin class as a library that needs no Python, or as its sources."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..cuda.compiler import compile_source, find_nvcc, find_nvrtc
from ..errors import ExportError, UnavailableError, UsageError
from ..plugin.base import Plugin
from ..utils.atomic import atomic_path
from ._traced import TracedPlugin
from .source import images_of, source_files
from .trace import trace_plugin

__all__ = ["ExportedPlugin", "export_plugin"]


@dataclass(frozen=True)
class ExportedPlugin:
    """The exported files.

    Attributes:
        path: The library, or the folder of its sources.
        form: ``"registering"``, ``"loadable"`` or ``"neutral"``; ``"source"`` for a folder.
        formats: Types and layouts that it takes, one text for each combination.
        kernels: What it launches: ``reorg<float>``.
        remarks: What it is good for, and what it lacks.
    """

    path: Path
    form: str
    formats: tuple[str, ...]
    kernels: tuple[str, ...]
    remarks: tuple[str, ...]


def export_plugin(
    plugin: type[Plugin],
    output: str | Path,
    *,
    fixed: Mapping[str, Any] | None = None,
    source_only: bool = False,
    loadable: bool = False,
    tensorrt_include: str | Path | None = None,
    architectures: Sequence[int] = (80, 90),
    host: bool = False,
) -> ExportedPlugin:
    """Turn a plugin class whose `enqueue` launches kernels into a shared library for TensorRT.

    Args:
        plugin: The class. Fields stay fields: the library reads them from the model.
        output: The library, ``libreorg.so``; with ``source_only`` a folder, which is made.
        fixed: Values of fields that the kernels' launches are made of in a way that needs numbers, such as a loop's count.
            The library refuses others.
        source_only: Write the sources and the script that builds them; no compiler is needed.
        loadable: For the registry's `load_library` and ``trtexec --dynamicPlugins``, in place of a library that registers
            itself when it is loaded (``trtexec --staticPlugins``, Triton). One library is never both.
        tensorrt_include: Folder of TensorRT's headers; by default the environment's TENSORRT_INCLUDE. Without, the library is
            one for `pytrtplugins.load_library` alone.
        architectures: Compute capabilities of the GPUs for which kernels are compiled, 90 for 9.0; others compile them when they load them.
        host: For tests: the kernels are compiled for the CPU, and addresses are the process's own.

    Raises:
        ExportError: the class does what cannot be exported; ``.path`` and ``.line`` say where.
        UnavailableError: a compiler is missing.
        UsageError: arguments contradict each other.
    """
    include = _headers(tensorrt_include)
    if loadable and include is None and not source_only:
        raise UsageError(
            "loadable: a library for TensorRT needs TensorRT's headers.\nDo: --tensorrt-include /path/to/TensorRT/include"
        )
    traced = trace_plugin(plugin, fixed)
    files = source_files(traced)
    if source_only:
        folder = Path(output)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} is there already, and not an empty folder")
        _write(files, folder)
        return _result(traced, folder, "source", (f"Do: TENSORRT_INCLUDE=... sh {folder / 'build.sh'} libplugin.so",))
    form = "neutral" if include is None else "loadable" if loadable else "registering"
    environment = _environment(include, loadable, architectures, host)
    with tempfile.TemporaryDirectory() as temporary, atomic_path(Path(output)) as target:
        _write(files, Path(temporary))
        if not host and not find_nvcc()[0]:
            _write_ptx(traced, Path(temporary))
        _run_build_script(Path(temporary), target, environment)
    remarks = ["runs on the CPU, for tests"] if host else []
    if not host and not find_nvcc()[0]:
        remarks.append("the kernels are PTX, which each GPU compiles when it loads them: nvcc is not installed")
    if include is None:
        remarks.append(
            "for pytrtplugins.load_library, not for TensorRT, whose headers are not given.\n"
            "Do: --tensorrt-include /path/to/TensorRT/include, or TENSORRT_INCLUDE"
        )
    return _result(traced, Path(output), form, tuple(remarks))


def _result(traced: TracedPlugin, path: Path, form: str, remarks: tuple[str, ...]) -> ExportedPlugin:
    formats = tuple(
        ", ".join(f"{dtype}{' nhwc' if layout == 'nhwc' else ''}" for dtype, layout in one) for one in traced.formats
    )
    return ExportedPlugin(path, form, formats, tuple(unit.instance for unit in traced.kernels), remarks)


def _headers(include_folder: str | Path | None) -> Path | None:
    text = (
        str(include_folder)
        if include_folder is not None
        else os.environ.get("TENSORRT_INCLUDE", "").partition(os.pathsep)[0]
    )
    if not text:
        return None
    folder = Path(text).absolute()
    if not (folder / "NvInferRuntime.h").is_file():
        problem = "holds no NvInferRuntime.h" if folder.is_dir() else "is not a folder"
        raise UsageError(
            f"TensorRT's headers: {folder} {problem}.\n"
            "Do: git clone --depth 1 https://github.com/NVIDIA/TensorRT, and name TensorRT/include; or --source-only (source_only=True), "
            "and build elsewhere",
            path=folder,
        )
    return folder


def _environment(include: Path | None, loadable: bool, architectures: Sequence[int], host: bool) -> dict[str, str]:
    compiler = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("g++") or shutil.which("clang++")
    missing = "a C++ compiler" if not compiler else "" if host or find_nvcc()[0] or find_nvrtc()[1] else "nvcc or NVRTC"
    if missing:
        toolkit = 'install CUDA\'s toolkit, or pip install "pytrtplugins[nvrtc]"'
        action = toolkit if compiler else "apt-get install g++"
        raise UnavailableError(
            f"export: {missing} is not installed.\nDo: {action}; or --source-only, and build the sources where it is"
        )
    return {
        **os.environ,
        "CXX": str(compiler),
        "NVCC": find_nvcc()[0],
        "HOST": "1" if host else "",
        "LOADABLE": "1" if loadable else "",
        "TENSORRT_INCLUDE": "" if include is None else str(include),
        "ARCHITECTURES": " ".join(map(str, architectures)),
    }


def _write(files: Mapping[str, str], folder: Path) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _write_ptx(traced: TracedPlugin, folder: Path) -> None:
    """Compile the kernels with NVRTC; build.sh uses the files that exist."""
    for number, image in enumerate(images_of(traced)):
        ptx = compile_source(image.device_code(), "compute_75", "export", _broken, options=image.options)
        (folder / f"image{number}.fatbin").write_bytes(ptx)


def _run_build_script(folder: Path, target: Path, environment: Mapping[str, str]) -> None:
    command = ["sh", str(folder / "build.sh"), str(target.absolute())]
    process = subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", env=dict(environment), check=False
    )
    if process.returncode:
        raise _broken(process.stderr + process.stdout, "build.sh")


def _broken(log: str, compiler: str) -> ExportError:
    complaints = re.findall(r"^.*error.*$", log, re.M)[:5] or [log.strip()[-2000:]]
    return ExportError(f"the exported sources do not compile ({compiler}):\n" + "\n".join(complaints), log=log)
