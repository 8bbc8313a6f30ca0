"""What OpenVINO computes wrongly, or does not have, is computed by onnxruntime inside its graph, or refused by name."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.engines import build
from pytrtplugins.engines.openvino import fallback
from pytrtplugins.engines.openvino.known_errors import KNOWN_ERRORS
from pytrtplugins.errors import BindingError, BuildError, ExecutionError, PytrtpluginsError
from tests.engines.model_parts import I64, F, info, model, node, parsed
from tests.engines.networks import run
from tests.engines.test_exported_models import alone
from tests.user_plugins import Copy

ONES = np.array([[3, 1, 3, 2, 3, 1]], np.float32)
BY = "run by onnxruntime"


def same(network, feeds, engine="cpu"):
    """Build, run, compare with onnxruntime alone bit by bit; gives the engine."""
    built = build(network, engine=engine)
    found, expected = run(built, feeds), alone(network, feeds)
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    return built


def rows(nodes, outputs="float[] y", inputs="float[n,6] x", **constants):
    """A model of x, some rows of six numbers."""
    return parsed(f"({inputs}) => ({outputs}) {{ {nodes} }}", 17, 8, ["tests.fallback"], **constants)


def counted(*dims):
    return np.arange(np.prod(dims), dtype=np.float32).reshape(dims)


def test_equal_values_come_in_onnxruntimes_order_and_their_places_are_computed_with():
    nodes = "h = Relu (x)  v, i = TopK (h, k)  y = Gather (table, i)"
    network = rows(nodes, "float[] v, float[] y, int64[] i", k=np.array([3]), table=counted(9))
    built = same(network, {"x": ONES})
    assert "OpenVINO is wrong for TopK: equal values come in another order" in built.choices[BY].split("; ")


def test_sessions_and_what_stands_before_them_go_with_the_engine():
    network = rows("h = Relu (x)  v, i = TopK (h, k)", "float[] v, int64[] i", k=np.array([3]))
    built = same(network, {"x": ONES})
    (host,) = built._hosts.values()
    operators, session = [*host.operators], weakref.ref(host._session)
    assert all(operator.get_input_size() for operator in operators)
    del built, host
    gc.collect()
    assert session() is None
    assert {operator.get_input_size() for operator in operators} == {0}


def test_an_operator_of_onnxruntimes_own_is_named():
    network = parsed("(float[2,2] x) => (float[2,2] y) { y = com.microsoft.Inverse (x) }", 17, 8, ["com.microsoft"])
    built = same(network, {"x": np.array([[2, 1], [0, 4]], np.float32)})
    assert built.choices["computed by"] == "onnxruntime: OpenVINO does not have com.microsoft::Inverse"


def test_a_loop_of_no_round_is_computed_by_onnxruntime():
    body = "b (int64 i, bool c, float[3] s) => (bool c2, float[3] t, float[3] u)"
    loop = f"y, all = Loop (n, , x) <body = {body} {{ t = Add (s, s) c2 = Identity (c) u = Identity (t) }}>"
    built = same(rows(loop, "float[3] y, float[k,3] all", "float[3] x", n=np.array(0)), {"x": counted(3)})
    assert built.choices["computed by"].startswith("onnxruntime: ")


def test_infinities_stay_infinite():
    nodes = "m = ReduceMax <axes = [1]> (x)  l = ReduceMin <axes = [1]> (x)  y = Add (m, l)"
    same(rows(nodes, "float[] m, float[] l, float[] y"), {"x": np.full((1, 6), -np.inf, np.float32)})


def test_a_plugin_that_openvino_calls_back_stands_beside_nodes_that_onnxruntime_computes():
    built = build(rows("h = tests.fallback.Times <factor = 2> (x)  y = ReduceMax <axes = [1]> (h)"), engine="cpu")
    assert BY in built.choices
    np.testing.assert_array_equal(run(built, {"x": ONES})["y"], [[6]])


def test_masks_of_dropout_are_truth_values_for_what_reads_them():
    nodes = "d, m = Dropout (x)  n = Not (m)  y = Where (n, d, x)"
    same(rows(nodes, "bool[] m, bool[] n, float[] y"), {"x": ONES})


def test_half_numbers_go_in_and_out():
    same(rows("h = Cast <to = 10> (x)  m = ReduceMax (h)  y = Sub (h, m)", "float16[] y"), {"x": ONES})


def test_division_of_whole_numbers_is_exact_beyond_2_to_the_24():
    network = rows("q = Div (x, three)  r = Mod (x, three)", "int32[n] q, int32[n] r", "int32[n] x", three=np.int32(3))
    same(network, {"x": np.array([2**31 - 1, 2**24 + 1, 7], np.int32)})


def test_sizes_are_left_to_openvino():
    nodes = """s = Shape (x)  w = Gather (s, one)  half = Div (w, two)  end = Unsqueeze (half, zero)
        y = Slice (x, begin, end, axis)"""
    constants = {"one": np.array(1), "two": np.array(2), "zero": np.array([0])}
    network = rows(nodes, **constants, begin=np.array([0]), axis=np.array([1]))
    assert BY not in same(network, {"x": ONES}).choices


@pytest.mark.parametrize("written", ["Constant", "initializer"])
def test_the_end_of_a_slice_that_pytorch_writes_stays_in_openvino(written):
    last = 2**63 - 1
    constants = {"end": np.array([last])} if written == "initializer" else {}
    first = "" if constants else f"end = Constant <value_ints = [{last}]> ()"
    nodes = f"{first}  h = Slice (x, one, end, one)  y = Neg (h)"
    built = same(rows(nodes, one=np.array([1]), **constants), {"x": ONES})
    assert not built.choices.keys() & {BY, "computed by"}


@pytest.mark.parametrize("kind", ["int64", "int32"])
def test_a_table_that_an_input_is_looked_up_in_stays_in_openvino_and_indices_that_it_lacks_are_refused(kind):
    network = rows("y = Gather (table, x)", inputs=f"{kind}[n] x", table=counted(5, 2))
    built = same(network, {"x": np.array([0, 4, -5, -1], kind)})
    assert BY not in built.choices
    with built.create_context() as context:
        for wrong in (5, -6):
            with pytest.raises(BindingError, match=rf"input 'x': .* expected -5 to 4, found .*{wrong}.*\nDo: "):
                context.run({"x": np.array([0, wrong], kind)})


@pytest.mark.parametrize(("kind", "a", "b"), [("int8", [127, 100], [127, 100]), ("uint8", [255, 1], [2, 1])])
def test_8_bit_sums_wrap(kind, a, b):
    network = rows("y = Add (a, b)", f"{kind}[2] y", f"{kind}[2] a, {kind}[2] b")
    same(network, {"a": np.array(a, kind), "b": np.array(b, kind)})


@pytest.mark.parametrize("attributes", ['antialias = 1, mode = "linear"', 'mode = "cubic", exclude_outside = 1'])
def test_a_resize_that_openvino_does_not_know(attributes):
    text = f"(float[1,1,6,6] x) => (float[] y) {{ y = Resize <{attributes}> (x, , scales) }}"
    same(parsed(text, 18, scales=np.array([1, 1, 0.5, 0.5], np.float32)), {"x": counted(1, 1, 6, 6)})


LARGEST = "MaxPool <ceil_mode = 1, kernel_shape = [{0}, {0}], strides = [{1}, {1}]> (x)"
AVERAGE = "AveragePool <ceil_mode = 1, kernel_shape = [3, 3], strides = [2, 2], pads = [{0}, {0}, {0}, {0}], count_include_pad = {1}> (x)"


@pytest.mark.parametrize(
    ("pool", "size", "handed_over"),
    [
        (LARGEST.format(3, 2), 7, False),
        (LARGEST.format(1, 3), 6, True),  # a window begins behind the image
        (AVERAGE.format(1, 1), 6, True),  # a window that counts the padding ends behind it
        (AVERAGE.format(1, 1), 7, False),
        (AVERAGE.format(1, 0), 6, False),
        (AVERAGE.format(0, 1), 6, False),
    ],
)
def test_pools_that_round_up_are_handed_over_only_where_a_window_lies_behind_the_image(pool, size, handed_over):
    built = same(rows(f"y = {pool}", inputs=f"float[1,1,{size},{size}] x"), {"x": counted(1, 1, size, size)})
    assert (BY in built.choices) == handed_over


def test_a_branch_that_holds_one_is_handed_over_whole():
    network = rows(
        "h = Neg (x)  y = If (flag) <then_branch = a () => (float[] t) { t = ReduceMax <keepdims = 0> (h) },"
        " else_branch = b () => (float[] e) { e = ReduceSum <keepdims = 0> (h) }>",
        inputs="float[n,6] x, bool flag",
    )
    for flag in (True, False):
        same(network, {"x": np.full((1, 6), np.inf, np.float32), "flag": np.array(flag)})


def test_what_openvino_cannot_build_is_computed_by_onnxruntime():
    network = rows("h = Relu (x)  d = Det (h)  y = Neg (d)", inputs="float[2,3,3] x")
    assert same(network, {"x": counted(2, 3, 3) ** 2}).choices[BY] == "OpenVINO cannot build it"


def test_openvino_is_asked_about_an_operator_once_in_a_process(monkeypatch):
    asked = []
    monkeypatch.setattr(fallback, "_refusals", {})
    monkeypatch.setattr(
        fallback, "_refusal", lambda core, part: asked.append(part.graph.node[0].op_type) or "no" * (asked[-1] == "Det")
    )
    for names in ("xhdy", "abcd"):
        nodes = [node(op, [i], [o]) for op, i, o in zip(("Relu", "Det", "Neg"), names, names[1:], strict=False)]
        network = model(nodes, [info(names[0], F, [2, 3, 3])], [info(names[3], F, [2])])
        assert fallback.unreadable(network, {}) == {1: "no"}
    assert asked == ["Relu", "Det", "Neg"]


def test_a_model_whose_ranks_are_known_at_run_time_alone_is_computed_as_a_whole():
    network = rows(
        "h = If (flag) <then_branch = a () => (float[] t) { t = ReduceMax <keepdims = 0> (x) },"
        " else_branch = b () => (float[] e) { e = Identity (x) }>  y = Neg (h)",
        inputs="float[n,6] x, bool flag",
    )
    for flag in (True, False):
        built = same(network, {"x": np.full((1, 6), -np.inf, np.float32), "flag": np.array(flag)})
        assert built.choices["computed by"] == "onnxruntime: the number of axes of 'h' is known only at run time"


def test_what_neither_has_is_refused_by_name():
    ones = np.ones((1, 2, 2), np.float32)
    network = rows(
        "h = Relu (x)  y = RNN <hidden_size = 2, layout = 1> (h, w, r)", inputs="float[1,3,2] x", w=ones, r=ones
    )
    words = r"(?s)node 'RNN_y' \(RNN\): OpenVINO is wrong for RNN with layout 1: .*; and onnxruntime cannot run it"
    with pytest.raises(BuildError, match=words):
        build(network, engine="cpu")


CODES = "(uint8[1,1,4,4] x, int8 w) => (uint8[a,b,c,d] y) <float s = {0.1}, uint8 z = {0}, int8 t = {0}>"


@pytest.mark.parametrize(
    ("text", "opset"),
    [
        ("(float[1,1,2,4] x, float k) => (float[a,b,c,d] y) { y = Attention (x, k, x) }", 23),
        (f"{CODES} {{ y = QLinearConv (x, s, z, w, s, t, s, z) }}", 13),
    ],
)
def test_an_operand_without_axes_is_an_error_of_its_node(text, opset):
    name = r"\w+_y(/\w+)?"
    with pytest.raises(PytrtpluginsError, match=rf"node '{name}' \(|node_name '{name}'|Node \({name}\)"):
        build(parsed(text, opset, 9), engine="cpu")


@pytest.mark.parametrize("dtype", ["float64", "uint32", "uint64"])
def test_numbers_that_openvino_does_not_keep_are_computed_by_onnxruntime(dtype):
    kind = "double" if dtype == "float64" else dtype
    network = rows("y = Mul (x, three)", f"{kind}[2] y", f"{kind}[2] x", three=np.array(3, dtype))
    built = same(network, {"x": np.array([1 / 3, 1e300] if dtype == "float64" else [2**31 + 1, 5], dtype)})
    words = "onnxruntime: OpenVINO is wrong for Mul of float64, uint32 or uint64"
    assert built.choices["computed by"].startswith(words)


@ptp.plugin(namespace="tests.fallback")
class Times(Copy):
    factor: int = 1

    def compute(self, x):
        return x * np.float32(self.factor)


def test_whole_numbers_beyond_32_bits_are_computed_by_onnxruntime_or_refused_by_name():
    concat = "y = Concat <axis = 0> (x, x)"
    with build(rows(concat, "int64[m] y", "int64[n] x"), engine="cpu").create_context() as context:
        for number in (-5, 2**31, -(2**40)):
            np.testing.assert_array_equal(context.run({"x": np.array([number])})["y"], [number, number])
    nodes = f"{concat}  g = tests.fallback.Times <factor = 2> (f)"
    network = rows(nodes, "int64[m] y, float[2] g", "int64[n] x, float[2] f")
    with build(network, engine="cpu").create_context() as context:
        f = np.ones(2, np.float32)
        np.testing.assert_array_equal(context.run({"x": np.array([-5]), "f": f})["y"], [-5, -5])
        words = r"(?s)input 'x': OpenVINO keeps int64 in 32 bits.*Do: build with engine=.onnxruntime"
        with pytest.raises(BindingError, match=words):
            context.run({"x": np.array([2**31]), "f": f})


def test_plugins_that_differ_in_a_field_alone_and_read_the_same_stay_two():
    nodes = "h = Relu (x)  a = tests.fallback.Times <factor = 2> (h)  b = tests.fallback.Times <factor = 3> (h)"
    found = run(build(rows(nodes, "float[n,6] a, float[n,6] b"), engine="cpu"), {"x": ONES})
    np.testing.assert_array_equal(found["a"], 2 * ONES)
    np.testing.assert_array_equal(found["b"], 3 * ONES)


@ptp.plugin(namespace="tests.fallback")
class Bent(Copy):
    """Slopes of three axes, which OpenVINO takes as ONNX does, in the input's type."""

    def compute(self, x):
        return np.where(x > 0, x, x / 2)

    def decompose(self, op, x):
        return op.PRelu(x, op.CastLike(np.full((x.dims[1], 1, 1), 0.5), x))


def test_what_a_decomposition_reads_has_known_dims():
    built = build(rows("y = tests.fallback.Bent (x)", "float[n,3,2,2] y", "float[n,3,2,2] x"), engine="cpu")
    assert BY not in built.choices


def test_an_engine_file_finds_the_same_again(tmp_path):
    network = rows("v, i = TopK (x, k)", "int64[] i", k=np.array([3]))
    build(network, engine="cpu").save(tmp_path / "a.engine")
    found = run(ptp.load_engine(tmp_path / "a.engine"), {"x": ONES})
    np.testing.assert_array_equal(found["i"], alone(network, {"x": ONES})["i"])


@pytest.mark.parametrize("given", [False, True], ids=["constant", "input"])
@pytest.mark.parametrize("dims", [["n", 4, 5, 4], [2, 4, 4], [1, 4, 2, 3, 4], ["n", "c", "h", "w"], None], ids=str)
def test_slopes_lie_along_the_last_axis_where_there_are_as_many_channels(dims, given):
    slopes, x = np.linspace(0.1, 0.9, 4, dtype=np.float32), -np.ones((2, 4, 5, 4), np.float32)
    if dims in ([2, 4, 4], [1, 4, 2, 3, 4]):
        x = -np.ones(dims, np.float32)
    inputs = [info("x", F, dims or list("nchw")), *([info("s", F, [4])] if given else [])]
    nodes = [node("PRelu", ["x", "s"], ["y"])]
    if dims is None:  # the number of axes is not known before the run
        inputs.append(info("shape", I64, ["axes"]))
        nodes = [node("Reshape", ["x", "shape"], ["r"]), node("PRelu", ["r", "s"], ["y"])]
    network = model(nodes, inputs, [info("y", F, None)], {} if given else {"s": slopes})
    feeds = {"x": x, **({"s": slopes} if given else {}), **({"shape": np.array(x.shape)} if dims is None else {})}
    np.testing.assert_array_equal(run(same(network, feeds), feeds)["y"], x * slopes)


@pytest.mark.parametrize("slopes", [(4, 1, 1), (1, 4, 1, 1), (1,), (), (5, 4)], ids=str)
def test_other_slopes_are_left_to_openvino(slopes):
    x = -np.random.default_rng(0).random((2, 4, 5, 4), np.float32)
    network = rows("y = PRelu (x, s)", inputs="float[n,4,5,4] x", s=np.random.default_rng(1).random(slopes, np.float32))
    assert BY not in same(network, {"x": x}).choices


def test_every_row_of_the_table_says_what_is_wrong():
    assert all((row.operators or row.where) and row.what for row in KNOWN_ERRORS)


@pytest.mark.parametrize("cut", [0, 1])
def test_constants_from_which_no_element_is_left(cut):
    """OpenVINO folds sums of such tensors and of others, and wrote outside of its memory."""
    nodes = """u = Slice (b, start, end)  t = Sub (a, u)  m = Mul (t, b)  y = Transpose <perm = [2, 1, 0]> (m)
        z = Neg (x)"""
    constants = {"a": counted(1, 2, 8), "b": np.full((1, 1, 1), 3, np.float32), "start": np.array([0])}
    same(rows(nodes, f"float[8,2,{cut}] y, float[n,6] z", **constants, end=np.array([cut])), {"x": ONES})


@pytest.mark.parametrize("scale", [1, 10])
def test_indices_of_sizes_that_were_quantized_are_held_against_the_axis(scale):
    """Quantizers round what relative positions are computed from (MPNet, T5); 6 becomes 10, which the table does not have."""
    nodes = """s = Shape (x)  f = Cast <to = 1> (s)  q = QuantizeLinear (f, scale, zero)
        d = DequantizeLinear (q, scale, zero)  i = Cast <to = 7> (d)  y = Gather (table, i)"""
    network = rows(nodes, "float[2] y", scale=np.float32(scale), zero=np.uint8(0), table=counted(9))
    built = build(network, engine="cpu", precision="int8")
    if scale == 1:
        np.testing.assert_array_equal(run(built, {"x": ONES})["y"], [1, 6])
        return
    with pytest.raises(ExecutionError, match="Gather"):
        run(built, {"x": ONES})
