"""Groups of elementwise operators: which nodes become one, and that the network gives the same."""

import warnings

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper, shape_inference

from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.engines.cuda.lower.pointwise import GroupPointwise
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import run_on_host

ALONE = ("pointwise",)
KINDS = {np.dtype(np.float32): 1, np.dtype(np.int64): 7, np.dtype(bool): 9, np.dtype(np.float16): 10}


class Graph:
    """A model written node by node; tensors are named by their nodes."""

    def __init__(self, **inputs):
        self.inputs, self.nodes, self.constants = inputs, [], []

    def add(self, op, *reads, name="", **attributes):
        name = name or f"{op}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, reads, [name], name, **attributes))
        return name

    def constant(self, array):
        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def factors(self, size, seeds=(0, 1)):
        """A scale and a bias."""
        return [self.constant(random(size, seed=seed)) for seed in seeds]

    def model(self, *outputs, opset=20):
        inputs = [helper.make_tensor_value_info(n, KINDS[a.dtype], a.shape) for n, a in self.inputs.items()]
        results = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph(self.nodes, "graph", inputs, results, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
        return prepare(shape_inference.infer_shapes(model))

    def groups(self, *outputs):
        """Type of each node behind the pass, and how many operations and outputs a group has."""
        lowered = lower(self.model(*outputs))
        GroupPointwise()(lowered)
        return [
            (node.op_type, len(node.attributes["operations"].as_strings()), len(node.outputs))
            if node.op_type in ("Pointwise", "Rows")
            else node.op_type
            for node in lowered.graph
        ]

    def check(self, *outputs, float_type=DType.FLOAT32, rtol=1e-5, atol=1e-6, opset=20):
        """That the kernels give what the array functions and onnxruntime give."""
        model = self.model(*outputs, opset=opset)
        found, execution = run_on_host(model, self.inputs, float_type)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            alone, _ = run_on_host(model, self.inputs, float_type, disable=ALONE)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        for name, wanted in zip(outputs, session.run(list(outputs), self.inputs), strict=True):
            assert found[name].dtype == wanted.dtype
            np.testing.assert_allclose(found[name], wanted, rtol=rtol, atol=atol)
            np.testing.assert_allclose(found[name], alone[name], rtol=rtol, atol=atol)
        return [step.kind for step in execution.plan.steps]


def random(*dims, seed=0, kind=np.float32):
    return np.random.default_rng(seed).normal(size=dims).astype(kind)


def test_what_is_connected_is_one_kernel():
    graph = Graph(x=random(2, 3, 5), y=random(3, 1))
    total = graph.add("Add", graph.add("Mul", "x", "y"), graph.constant(np.float32(2)))
    gated = graph.add("Mul", total, graph.add("Tanh", total))
    assert graph.groups(gated) == [("Pointwise", 4, 1)]
    assert graph.check(gated) == ["pointwise"]


@pytest.mark.parametrize("count", [48, 49])
def test_a_group_has_48_nodes_at_most(count):
    graph = Graph(x=random(2, 3))
    last = "x"
    for _ in range(count):
        last = graph.add("Sin", last)
    assert graph.groups(last) == [("Pointwise", 48, 1), ("Pointwise", 1, 1)][: count - 47]


@pytest.mark.parametrize("count", [13, 14])
def test_a_group_has_14_tensors_at_most(count):
    """Those that are added, and the sum."""
    names = [f"x{number}" for number in range(count)]
    graph = Graph(**{name: random(2, 3) for name in names})
    last = names[0]
    for name in names[1:]:
        last = graph.add("Add", last, name)
    assert len(graph.groups(last)) == count - 12


@pytest.mark.parametrize(("count", "groups"), [(8, 1), (9, 2)])
def test_what_is_broadcast_is_computed_again_up_to_8_nodes(count, groups):
    graph = Graph(x=random(1, 5, 4, 4), s=random(1, 5, 1, 1))
    small = "s"
    for _ in range(count):
        small = graph.add("Sin", small)
    assert len(graph.groups(graph.add("Mul", "x", small))) == groups


def test_what_something_else_reads_is_an_output_too():
    graph = Graph(x=random(4, 6))
    total = graph.add("Relu", "x")
    sums = graph.add("CumSum", total, graph.constant(np.int64(1)))
    last = graph.add("Mul", graph.add("Sub", total, sums), total)
    assert graph.groups(last, total) == [("Pointwise", 1, 1), "CumSum", ("Pointwise", 2, 1)]
    graph.check(last, total)
    graph = Graph(x=random(4, 6))
    total = graph.add("Relu", "x")
    last = graph.add("Sub", total, graph.constant(np.float32(1)))
    assert graph.groups(last, total) == [("Pointwise", 2, 2)]
    graph.check(last, total)


def test_nothing_is_put_before_what_it_waits_for():
    """The sum reads a kernel's result that waits for the group, so it cannot be part of the group."""
    graph = Graph(x=random(6, 6))
    first = graph.add("Relu", "x")
    turned = graph.add("Transpose", first)
    last = graph.add("Add", first, turned)
    assert [each[0] for each in graph.groups(last)] == ["Pointwise", "T", "Pointwise"]
    graph.check(last)


def test_a_small_tensor_is_computed_where_it_is_broadcast_if_nothing_else_reads_it():
    graph = Graph(x=random(1, 5, 4, 4), s=random(1, 5, 1, 1))
    gate = graph.add("HardSigmoid", "s")
    gated = graph.add("Mul", "x", gate)
    assert graph.groups(gated) == [("Pointwise", 2, 1)]
    graph.check(gated)
    assert sorted(graph.groups(gated, gate)) == [("Pointwise", 1, 1), ("Pointwise", 1, 1)]
    graph.check(gated, gate)


def test_a_conversion_alone_is_left_to_what_reads_it():
    for to, wanted in ((1, "Cast"), (7, ("Pointwise", 1, 1))):
        graph = Graph(x=random(2, 3, kind=np.float16))
        assert graph.groups(graph.add("Cast", "x", to=to)) == [wanted]


def test_a_normalization_of_a_batch_is_a_product_and_a_sum():
    graph = Graph(x=random(2, 3, 4, 5))
    numbers = [graph.constant(np.abs(random(3, seed=seed)) + 0.1) for seed in range(4)]
    last = graph.add("Relu", graph.add("BatchNormalization", graph.add("Neg", "x"), *numbers))
    assert graph.groups(last) == [("Pointwise", 4, 1)]
    graph.check(last)


def test_half_precision_rounds_once():
    graph = Graph(x=random(3, 7) * 100)
    last = graph.add("Sub", graph.add("Add", "x", graph.constant(np.float32(4096))), graph.constant(np.float32(4096)))
    found, _ = run_on_host(graph.model(last), graph.inputs, DType.FLOAT16)
    np.testing.assert_allclose(found[last], graph.inputs["x"].astype(np.float16), rtol=2e-3, atol=1e-3)


def test_a_tensor_without_values_needs_no_kernel():
    graph = Graph(x=random(0, 3))
    found, _ = run_on_host(graph.model(graph.add("Relu", "x", name="y")), graph.inputs)
    assert found["y"].shape == (0, 3)


FLOAT_UNARY = [
    *("Abs", "Neg", "Relu", "Sigmoid", "Tanh", "HardSwish", "LeakyRelu", "Erf"),
    *("Softplus", "Floor", "Identity"),
]
FLOAT_BINARY = ["Add", "Sub", "Mul", "Max", "Min"]
WHOLE_BINARY = ["Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "BitwiseAnd"]


@st.composite
def graphs(draw):
    """Some operators on tensors of one rank, floats, whole numbers and truth values, of which some are outputs."""
    rank = draw(st.integers(0, 4))
    dims = tuple(draw(st.sampled_from([1, 2, 3, 7, 8])) for _ in range(rank))

    def smaller():
        own = tuple(1 if draw(st.booleans()) and draw(st.booleans()) else dim for dim in dims)
        return own[draw(st.integers(0, rank)) :] if draw(st.booleans()) else own

    rng = np.random.default_rng(draw(st.integers(0, 99)))
    whole = {f"i{index}": rng.integers(-9, 9, smaller()) for index in range(2)}
    graph = Graph(**{f"f{index}": rng.normal(size=smaller()).astype(np.float32) for index in range(3)}, **whole)
    for name, array in whole.items():
        array[array == 0] = 5  # what is divided by
        assert graph.inputs[name] is array
    floats, wholes, truths = ["f0", "f1", "f2"], ["i0", "i1"], [graph.add("Less", "f0", "f1")]
    divisors = ["i0", "i1"]
    for _ in range(draw(st.integers(2, 10))):
        kind = draw(st.sampled_from(["unary", "binary", "whole", "truth", "where", "cast", "constant"]))
        one, two = draw(st.sampled_from(floats)), draw(st.sampled_from(floats))
        if kind == "unary":
            floats.append(graph.add(draw(st.sampled_from(FLOAT_UNARY)), one))
        elif kind == "binary":
            floats.append(graph.add(draw(st.sampled_from(FLOAT_BINARY)), one, two))
        elif kind == "whole":
            parts = [draw(st.sampled_from(names)) for names in (WHOLE_BINARY, wholes, divisors)]
            wholes.append(graph.add(*parts))
        elif kind == "truth":
            truths.append(graph.add("GreaterOrEqual", draw(st.sampled_from(wholes)), draw(st.sampled_from(divisors))))
        elif kind == "where":
            floats.append(graph.add("Where", draw(st.sampled_from(truths)), one, two))
        elif kind == "cast":
            floats.append(graph.add("Cast", draw(st.sampled_from([*truths, *divisors])), to=1))
        else:
            floats.append(graph.add("Mul", one, graph.constant(np.float32(rng.normal()))))
    made = [node.output[0] for node in graph.nodes]
    outputs = {made[-1], *draw(st.lists(st.sampled_from(made), max_size=3))}
    return graph, sorted(outputs)


@given(graphs())
def test_any_group_gives_what_its_operators_give(case):
    graph, outputs = case
    graph.check(*outputs, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("power", [np.float32(2), np.int64(2), np.float32(3), np.int64(3)])
def test_powers_of_whole_numbers_wrap_around_as_onnxruntimes_do(power):
    x = np.array([3, -7, -5_000_000_001], np.int64)
    graph = Graph(x=x)
    model = graph.model(y := graph.add("Neg", graph.add("Pow", "x", graph.constant(power))))
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(run_on_host(model, {"x": x})[0][y], wanted)


def layer_norm(graph, x, size):
    """As PyTorch's exports before opset 17 write it."""
    mean = graph.add("ReduceMean", x, graph.constant([-1]))
    centered = graph.add("Sub", x, mean)
    square = graph.add("Pow", centered, graph.constant(np.float32(2)))
    variance = graph.add("Add", graph.add("ReduceMean", square, graph.constant([-1])), graph.constant(np.float32(1e-5)))
    normed = graph.add("Div", centered, graph.add("Sqrt", variance))
    factors = graph.factors(size)
    return graph.add("Add", graph.add("Mul", normed, factors[0]), factors[1])


@pytest.mark.parametrize("float_type", [DType.FLOAT32, DType.FLOAT16])
@pytest.mark.parametrize("size", [16, 33, 700])
def test_a_residual_and_a_layer_norm_behind_it_are_one_kernel(size, float_type):
    graph = Graph(x=random(2, 3, size), y=random(2, 3, size, seed=1))
    total = graph.add("Add", "x", "y")
    factors = graph.factors(size)
    for last in (graph.add("LayerNormalization", total, *factors), layer_norm(graph, total, size)):
        (node,) = graph.groups(last, total)
        assert node[::2] == ("Rows", 2)
        room = 1e-5 if float_type is DType.FLOAT32 else 4e-3
        assert graph.check(last, total, float_type=float_type, rtol=room, atol=room)[0] == "pointwise"


@pytest.mark.parametrize("columns", [7, 197, 1000])
def test_a_scale_and_a_mask_are_part_of_a_softmax(columns):
    graph = Graph(x=random(2, 3, 5, columns), mask=random(2, 1, 1, columns))
    scaled = graph.add("Add", graph.add("Mul", "x", graph.constant(np.float32(0.125))), "mask")
    last = graph.add("Softmax", scaled)
    assert graph.groups(last) == [("Rows", 8, 1)]
    assert graph.check(last) == ["pointwise"]


def test_a_gate_of_a_convolutions_channels_takes_three_kernels():
    graph = Graph(x=random(2, 8, 6, 6))
    weights = graph.constant(random(8, 8, 1, 1))
    acted = graph.add("HardSwish", "x")
    gate = graph.add("Conv", graph.add("GlobalAveragePool", acted), weights)
    last = graph.add("Mul", acted, graph.add("HardSigmoid", gate))
    assert graph.groups(last) == [("Pointwise", 1, 1), ("Rows", 2, 1), "Conv", ("Pointwise", 1, 1)]
    graph.check(last, float_type=DType.FLOAT16, rtol=1e-2, atol=4e-3)


ROWS = {
    "Softmax": {"axis": 1},
    "LogSoftmax": {},
    "GlobalAveragePool": {},
    "GlobalMaxPool": {},
    **{f"Reduce{name}": {} for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum")},
    "ReduceSumSquare": {"keepdims": 0},
}


@pytest.mark.parametrize("op", ROWS)
@pytest.mark.parametrize("dims", [(2, 3, 4, 5), (1, 8, 12, 13), (3, 40, 9)])
def test_reductions_give_what_onnxruntime_gives(op, dims):
    graph = Graph(x=np.abs(random(*dims)) / 4 + 0.5)
    axes = ([-1], [1], [1, 2], [0, 2]) if op.startswith("Reduce") else ([],)
    outputs = [graph.add(op, "x", *([graph.constant(each)] if each else []), **ROWS[op]) for each in axes]
    assert {node[0] for node in graph.groups(*outputs)} == {"Rows"}
    graph.check(*outputs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dims", [(3, 40), (2, 5, 6, 7)])
@pytest.mark.parametrize("p", [1, 2])
def test_a_row_of_zeros_has_no_norm(p, dims):
    x = random(*dims)
    x[1] = 0
    graph = Graph(x=x)
    outputs = [graph.add("LpNormalization", "x", p=p, axis=axis) for axis in (-1, 1)]
    assert graph.check(*outputs) == ["pointwise"] * 2


@pytest.mark.parametrize("float_type", [DType.FLOAT32, DType.FLOAT16])
@pytest.mark.parametrize("axes", [[0, 2, 3], [2, 3], [-1]])
def test_a_mean_variance_normalization_is_one_kernel(axes, float_type):
    graph = Graph(x=random(3, 4, 6, 10) * 5 + 2)
    room = 1e-4 if float_type is DType.FLOAT32 else 1e-2
    last = graph.add("MeanVarianceNormalization", "x", axes=axes)
    assert graph.check(last, float_type=float_type, rtol=room, atol=room)[0] == "pointwise"


@pytest.mark.parametrize("channels", [8, 5])
def test_means_of_images_are_taken_where_these_lie(channels):
    graph = Graph(x=random(2, 4, 6, 7))
    acted = graph.add("Neg", graph.add("Conv", "x", graph.constant(random(channels, 4, 3, 3))))
    factors, largest = graph.factors(channels), graph.add("ReduceMax", acted, graph.constant([2, 3]))
    for last in (
        graph.add("GlobalAveragePool", acted),
        graph.add("Softmax", acted, axis=1),
        graph.add("InstanceNormalization", acted, *factors),
        graph.add("Conv", largest, graph.constant(random(3, channels, 1, 1))),
    ):
        assert "generic" not in graph.check(last, rtol=1e-4, atol=1e-5)


def test_a_sum_that_something_else_waits_for_is_an_output():
    graph = Graph(x=random(4, 6))
    top = graph.add("ReduceMax", "x", graph.constant([1]))
    total = graph.add("ReduceSum", graph.add("Sub", "x", top), graph.constant([1]), keepdims=0)
    last = graph.add("Mul", graph.add("Sigmoid", top), graph.constant(np.float32(2)))
    assert graph.groups(last, total) == [("Rows", 5, 2)]
    graph.check(last, total)


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_what_is_the_same_for_a_whole_row_is_written_for_each_of_its_values(axis):
    graph = Graph(x=random(2, 5, 8, 12))
    flat = graph.add("Expand", graph.add("GlobalAveragePool", "x"), graph.constant([1, 1, 8, 12]))
    acted = graph.add("Sigmoid", flat)  # which is an output of the kernel of a row, too
    last = graph.add("Add", "x", graph.add("ReduceSum", acted, graph.constant([axis])))
    graph.check(acted, last, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("channels", [8, 5])
def test_images_stay_in_nhwc_between_convolutions(channels):
    graph = Graph(x=random(1, 4, 6, 6))
    weights = [graph.constant(random(channels, size, 1, 1, seed=size) / 4) for size in (4, channels)]
    first = graph.add("Conv", "x", weights[0])
    acted = graph.add("Mul", first, graph.add("HardSigmoid", first))
    last = graph.add("Conv", acted, weights[1])
    kinds = graph.check(last, float_type=DType.FLOAT32)
    assert kinds.count("pointwise") == 1
    assert "generic" not in kinds


def codes(graph, x, scale):
    """Q and DQ of int8 behind a tensor: the codes, and the values that they are."""
    pair = graph.constant(np.float32(scale)), graph.constant(np.int8(0))
    steps = graph.add("QuantizeLinear", x, *pair)
    return steps, graph.add("DequantizeLinear", steps, *pair)


@pytest.mark.parametrize("dims", [(2, 5, 6, 7), (1, 16, 4, 4), (3, 33)])
def test_codes_are_written_and_read_by_the_kernel_that_computes(dims):
    x = 100 * random(*dims)
    x.flat[:6] = 0.75, 1.25, -0.25, 63.75, -80, 1e6  # halves between codes, and what saturates
    graph = Graph(x=x)
    steps, values = codes(graph, graph.add("Neg", "x"), 0.5)
    y = graph.add("Add", graph.add("Abs", values), "x")
    assert graph.groups(steps, y) == [("Pointwise", 10, 2)]
    assert graph.check(steps, y, rtol=0, atol=0).count("pointwise") == 1


def test_codes_of_a_row_are_written_by_the_rows_kernel():
    graph = Graph(x=random(6, 40))
    steps, _ = codes(graph, layer_norm(graph, graph.add("Abs", "x"), 40), 0.02)
    kinds = graph.check(steps, atol=1)  # sums of rows in another order may move a value over the middle of two codes
    assert kinds.count("pointwise") == 1


@pytest.mark.parametrize("zero", [np.int8(0), np.int8(3), np.uint8(0)])
def test_codes_alone_stay_with_what_copies(zero):
    graph = Graph(x=random(2, 3, 4, 4))
    pair = graph.constant(np.float32(0.02)), graph.constant(zero)
    steps = graph.add("QuantizeLinear", "x", *pair)
    assert graph.groups(steps) == ["QuantizeLinear"]
    assert "pointwise" not in graph.check(steps)
    behind = graph.add("Relu", graph.add("DequantizeLinear", steps, *pair))
    assert "Pointwise" in str(graph.groups(behind))
    graph.check(behind)


def test_codes_around_another_zero_and_of_channels_are_no_part_of_a_group():
    for scale, zero in ((np.float32(0.02), np.int8(3)), (np.full(3, 0.02, np.float32), np.zeros(3, np.int8))):
        graph = Graph(x=random(2, 3, 4, 4))
        steps = graph.add("QuantizeLinear", graph.add("Relu", "x"), graph.constant(scale), graph.constant(zero), axis=1)
        groups = [each if isinstance(each, str) else each[0] for each in graph.groups(steps)]
        assert groups == ["Pointwise", "QuantizeLinear"]
        graph.check(steps, atol=1)
