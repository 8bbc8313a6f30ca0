"""The form for GPUs: its kernels are compiled, and its calls of CUDA's driver are what they should be, without a GPU."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pytrtplugins as ptp
from pytrtplugins import CudaKernel, native
from pytrtplugins.cuda.compiler import find_nvcc, find_nvrtc
from pytrtplugins.errors import ExportError
from pytrtplugins.export import plugin as plugin_module
from pytrtplugins.export.plugin import export_plugin
from pytrtplugins.layers import Reorg

from .conftest import builds_kept
from .layers import Join, PRelu, Scale

HERE = Path(__file__).parent
SCRIPT = """
import importlib, sys
import numpy as np
from pytrtplugins.tensor import DType, TensorDesc

class Device:
    dtype = np.dtype("float32")

    def __init__(self, address, shape):
        self.shape = shape
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": shape, "typestr": "<f4", "version": 3, "strides": None}

path, fields, shapes, output, stream = sys.argv[1], *map(eval, sys.argv[2:])
(entry,) = importlib.import_module("pytrtplugins._native").load(path)
made = entry.make({**{name: value for name, _, value in entry.fields()}, **fields})
ins, outs = [TensorDesc("", shape) for shape in shapes], [TensorDesc("", output)]
made.configure(ins, outs)
made.initialize()
print("ready", flush=True)
arrays = [Device(0x10000 * (index + 1) + index + 1, shape) for index, shape in enumerate([*shapes, output])]
for _ in range(2):
    made.enqueue(arrays[:-1], arrays[-1:], ["linear"] * len(arrays), 0, stream)
made.terminate()
"""

needs_nvcc = pytest.mark.skipif(not find_nvcc()[0], reason="nvcc is not installed. Do: install CUDA's toolkit")
pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler. Do: apt-get install g++"),
    pytest.mark.skipif(not native.available(), reason="the native part is not built. Do: make native"),
]


@pytest.fixture(scope="module")
def fake_cuda(tmp_path_factory):
    """The folder of the stand-in for CUDA's driver."""
    folder = tmp_path_factory.mktemp("cuda")
    subprocess.run(["g++", "-shared", "-fPIC", HERE / "fake_cuda.cpp", "-o", folder / "libcuda.so.1"], check=True)
    return folder


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    def export(plugin):
        path = tmp_path_factory.mktemp("exported") / f"lib{plugin.__name__.lower()}.so"
        with builds_kept("-O0"):
            export_plugin(plugin, path, architectures=(90,))
        return path

    return export


def run(folder, *arguments):
    command = [sys.executable, "-c", SCRIPT, *map(str, arguments)]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(HERE.parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    return done.stdout.partition("ready\n"), done.stderr


@needs_nvcc
def test_kernels_are_loaded_before_and_launched_in_enqueue(fake_cuda, exported):
    shape, output = (2, 8, 4, 6), (2, 32, 2, 3)
    path = exported(Reorg)
    (before, _, after), error = run(fake_cuda, path, {"stride": 2}, [shape], output, 0x77)
    assert before == "module 1 magic ba55ed50 aligned 1\n", error
    launch = "launch _Z5reorgIfEvPKT_PS0_iiiib grid 1 2 2 block {} 1 1 shared 0 stream 77 arguments 1 2 2 4 6 2 0"
    (block,) = set(re.findall(r"block (\d+)", after))
    assert after.splitlines() == [launch.format(block)] * 2
    linked = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
    assert not re.search("cuda|nvinfer|python", linked)


@needs_nvcc
def test_constants_are_copied_once_before_enqueue(fake_cuda, exported):
    (before, _, after), error = run(fake_cuda, exported(Join), {"kind": "table"}, [(2, 3)] * 2, (2, 3), 0)
    assert sorted(before.splitlines()) == [
        "allocate 12",
        "module 1 magic ba55ed50 aligned 1",
        "synchronize 0",
        "upload 1100 12 bytes from 1",
    ], error
    assert after.count("launch _Z4join") == 2
    assert "allocate" not in after


@needs_nvcc
@pytest.mark.parametrize("slope", [[0.5, -1, 3], [7, 8]])
def test_an_array_field_is_copied_once_for_each_plugin_and_freed(fake_cuda, exported, slope):
    shape = (2, len(slope), 4)
    fields = f"{{'slope': np.float32({slope})}}"
    (before, _, after), error = run(fake_cuda, exported(PRelu), fields, [shape], shape, 0)
    assert before.splitlines() == [
        "module 1 magic ba55ed50 aligned 1",
        f"allocate {4 * len(slope)}",
        f"upload 1100 {4 * len(slope)} bytes from {slope[0]:g}",
        "synchronize 0",
    ], error
    *launches, freed = after.splitlines()
    address = 0x1100 & 0xFF
    assert freed == "free 1100"
    assert (
        re.findall(r"_Z5preluIfE\w+ .* arguments (.*)", "\n".join(launches))
        == [f"1 2 {address} {8 * len(slope)} {len(slope)} 4"] * 2
    )


@needs_nvcc
def test_what_cuda_says_is_raised(fake_cuda, exported):
    path = exported(Scale)
    _, error = run(fake_cuda, path, {}, [(2, 3)], (2, 3), 0xBAD)
    assert "PluginError: scale<float>: CUDA says: an illegal address (700)" in error
    _, error = run(Path("nowhere"), path, {}, [(2, 3)], (2, 3), 0)
    assert "libcuda.so.1 cannot be loaded: this machine has no NVIDIA driver" in error or shutil.which("nvidia-smi")


@needs_nvcc
def test_a_kernel_that_only_the_gpus_compiler_refuses_is_named(exported):
    broken = type(
        "Broken",
        (Scale,),
        {"kernel": CudaKernel.from_source(Scale.kernel.source.replace("x[i]", "z[i]"), "scale")},
    )
    with pytest.raises(ExportError, match=r'scale.cu\(\d+\): error: identifier "z" is undefined'):
        exported(ptp.plugin(namespace="test.export")(broken))


@pytest.mark.skipif(not find_nvrtc()[1], reason="no NVRTC. Do: pip install 'pytrtplugins[nvrtc]'")
def test_without_nvcc_the_kernels_are_ptx_of_nvrtc(fake_cuda, exported, monkeypatch):
    monkeypatch.setattr(plugin_module, "find_nvcc", lambda: ("", ""))
    (before, _, after), error = run(fake_cuda, exported(Join), {"kind": "sum"}, [(2, 3)] * 2, (2, 3), 0)
    assert "module 1 magic 2f0a2f2f aligned 1\n" in before, error  # //, new line, /: text
    assert after.count("launch _Z4joinPKfS0_PfS0_iii grid 1 1 1") == 2
    broken = type(
        "BrokenPtx", (Scale,), {"kernel": CudaKernel.from_source(Scale.kernel.source.replace("x[i]", "z[i]"), "scale")}
    )
    with pytest.raises(ExportError, match=r'NVRTC[\s\S]*scale.cu\(\d+\): error: identifier "z" is undefined'):
        exported(ptp.plugin(namespace="test.export")(broken))
