"""Modules live as long as what uses them, and launches are converted once: with a driver that notes its calls, and on a GPU."""

import ctypes
import gc
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from pytrtplugins.cuda import driver as driver_module
from pytrtplugins.cuda.compiler import compile_source
from pytrtplugins.cuda.driver import Driver, Function, Launch, Module, kernel_fields, tensor_map
from pytrtplugins.engines.cuda.device import source
from pytrtplugins.errors import KernelError, UnavailableError
from tests.cuda.fake_driver import Code, FakeDriver

AT_THE_END = """
import os, sys
from pytrtplugins.cuda.driver import Driver, Module
from tests.cuda.fake_driver import FakeDriver

fake = FakeDriver()
kept, dropped = Module(b"cubin", Driver(fake)), Module(b"cubin", Driver(fake))
del fake.calls[:]
if os.fork() == 0:
    del dropped
    print("child", fake.calls, flush=True)
    os._exit(0)
os.wait()
class Print:
    def append(self, call):
        os.write(1, repr(call).encode())
fake.calls = Print()
"""


def test_fields_of_a_kernel_are_pointers_then_numbers_from_wide_to_narrow_in_the_order_of_their_names():
    fields = kernel_fields(floats="scale", ints="h w", longs="bytes", pointers="x y")
    assert fields == [
        ("x", ctypes.c_void_p), ("y", ctypes.c_void_p), ("bytes", ctypes.c_longlong), ("h", ctypes.c_int),
        ("w", ctypes.c_int), ("scale", ctypes.c_float),
    ]  # fmt: skip
    assert kernel_fields() == []


class Args(ctypes.Structure):
    _fields_ = kernel_fields(pointers="y", ints="count value")


@pytest.fixture
def fake(monkeypatch):
    """The driver of this process, for the test."""
    found = FakeDriver()
    monkeypatch.setattr(driver_module, "driver", lambda: Driver(found))
    return found


@pytest.fixture
def types():
    """CUDA's types; skips without NVIDIA's bindings."""
    return pytest.importorskip("cuda.bindings.driver", reason="no cuda-bindings. Do: pip install cuda-bindings")


def unloads(fake):
    return fake.called("cuCtxPushCurrent", "cuModuleUnload", "cuCtxPopCurrent")


def test_a_module_is_unloaded_in_its_context_when_nothing_refers_to_it(fake):
    module = Module(b"cubin")
    handle, function = module.handle, Function(module, "twice")
    fake.current = 9
    del module
    assert function.handle
    assert not unloads(fake)
    del function
    assert unloads(fake) == [("cuCtxPushCurrent", 7), ("cuModuleUnload", handle), ("cuCtxPopCurrent",)]


def test_a_prepared_launch_keeps_its_module(types):
    fake = FakeDriver(types=types)
    launch = Launch(Function(Module(b"cubin", Driver(fake)), "twice"), 3, 128, [Args(y=16)])
    gc.collect()
    assert not unloads(fake)
    del launch
    assert len(unloads(fake)) == 3


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_after_a_fork_and_at_the_end_of_the_interpreter_nothing_is_called():
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", AT_THE_END]  # forks beside threads of NumPy
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("child []\n", "")


@pytest.mark.parametrize("name", ["cuCtxPushCurrent", "cuModuleUnload"])
def test_a_module_whose_context_is_gone_ends_without_an_error(name, recwarn):
    fake = FakeDriver(fails=[name])
    module = Module(b"cubin", Driver(fake))
    del module
    assert fake.called(name)
    assert len(fake.called("cuCtxPushCurrent")) - len(fake.called("cuCtxPopCurrent")) == (name == "cuCtxPushCurrent")
    assert not recwarn.list


def test_what_the_driver_refuses_is_named():
    refused = r"CUDA: cuModuleLoadData gives CUDA_ERROR_INVALID_VALUE \(invalid argument\)"
    with pytest.raises(KernelError, match=refused) as caught:
        Module(b"cubin", Driver(FakeDriver(fails=["cuModuleLoadData"])))
    assert caught.value.path == "cuModuleLoadData"


def test_a_thread_without_a_context_is_told_so(fake):
    fake.current = 0
    with pytest.raises(UnavailableError, match=r"no CUDA context.\nDo: cupy.cuda.Device"):
        driver_module.current_context()


def test_shared_memory_beyond_what_all_may_have_is_asked_for(fake):
    module = Module(b"cubin")
    functions = [Function(module, "f", size) for size in (32 * 1024, 100_000)]
    assert fake.called("cuFuncSetAttribute") == [("cuFuncSetAttribute", functions[1].handle, 8, 100_000)]


@pytest.mark.parametrize(
    ("cluster", "early", "names"),
    [
        (1, False, []),
        (1, True, ["PROGRAMMATIC_STREAM_SERIALIZATION"]),
        (2, False, ["CLUSTER_DIMENSION"]),
        (4, True, ["PROGRAMMATIC_STREAM_SERIALIZATION", "CLUSTER_DIMENSION"]),
    ],
)
def test_a_launch_is_converted_once(types, cluster, early, names):
    fake = FakeDriver(types=types)
    function, arguments = Function(Module(b"cubin", Driver(fake)), "twice", 1000), [Args(y=16, count=3), Args(value=5)]
    launch = Launch(function, 12, 128, arguments, cluster, early)
    streams = []
    for stream in (0, 0x70, 0x70, 0x90):
        launch(stream)
        streams.append(int(fake.calls[-1][1].hStream))
    assert streams == [0, 0x70, 0x70, 0x90]
    calls = fake.called("cuLaunchKernelEx")
    assert len({(id(config), *rest) for _, config, *rest in calls}) == 1
    _, config, handle, address, extra = calls[0]
    assert (handle, extra) == (function.handle, 0)
    pointers = (ctypes.c_void_p * 2).from_address(address)
    assert [(Args.from_address(at).count, Args.from_address(at).value) for at in pointers] == [(3, 0), (0, 5)]
    sizes = [getattr(config, f"{what}Dim{axis}") for what in ("grid", "block") for axis in "XYZ"]
    assert sizes == [12, 1, 1, 128, 1, 1]
    assert (config.sharedMemBytes, config.numAttrs) == (1000, len(names))
    ids = [getattr(types.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{name}") for name in names]
    assert [attribute.id for attribute in config.attrs] == ids
    for attribute, name in zip(config.attrs, names, strict=True):
        size = attribute.value.clusterDim
        if name == "CLUSTER_DIMENSION":
            assert (size.x, size.y, size.z) == (cluster, 1, 1)
        else:
            assert attribute.value.programmaticStreamSerializationAllowed == 1


def test_a_cooperative_launch_says_so(types):
    fake = FakeDriver(types=types)
    launch = Launch(Function(Module(b"cubin", Driver(fake)), "twice"), 12, 128, [], cooperative=True)
    launch(0)
    (attribute,) = fake.called("cuLaunchKernelEx")[0][1].attrs
    assert attribute.id == types.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    assert attribute.value.cooperative == 1


@pytest.mark.parametrize(("cluster", "asked"), [(8, []), (16, [1])])
def test_a_cluster_beyond_the_portable_size_is_allowed_first(types, cluster, asked):
    fake = FakeDriver(types=types)
    launch = Launch(Function(Module(b"cubin", Driver(fake)), "twice"), 32, 128, [], cluster)
    assert launch.max_clusters() == 3
    assert [call[3] for call in fake.called("cuFuncSetAttribute")] == asked


def test_a_launch_that_the_driver_refuses_raises(types):
    fake = FakeDriver(types=types, fails=["cuLaunchKernelEx"])
    launch = Launch(Function(Module(b"cubin", Driver(fake)), "twice"), 1, 1, [])
    with pytest.raises(KernelError, match="cuLaunchKernelEx gives CUDA_ERROR_INVALID_VALUE"):
        launch(0)


def test_a_kernel_is_loaded_once_for_all_who_hold_it_at_the_same_time(fake, monkeypatch):
    monkeypatch.setattr(source, "compile_kernel", lambda *what: repr(what).encode())
    first, other = source.load_kernel("pool.cu", {"ELEMENT": 2}, 90), source.load_kernel("pool.cu", {"ELEMENT": 1}, 90)
    assert source.load_kernel("pool.cu", {"ELEMENT": 2}, 90) is first
    assert other is not first
    fake.current = 8
    assert source.load_kernel("pool.cu", {"ELEMENT": 2}, 90) is not first
    fake.current = 7
    assert len(fake.called("cuModuleLoadData")) == 3
    assert [call[2] for call in fake.called("cuModuleGetFunction")] == [b"pool"] * 3
    del first
    source.load_kernel("pool.cu", {"ELEMENT": 2}, 90)
    assert len(fake.called("cuModuleLoadData")) == 4


class Noting:
    """NVIDIA's driver, with the names of the functions that were called."""

    def __init__(self, api):
        self.api, self.names = api, []

    def __getattr__(self, name):
        self.names.append(name)
        return getattr(self.api, name)


@pytest.mark.gpu
def test_on_a_gpu_a_graph_runs_as_long_as_a_launch_in_it_is_kept(cupy):
    code = """struct Args { int* y; int count, value; };
    extern "C" __global__ void put(const Args a) {
        if (threadIdx.x < a.count) a.y[threadIdx.x] += a.value;
    }"""
    capability = int(cupy.cuda.Device().compute_capability)
    cubin = compile_source(code, f"sm_{capability}", "put", lambda log, compiler: KernelError(log, path="put"))
    noting, y = Noting(driver_module.driver().api), cupy.zeros(32, np.int32)
    function = Function(Module(cubin, Driver(noting)), "put")
    launch = Launch(function, 1, 32, [Args(y=y.data.ptr, count=20, value=3)])
    del function
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    launch(stream.ptr)
    stream.begin_capture()
    launch(stream.ptr)
    launch(stream.ptr)
    graph = stream.end_capture()
    gc.collect()
    graph.launch(stream)
    stream.synchronize()
    assert y.get().tolist() == [9] * 20 + [0] * 12
    assert "cuModuleUnload" not in noting.names
    del graph, launch
    assert noting.names[-3:] == ["cuCtxPushCurrent", "cuModuleUnload", "cuCtxPopCurrent"]
    y += 1
    assert y.get().tolist() == [10] * 20 + [1] * 12


@pytest.mark.parametrize(
    ("given", "name", "box"),
    [
        ({"corners": ((-1, -2), (3, 4)), "pixels": 128}, "cuTensorMapEncodeIm2col", [[-1, -2], [3, 4], 32, 128]),
        ({"pixels": 16}, "cuTensorMapEncodeTiled", [[32, 16, 1, 1]]),
        ({"pixels": (16, 8)}, "cuTensorMapEncodeTiled", [[32, 16, 8, 1]]),
    ],
)
def test_a_tensor_map_has_its_box_in_elements(types, monkeypatch, given, name, box):
    encoded = (ctypes.c_uint8 * ctypes.sizeof(driver_module.TensorMap))(*range(100))

    class Encodes(FakeDriver):
        def __getattr__(self, name):
            if not name.startswith("cuTensorMapEncode"):
                return super().__getattr__(name)

            def call(*arguments):
                self.calls.append((name, *arguments))
                return Code(0), SimpleNamespace(getPtr=lambda: ctypes.addressof(encoded))

            return call

    fake = Encodes(types=types)
    monkeypatch.setattr(driver_module, "driver", lambda: Driver(fake))
    tensor_map(4096, 2, (64, 20, 10, 3), (128, 2560, 25600), 64, steps=(2, 3), **given)
    ((called, kind, rank, address, sizes, strides, *rest),) = fake.calls
    assert (called, kind.name, rank, address) == (name, "CU_TENSOR_MAP_DATA_TYPE_FLOAT16", 4, 4096)
    assert [list(map(int, values)) for values in (sizes, strides)] == [[64, 20, 10, 3], [128, 2560, 25600]]
    plain = [[*map(int, item)] if isinstance(item, list) else int(item) for item in rest[: len(box) + 1]]
    assert plain == [*box, [1, 2, 3, 1]]
    assert rest[len(box) + 2].name == "CU_TENSOR_MAP_SWIZZLE_64B"
