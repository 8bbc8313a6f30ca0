"""What is known before a run becomes a constant: shapes, shape arithmetic, branches, operators that are functions."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from pytrtplugins.model.ir import array_of, to_ir, to_proto
from pytrtplugins.passes import PropagateConstants, prepare
from pytrtplugins.passes import constants as constants_module
from tests.engines.operators import literal

X = np.random.default_rng(0).random((3, 8, 6, 4), dtype=np.float32)


def network(text, outputs="float[P, Q, R, S] y", **constants):
    """A model of the nodes of a text, with a free batch, and constants by name."""
    graph = parser.parse_graph(f"net (float[N, 8, 6, 4] x) => ({outputs}) {{ {text} }}")
    graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items())
    return prepare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))


def propagated(model, sizes=None, expands=lambda op_type: False):
    ir_model = to_ir(model)
    PropagateConstants(sizes, expands)(ir_model)
    return ir_model


def run(model, x=X):
    return literal(model, {"x": x})


def operators(ir_model):
    return [node.op_type for node in ir_model.graph]


SHAPE_ARITHMETIC = {
    "the batch kept, the rest flattened": """
        s = Shape(x) n = Gather(s, zero) m = Unsqueeze(n, axis) t = Concat <axis = 0> (m, rest) y = Reshape(x, t)""",
    "channels shuffled": """
        s = Shape(x) n = Gather(s, zero) m = Unsqueeze(n, axis) c = Gather(s, one) half = Div(c, two) h = Unsqueeze(half, axis)
        t = Concat <axis = 0> (m, h, two1, last) y = Reshape(x, t)""",
    "the batch times the channels": """
        s = Shape(x) n = Gather(s, zero) c = Gather(s, one) nc = Mul(n, c) m = Unsqueeze(nc, axis)
        t = Concat <axis = 0> (m, rest) y = Reshape(x, t)""",
    "a slice of the shape": """
        s = Shape <start = 2> (x) f = Shape(x) b = Slice(f, axis, one1) t = Concat <axis = 0> (b, rest1, s) y = Reshape(x, t)""",
    "expanded to a shape with -1": """
        s = Shape(x) w = Equal(s, minus) o = ConstantOfShape <value = int64[1] {1}> (four) t = Where(w, o, s)
        r = ReduceSum <keepdims = 1> (x, one1) e = Expand(r, t) y = Add(e, x)""",
    "windows joined with the batch, parted and joined again": """
        s = Shape(x) n = Gather(s, zero) b = Mul(n, two) m = Unsqueeze(b, axis) t = Concat <axis = 0> (m, windows)
        w = Reshape(x, t) f = Shape(w) j = Gather(f, zero) i = Div(j, two) k = Unsqueeze(i, axis)
        p = Concat <axis = 0> (k, two1, windows) v = Reshape(w, p) e = Reshape(v, joined) y = Add(w, e)""",
    "half of the channels": """
        s = Shape(x) c = Gather(s, one) h = Div(c, two) k = Unsqueeze(h, axis) p = Slice(x, axis, k, one1) y = Relu(p)""",
}
CONSTANTS = {
    "zero": np.int64(0), "one": np.int64(1), "two": np.int64(2), "axis": np.int64([0]), "one1": np.int64([1]),
    "two1": np.int64([2]), "rest": np.int64([-1, 6, 4]), "rest1": np.int64([-1]), "last": np.int64([24]),
    "four": np.int64([4]), "minus": np.int64(-1), "windows": np.int64([4, 6, 4]), "joined": np.int64([-1, 4, 6, 4]),
}  # fmt: skip


@pytest.mark.parametrize("case", SHAPE_ARITHMETIC)
def test_shape_arithmetic_with_a_free_batch_gives_dims_and_goes_once_the_batch_is_known(case):
    text = SHAPE_ARITHMETIC[case]
    model = network(text, **CONSTANTS)
    (expected,) = run(model)
    free = propagated(model)
    found = free.graph.outputs[0].shape
    assert [dim for dim in found if isinstance(dim, int)] == [
        size for dim, size in zip(found, expected.shape, strict=True) if isinstance(dim, int)
    ]
    assert all(isinstance(dim, int) for dim in list(found)[1:])
    np.testing.assert_array_equal(run(to_proto(free))[0], expected)
    bound = propagated(model, {"N": 3})
    assert bound.graph.outputs[0].shape == expected.shape
    assert not {"Shape", "Gather", "Concat", "Unsqueeze", "Where", "Mul"} & set(operators(bound))
    np.testing.assert_array_equal(run(to_proto(bound))[0], expected)


def test_a_batch_that_was_joined_with_windows_is_one_dim_again():
    text = SHAPE_ARITHMETIC["windows joined with the batch, parted and joined again"]
    free = propagated(network(text, **CONSTANTS))
    assert [str(dim) for dim in free.graph.outputs[0].shape] == ["(N * 2)", "4", "6", "4"]


def test_tables_of_numbers_are_no_shapes():
    text = """
        s = Shape(x) r = Unsqueeze(s, one1) t = Concat <axis = 1> (r, r) c = Cast <to = 1> (t) m = ReduceSum(c) y = Add(x, m)"""
    model = network(text, "float[N, 8, 6, 4] y", **CONSTANTS)
    np.testing.assert_array_equal(run(to_proto(propagated(model)))[0], run(model)[0])
    np.testing.assert_array_equal(run(to_proto(propagated(model, {"N": 3})))[0], run(model)[0])


def test_what_constants_lead_to_is_computed_by_the_same_names():
    text = "a = Mul(scale, scale) b = Sqrt(a) y = Mul(x, b)"
    model = network(text, "float[N, 8, 6, 4] y", scale=np.float32([2]))
    found = propagated(model)
    assert operators(found) == ["Mul"]
    np.testing.assert_array_equal(array_of(found.graph.initializers["b"]), [2])


def test_random_numbers_and_weights_in_codes_stay():
    text = """
        r = RandomNormal <shape = [4]> () w = DequantizeLinear(codes, scale) a = Add(x, r) y = Add(a, w)"""
    model = network(text, "float[N, 8, 6, 4] y", codes=np.int8([1, 2, 3, 4]), scale=np.float32(0.5))
    assert operators(propagated(model)) == ["RandomNormal", "DequantizeLinear", "Add", "Add"]


def test_a_constant_output_keeps_its_name():
    model = network("s = Shape <start = 1> (x) y = Relu(x)", "int64[K] s, float[N, 8, 6, 4] y")
    found = to_proto(propagated(model))
    assert [info.name for info in found.graph.output] == ["s", "y"]
    np.testing.assert_array_equal(run(found)[0], [8, 6, 4])


@pytest.mark.parametrize(("size", "folded"), [(1 << 24, True), ((1 << 24) + 1, False)])
def test_results_above_64_mb_stay_where_what_they_are_made_of_is_smaller(size, folded):
    text = "big = Expand(x1, dims) m = ReduceSum(big) y = Add(x, m)"
    model = network(text, x1=np.float32([1]), dims=np.int64([size]))
    assert ("Expand" not in operators(propagated(model))) == folded


@pytest.mark.parametrize(("size", "folded"), [(15, True), (16, True), (17, False)])
def test_results_may_be_as_large_as_the_limit_and_as_what_they_are_made_of(size, folded, monkeypatch):
    monkeypatch.setattr(constants_module, "_MAX_BYTES", 64)
    model = network("b = Expand(one, dims) y = Add(x, b)", one=np.float32([1]), dims=np.int64([size, 1, 1, 1]))
    assert ("Expand" not in operators(propagated(model))) == folded
    model = network("b = Neg(w) m = ReduceSum(b) y = Add(x, m)", w=np.ones(size, np.float32))
    assert operators(propagated(model)) == ["Add"]


def branching(condition):
    then, other = (
        f"{key}_branch = {op} () => (float[N,8,6,4] {out}) <float[1] w = {{{factor}}}> {{ inner = Mul (x, w) {out} = {op} (inner) }}"
        for key, op, out, factor in (("then", "Neg", "a", 2), ("else", "Abs", "b", 3))
    )
    return network(f"[choice] y = If (c) <{then}, {other}>", "float[N, 8, 6, 4] y", c=np.array(condition))


@pytest.mark.parametrize("condition", [True, False])
def test_an_if_whose_condition_is_known_becomes_its_branch(condition):
    model = branching(condition)
    found = propagated(model)
    assert operators(found)[:2] == ["Mul", "Neg" if condition else "Abs"]
    written = to_proto(found)
    onnx.checker.check_model(written)
    np.testing.assert_array_equal(run(written)[0], run(model)[0])


FUNCTIONS = {
    "CastLike": "c = CastLike(x, one) y = Cast <to = 1> (c)",
    "LayerNormalization": "y = LayerNormalization <axis = -1> (x, scale, bias)",
    "Gelu": 'y = Gelu <approximate = "tanh"> (x)',
    "Softplus": "y = Softplus(x)",
    "LogSoftmax": "y = LogSoftmax <axis = 1> (x)",
    "Clip": "y = Clip(x, , high)",
    "HardSwish": "y = HardSwish(x)",
    "MeanVarianceNormalization": "y = MeanVarianceNormalization <axes = [1, 3]> (x)",
    "ReduceLogSumExp": "r = ReduceLogSumExp(x, one1) y = Add(x, r)",
    "GroupNormalization": "y = GroupNormalization <num_groups = 2> (x, groups, groups)",
}


@pytest.mark.parametrize("op_type", FUNCTIONS)
def test_an_operator_that_the_caller_lacks_becomes_what_onnx_defines_it_by(op_type):
    constants = {**CONSTANTS, "scale": np.float32([1, 2, 3, 4]), "bias": np.float32([4, 3, 2, 1])}
    constants |= {"high": np.float32(0.5), "groups": np.float32([1, 2])}
    used = {name: array for name, array in constants.items() if name in FUNCTIONS[op_type]}
    graph = parser.parse_graph(f"net (float[N, 8, 6, 4] x) => (float[N, 8, 6, 4] y) {{ {FUNCTIONS[op_type]} }}")
    graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in used.items())
    model = prepare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9))
    found = propagated(model, {"N": 3}, lambda name: name == op_type)
    assert op_type not in operators(found)
    np.testing.assert_allclose(run(to_proto(found))[0], run(model)[0], rtol=1e-5, atol=5e-5)


def known_dims(text, rank=4, **constants):
    """Dims of y, as texts and numbers, in a network with a free batch."""
    model = network(text, f"float[{', '.join('PQRS'[:rank])}] y", **CONSTANTS, **constants)
    found = propagated(model)
    np.testing.assert_array_equal(run(to_proto(found))[0], run(model)[0])
    return [dim if isinstance(dim, int) else str(dim) for dim in found.graph.outputs[0].shape]


FIRST = "s = Shape(x) n = Gather(s, zero) m = Unsqueeze(n, axis) c = Gather(s, one) "


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("d = Sub(c, one) e = Unsqueeze(d, axis)", 7),
        ("d = Add(c, two) e = Unsqueeze(d, axis)", 10),
        ("d = Cast <to = 6> (c) g = Cast <to = 7> (d) e = Unsqueeze(g, axis)", 8),
        ("d = Unsqueeze(c, axis) g = Squeeze(d) i = Identity(g) e = Unsqueeze(i, axis)", 8),
        ("d = Shape <start = 1> (x) e = Slice(d, last1, before, , back)", 4),
        ("q = Flatten(one_map) d = Size(q) e = Unsqueeze(d, axis)", 6),
    ],
)
def test_sizes_are_computed_as_onnx_computes_them(text, size):
    constants = {
        "ones": np.float32([1]),
        "last1": np.int64([-1]),
        "before": np.int64([-2]),
        "back": np.int64([-1]),
        "one_map": np.ones((1, 2, 3), np.float32),
    }
    dims = known_dims(f"{FIRST} {text} t = Concat <axis = 0> (m, e) y = Expand(ones, t)", 2, **constants)
    assert dims[1] == size


def test_an_image_is_resized_to_sizes_that_are_computed():
    text = f"{FIRST} k = Unsqueeze(c, axis) t = Concat <axis = 0> (m, k, wide) y = Resize(x, , , t)"
    assert known_dims(text, wide=np.int64([12, 8]))[1:] == [8, 12, 8]


def test_a_size_that_may_be_any_stays_open_and_does_no_harm():
    text = "t = Concat <axis = 0> (five, rest1) r = Reshape(x, t) z = Reshape(r, shape) y = Relu(z)"
    assert isinstance(known_dims(text, shape=np.int64([-1, 8, 6, 4]), five=np.int64([3]))[0], str)


def test_a_size_divided_by_a_free_batch_stays_open():
    text = f"{FIRST} q = ReduceSum <keepdims = 1> (x, axis) t = Concat <axis = 0> (m, rest1) y = Reshape(q, t)"
    assert isinstance(known_dims(text, 2)[1], str)


def test_a_free_batch_is_not_0():
    text = """
        s = Shape(x) w = Equal(s, zero) o = ConstantOfShape <value = int64[1] {1}> (four) t = Where(w, o, s)
        r = ReduceSum <keepdims = 1> (x, one1) y = Expand(r, t)"""
    assert known_dims(text)[1:] == [8, 6, 4]


def test_what_is_gathered_at_a_place_that_is_not_known_stays():
    text = "s = Shape(x) h = ReduceMax <keepdims = 0> (x) i = Cast <to = 7> (h) g = Gather(s, i) f = Cast <to = 1> (g) y = Add(x, f)"
    model = network(text, "float[N, 8, 6, 4] y")
    found = propagated(model, {"N": 3})
    assert "Gather" in operators(found)
    np.testing.assert_array_equal(run(to_proto(found))[0], run(model)[0])


@pytest.mark.parametrize(
    ("text", "sizes", "changed"),
    [
        ("y = Relu(x)", None, False),
        ("y = Relu(x)", {"M": 3}, False),
        ("y = Relu(x)", {"N": 3}, True),
        ("a = Mul(scale, scale) y = Mul(x, a)", None, True),
        ("c = Constant <value = float {2.0}> () y = Mul(x, c)", None, True),
        ("s = Shape <start = 1> (x) f = Cast <to = 1> (s) m = ReduceMax(f) y = Mul(x, m)", None, True),
        ("r = RandomNormal <shape = [4]> () y = Add(x, r)", None, False),
        ("d = DequantizeLinear(codes, scale) y = Add(x, d)", None, False),
    ],
)
def test_the_result_says_whether_anything_changed(text, sizes, changed):
    constants = {name: array for name, array in [("scale", np.float32([2])), ("codes", np.int8([2]))] if name in text}
    model = to_ir(network(text, "float[N, 8, 6, 4] y", **constants))
    assert PropagateConstants(sizes)(model).modified == changed
    assert not PropagateConstants(sizes)(model).modified


def test_a_constant_output_becomes_a_constant_behind_an_identity():
    model = to_ir(network("s = Shape <start = 1> (x) y = Relu(x)", "int64[3] s, float[N, 8, 6, 4] y"))
    assert PropagateConstants()(model).modified
    assert operators(model) == ["Identity", "Relu"]
    product = to_ir(
        network("s = Mul(a, b) y = Relu(x)", "int64[1] s, float[N, 8, 6, 4] y", a=np.int64([6]), b=np.int64([7]))
    )
    assert PropagateConstants()(product).modified
    found = to_proto(product)
    onnx.checker.check_model(found)
    assert [node.op_type for node in found.graph.node] == ["Identity", "Relu"]
    assert len(found.graph.node[0].input) == 1
    assert run(found)[0].tolist() == [42]


def test_an_output_that_is_a_constant_stays_one():
    model = to_ir(network("y = Relu(x)", "float[N, 8, 6, 4] y, int64[2] k", k=np.int64([1, 2])))
    assert not PropagateConstants()(model).modified
    model = to_ir(network("y = Relu(x) k = Identity(c)", "float[N, 8, 6, 4] y, int64[2] k", c=np.int64([1, 2])))
    assert not PropagateConstants()(model).modified


def test_operators_with_several_outputs_become_constants_unless_the_model_gives_one():
    text = "a, b = Split <num_outputs = 2> (w) m = Mul(a, b) m2 = ReduceSum(m) y = Add(x, m2)"
    model = network(text, "float[N, 8, 6, 4] y", w=np.float32([1, 2, 3, 4]))
    assert operators(propagated(model)) == ["Add"]
    np.testing.assert_allclose(run(to_proto(propagated(model)))[0], run(model)[0])
    given = network(text, "float[N, 8, 6, 4] y, float[K] a", w=np.float32([1, 2, 3, 4]))
    found = to_proto(propagated(given))
    onnx.checker.check_model(found)
    for one, other in zip(run(found), run(given), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_constant_that_is_no_tensor_is_left_to_the_engine():
    text = "q = SplitToSequence <keepdims = 1> (w, one1) a = SequenceAt(q, one) y = Add(x, a)"
    model = network(text, "float[N, 8, 6, 4] y", w=np.float32([1, 2]), one1=np.int64([1, 1]), one=np.int64(1))
    found = propagated(model)
    np.testing.assert_array_equal(run(to_proto(found))[0], run(model)[0])


def test_an_output_that_is_left_out_is_passed_over():
    text = "a, , = Dropout (w) n, , deviation = LayerNormalization (x, scale) k = Mul (n, deviation) y = Add (k, a)"
    model = network(text, "float[N, 8, 6, 4] y", w=np.float32([[[1, 3, 2, 4]]]), scale=np.ones(4, np.float32))
    found = propagated(model)
    assert operators(found) == ["LayerNormalization", "Mul", "Add"]
    np.testing.assert_array_equal(run(to_proto(found))[0], run(model)[0])


def test_what_comes_behind_an_if_is_worked_out_too():
    model = branching(True)
    model.graph.node.append(helper.make_node("Shape", ["y"], ["s"]))
    model.graph.output.append(helper.make_tensor_value_info("s", TensorProto.INT64, [4]))
    found = propagated(model, {"N": 3})
    assert "Shape" not in operators(found)
    assert [value.shape for node in found.graph for value in node.outputs][:2] == [(3, 8, 6, 4)] * 2


def test_a_branch_that_is_a_constant_is_an_output_by_its_name():
    then, other = (
        f"{key}_branch = {name} () => (float[2] {name}) <float[2] {name} = {{{number}, 2}}> {{ }}"
        for key, name, number in (("then", "a", 0), ("else", "b", 1))
    )
    text = f"[choice] z = If (c) <{then}, {other}> y = Relu (x)"
    model = network(text, "float[N, 8, 6, 4] y, float[2] z, bool c", c=np.array(True))
    found = to_ir(model)
    assert PropagateConstants()(found).modified
    assert sorted(operators(found)) == ["Identity", "Relu"]
    np.testing.assert_array_equal(run(to_proto(found))[1], [0, 2])


def test_a_dim_that_the_model_names_and_inference_does_not_keeps_its_name():
    model = network(
        'y = Resize <mode = "nearest"> (x, , scales)', "float[N, 8, 12, 8] y", scales=np.float32([1, 1, 2, 2])
    )
    shape = propagated(model).graph.outputs[0].shape
    assert shape is not None
    assert [str(dim) for dim in shape] == ["N", "8", "12", "8"]
