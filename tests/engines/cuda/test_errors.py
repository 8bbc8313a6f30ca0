"""What cannot be run or built, said in words, without a GPU."""

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.cuda import driver
from pytrtplugins.engines.base.types import BuildOptions
from pytrtplugins.engines.cuda import CudaEngine
from pytrtplugins.engines.cuda.conv.cudnn import CudnnProvider
from pytrtplugins.engines.cuda.conv.problem import ConvProblem
from pytrtplugins.engines.cuda.device import device
from pytrtplugins.engines.cuda.device.device import CudaDevice
from pytrtplugins.engines.cuda.device.layout import channels_last
from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.engines.cuda.plan.planner import make_plan
from pytrtplugins.engines.null import NullEngine
from pytrtplugins.errors import BuildError, EngineError, PrecisionError, UnavailableError
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType, SymbolicDim, TensorDesc
from pytrtplugins.utils import forks
from tests.engines.networks import conv_net, image
from tests.passes.nets import Net

HIDDEN = """
import sys
for name in sys.argv[1:]:
    sys.modules[name] = None
import pytrtplugins as ptp
from pytrtplugins.engines.cuda import CudaEngine
from pytrtplugins.engines.cuda.device import device
device.check_driver = lambda: None
print(CudaEngine.availability().reason)
try:
    ptp.build("no.onnx", engine="cuda")
except ptp.errors.UnavailableError as error:
    print(error)
"""


def test_without_cupy_the_reason_says_what_to_install():
    done = subprocess.run([sys.executable, "-c", HIDDEN, "cupy"], capture_output=True, text=True, check=True)
    assert done.stdout.count("'cupy-cuda13x'") == 2
    assert done.stdout.count('Do: pip install "pytrtplugins[cuda]"') == 2


def fake_cupy(capability=(9, 0), count=1):
    """What `CudaDevice` asks of CuPy, with a GPU of 1 GiB that is full."""
    runtime = SimpleNamespace(
        CUDARuntimeError=RuntimeError,
        getDeviceCount=count if callable(count) else lambda: count,
        driverGetVersion=lambda: 13000,
        memGetInfo=lambda: (1 << 20, 1 << 30),
        getDeviceProperties=lambda number: {
            "name": b"NVIDIA Test", "major": capability[0], "minor": capability[1], "multiProcessorCount": 4, "l2CacheSize": 1,
        },
    )  # fmt: skip

    def full(*_):
        raise MemoryError("out of memory")

    cuda = SimpleNamespace(runtime=runtime, memory=SimpleNamespace(OutOfMemoryError=MemoryError))
    return SimpleNamespace(cuda=cuda, zeros=full, asarray=full, uint8=np.uint8)


@pytest.fixture
def cupy(monkeypatch):
    """A machine with the driver and a CuPy of the test's making."""

    def install(**given):
        monkeypatch.setattr(device, "check_driver", lambda: None)
        monkeypatch.setattr(device, "require", lambda *_, **__: fake_cupy(**given))

    return install


def test_without_a_driver_nobody_is_told_to_install_cupy(monkeypatch):
    def missing(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(driver.ctypes, "CDLL", missing)
    reason = CudaEngine.availability().reason
    assert "NVIDIA's driver is not installed" in reason
    assert 'Do: build with engine="cpu"' in reason
    assert "pip" not in reason


def test_a_gpu_that_is_too_old_is_named_with_what_to_do(cupy):
    cupy(capability=(6, 1))
    with pytest.raises(UnavailableError, match=r"NVIDIA Test, has compute capability 6\.1; it needs 7\.5") as caught:
        CudaDevice()
    assert 'Do: build with engine="cpu"' in str(caught.value)
    assert caught.value.capability == 61


def test_in_a_forked_child_the_parent_may_be_why_no_gpu_can_be_used(cupy, monkeypatch):
    def broken():
        raise RuntimeError("initialization error")

    cupy(count=broken)
    with pytest.raises(UnavailableError, match=r"initialization error\.\nDo: nvidia-smi"):
        CudaDevice()
    monkeypatch.setattr(forks, "_count", 1)
    message = 'forked from one that used the GPU; start it by multiprocessing\'s "spawn"'
    with pytest.raises(UnavailableError, match=message):
        CudaDevice()


def test_an_engine_of_a_gpu_is_refused_in_a_forked_child(monkeypatch):
    engine = NullEngine(conv_net(), BuildOptions())
    context = engine.create_context()
    monkeypatch.setattr(forks, "_count", 1)
    assert context.run({"data": image()})["y"].shape == (1, 4, 8, 8)
    monkeypatch.setattr(NullEngine, "survives_fork", CudaEngine.survives_fork)
    message, x = "it was made before this process was forked, and the GPU cannot be used across", {"data": image()}
    for use in (engine.create_context, lambda: context.run(x), lambda: context.run_async(x)):
        with pytest.raises(EngineError, match=message):
            use()


def test_a_gpu_that_is_not_there_is_named(cupy):
    cupy(count=2)
    with pytest.raises(UnavailableError, match=r"there is no GPU 2; CUDA finds 2\.\nDo: pytrt devices"):
        CudaDevice(2)


def test_where_memory_does_not_suffice_the_message_says_how_much_is_missing_and_what_needs_less(cupy):
    cupy()
    gpu = CudaDevice()
    for take in (lambda: gpu.allocate(3 << 20), lambda: gpu.upload(np.zeros(3 << 20, np.uint8))):
        message = r"NVIDIA Test does not suffice: 3 MiB more.* 1 of 1024 MiB"
        with pytest.raises(UnavailableError, match=message) as caught:
            take()
        assert "Do: run smaller batches" in str(caught.value)
        assert (caught.value.needed, caught.value.free) == (3 << 20, 1 << 20)
    with pytest.raises(UnavailableError, match="does not suffice: out of memory"), gpu.explaining_memory():
        gpu.xp.zeros(1)


def test_without_cudnns_frontend_the_reason_says_what_to_install(cupy, monkeypatch):
    cupy()
    monkeypatch.setitem(sys.modules, "cudnn", None)
    reason = CudaEngine.availability().reason
    assert "'nvidia-cudnn-frontend'" in reason
    assert 'Do: pip install "pytrtplugins[cuda]"' in reason


def test_without_cudnn_itself_the_error_says_what_to_install(monkeypatch):
    def missing():
        raise RuntimeError("libcudnn.so.9 not found")

    monkeypatch.setitem(sys.modules, "cudnn", SimpleNamespace(__version__="1.16.0", backend_version=missing))
    with pytest.raises(UnavailableError, match=r"cuDNN cannot be loaded .*\nDo: pip install nvidia-cudnn-cu13"):
        _ = CudnnProvider(None).cudnn


def test_a_machine_without_the_engine_refuses_to_build_with_the_reason():
    reason = CudaEngine.availability().reason
    if not reason:
        pytest.skip("this machine has a GPU")
    with pytest.raises(UnavailableError, match="engine 'cuda' cannot be used here"):
        ptp.build(Net().model("data"), engine="cuda")


@pytest.mark.parametrize("precision", ["bf16", "fp4"])
def test_a_precision_that_it_lacks_is_refused_with_those_that_it_has(precision):
    with pytest.raises(PrecisionError, match="it has fp32, tf32, fp16, int8, fp8\\."):
        CudaEngine.check_precision(precision)


def test_an_operator_that_it_lacks_is_named_with_its_node():
    net = Net()
    model = prepare(net.model(net.add("RandomNormalLike", [net.conv("data", "a")], "odd")))
    with pytest.raises(BuildError, match=r"ai\.onnx::RandomNormalLike \(node 'odd'\)[\s\S]*Do: write it as a plugin"):
        make_plan(lower(model), {"N": 1})


@pytest.mark.parametrize("odd", [False, True])
def test_with_free_heights_an_operator_that_is_missing_is_named_while_building(odd, monkeypatch):
    net = Net(channels=8)
    net.input = ["N", 8, "H", "W"]
    last = net.conv(net.conv("data", "a"), "b")
    model = prepare(net.model(net.add("RandomNormalLike", [last], "odd") if odd else last))
    engine = object.__new__(CudaEngine)
    engine.inputs = (TensorDesc("data", (SymbolicDim("N"), 8, SymbolicDim("H"), SymbolicDim("W"))),)
    engine._graph, engine.disabled, engine.options = lower(model), frozenset(), BuildOptions()
    monkeypatch.setattr(engine, "execution", lambda *sizes: pytest.fail("kernels were chosen"))
    if odd:
        with pytest.raises(BuildError, match=r"ai\.onnx::RandomNormalLike \(node 'odd'\)"):
            engine._plan_ahead(engine.options, False)
    else:
        engine._plan_ahead(engine.options, False)


@pytest.mark.parametrize("pool", [False, True])
def test_more_values_than_threads_have_numbers_are_refused(pool):
    net = Net(channels=8)
    y = net.conv("data", "a", channels=8)
    if pool:
        y = net.add("MaxPool", [net.conv("data", "b", channels=32)], "pooled", kernel_shape=[2, 2], strides=[2, 2])
    model = lower(prepare(net.model(y)), float_type=DType.FLOAT16)
    assert make_plan(model, {"N": 1 << 20}).memory.bytes > 1 << 29
    with pytest.raises(BuildError, match="more values than"):
        make_plan(model, {"N": 1 << 24})


def test_a_problems_key_tells_apart_what_needs_other_kernels():
    x, y = channels_last((1, 32, 8, 8), DType.FLOAT16), channels_last((1, 64, 8, 8), DType.FLOAT16)
    base = ConvProblem(x=x, y=y, kernel=(3, 3), pads=(1, 1, 1, 1))
    added = replace(base, residual=y, residual_activation="leaky")
    others = [
        replace(base, x=channels_last((8, 32, 8, 8), DType.FLOAT16)),
        replace(base, activation="leaky", bounds=(0.1, 0.0)),
        replace(base, residual=y),
        added,
        replace(added, residual_bounds=(0.1, 0.0)),  # cuDNN's graph has the slope in it
        replace(base, tensor_cores=False),
    ]
    assert len({problem.key for problem in (base, *others)}) == 7
    assert base.flops == 2 * 64 * 8 * 8 * 32 * 9
