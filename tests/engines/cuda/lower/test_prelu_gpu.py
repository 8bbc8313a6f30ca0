"""PRelu in the epilogue of every kernel that a network may choose, on a GPU."""

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.engines.cuda.conv.problem import DirectProvider
from pytrtplugins.engines.cuda.conv.timer import LIBRARIES, Timer
from pytrtplugins.passes import CODES, prepare
from tests.engines.cuda.layers import HOPPER_FP8, assert_right, layers_of, of_cublaslt, of_cudnn
from tests.engines.cuda.lower.test_prelu import Faces, X, faces, reference
from tests.engines.cuda.lower.test_transposed_convolution import in_codes
from tests.engines.cuda.test_gpu import skip_without
from tests.measures import relative

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

BOUNDS = {"fp32": 1e-5, "tf32": 3e-3, "fp16": 4e-3}
KERNELS = {
    "handwritten": ("cudnn-kernels", "cublaslt-kernels"),  # whose kernels sanitizers would meet else
    "libraries": ("handwritten-kernels",),
    "plain": ("handwritten-kernels", "cudnn-kernels", "cublaslt-kernels"),
}
TACTICS = 2
"""Of each of our families that are tried: kernels compile longer than they run."""


def engine_of(precision, disable=(), model=None):
    """The network that has every kind of convolution, without a search for the fastest kernels."""
    if precision in CODES:
        skip_without(precision)
    model = in_codes(prepare(model or faces()), X, precision)
    settings = {"disable": ["reuse", "tactics", *disable], "batch": 2}
    return ptp.build(model, engine="cuda", precision=precision, settings=settings, progress=False)


@pytest.mark.parametrize("disable", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("precision", [*BOUNDS, *CODES])
def test_every_layer_is_right_by_itself(precision, disable):
    engine = engine_of(precision, disable)
    with engine.create_context() as context:
        context.run(X)
        execution = next(iter(context._ready.values())).execution
        halved = of_cublaslt(engine), of_cudnn(engine)
        layers = list(layers_of(execution, precision == "tf32", engine._weights.__getitem__, *halved))
    if precision in BOUNDS:
        assert {step.op for step in execution.plan.steps if step.kind == "pointwise"} <= {"Move"}
    assert len(layers) == 8
    for layer in layers:
        assert_right(layer, precision, HOPPER_FP8)


@pytest.mark.parametrize("disable", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("precision", list(BOUNDS))
def test_the_numbers_are_onnxruntimes_in_graphs_too(precision, disable):
    wanted = reference(faces())["last"]
    with engine_of(precision, disable).create_context() as context:
        for _ in range(3):  # the first is captured
            assert relative(np.asarray(context.run(X)["last"]), wanted) < BOUNDS[precision]
        assert relative(np.asarray(context.run({"data": X["data"][:1]})["last"]), wanted[:1]) < BOUNDS[precision]


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_a_file_keeps_the_slopes(precision, tmp_path):
    engine = engine_of(precision)
    path = tmp_path / "faces.engine"
    engine.save(path)
    with engine.create_context() as context, ptp.load_engine(path).create_context() as loaded:
        np.testing.assert_array_equal(np.asarray(loaded.run(X)["last"]), np.asarray(context.run(X)["last"]))


def bent(kernel, group, channels, residual):
    """A convolution with PRelu, without a residual, before one or behind it; and an input."""
    net = Faces(channels=64)
    x = net.bent("data", "first", 64, kernel=1)
    added = net.conv(x, "side", channels, kernel=1)
    y = net.conv(x, "sum", channels, kernel=kernel, group=group, leaky=False)
    if residual == "none":
        y = net.add("Add", [net.conv(net.prelu(y, "bent"), "next", channels, kernel=1), added], "joined")
    elif residual == "before":
        y = net.add("Add", [net.prelu(y, "bent"), added], "joined")
    else:
        y = net.prelu(net.add("Add", [y, added], "joined"), "bent")
    last = net.conv(y, "last", 16, kernel=1, leaky=False)
    return net.model(last), {"data": np.random.default_rng(3).standard_normal((2, 64, 8, 8), dtype=np.float32)}


@pytest.mark.parametrize("residual", ["none", "before", "behind"])
@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "int8"])
@pytest.mark.parametrize(("kernel", "group", "channels"), [(3, 1, 33), (1, 1, 64), (3, 4, 64), (3, 64, 64)])
def test_the_first_tactics_of_each_family_are_the_plain_kernel(precision, kernel, group, channels, residual):
    model, inputs = bent(kernel, group, channels, residual)
    model = in_codes(prepare(model), inputs, precision)
    settings = {"disable": ["tactics"], "batch": 2}
    engine = ptp.build(model, engine="cuda", precision=precision, settings=settings, progress=False)
    execution = engine.execution({"N": 2})
    plan, device = execution.plan, engine.device
    timer = Timer(device, DirectProvider(device))  # the tests on the host hold this kernel against the definition
    tried = 0
    with device.current():
        for step in plan.steps:
            if step.name != "sum" or step.kind != "conv":
                continue
            problem = engine.selector.problem(step, plan)
            assert "prelu" in (problem.activation, problem.residual_activation)
            operands = engine.selector._operands_of(step, plan)
            for provider in engine.selector.providers:
                tactics = list(provider.tactics(problem))
                if provider.name in LIBRARIES:  # plans of theirs are wrong by themselves, but not all: not the epilogue
                    right = [timer.is_right(problem, operands, provider, name) for name in tactics]
                    told = provider.name, problem.key, tactics
                    assert not right if precision == "int8" else any(right) or not right, told
                    continue
                for name in tactics[:TACTICS]:
                    assert timer.is_right(problem, operands, provider, name), (provider.name, problem.key, name)
                    tried += 1
    execution.close()
    assert tried
