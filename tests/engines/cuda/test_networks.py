"""Whole networks through lowering, fusion, planning and the engine's kernels, on NumPy arrays."""

import functools
from dataclasses import replace

import numpy as np
import pytest

from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines import calibrate
from pytrtplugins.engines.cuda.device.layout import FP8
from pytrtplugins.engines.cuda.lower.pipeline import OPTIONAL_STEPS
from pytrtplugins.passes import CODES, prepare, quantize
from pytrtplugins.passes.prepare import in_opset_of_precision
from pytrtplugins.tensor import DType
from tests.engines.cuda.conftest import darknet_model, in_fp8
from tests.engines.cuda.host import assert_near, assert_same, by_reference, host_execution, run_on_host, run_shuffled
from tests.engines.cuda.infinities import infinite_net
from tests.engines.cuda.layers import assert_right, layers_of

small_model = functools.partial(darknet_model, size=32, narrow=4)
NETWORKS = ["yolov2-animals.cfg", "yolov3-tiny.cfg", "resnet18.cfg", "yolov2-tiny-voc.cfg"]
UNPLANNED = ("tactics", "graph", "schedule", "handwritten-kernels", "cudnn-kernels", "cublaslt-kernels")
PLANNED = [name for name in OPTIONAL_STEPS if name not in UNPLANNED]


@pytest.mark.parametrize(
    ("name", "float_type", "room", "direct"),
    [
        *((name, *case) for name in NETWORKS for case in ((DType.FLOAT32, 5e-6, False), (DType.FLOAT16, 4e-3, False))),
        ("yolov2-tiny-voc.cfg", DType.FLOAT32, 5e-6, True),
    ],
)
def test_a_network_gives_the_reference_engines_numbers(name, float_type, room, direct):
    model, inputs = small_model(name)
    found, _ = run_on_host(model, inputs, float_type, direct=direct)
    assert {values.dtype for values in found.values()} == {np.dtype(np.float32)}
    assert_near(found, by_reference(model, inputs), room)


@functools.cache
def table_of(name):
    """The calibration table of a network, from the input that the tests run."""
    model, inputs = small_model(name)
    return calibrate(model, MinMaxCalibrator([inputs]), engine="onnxruntime", progress=False)


@functools.cache
def quantized(name, precision):
    """A network with Q/DQ, prepared; tests share it."""
    model, _ = small_model(name)
    return in_fp8(model, table_of(name)) if precision == "fp8" else prepare(quantize(model, table_of(name)))


@pytest.mark.parametrize("name", ["yolov2-animals.cfg", "resnet18.cfg"])
@pytest.mark.parametrize(("precision", "codes", "bound"), [("int8", DType.INT8, 3e-3), ("fp8", FP8, 5e-3)])
def test_in_codes_it_is_the_reference_engines_but_for_codes_at_their_edges(name, precision, codes, bound):
    """All convolutions but the last, and in FP8 the first, take codes."""
    model, inputs = quantized(name, precision), small_model(name)[1]
    found, execution = run_on_host(model, inputs)
    read = [step.inputs[0] for step in execution.plan.steps if step.kind == "conv"]
    kinds = [execution.plan.tensors[name].format.dtype for name in read]
    assert kinds.count(codes) >= len(kinds) - (2 if codes is FP8 else 1)
    assert_near(found, by_reference(model, inputs, precision), bound)


def test_in_fp8_a_first_layer_in_float_takes_no_kernel_more():
    name = "yolov2-animals.cfg"
    model, inputs = small_model(name)
    whole = prepare(quantize(in_opset_of_precision(model, "fp8"), table_of(name), precision="fp8", float_first=False))
    plans = [host_execution(each, inputs, DType.FLOAT16).plan for each in (whole, quantized(name, "fp8"))]
    assert [step.kind for step in plans[0].steps] == [step.kind for step in plans[1].steps]


@pytest.fixture(scope="module")
def with_all_steps():
    """A network in float32, INT8 and FP8, its inputs, and what it gives."""
    name = "yolov2-animals.cfg"
    model, inputs = small_model(name)
    nets = (model, quantized(name, "int8"), quantized(name, "fp8"))
    return [(net, inputs, run_on_host(net, inputs)[0]) for net in nets]


@pytest.mark.parametrize("step", PLANNED)
def test_without_a_step_the_numbers_stay(step, with_all_steps):
    for net, inputs, full in with_all_steps:
        less, _ = run_on_host(net, inputs, disable=(step,))
        for output, wanted in full.items():
            np.testing.assert_allclose(less[output], wanted, rtol=2e-5, atol=2e-6)


def test_free_dims_take_any_batch():
    model, one = small_model("yolov2-tiny-voc.cfg", batch="dynamic")
    many = {"data": np.concatenate([one["data"] + shift for shift in (0, 1, 2)]).astype(np.float32)}
    found, _ = run_on_host(model, many)
    alone, _ = run_on_host(model, {"data": many["data"][2:]})
    for output, value in found.items():
        np.testing.assert_allclose(value[2:], alone[output], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["yolov2-animals.cfg", "yolov3-tiny.cfg", "resnet18.cfg"])
@pytest.mark.parametrize("seed", [0, 1])
def test_branches_may_run_in_any_order_that_the_streams_allow(name, seed):
    model, inputs = small_model(name)
    wanted, execution = run_on_host(model, inputs)
    found, shuffled = run_shuffled(execution, inputs, seed)
    assert_same(found, wanted)
    if name != "resnet18.cfg":
        assert max(execution.plan.schedule.streams) > 0
        assert shuffled != sorted(shuffled)


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT16])
@pytest.mark.parametrize("direct", [False, True])
def test_relu_behind_a_convolution_makes_0_of_minus_infinity(dtype, direct):
    model, inputs, wanted = infinite_net()
    found, _ = run_on_host(prepare(model), inputs, dtype, direct=direct)
    assert_same(found, wanted)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8", "fp8"])
def test_the_direct_kernel_computes_every_layer_by_its_definition(precision):
    name = "yolov2-tiny-voc.cfg"
    model, inputs = small_model(name)
    if precision in CODES:
        model = quantized(name, precision)
    float_type = DType.FLOAT32 if precision == "fp32" else DType.FLOAT16
    _, execution = run_on_host(model, inputs, float_type, disable=("reuse",), direct=True)
    layers = list(layers_of(execution, weights=execution.weights))
    assert len(layers) == 9
    for layer in layers:
        assert_right(layer, precision)
    with pytest.raises(AssertionError):
        assert_right(replace(layers[3], found=layers[3].found * 1.01 + 1), precision)
