"""The full package's Python bindings over libraries that do nothing but lead to the lean library.

They have every class of the real bindings, so that calls can be checked for existence and argument names.
"""

from __future__ import annotations

import ctypes
import importlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from pytrtplugins.errors import UnavailableError
from pytrtplugins.utils.optional import require

LIBRARIES = {
    "libnvinfer": ("void *createInferBuilder_INTERNAL(void *l, int v) { return 0; } void *getBuilderPluginRegistry(int c) { return 0; }"),
    "libnvinfer_plugin": "int initLibNvInferPlugins(void *l, const char *n) { return 1; }",
    "libnvonnxparser": (
        "void *createNvOnnxParser_INTERNAL(void *n, void *l, int v) { return 0; }"
        "void *createNvOnnxParserRefitter_INTERNAL(void *r, void *l, int v) { return 0; }"
        "int getNvOnnxParserVersion() { return 0; }"
    ),
}  # fmt: skip


def load_stubs() -> None:
    """Make ``tensorrt`` importable.

    Raises:
        MissingExtraError: the lean package or the bindings are not installed.
        UnavailableError: there is no C compiler.
    """
    lean = require("tensorrt_lean", extra="tensorrt")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise UnavailableError("no C compiler for the stub libraries")
    major = lean.__version__.partition(".")[0]
    libs = Path(importlib.import_module("tensorrt_lean_libs").__file__).parent
    folder = Path(tempfile.mkdtemp(prefix="tensorrt-stubs-"))
    for name, source in LIBRARIES.items():
        (folder / f"{name}.c").write_text(source)
        beneath = (
            ["-Wl,--no-as-needed", f"-L{libs}", f"-l:libnvinfer_lean.so.{major}", f"-Wl,-rpath,{libs}"]
            if name == "libnvinfer"
            else []
        )
        target = folder / f"{name}.so.{major}"
        flags = ["-shared", "-fPIC", "-w", f"-Wl,-soname,{target.name}"]
        subprocess.run([compiler, *flags, "-o", target, folder / f"{name}.c", *beneath], check=True)
        ctypes.CDLL(str(target), ctypes.RTLD_GLOBAL)
    shutil.rmtree(folder)
    sys.modules["tensorrt"] = require("tensorrt_bindings", extra="tensorrt")
