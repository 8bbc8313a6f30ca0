"""Numbers of shape arithmetic with free dims: what is told of them is what onnxruntime computes, whatever the sizes are."""

import re
from operator import add, floordiv, mod, mul, sub

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper, parser

from pytrtplugins.model.ir import to_ir
from pytrtplugins.passes.shape_values import SymbolicShapeValues
from pytrtplugins.tensor import SymbolicDim

SIZES = [{"N": 1, "M": 1}, {"N": 2, "M": 5}, {"N": 3, "M": 3}, {"N": 7, "M": 2}]
SHAPE = "s = Shape(x) n = Gather(s, zero) c = Gather(s, one) m1 = Shape <end = 1> (z) m = Squeeze(m1, axis)"
"""s: N, 8, 6, 4; n: N; c: 8; m: M."""
CONSTANTS = {
    **{name: np.int64(number) for number, name in enumerate(["zero", "one", "two", "three", "four", "five", "six", "seven"])},
    **{name: np.int64(-number) for number, name in enumerate(["_", "minus1", "minus2", "minus3", "minus4"])},
    "axis": np.int64([0]), "far": np.int64([1 << 62]), "back": np.int64([-1]), "low": np.int64([-(1 << 62)]),
    "ones": np.int64([1]), "twos": np.int64([2]), "threes": np.int64([3]), "places": np.int64([2, -1, 0]),
    "most": np.int64((1 << 63) - 1), "large": np.int64(1 << 40), "few": np.int64([3, 5]),
    "row": np.int64([[1, 2]]), "several": np.arange(64), "many": np.arange(65), "both": np.array([True, False]),
    "int4": np.int32(4), "int5": np.int32([5]), "float3": np.float32(3), "beyond": np.int64(9),
    "few1": np.int64([3]), "flat": np.int64([-1, 4]), "whole": np.int64([0, 0, -1]),
    "fifth": np.int64([1, 1, 1, 1, 0]), "wide": np.int64([12, 8]),
    "image": np.ones((1, 8, 1, 1), np.float32), "maps": np.ones((2, 1, 8, 1, 4), np.float32),
    "scale": np.float32([1]), "four1": np.int64([1, 0, -5, 7]), "odd": np.int64([-1, 5]), "none": np.ones((2, 0), np.float32),
    "halves": np.float32([1, 1, 2, 2]), "factor": np.float32([2.6]), "thirds": np.float32([3, 1 / 3]),
    "quarters": np.float32([0.25, 0.3]), "fractions": np.float32([1.5, 2]), "no_factors": np.float32([np.nan, -1]),
    "region": np.float32([0, 0, 0, 0, 1, 1, 0.5, 1]),
    "two0": np.int64([0, 2]),
}  # fmt: skip


def network(text):
    """A model of the nodes of a text with inputs x (N, 8, 6, 4), z (M, 3) and v (?, 2); its output is that of the last node."""
    graph = parser.parse_graph(f"net (float[N, 8, 6, 4] x, float[M, 3] z, float[?, 2] v) => (float y) {{ {text} }}")
    read = {name for node in graph.node for name in node.input}
    graph.initializer.extend(
        numpy_helper.from_array(np.asarray(CONSTANTS[name]), name) for name in CONSTANTS if name in read
    )
    graph.output[0].CopyFrom(onnx.ValueInfoProto(name=graph.node[-1].output[0]))
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)]
    return onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opsets, ir_version=9))


def noted(text):
    """What is known of a network's tensors, and its last node."""
    known, graph = SymbolicShapeValues(), to_ir(network(text)).graph
    for node in graph:
        known.note(node)
    return known, graph[-1]


def computed(text, sizes):
    """What onnxruntime gives, with inputs of these sizes."""
    session = onnxruntime.InferenceSession(network(text).SerializeToString(), providers=["CPUExecutionProvider"])
    shapes = {"x": (sizes["N"], 8, 6, 4), "z": (sizes["M"], 3), "v": (1, 2)}
    (found,) = session.run(None, {info.name: np.zeros(shapes[info.name], np.float32) for info in session.get_inputs()})
    return found


def evaluated(dims, sizes):
    return [dim.evaluate(sizes) if isinstance(dim, SymbolicDim) else dim for dim in dims]


def shown(dims):
    return None if dims is None else [str(dim) if isinstance(dim, SymbolicDim) else dim for dim in dims]


def told(text):
    """What is known of the numbers that the last node gives: dims, as those of a tensor that is made of them."""
    known, made = noted(f"{text} made = ConstantOfShape(t)")
    return known.shape_of(made)


KNOWN = {
    "t = Identity(s)": ["N", 8, 6, 4],
    "t = Shape <start = 1> (x)": [8, 6, 4],
    "t = Shape <end = 2> (x)": ["N", 8],
    "t = Shape <start = -3, end = -1> (x)": [8, 6],
    "t = Shape <start = 2, end = 9> (x)": [6, 4],
    "t = Gather(s, places)": [6, 4, "N"],
    "q = Gather(s, minus1) t = Unsqueeze(q, axis)": [4],
    "q = Size(x) t = Unsqueeze(q, axis)": ["(((N * 8) * 6) * 4)"],
    "t = Slice(s, axis, twos)": ["N", 8],
    "t = Slice(s, ones, threes, axis)": [8, 6],
    "t = Slice(s, ones, far, axis, twos)": [8, 4],
    "t = Slice(s, back, low, axis, back)": [4, 6, 8, "N"],
    "t = Slice(s, axis, low, axis)": [],
    "t = Slice(s, low, low, axis, back)": ["N"],
    "t = Slice(s, twos, far, , twos)": [6],
    "t = Concat <axis = 0> (few, s, m1)": [3, 5, "N", 8, 6, 4, "M"],
    "t = Add(few, n)": ["(3 + N)", "(5 + N)"],
    "t = Add(s, s)": ["(N + N)", 16, 12, 8],
    "q = Sub(n, m) t = Unsqueeze(q, axis)": ["(N - M)"],
    "t = Sub(few, c)": [-5, -3],
    "t = Mul(few, n)": ["(3 * N)", "(5 * N)"],
    "t = Mul(s, two)": ["(N * 2)", 16, 12, 8],
    "t = Div(s, s)": [1, 1, 1, 1],
    "t = Div(s, three)": ["(N // 3)", 2, 2, 1],
    "t = Div(few, two)": [1, 2],
    "q = Mul(few, n) t = Div(q, n)": [3, 5],
    "q = Mul(n, six) r = Div(q, two) t = Unsqueeze(r, axis)": ["(N * 3)"],
    "q = Mul(n, m) r = Mul(q, four) u = Mul(m, two) e = Div(r, u) t = Unsqueeze(e, axis)": ["(N * 2)"],
    "q = Div(n, m) t = Unsqueeze(q, axis)": ["(N // M)"],
    "q = Add(n, m) r = Div(q, two) t = Unsqueeze(r, axis)": ["((N + M) // 2)"],
    "q = Mul(n, three) r = Div(q, two) t = Unsqueeze(r, axis)": ["((N * 3) // 2)"],
    "q = Sub(n, one) r = Div(q, two) t = Unsqueeze(r, axis)": ["((N - 1) // 2)"],
    "q = Div(n, two) r = Div(q, two) t = Unsqueeze(r, axis)": ["((N // 2) // 2)"],
    "q = Div(five, n) t = Unsqueeze(q, axis)": ["(5 // N)"],
    "q = Div(zero, n) t = Unsqueeze(q, axis)": ["(0 // N)"],
    "q = Sub(few, four) t = Div(q, two)": [0, 0],
    "q = Sub(few, six) t = Div(q, two)": [-1, 0],
    "t = Div(few, minus2)": [-1, -2],
    "q = Sub(few, seven) t = Div(q, minus3)": [1, 0],
    "q = Sub(few, c) t = Div(q, minus1)": [5, 3],
    "q = Squeeze(m1) r = Identity(q) t = Unsqueeze(r, axis)": ["M"],
    "q = Squeeze(m1, axis) t = Reshape(q, ones)": ["M"],
    "q = Squeeze(m1, axis) t = Reshape(q, back)": ["M"],
    "t = Reshape(s, back)": ["N", 8, 6, 4],
    "q = Cast <to = 6> (s) t = Cast <to = 7> (q)": ["N", 8, 6, 4],
    "q = Cast <to = 9> (few) r = Cast <to = 7> (q) t = Add(r, n)": ["(1 + N)", "(1 + N)"],
    "q = Cast <to = 7> (both) t = Add(q, n)": ["(1 + N)", "N"],
    "u = Shape <start = 1> (x) q = Equal(u, six) t = Where(q, n, u)": [8, "N", 4],
    "q = Equal(s, minus1) t = Where(q, few1, s)": ["N", 8, 6, 4],
    "q = Equal(s, zero) t = Where(q, few1, s)": ["N", 8, 6, 4],
    "q = Equal(n, n) t = Where(q, s, seven)": ["N", 8, 6, 4],
    "q = Div(n, four) r = Equal(q, minus1) t = Where(r, few1, s)": ["N", 8, 6, 4],
    "q = Div(n, four) r = Div(q, two) e = Equal(r, minus1) t = Where(e, few1, s)": ["N", 8, 6, 4],
    "q = Div(n, four) r = Mul(q, m) e = Equal(r, minus1) t = Where(e, few1, s)": ["N", 8, 6, 4],
    "q = Div(n, four) r = Mul(m, q) e = Equal(r, minus1) t = Where(e, few1, s)": ["N", 8, 6, 4],
    "q = Add(n, m) r = Equal(q, one) t = Where(r, few1, s)": ["N", 8, 6, 4],
    "q = Mul(n, seven) r = Equal(six, q) t = Where(r, few1, s)": ["N", 8, 6, 4],
    "q = Sub(n, two) r = Equal(q, minus2) t = Where(r, few1, s)": ["N", 8, 6, 4],
    "q = Mul(several, one) r = Cast <to = 7> (q) u = Slice(r, twos, threes) t = Add(u, n)": ["(2 + N)"],
    "t = Where(both, n, few)": ["N", 5],
}  # fmt: skip
UNKNOWN = {
    "a free dim may be 6": "q = Equal(s, six) t = Where(q, n, s)",
    "a free dim may be 1": "q = Equal(s, one) t = Where(q, n, s)",
    "two free dims may be equal": "q = Equal(n, m) t = Where(q, s, seven)",
    "a difference may be 0": "q = Sub(n, three) r = Equal(q, zero) t = Where(r, few1, s)",
    "a difference may be -1": "q = Sub(n, two) r = Equal(q, minus1) t = Where(r, few1, s)",
    "a difference of dims may be any": "q = Sub(n, m) r = Equal(q, minus4) t = Where(r, few1, s)",
    "a quotient may be 0": "q = Div(n, four) r = Equal(q, zero) t = Where(r, few1, s)",
    "a sum may be 2": "q = Add(n, m) r = Equal(q, two) t = Where(r, few1, s)",
    "a product may be below 0": "q = Mul(n, minus2) r = Equal(q, minus4) t = Where(r, few1, s)",
    "a product of what is below 0 may be below 0": "q = Sub(n, three) r = Mul(q, m) e = Equal(r, minus4) t = Where(e, few1, s)",
    "a quotient of what may be below 0": "q = Sub(n, three) r = Div(q, two) t = Unsqueeze(r, axis)",
    "a quotient by what is below 0": "q = Div(n, minus2) t = Unsqueeze(q, axis)",
    "a quotient by what may be 0": "q = Sub(n, one) r = Div(five, q) t = Unsqueeze(r, axis)",
    "a quotient of -3 by a free dim": "q = Div(minus3, n) t = Unsqueeze(q, axis)",
    "a quotient by 0": "t = Div(few, zero)",
    "whether a free dim is true": "q = Cast <to = 9> (s) t = Cast <to = 7> (q)",
    "remainders": "t = Mod(s, two)",
    "a table": "q = Unsqueeze(s, ones) r = Concat <axis = 1> (q, q) t = Gather <axis = 1> (r, zero)",
    "a constant table": "q = Gather <axis = 1> (row, zero) t = Mul(q, n)",
    "an axis that is put behind": "q = Unsqueeze(s, ones) t = Gather <axis = 1> (q, zero)",
    "a place that there is not": "q = Gather(s, beyond) t = Unsqueeze(q, axis)",
    "dims that do not fit": "u = Shape <start = 1> (x) t = Add(few, u)",
    "numbers beyond 32 bits": "q = Cast <to = 6> (large) r = Cast <to = 7> (q) t = Unsqueeze(r, axis)",
    "numbers beyond 64 bits": "q = Add(most, one) t = Unsqueeze(q, axis)",
    "numbers below -2^63": "q = Sub(minus2, most) t = Unsqueeze(q, axis)",
    "more than 64 numbers": "q = Concat <axis = 0> (several, m1) r = Slice(q, axis, ones) t = Identity(r)",
    "more than 64 constants": "q = Slice(many, axis, ones) t = Add(q, n)",
    "numbers that are not whole": "q = Cast <to = 7> (float3) t = Unsqueeze(q, axis)",
    "what is made not whole": "q = Cast <to = 1> (s) r = Cast <to = 7> (q) t = Identity(r)",
    "a slice from a free place": "t = Slice(s, m1, far)",
    "a slice to a free place": "t = Slice(s, axis, m1)",
    "a free stride": "t = Slice(s, axis, far, axis, m1)",
    "a shape that is free": "t = Reshape(s, m1)",
    "several numbers as one": "q = Squeeze(s) t = Unsqueeze(q, axis)",
    "values of an input": "q = Cast <to = 7> (z) r = ReduceMax <keepdims = 0> (q) t = Unsqueeze(r, axis)",
    "an operator of another domain": "t = acme.Shape(x)",
    "dims without names": "t = Shape(v)",
    "a shape that nobody knows": "q = acme.Any(x) t = Shape(q)",
}  # fmt: skip


SWAPPED = r"Equal\((\w+), (\w+)\)", r"Equal(\2, \1)"  # whether two are equal does not depend on their order
KNOWN |= {re.sub(*SWAPPED, text): dims for text, dims in KNOWN.items()}
UNKNOWN |= {f"{reason}, swapped": re.sub(*SWAPPED, text) for reason, text in UNKNOWN.items() if "Equal(" in text}


@pytest.mark.parametrize("text", KNOWN)
def test_what_is_told_of_numbers_is_what_onnxruntime_computes(text):
    dims = told(f"{SHAPE} {text}")
    assert shown(dims) == KNOWN[text]
    assert all(isinstance(dim, (int, SymbolicDim)) for dim in dims)
    for sizes in SIZES:
        assert evaluated(dims, sizes) == computed(f"{SHAPE} {text}", sizes).tolist()


@pytest.mark.parametrize("reason", UNKNOWN)
def test_nothing_is_told_of_what_is_not_known_before_a_run(reason):
    assert told(f"{SHAPE} {UNKNOWN[reason]}") is None


@pytest.mark.parametrize(
    "text",
    [
        "t = Cast <to = 6> (few)",
        "q = Shape <start = 1> (x) t = Mul(q, two)",
        "t = Sub(int4, int5)",
        "t = Equal(few, five)",
        "t = Cast <to = 9> (few)",
        "s = Shape(x) t = Gather(s, one)",
        "t = Size(few)",
        "t = Slice(several, axis, twos)",
        "t = Add(several, four)",
        "t = Add(most, zero)",
        "t = Sub(minus1, most)",
    ],
)
def test_numbers_that_are_all_known_are_an_array_of_the_tensors_type(text):
    known, node = noted(text)
    np.testing.assert_array_equal(known.constant(node.outputs[0]), computed(text, SIZES[0]), strict=True)


@pytest.mark.parametrize("text", ["t = Shape(x)", "t = Size(x)", "t = Cast <to = 6> (large)", "t = Relu(x)"])
def test_numbers_that_are_not_all_known_are_no_array(text):
    known, node = noted(text)
    assert known.constant(node.outputs[0]) is None


DIMS = {
    "y = Reshape(x, flat)": ["(N * 48)", 4],
    "y = Flatten(x)": ["N", 192],
    "y = Flatten <axis = -1> (x)": ["((N * 8) * 6)", 4],
    "y = Flatten <axis = 0> (x)": [1, "(((N * 8) * 6) * 4)"],
    "y = Reshape(x, whole)": ["N", 8, 24],
    "y = Reshape <allowzero = 1> (none, two0)": [0, 2],
    "t = Concat <axis = 0> (n1, threes, back) y = Reshape(x, t)": ["N", 3, 64],
    "t = Concat <axis = 0> (back, n1) y = Reshape(x, t)": [192, "N"],
    "q = Mul(n1, two) t = Concat <axis = 0> (q, back) y = Reshape(x, t)": ["(N * 2)", 96],
    "t = Shape(x) y = Reshape(x, t)": ["N", 8, 6, 4],
    "y = Expand(image, s)": ["N", 8, 6, 4],
    "y = Expand(maps, s)": [2, "N", 8, 6, 4],
    "y = Expand(x, ones)": ["N", 8, 6, 4],
    "y = Expand(x, s)": ["N", 8, 6, 4],
    "y = Expand(scale, n1)": ["N"],
    "t = Concat <axis = 0> (n1, ones, ones, ones, ones) y = Expand(x, t)": ["N", "N", 8, 6, 4],
    "c1 = Shape <start = 1, end = 2> (x) t = Concat <axis = 0> (n1, c1, wide) y = Resize(x, , , t)": ["N", 8, 12, 8],
    "y = Resize <axes = [2, -1]> (x, , , wide)": ["N", 8, 12, 8],
    "y = Resize(x, , halves)": ["N", 8, 12, 8],
    "y = Resize <axes = [3]> (x, , factor)": ["N", 8, 6, 10],
    "y = Resize <axes = [0, 2]> (x, , thirds)": ["(N * 3)", 8, 2, 4],
    "y = Resize <axes = [-4, -2]> (x, , thirds)": ["(N * 3)", 8, 2, 4],
    "y = Resize <axes = [0, 3]> (x, , quarters)": ["(N // 4)", 8, 6, 1],
    "t = Concat <axis = 0> (ones, n1, twos, ones) y = Tile(x, t)": ["N", "(8 * N)", 12, 4],
    "t = Concat <axis = 0> (n1, ones, ones, ones) y = Tile(image, t)": ["N", 8, 1, 1],
    "y = ConstantOfShape(few)": [3, 5],
    "y = ConstantOfShape(n1)": ["N"],
}  # fmt: skip
OPEN = {
    "a tensor to flatten that nobody knows": "q = acme.Any(x) y = Flatten(q)",
    "dims without names": "y = Expand(v, s)",
    "sizes that are not known": "q = Cast <to = 7> (z) t = ReduceMax <keepdims = 0> (q) y = Reshape(x, t)",
    "an axis of an image that there is not": "y = Resize <axes = [4]> (x, , factor)",
    "as many sizes as there are no axes": "y = Resize(x, , , wide)",
    "dims of an unknown rank": "q = acme.Any(x) y = Resize(q, , , wide)",
    "two free dims": "t = Concat <axis = 0> (n1, threes) y = Expand(z, t)",
    "another operator": "y = Add(x, scale)",
    "an operator of another domain": "y = acme.Reshape(x, flat)",
}


@pytest.mark.parametrize("text", DIMS)
def test_dims_that_are_told_are_those_that_onnxruntime_gives(text):
    nodes = f"{SHAPE} n1 = Shape <end = 1> (x) {text}"
    known, node = noted(nodes)
    dims = known.shape_of(node)
    assert shown(dims) == DIMS[text]
    for sizes in SIZES:
        assert tuple(evaluated(dims, sizes)) == computed(nodes, sizes).shape


PARTLY = {
    "y = Reshape(x, odd)": [None, 5],
    "t = Concat <axis = 0> (back, m1) y = Reshape(x, t)": [None, "M"],
    "y = Reshape(x, fifth)": [1, 1, 1, 1, None],
    "o = acme.Any(x) y = Reshape(o, flat)": [None, 4],
    "k = Cast <to = 7> (m1) l = Abs(k) y = Reshape(x, l)": [None],
    "y = Resize <axes = [0, 2]> (x, , fractions)": [None, 8, 12, 4],
    'y = Resize <axes = [2, 3], keep_aspect_ratio_policy = "not_larger"> (x, , , wide)': ["N", 8, None, None],
    "k = Cast <to = 7> (m1) l = Abs(k) y = Resize <axes = [0]> (x, , , l)": [None, 8, 6, 4],
    "y = Resize <axes = [0, 2]> (x, , q)": [None, 8, None, 4],
    'y = Resize <coordinate_transformation_mode = "tf_crop_and_resize"> (x, region, halves)': [None, None, None, None],
    "y = Resize(x, , factor)": [None] * 4,
    "y = Resize <axes = [0, 2]> (x, , no_factors)": [None, 8, None, 4],
    "y = Resize <axes = [3]> (x, , float3)": ["N", 8, 6, None],
    "y = Resize <axes = [1]> (v, , factor)": [None, 5],
}


@pytest.mark.parametrize("text", PARTLY)
def test_some_dims_may_stay_open(text):
    known, node = noted(f"m1 = Shape <end = 1> (z) q = Relu(z) {text}")
    found = known.shape_of(node)
    assert [dim if dim is None or isinstance(dim, int) else str(dim) for dim in found] == PARTLY[text]


@pytest.mark.parametrize("reason", OPEN)
def test_dims_that_hang_on_a_run_stay_open(reason):
    known, node = noted(f"{SHAPE} n1 = Shape <end = 1> (x) {OPEN[reason]}")
    assert known.shape_of(node) is None


def written(dim):
    """What is read of a dim whose text a shape holds."""
    known, graph = SymbolicShapeValues(), to_ir(network("t = Shape(x) made = ConstantOfShape(t)")).graph
    graph.inputs[0].shape = onnx_ir.Shape([str(dim), 8, 6, 4])
    known.note(graph[0])
    (found, *_) = known.shape_of(graph[1]) or ()
    return found


EXPRESSIONS = st.recursive(
    st.builds(SymbolicDim, st.sampled_from(["N", "batch", "2*s0", "²", "a-b", "(k)"])),
    lambda inner: st.builds(
        lambda operation, one, other, turned: operation(other, one) if turned else operation(one, other),
        st.sampled_from([add, sub, mul, floordiv, mod]),
        inner,
        inner | st.integers(-3, 9),
        st.booleans(),
    ).filter(lambda dim: isinstance(dim, SymbolicDim)),
    max_leaves=6,
)


@given(EXPRESSIONS)
def test_an_expression_is_read_from_a_shape_as_it_was_written(dim):
    assert written(dim) == dim


@pytest.mark.parametrize("text", ["s0 + f(x)", "(s0) + 1", "floor(s0 / 2)", "a b", "²"])
def test_another_text_is_a_name(text):
    assert written(SymbolicDim(text)) == SymbolicDim(text)


@pytest.mark.parametrize(("text", "number"), [("7", 7), ("-2", -2), ("(2 + 3)", SymbolicDim("+", 2, 3))])
def test_a_number_that_is_written_as_a_text_is_a_number(text, number):
    assert written(SymbolicDim(text)) == number


@st.composite
def arithmetic(draw):
    """Nodes of shape arithmetic, the last of which gives t."""
    scalars = ["n", "m", "c", "zero", "two", "three", "minus1", "minus3"]
    vectors, lines = ["s", "four1"], []
    for index in range(draw(st.integers(1, 6))):
        name, kind = f"v{index}", draw(st.sampled_from(["Add", "Sub", "Mul", "Div", "Where", "Gather", "Cast"]))
        if kind == "Gather":
            lines.append(f"{name} = Gather({draw(st.sampled_from(vectors))}, {draw(st.sampled_from(['one', 'zero']))})")
            scalars.append(name)
            continue
        pool = draw(st.sampled_from([scalars, vectors]))
        first, second = draw(st.sampled_from(pool)), draw(st.sampled_from(scalars))
        if kind == "Div":
            second = draw(st.sampled_from(["n", "m", "two", "three", "minus3"]))
        if kind == "Where":
            lines.append(f"e{index} = Equal({first}, {second})")
            lines.append(f"{name} = Where(e{index}, {draw(st.sampled_from(scalars))}, {draw(st.sampled_from(pool))})")
        elif kind == "Cast":
            lines += [f"b{index} = Cast <to = 9> ({first})", f"{name} = Cast <to = 7> (b{index})"]
        else:
            lines.append(f"{name} = {kind}({first}, {second})")
        pool.append(name)
    lines.append(f"t = Add({draw(st.sampled_from(vectors))}, {scalars[-1]})")
    return " ".join(lines)


@given(arithmetic())
def test_what_is_told_of_any_arithmetic_holds_for_all_sizes(text):
    dims = told(f"{SHAPE} {text}")
    for sizes in SIZES if dims is not None else ():
        assert evaluated(dims, sizes) == computed(f"{SHAPE} {text}", sizes).tolist()
