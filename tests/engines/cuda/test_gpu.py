"""The engine on a GPU: numbers, threads, arrays of the GPU, files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import pytrtplugins as ptp
from darknet2caffe import read_network, to_onnx
from pytrtplugins.calibration import CalibrationTable, MinMaxCalibrator
from pytrtplugins.engines import calibrate
from pytrtplugins.engines.cuda.conv.tactics import FP8_CAPABILITY
from pytrtplugins.engines.cuda.lower.pipeline import OPTIONAL_STEPS
from pytrtplugins.passes import CODES, prepare, quantize
from tests.engines.cuda.conftest import SAMPLES, darknet_model, in_fp8
from tests.engines.cuda.host import assert_near, assert_same, by_reference
from tests.engines.cuda.infinities import infinite_net
from tests.engines.cuda.layers import HOPPER_FP8, assert_right, layers_of, of_cublaslt
from tests.engines.networks import Affine, Failing, OutOfPaperError, conv_net, image
from tests.passes.nets import Net

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

BOUNDS = {"fp32": 1e-5, "tf32": 3e-3, "fp16": 4e-3}
FAST_BUILD = {"disable": ["tactics"]}  # the first kernel that fits, instead of a minute's search


def shipped(side):
    """The shipped network, darknet-trained, and numbers as images have them."""
    base = SAMPLES / "yolov2-animals"
    network = read_network(base.with_suffix(".cfg"), base.with_suffix(".weights"))
    model = prepare(to_onnx(network, input_size=(side, side), batch="dynamic"))
    rng = np.random.default_rng(3)
    coarse = rng.random((3, 3, side // 16, side // 16), dtype=np.float32).repeat(16, 2).repeat(16, 3)
    return model, np.clip(coarse + 0.1 * rng.standard_normal(coarse.shape, dtype=np.float32), 0, 1)


def skip_without(precision):
    """Skip where the GPU has no arithmetic in FP8."""
    capability = int(pytest.importorskip("cupy").cuda.Device().compute_capability)
    if precision == "fp8" and capability < FP8_CAPABILITY:
        pytest.skip(f"compute capability {capability}: FP8 begins with {FP8_CAPABILITY}")


def quantized_to(precision, model, table):
    """A prepared model in codes."""
    return in_fp8(model, table) if precision == "fp8" else quantize(model, table)


def results(model, inputs, precision, settings=FAST_BUILD):
    """What the engine gives."""
    with ptp.build(model, engine="cuda", precision=precision, settings=settings).create_context() as context:
        return context.run(inputs)


def assert_layers_right(model, inputs, precision, disable):
    """Each layer by itself; gives their number."""
    settings = {"disable": ["reuse", "tactics", *disable]}
    engine = ptp.build(model, engine="cuda", precision=precision, settings=settings)
    with engine.create_context() as context:
        context.run(inputs)
        execution = next(iter(context._ready.values())).execution
        layers = list(layers_of(execution, precision == "tf32", engine._weights.__getitem__, of_cublaslt(engine)))
    for layer in layers:
        assert_right(layer, precision, HOPPER_FP8)
    return len(layers)


@pytest.fixture(scope="module")
def animals():
    return shipped(224)


@pytest.fixture(scope="module")
def wanted(animals):
    model, x = animals
    with ptp.build(model, engine="onnxruntime").create_context() as context:
        return context.run({"data": x})


@pytest.mark.parametrize("precision", list(BOUNDS))
def test_the_shipped_network_is_right_in_each_precision(animals, wanted, precision):
    model, x = animals
    engine = ptp.build(model, engine="cuda", precision=precision, settings=FAST_BUILD)
    with engine.create_context() as context:
        for batch in (1, 3):
            part = {name: value[:batch] for name, value in wanted.items()}
            assert_near(context.run({"data": x[:batch]}), part, BOUNDS[precision])


@pytest.mark.parametrize("channels", [3, 16])
@pytest.mark.parametrize("precision", list(BOUNDS))
def test_relu_behind_a_convolution_makes_0_of_minus_infinity(precision, channels):
    model, inputs, wanted = infinite_net(channels)
    assert_same(results(model, inputs, precision), wanted)


@pytest.mark.parametrize("disable", [[], ["handwritten-kernels"]], ids=["handwritten", "cudnn"])
@pytest.mark.parametrize("weights", ["trained", "random"])
@pytest.mark.parametrize("precision", [*BOUNDS, *CODES])
def test_every_layer_is_right_by_itself(precision, weights, disable):
    model, x = shipped(96)
    if weights == "random":
        model, inputs = darknet_model("yolov2-animals.cfg", size=96, batch="dynamic")
        x = inputs["data"]
    if precision in CODES:
        skip_without(precision)
        table = CalibrationTable.read(SAMPLES / "yolov2-animals.cache")
        if weights == "random":
            table = calibrate(model, MinMaxCalibrator([{"data": x[:1]}]), engine="onnxruntime", progress=False)
        model = quantized_to(precision, model, table)
    assert assert_layers_right(model, {"data": x[:1]}, precision, disable) > 10


@pytest.mark.parametrize("disable", [[], ["handwritten-kernels"]], ids=["handwritten", "cudnn"])
@pytest.mark.parametrize("precision", [*BOUNDS, *CODES])
def test_every_layer_of_a_mobile_network_is_right_by_itself(precision, disable):
    net = Net(channels=3, size=32)
    x = net.conv("data", "first", 16, kernel=5)
    for index in range(2):  # inverted residuals: fewer channels than 16 bytes hold, groups of one, an addition
        wide = net.conv(net.conv(x, f"narrow{index}", 8, kernel=1, leaky=False), f"wide{index}", 48, kernel=1)
        depthwise = net.conv(wide, f"depthwise{index}", 48, group=48)
        x = net.add("Add", [net.conv(depthwise, f"back{index}", 16, kernel=1, leaky=False), x], f"sum{index}")
    model = prepare(net.model(net.conv(net.conv(x, "grouped", 32, group=4), "last", 24, kernel=1, leaky=False)))
    inputs = {"data": np.random.default_rng(1).standard_normal((1, 3, 32, 32), dtype=np.float32)}
    if precision in CODES:
        skip_without(precision)
        table = calibrate(model, MinMaxCalibrator([inputs]), engine="onnxruntime", progress=False)
        model = quantized_to(precision, model, table)
    assert assert_layers_right(model, inputs, precision, disable) == 11


@pytest.mark.parametrize("disable", [[], ["handwritten-kernels"]], ids=["handwritten", "cudnn"])
@pytest.mark.parametrize("precision", list(BOUNDS))
def test_a_network_that_ends_with_a_pool_is_right(precision, disable):
    net = Net(channels=8)
    last = net.conv(net.conv("data", "first", 16), "last", 24)
    model = prepare(net.model(net.add("MaxPool", [last], "pooled", kernel_shape=[2, 2], strides=[2, 2])))
    inputs = {"data": np.random.default_rng(1).standard_normal((2, 8, 8, 8), dtype=np.float32)}
    found = results(model, inputs, precision, {"disable": ["tactics", *disable], "batch": 2})
    assert_near(found, by_reference(model, inputs), BOUNDS[precision])


@pytest.mark.parametrize("precision", list(BOUNDS))
def test_activations_that_no_convolution_takes_are_right(precision):
    net = Net(channels=8)
    x = net.conv("data", "first", 20, leaky=False)
    swish = net.add("Mul", [x, net.add("Sigmoid", [x], "gate")], "swish")
    y = net.add("HardSwish", [net.conv(swish, "second", 16, leaky=False)], "hard")
    soft = net.add("Tanh", [net.add("Softplus", [net.conv(y, "third", 16, leaky=False)], "soft")], "tanh")
    model = prepare(net.model(net.conv(net.add("Mul", [soft, "third"], "mish"), "last", 8, leaky=False)))
    inputs = {"data": np.random.default_rng(1).standard_normal((1, 8, 8, 8), dtype=np.float32)}
    assert_near(results(model, inputs, precision), by_reference(model, inputs), BOUNDS[precision])


@pytest.mark.parametrize(
    ("precision", "settings", "room"),
    [
        ("int8", {"float": "float32"}, 0.08),  # codes that differ by one in a million grow over 20 layers
        ("fp8", {"float": "float32"}, 0.15),  # codes that differ by one
        ("fp8", {}, 0.15),
    ],
)
def test_codes_are_the_reference_engines_but_for_rounding(animals, precision, settings, room):
    skip_without(precision)
    model, x = animals
    quantized = quantized_to(precision, model, CalibrationTable.read(SAMPLES / "yolov2-animals.cache"))
    with ptp.build(quantized, engine="reference", precision=precision).create_context() as context:
        wanted = context.run({"data": x[:1]})
    assert_near(results(quantized, {"data": x[:1]}, precision, {**settings, **FAST_BUILD}), wanted, room)


def test_a_file_of_an_engine_in_fp8_gives_its_numbers(animals, tmp_path):
    skip_without("fp8")
    model, x = animals
    table = CalibrationTable.read(SAMPLES / "yolov2-animals.cache")
    engine = ptp.build(model, engine="cuda", precision="fp8", calibration=table, settings=FAST_BUILD)
    engine.save(tmp_path / "fp8.engine")
    with engine.create_context() as context, ptp.load_engine(tmp_path / "fp8.engine").create_context() as other:
        assert_same(other.run({"data": x[:1]}), context.run({"data": x[:1]}))


def test_four_threads_give_the_numbers_of_one_and_every_run_the_same(animals):
    model, x = animals
    engine = ptp.build(model, engine="cuda", precision="fp16", settings=FAST_BUILD)

    def work(number):
        with engine.create_context() as context:
            return [context.run({"data": x[number % 3 : number % 3 + 1]}) for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        threads = list(pool.map(work, range(4)))
    for number, runs in enumerate(threads):
        for run in (*runs, threads[number % 3][0]):
            assert_same(run, runs[0])


def test_arrays_of_the_gpu_go_in_and_out_on_the_callers_stream(animals):
    cupy = pytest.importorskip("cupy")
    model, x = animals
    engine = ptp.build(model, engine="cuda", precision="fp16", settings=FAST_BUILD)
    with engine.create_context() as context:
        wanted = context.run({"data": x[:1]})
        given = context.run({"data": cupy.asarray(x[:1])})
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            data = cupy.asarray(x[:1])
            outputs = {name: cupy.zeros(value.shape, np.float32) for name, value in wanted.items()}
            context.enqueue({"data": data}, outputs, stream)
            after = {name: array + 1 for name, array in outputs.items()}
        stream.synchronize()
        for name, value in wanted.items():
            np.testing.assert_array_equal(given[name], value)
            np.testing.assert_array_equal(cupy.asnumpy(outputs[name]), value)
            np.testing.assert_array_equal(cupy.asnumpy(after[name]), value + 1)


def by_torch(array):
    return pytest.importorskip("torch").from_numpy(array).cuda()


def by_pycuda(array):
    pytest.importorskip("pycuda.autoprimaryctx", reason="PyCUDA is not installed")
    from pycuda import gpuarray

    return gpuarray.to_gpu(array)


@pytest.mark.parametrize("to_gpu", [by_torch, by_pycuda])
def test_arrays_of_other_libraries_are_arrays_of_the_gpu(animals, to_gpu):
    model, x = animals
    with ptp.build(model, engine="cuda", precision="fp16", settings=FAST_BUILD).create_context() as context:
        wanted = context.run({"data": x[:1]})
        assert_same(context.run({"data": to_gpu(x[:1])}), wanted)


def test_a_run_waits_for_the_stream_that_writes_its_inputs(animals):
    torch = pytest.importorskip("torch")
    model, x = animals
    with ptp.build(model, engine="cuda", precision="fp16", settings=FAST_BUILD).create_context() as context:
        wanted = context.run({"data": x[:1]})
        late, data = torch.from_numpy(x[:1]).cuda(), torch.zeros(x[:1].shape, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(100_000_000)  # cycles
            data.copy_(late)
            found = context.run({"data": data})
    assert_same(found, wanted)


@pytest.mark.parametrize("step", OPTIONAL_STEPS)
def test_every_optimization_can_be_left_out(animals, wanted, step):
    model, x = animals
    disable = sorted({step, "tactics"})  # no search for each
    found = results(model, {"data": x[:1]}, "fp16", {"disable": disable})
    assert_near(found, {name: value[:1] for name, value in wanted.items()}, BOUNDS["fp16"])


def test_a_plugin_that_computes_runs_between_graphs():
    engine = ptp.build(conv_net(Affine(3.0)), engine="cuda")
    with engine.create_context() as context:
        found = [context.run({"data": image()})["y"] for _ in range(3)]
        segments = next(iter(context._ready.values())).execution.segments
        assert [segment.capturable for segment in segments] == [True, False, True]
    with ptp.build(conv_net(Affine(3.0)), engine="reference").create_context() as context:
        wanted = context.run({"data": image()})["y"]
    for y in found:
        np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)


def test_what_a_plugin_raises_reaches_the_caller_and_the_context_works_on():
    with ptp.build(conv_net(Failing()), engine="cuda").create_context() as context:
        for _ in range(2):
            with pytest.raises(OutOfPaperError, match="negative"):
                context.run({"data": image() - 0.5})


@pytest.fixture(scope="module")
def saved(animals, tmp_path_factory):
    """The shipped network as built and as a file, in FP16 and INT8."""
    model, _ = animals
    quantized = quantize(model, CalibrationTable.read(SAMPLES / "yolov2-animals.cache"))
    found = {}
    for precision, each in (("fp16", model), ("int8", quantized)):
        engine = ptp.build(each, engine="cuda", precision=precision, settings={"batch": [1, 2], **FAST_BUILD})
        path = tmp_path_factory.mktemp("engines") / f"{precision}.engine"
        engine.save(path)
        found[precision] = engine, path
    return found


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_an_engine_file_gives_the_same_bits_with_the_same_kernels(animals, saved, precision):
    x = animals[1]
    engine, path = saved[precision]
    loaded, again = ptp.load_engine(path), ptp.load_engine(path)
    assert loaded.tactics() == again.tactics() == engine.tactics()
    assert (loaded.inputs, loaded.outputs) == (engine.inputs, engine.outputs)
    for batch in (1, 2):
        with engine.create_context() as context:
            wanted = context.run({"data": x[:batch]})
        for other in (loaded, again):
            with other.create_context() as context:
                for _ in range(2):
                    assert_same(context.run({"data": x[:batch]}), wanted)


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_a_loaded_engine_saves_what_it_was_loaded_from(saved, tmp_path: Path, precision):
    _, path = saved[precision]
    ptp.load_engine(path).save(tmp_path / "again.engine")
    assert (tmp_path / "again.engine").read_bytes() == path.read_bytes()


def test_a_loaded_engine_reads_its_weights_for_a_new_shape(animals, saved, wanted):
    _, path = saved["fp16"]
    with ptp.load_engine(path).create_context() as context:
        assert_near(context.run({"data": animals[1]}), wanted, BOUNDS["fp16"])


def test_many_runs_need_no_more_memory(animals):
    cupy = pytest.importorskip("cupy")
    model, x = animals
    with ptp.build(model, engine="cuda", precision="fp16", settings=FAST_BUILD).create_context() as context:
        context.run({"data": x[:1]})
        pool = cupy.get_default_memory_pool()  # where all arrays of this process lie, each in 512 bytes at least
        used = pool.used_bytes()
        for _ in range(10_000):
            context.run({"data": x[:1]})
        assert pool.used_bytes() < used + (1 << 20)
