"""Exported plugins, compiled for the CPU from the kernels' own sources and called through the C++ interface."""

from __future__ import annotations

import contextlib
import importlib
import shutil
from pathlib import Path

import numpy as np
import pytest

from pytrtplugins import native
from pytrtplugins.export import plugin as plugin_module
from pytrtplugins.export.plugin import export_plugin
from pytrtplugins.tensor import DType, TensorDesc
from tests.kept_builds import build_once


class Exported:
    """One library; its class stands beside the Python class, not in its place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (self.entry,) = importlib.import_module("pytrtplugins._native").load(str(path))

    def made(self, plugin):
        """The C++ object with a plugin's fields."""
        return self.entry.make(plugin.fields())

    def run(self, plugin, *arrays, layout="linear"):
        """Its outputs, through its whole life; with NHWC the memory has another order, the shapes are the same."""
        made = self.made(plugin)
        dims = made.output_dims([array.shape for array in arrays])
        types = made.output_types([str(array.dtype) for array in arrays])
        outputs = [np.full(shape, 77).astype(str(dtype)) for shape, dtype in zip(dims, types, strict=True)]
        ins, outs = (
            [TensorDesc("", array.shape, DType.of(array), layout) for array in side] for side in (arrays, outputs)
        )
        assert all(made.supports_format(position, [*ins, *outs]) for position in range(len(ins) + len(outs)))
        made.configure(ins, outs)
        workspace = np.full(made.workspace_size(ins, outs) + 8, 0xA5, np.uint8)
        made.initialize()
        made.enqueue(arrays, outputs, [layout] * (len(ins) + len(outs)), workspace.ctypes.data, 0)
        made.terminate()
        assert (workspace[-8:] == 0xA5).all()
        return outputs


@contextlib.contextmanager
def builds_kept(flags):
    """Let `export_plugin` find what build.sh made of the same files before.

    Args:
        flags: For the C++ compiler.
    """
    build = plugin_module._run_build_script

    def kept(folder, target, environment):
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        settings = [
            f"{name}={environment.get(name, '')}" for name in ("ARCHITECTURES", "CXX", "CXXFLAGS", "HOST", "NVCC")
        ]
        build_once(target, files, settings, lambda path: build(folder, path, environment))

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TENSORRT_INCLUDE", raising=False)  # whose files are none of those above
        patch.setenv("CXXFLAGS", flags)
        patch.setattr(plugin_module, "_run_build_script", kept)
        yield


@pytest.fixture(scope="session")
def export(tmp_path_factory):
    """Export a class for the CPU, once."""
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler. Do: apt-get install g++")
    if not native.available():
        pytest.skip("the native part is not built. Do: make native")
    made = {}

    def export_(plugin, **fixed):
        key = (plugin, tuple(fixed.items()))
        if key not in made:
            path = tmp_path_factory.mktemp("exported") / f"lib{plugin.__name__.lower()}.so"
            with builds_kept("-O0 -Werror"):
                export_plugin(plugin, path, fixed=fixed, host=True)
            made[key] = Exported(path)
        return made[key]

    return export_
