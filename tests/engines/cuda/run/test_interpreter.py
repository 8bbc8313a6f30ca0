"""What no plan can hold: nodes whose dims hang on values, branches, loops and scans, run from the host behind the steps."""

import numpy as np
import onnx.parser
import pytest

from pytrtplugins.cuda.backends import host as host_backend
from pytrtplugins.engines.cuda.run import context as module
from pytrtplugins.engines.cuda.run.context import CudaContext
from pytrtplugins.errors import BindingError, BuildError, DimsError
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType, TensorDesc
from tests.engines.cuda.host import host_execution, outcome, run_on_host
from tests.engines.cuda.stand_in import Engine
from tests.randomness import generator

onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.skipif(not host_backend.available(), reason="no C++ compiler (apt-get install g++)")

RNG = generator(7)
HEAD = '<ir_version: 8, opset_import: ["" : 18]>'
CHOSEN = f"""{HEAD}
g (float[1, 3, 8, 8] x, float[4, 3, 3, 3] w, float[5, 4, 3, 3] v) => (float[N, 5, 6, 6] y, float[1, 4, 8, 8] a, int64[2] dims) {{
    a = Conv <pads = [1, 1, 1, 1]> (x, w)
    limit = Constant <value = float {{0.5}}> ()
    mean = ReduceMean <keepdims = 0> (a, axes)
    kept = Greater (mean, limit)
    numbers = NonZero (kept)
    dims = Shape (numbers)
    row = Transpose <perm = [1, 0]> (numbers)
    flat = Squeeze (row, one)
    stack = Concat <axis = 0> (a, a, a, a)
    some = Gather <axis = 0> (stack, flat)
    y = Conv (some, v)
}}"""
LOOP = f"""{HEAD}
g (float[3] x, int64 turns, bool go) => (float[3] last, float[M, 3] all) {{
    scale = Constant <value = float {{1.5}}> ()
    start = Identity (x)
    last, all = Loop (turns, go, start) <body = b (int64 i, bool c, float[3] s) => (bool more, float[3] t, float[3] u) {{
        t = Mul (s, scale)
        u = Add (t, x)
        top = ReduceMax <keepdims = 0> (t)
        limit = Constant <value = float {{40.0}}> ()
        more = Less (top, limit)
    }}>
}}"""
SCAN = f"""{HEAD}
g (float[2] s, float[3, 2] x) => (float[2] last, float[2, 3] all) {{
    last, all = Scan <num_scan_inputs = 1, scan_input_directions = [1], scan_output_directions = [1], scan_output_axes = [1],
        body = b (float[2] t, float[2] e) => (float[2] u, float[2] f) {{
        u = Add (t, e)
        f = Mul (u, u)
    }}> (s, x)
}}"""
BRANCH = f"""{HEAD}
g (float[2, 2] x, float[2, 2] z) => (float[2, K] y) {{
    zero = Constant <value = float {{0.0}}> ()
    sum = ReduceSum <keepdims = 0> (x)
    c = Greater (sum, zero)
    y = If (c) <then_branch = t () => (float[2, 2] p) {{ p = Softplus (x) }},
                else_branch = e () => (float[2, 4] q) {{ q = Concat <axis = 1> (x, z) }}>
}}"""


def model(text, **constants):
    """Inputs that get values become constants."""
    parsed = onnx.parser.parse_model(text)
    for name, array in constants.items():
        parsed.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        for info in [info for info in parsed.graph.input if info.name == name]:
            parsed.graph.input.remove(info)
    return parsed


def chosen():
    weights = RNG.standard_normal((4, 3, 3, 3)).astype(np.float32)
    others = RNG.standard_normal((5, 4, 3, 3)).astype(np.float32)
    return model(CHOSEN, w=weights, v=others, axes=np.int64([0, 2, 3]), one=np.int64([1]))


def image(seed):
    return np.random.default_rng(seed).standard_normal((1, 3, 8, 8)).astype(np.float32) + 0.5


def assert_as_onnxruntime(parsed, inputs):
    found, execution = run_on_host(prepare(parsed), inputs)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    wanted = onnxruntime.InferenceSession(parsed.SerializeToString(), options).run(None, inputs)
    for info, expected in zip(parsed.graph.output, wanted, strict=True):
        np.testing.assert_allclose(found[info.name], expected, rtol=1e-4, atol=1e-5)
        assert found[info.name].dtype == expected.dtype
    return execution


def few(count):
    """The chosen model with as many kept channels, of 4, as a bias on the limit gives."""
    parsed = chosen()
    for node in parsed.graph.node:
        if node.output[0] == "limit":
            node.attribute[0].t.CopyFrom(onnx.numpy_helper.from_array(np.float32(count)))
    return parsed


@pytest.mark.parametrize("limit", [-1e9, 0.0, 1e9], ids=["all", "some", "none"])
def test_tensors_are_as_large_as_values_say(limit):
    parsed = few(limit)
    assert_as_onnxruntime(parsed, {"x": image(1)})


def test_what_hangs_on_no_value_is_planned_and_fused():
    execution = assert_as_onnxruntime(few(0.0), {"x": image(3)})
    kinds = [step.kind for step in execution.plan.steps]
    assert kinds.count("conv") == 1
    assert kinds.index("tail") == len(kinds) - 1
    behind = {node.op_type for node in execution.plan.tail.nodes}
    assert behind == {"Slice", "Shape", "Transpose", "Squeeze", "Gather", "Conv"}
    assert set(execution.plan.outputs) == {"a"}


def test_each_run_has_dims_of_its_own():
    parsed, counts = chosen(), set()
    execution = host_execution(prepare(parsed), {"x": image(0)})
    session = onnxruntime.InferenceSession(parsed.SerializeToString())
    for seed in range(6):
        execution.input("x")[...] = image(seed)
        execution.queue(None)
        expected = session.run(None, {"x": image(seed)})[0]
        np.testing.assert_allclose(outcome(execution, "y"), expected, rtol=1e-4, atol=1e-4)
        counts.add(len(expected))
    assert len(counts) > 1


@pytest.mark.parametrize(("turns", "go"), [(3, True), (100, True), (0, True), (5, False)])
def test_a_loop_ends_where_its_count_or_its_condition_says(turns, go):
    assert_as_onnxruntime(model(LOOP), {"x": np.float32([1, 2, 3]), "turns": np.array(turns), "go": np.array(go)})


def test_a_scan_goes_backwards_and_stacks_along_any_axis():
    x = RNG.standard_normal((3, 2)).astype(np.float32)
    assert_as_onnxruntime(model(SCAN), {"s": np.float32([1, -1]), "x": x})


@pytest.mark.parametrize("sign", [1, -1])
def test_a_computed_condition_takes_one_branch(sign):
    x = np.float32([[1, 2], [3, 4]]) * sign
    assert_as_onnxruntime(model(BRANCH), {"x": x, "z": x + 1})


def test_in_half_precision_what_hangs_on_values_stays_float():
    parsed, x = model(BRANCH), np.float32([[1, 2], [3, 4]])
    parsed.graph.node.insert(0, onnx.helper.make_node("Exp", ["x"], ["e"]))
    for branch in parsed.graph.node[-1].attribute[:2]:
        branch.g.node[0].input[0] = "e"
    found, execution = run_on_host(prepare(parsed), {"x": x, "z": x}, DType.FLOAT16, disable=("pointwise",))
    np.testing.assert_allclose(found["y"], np.log1p(np.exp(np.exp(x))), rtol=2e-3)
    assert execution.plan.tensors["e"].format.dtype is DType.FLOAT16


def test_an_operator_in_a_branch_that_is_not_there_is_refused_by_name():
    parsed = model(BRANCH)
    parsed.graph.node[-1].attribute[0].g.node[0].op_type = "RandomUniformLike"
    with pytest.raises(BuildError, match=r"does not have the operator ai\.onnx::RandomUniformLike"):
        run_on_host(prepare(parsed), {"x": np.ones((2, 2), np.float32), "z": np.ones((2, 2), np.float32)})


def test_dims_that_do_not_fit_name_the_node():
    parsed = model(
        f"{HEAD} g (float[4] x, float[3] z) => (float[L] y) {{ n = NonZero (x) f = Reshape (n, all) p = Gather (x, f) y = Add (p, z) }}",
        all=np.int64([-1]),
    )
    with pytest.raises(DimsError, match=r"\(Add\) cannot run on tensors of the dims \(2,\), \(3,\)"):
        run_on_host(prepare(parsed), {"x": np.float32([0, 1, 0, 1]), "z": np.ones(3, np.float32)})


# -- through a context ---------------------------------------------------------------------------------------------------


class LateEngine(Engine):
    inputs = (TensorDesc("x", (1, 3, 8, 8)),)
    outputs = (TensorDesc("y", (-1, 5, 6, 6)), TensorDesc("a", (1, 4, 8, 8)), TensorDesc("dims", (2,), DType.INT64))

    def __init__(self):
        super().__init__(chosen())


@pytest.fixture
def context(monkeypatch):
    monkeypatch.setattr(module, "pinned_empty", np.empty)
    return CudaContext(LateEngine())


def test_a_context_gives_outputs_of_the_dims_that_the_run_told(context):
    session = onnxruntime.InferenceSession(context.engine.model.SerializeToString())
    for seed in range(4):
        found, expected = context.run({"x": image(seed)}), session.run(None, {"x": image(seed)})
        for name, wanted in zip(("y", "a", "dims"), expected, strict=True):
            np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-4)


def test_an_array_for_such_an_output_is_written_or_refused_after_the_run(context):
    wanted = context.run({"x": image(0)})["y"]
    target = np.empty_like(wanted)
    assert context.run({"x": image(0)}, {"y": target})["y"] is target
    np.testing.assert_array_equal(target, wanted)
    with pytest.raises(BindingError, match="output 'y'"):
        context.run({"x": image(0)}, {"y": np.empty((9, 5, 6, 6), np.float32)})


def test_such_an_output_is_neither_bound_nor_enqueued(context):
    execution = context.engine.execution({})
    for use in (execution.inner.output, execution.plan.tensor_of):
        with pytest.raises(BindingError, match="output 'y' has data-dependent dims"):
            use("y")
