"""Bounds: what is proved to lie in range stays with OpenVINO and is right; what may lie elsewhere is onnxruntime's."""

import numpy as np
import onnx
import pytest

import pytrtplugins
from pytrtplugins.engines.openvino.bounds import Bounds
from pytrtplugins.engines.openvino.fallback import _lookups
from pytrtplugins.errors import BindingError
from tests.engines.operators import literal

CONSTANTS = {
    "words": np.random.default_rng(0).standard_normal((30, 2), np.float32),
    "places": np.random.default_rng(1).standard_normal((14, 2), np.float32),
    "few": np.random.default_rng(1).standard_normal((12, 2), np.float32),
    "columns": np.arange(12),
    "zero": np.int64(0),
    "one": np.int64(1),
    "large": np.int64(1 << 24),
    "back": np.int64([-1]),
    "ends": np.int64([1]),
}
MASK = "w = Gather (words, ids)  q = Equal (ids, one)  n = Not (q)"
POSITIONS = (
    f"{MASK}  i = Cast <to = 6> (n)  s = CumSum (i, one)  m = Mul (s, i)  l = Cast <to = 7> (m)  p = Add (l, one)"
)
SIZES = "t = Shape (ids)  b = Gather (t, zero)  k = Gather (t, one)  r = Range (zero, b, one)  u = Unsqueeze (r, ends)"
ROWS = f"{MASK}  {SIZES}  f = Reshape (n, back)  o = Mul (u, k)  c = Range (zero, k, one)  h = Add (o, c)"
PAIRS = f"{MASK}  {SIZES}  d = Expand (u, t)  e = Unsqueeze (d, back)  j = Expand (columns, t)  g = Unsqueeze (j, back)"
SUM = "x = Cast <to = 1> (v)  z = Unsqueeze (x, back)  y = Mul (w, z)"
IN_RANGE = {
    "positions of what is no padding": f"{POSITIONS}  g = Gather (places, p)  y = Add (w, g)",
    "a mask by indices of rows": f"{ROWS}  v = Gather (f, h)  {SUM}",
    "a mask by pairs": f"{PAIRS}  h = Concat <axis = -1> (e, g)  v = GatherND (n, h)  {SUM}",
    "the last of an axis": f"{MASK}  f = Cast <to = 1> (ids)  a = ArgMax <axis = 1> (f)  v = Gather (columns, a)  {SUM}",
}
ELSEWHERE = {
    "positions beyond the table": f"{POSITIONS}  g = Gather (few, p)  y = Add (w, g)",
    "rows beyond the mask": f"{ROWS}  a = Add (h, one)  v = Gather (f, a)  {SUM}",
    "pairs the other way round": f"{PAIRS}  h = Concat <axis = -1> (g, e)  v = GatherND (n, h)  {SUM}",
    "sizes that were truth values": f"{MASK}  {SIZES}  e = Cast <to = 9> (k)  d = Cast <to = 7> (e)  o = Sub (k, d)  h = Add (r, o)"
    f"  v = Gather (n, h)  {SUM}",
    "numbers beyond float32": f"{MASK}  a = Add (ids, large)  v = Equal (a, large)  {SUM}",
}


def model(nodes):
    graph = onnx.parser.parse_graph(f"g (int64[N, 12] ids) => (float[a, b, c] y) {{ {nodes} }}")
    read = {name for node in graph.node for name in node.input}
    graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in CONSTANTS.items() if name in read
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


RANGES = {"int64": (-(2**31), 2**31 - 1), "int32": (-(2**31), 2**31 - 1), "bool": (0, 1), "int8": (-128, 127)}
RANGES |= {"uint8": (0, 255), "int16": (-(2**15), 2**15 - 1), "uint16": (0, 2**16 - 1)}


@pytest.mark.parametrize(("kind", "low", "high"), [(kind, *ends) for kind, ends in RANGES.items()])
def test_an_input_lies_within_its_type_and_32_bits(kind, low, high):
    graph = onnx.parser.parse_graph(f"g ({kind}[N] x) => ({kind}[N] y) {{ y = Identity (x) }}")
    types = {info.name: info.type for info in (*graph.input, *graph.output)}
    bounds = Bounds(onnx.helper.make_model(graph), types, {}, {})
    for name in ("x", "y"):
        assert bounds._range(name) == tuple({(): end} if end else {} for end in (low, high))
        most = max(-low, high)
        assert (bounds.is_within(name, most), bounds.is_within(name, most - 1)) == (True, False)
    if kind.endswith(("32", "64")):
        assert Bounds(onnx.helper.make_model(graph), types, {}, {"x": 30})._range("y") == ({(): -30}, {(): 29})


BOUNDS = {
    "y = SpaceToDepth <blocksize = 2> (i)": "-9..+8", "y = DepthToSpace <blocksize = 2> (i)": "-9..+8", "y = Tile (x, few)": "-9..+8",
    "y = Neg (x)": None, "y = Concat <axis = 0> (x, few)": "-9..+8", "y = Where (b, x, few)": "-9..+8",
    "y = Where (b, few, few)": "0..+4", "y = Add (x, few)": "-9..+12", "y = Sub (x, few)": "-13..+8", "y = Sub (few, x)": "-8..+13",
    "y = Mul (few, few)": "0..+16", "y = Mul (few, x)": None, "y = Mul (x, few)": None, "y = Cast <to = 7> (b)": "0..+1",
    "t = Cast <to = 6> (x) y = Cast <to = 7> (t)": "-9..+8", "t = Cast <to = 3> (x) y = Cast <to = 7> (t)": "-128..+127",
    "t = Cast <to = 6> (j) y = Cast <to = 7> (t)": "-2147483647..+2147483646", "t = Cast <to = 6> (k) y = Cast <to = 7> (t)": None,
    "c = Cast <to = 1> (x) y = Cast <to = 7> (c)": None, "y = Equal (x, x)": "0..+1", "y = ArgMax (f)": "0..-1+1N",
    "y = ArgMax <axis = 1> (f)": "0..+2", "y = ArgMin <axis = -1> (f)": "0..+2", "y = Range (zero, two, one)": "0..+1",
    "y = Range (zero, z, one)": "0..+7", "y = Range (z, two, one)": "-9..+1", "y = Range (zero, two, two)": None,
    "m = Cast <to = 7> (b) y = CumSum (m, one)": "0..+3", "m = Cast <to = 7> (b) y = CumSum (m, zero)": "0..+1N",
    "y = CumSum (x, one)": None, "y = Size (x)": "+3N..+3N", "y = Shape (x)": None, "y = Shape <start = 1> (x)": "+3..+3",
    "y = Shape <end = 1> (x)": "+1N..+1N", "s = Shape (x) y = Gather (s, zero)": "+1N..+1N",
    "s = Shape (x) y = Gather (s, one)": "+3..+3",
    "s = Shape (x) n = Gather (s, zero) k = Gather (s, one) y = Sub (n, k)": "-3+1N..-3+1N",
    "s = Shape (x) n = Gather (s, zero) k = Gather (s, one) m = Mul (n, k) y = Add (m, two)": "+2+3N..+2+3N",
    "s = Shape (x) n = Gather (s, zero) k = Gather (s, one) a = Unsqueeze (n, ends) y = Concat <axis = 0> (a, back)": "-1..+1N",
    "s = Shape (x) n = Gather (s, zero) y = Range (zero, n, one)": "0..-1+1N", "t = Flatten <axis = 2> (i) y = Shape (t)": "+4..+4",
    "t = Flatten (x) y = Shape <end = 1> (t)": "+1N..+1N", "t = Reshape (x, back) y = Shape (t)": "+3N..+3N",
    "t = Reshape (x, ends) y = Shape (t)": None, "t = Cast <to = 9> (x) y = Shape <end = 1> (t)": "+1N..+1N",
    "s = Shape <end = 1> (x) t = Cast <to = 9> (s) y = Cast <to = 7> (t)": "0..+1",
    "s = Shape <end = 1> (x) t = Cast <to = 6> (s) y = Cast <to = 7> (t)": "+1N..+1N", "s = Shape (x) y = Mul (s, two)": None,
    "s = Shape (x) y = Mul (two, s)": None, "s = Shape (x) y = Add (s, s)": None,
}  # fmt: skip
"""Nodes behind x (N, 3) in -9..8, b (N, 3) in 0..1, z, a whole number in -9..8, and others → bounds of y; None: unknown."""


def bounds_text(nodes):
    inputs = "int64[N, 3] x, bool[N, 3] b, int64 z, int64[1, 4, 2, 2] i, int64[2] j, int64[2] k, float[N, 3] f"
    text = f"g ({inputs}) => (int64[a] y) {{ {nodes} }}"
    arrays = {name: CONSTANTS[name] for name in ("zero", "one", "back", "ends")} | {
        "two": np.int64(2),
        "few": np.arange(5),
    }
    inferred = onnx.shape_inference.infer_shapes(
        onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    )
    types = {
        info.name: info.type for info in (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output)
    }
    limits = {"x": 9, "z": 9, "i": 9, "j": 2**31 - 1, "k": 2**31}
    found = Bounds(inferred, types, arrays, limits)._range("y")
    parts = [
        None
        if part is None
        else "".join(f"{number:+}{''.join(names)}" for names, number in sorted(part.items())) or "0"
        for part in found
    ]
    return None if None in parts else "..".join(parts)


@pytest.mark.parametrize("nodes", BOUNDS)
def test_an_operator_has_these_bounds(nodes):
    assert bounds_text(nodes) == BOUNDS[nodes]


@pytest.mark.parametrize("name", IN_RANGE)
def test_what_lies_in_range_stays_with_openvino(name):
    made = model(IN_RANGE[name])
    engine = pytrtplugins.build(made, engine="cpu")
    with engine.create_context() as context:
        assert not engine.choices.keys() & {"computed by", "run by onnxruntime"}
        for size in (1, 3):
            ids = np.random.default_rng(size).integers(0, 3, (size, 12))
            np.testing.assert_array_equal(context.run({"ids": ids})["y"], literal(made, {"ids": ids})[0])
        with pytest.raises(BindingError, match="ids"):
            context.run({"ids": ids + 30})


@pytest.mark.parametrize(("axis", "size"), [(-3, None), (-2, 30), (-1, 2), (0, 30), (1, 2), (2, None)])
def test_indices_that_a_run_gives_lie_in_the_axis_of_the_table(axis, size):
    graph = onnx.parser.parse_graph(
        f"g (float[30, 2] t, int64[4] ids) => (float[a, b] y) {{ y = Gather <axis = {axis}> (t, ids) }}"
    )
    types = {info.name: info.type for info in graph.input}
    assert _lookups(onnx.helper.make_model(graph), types) == ({} if size is None else {"y": ("ids", size)})


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_may_lie_elsewhere_is_computed_by_onnxruntime(name):
    engine = pytrtplugins.build(model(ELSEWHERE[name]), engine="cpu")
    assert engine.choices.keys() & {"computed by", "run by onnxruntime"}
