"""What OpenVINO computes wrongly, or does not have, is computed by onnxruntime inside its graph, or refused by name."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

import pytrtplugins as ptp
from pytrtplugins.engines import build
from pytrtplugins.engines.openvino.known_errors import KNOWN_ERRORS
from pytrtplugins.errors import BindingError, BuildError, ExecutionError
from pytrtplugins.plugin.onnx_node import as_node
from tests.engines.model_parts import BOOL, I64, F, body, constant, info, model, node
from tests.engines.test_exported_models import alone

ONES = np.array([[3, 1, 3, 2, 3, 1]], np.float32)
X = info("x", F, ["n", 6])
BY = "run by onnxruntime"


def same(made, feeds, engine="cpu"):
    """Build, run, compare with onnxruntime alone bit by bit; gives the engine."""
    built = build(made, engine=engine)
    with built.create_context() as context:
        found, expected = context.run(feeds), alone(made, feeds)
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    return built


def test_equal_values_come_in_onnxruntimes_order_and_their_places_are_computed_with():
    nodes = [
        node("Relu", ["x"], ["h"]),
        node("TopK", ["h", "k"], ["v", "i"]),
        node("Gather", ["table", "i"], ["y"]),
    ]
    constants = {"k": np.array([3]), "table": np.arange(9, dtype=np.float32)}
    built = same(
        model(nodes, [X], [info("v", F, None), info("y", F, None), info("i", I64, None)], constants), {"x": ONES}
    )
    assert "OpenVINO is wrong for TopK: equal values come in another order" in built.choices[BY].split("; ")


def test_a_loop_of_no_round_is_computed_by_onnxruntime():
    inner = body(
        [node("Add", ["s", "s"], ["t"]), node("Identity", ["c"], ["c2"]), node("Identity", ["t"], ["u"])],
        [info("c2", BOOL, []), info("t", F, [3]), info("u", F, [3])],
        [info("i", I64, []), info("c", BOOL, []), info("s", F, [3])],
    )
    loop = node("Loop", ["n", "", "x"], ["y", "all"], body=inner)
    made = model([loop], [info("x", F, [3])], [info("y", F, [3]), info("all", F, ["k", 3])], {"n": np.array(0)})
    built = same(made, {"x": np.arange(3, dtype=np.float32)})
    assert built.choices["computed by"].startswith("onnxruntime: ")


def test_infinities_stay_infinite():
    nodes = [
        node("ReduceMax", ["x"], ["m"], axes=[1]),
        node("ReduceMin", ["x"], ["l"], axes=[1]),
        node("Add", ["m", "l"], ["y"]),
    ]
    made = model(nodes, [X], [info("m", F, None), info("l", F, None), info("y", F, None)])
    same(made, {"x": np.full((1, 6), -np.inf, np.float32)})


def test_a_plugin_that_openvino_calls_back_stands_beside_nodes_that_onnxruntime_computes():
    nodes = [as_node(Times(factor=2), ["x"], ["h"], "p"), node("ReduceMax", ["h"], ["y"], axes=[1])]
    built = build(model(nodes, [X], [info("y", F, None)], domains=("tests.fallback",)), engine="cpu")
    assert BY in built.choices
    with built.create_context() as context:
        np.testing.assert_array_equal(context.run({"x": ONES})["y"], [[6]])


def test_masks_of_dropout_are_truth_values_for_what_reads_them():
    nodes = [node("Dropout", ["x"], ["d", "m"]), node("Not", ["m"], ["n"]), node("Where", ["n", "d", "x"], ["y"])]
    same(model(nodes, [X], [info("m", BOOL, None), info("n", BOOL, None), info("y", F, None)]), {"x": ONES})


def test_half_numbers_go_in_and_out():
    half = TensorProto.FLOAT16
    nodes = [node("Cast", ["x"], ["h"], to=half), node("ReduceMax", ["h"], ["m"]), node("Sub", ["h", "m"], ["y"])]
    same(model(nodes, [X], [info("y", half, None)]), {"x": ONES})


def test_division_of_whole_numbers_is_exact_beyond_2_to_the_24():
    kind = TensorProto.INT32
    nodes = [node("Div", ["x", "three"], ["q"]), node("Mod", ["x", "three"], ["r"])]
    made = model(
        nodes, [info("x", kind, ["n"])], [info("q", kind, ["n"]), info("r", kind, ["n"])], {"three": np.int32(3)}
    )
    same(made, {"x": np.array([2**31 - 1, 2**24 + 1, 7], np.int32)})


def test_sizes_are_left_to_openvino():
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "one"], ["w"]),
        node("Div", ["w", "two"], ["half"]),
        node("Unsqueeze", ["half", "zero"], ["end"]),
        node("Slice", ["x", "begin", "end", "axis"], ["y"]),
    ]
    constants = {
        "one": np.array(1),
        "two": np.array(2),
        "zero": np.array([0]),
        "begin": np.array([0]),
        "axis": np.array([1]),
    }
    built = same(model(nodes, [X], [info("y", F, None)], constants), {"x": ONES})
    assert BY not in built.choices


@pytest.mark.parametrize("written", ["Constant", "initializer"])
def test_the_end_of_a_slice_that_pytorch_writes_stays_in_openvino(written):
    last = np.array([2**63 - 1])
    made = model(
        [
            *([node("Constant", [], ["end"], value=constant("end", last))] if written == "Constant" else []),
            node("Slice", ["x", "one", "end", "one"], ["h"]),
            node("Neg", ["h"], ["y"]),
        ],
        [X],
        [info("y", F, None)],
        {"one": np.array([1]), **({"end": last} if written == "initializer" else {})},
    )
    built = same(made, {"x": ONES})
    assert BY not in built.choices
    assert "computed by" not in built.choices


@pytest.mark.parametrize("kind", [I64, TensorProto.INT32])
def test_a_table_that_an_input_is_looked_up_in_stays_in_openvino_and_indices_that_it_lacks_are_refused(kind):
    table = np.arange(10, dtype=np.float32).reshape(5, 2)
    made = model(
        [node("Gather", ["table", "x"], ["y"])], [info("x", kind, ["n"])], [info("y", F, None)], {"table": table}
    )
    dtype = np.int64 if kind == I64 else np.int32
    built = same(made, {"x": np.array([0, 4, -5, -1], dtype)})
    assert BY not in built.choices
    with built.create_context() as context:
        for wrong in (5, -6):
            with pytest.raises(BindingError, match=rf"input 'x': .* expected -5 to 4, found .*{wrong}.*\nDo: "):
                context.run({"x": np.array([0, wrong], dtype)})


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_8_bit_sums_wrap(dtype):
    kind = {np.int8: TensorProto.INT8, np.uint8: TensorProto.UINT8}[dtype]
    made = model([node("Add", ["a", "b"], ["y"])], [info("a", kind, [2]), info("b", kind, [2])], [info("y", kind, [2])])
    same(
        made,
        {"a": np.array([127, 100], dtype), "b": np.array([127, 100], dtype)}
        if dtype is np.int8
        else {"a": np.array([255, 1], dtype), "b": np.array([2, 1], dtype)},
    )


@pytest.mark.parametrize("attributes", [{"antialias": 1, "mode": "linear"}, {"mode": "cubic", "exclude_outside": 1}])
def test_a_resize_that_openvino_does_not_know(attributes):
    made = model(
        [node("Resize", ["x", "", "scales"], ["y"], **attributes)],
        [info("x", F, [1, 1, 6, 6])],
        [info("y", F, None)],
        {"scales": np.array([1, 1, 0.5, 0.5], np.float32)},
        opset=18,
    )
    same(made, {"x": np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6)})


@pytest.mark.parametrize(("size", "handed_over"), [(7, False), (6, True)])
def test_pools_that_round_up_are_handed_over_only_where_a_window_begins_behind_the_image(size, handed_over):
    pool = (
        node("MaxPool", ["x"], ["y"], kernel_shape=[1, 1], strides=[3, 3], ceil_mode=1)
        if handed_over
        else node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    )
    built = same(
        model([pool], [info("x", F, [1, 1, size, size])], [info("y", F, None)]),
        {"x": np.arange(size * size, dtype=np.float32).reshape(1, 1, size, size)},
    )
    assert (BY in built.choices) == handed_over


@pytest.mark.parametrize(
    ("size", "pads", "counts", "handed_over"), [(6, 1, 1, True), (7, 1, 1, False), (6, 1, 0, False), (6, 0, 1, False)]
)
def test_averages_that_count_the_padding_are_handed_over_only_where_a_window_ends_behind_it(
    size, pads, counts, handed_over
):
    attributes = {
        "kernel_shape": [3, 3],
        "strides": [2, 2],
        "pads": [pads] * 4,
        "ceil_mode": 1,
        "count_include_pad": counts,
    }
    built = same(
        model(
            [node("AveragePool", ["x"], ["y"], **attributes)], [info("x", F, [1, 1, size, size])], [info("y", F, None)]
        ),
        {"x": np.arange(size * size, dtype=np.float32).reshape(1, 1, size, size)},
    )
    assert (BY in built.choices) == handed_over


def test_a_branch_that_holds_one_is_handed_over_whole():
    then = body([node("ReduceMax", ["h"], ["t"], keepdims=0)], [info("t", F, None)])
    other = body([node("ReduceSum", ["h"], ["e"], keepdims=0)], [info("e", F, None)])
    made = model(
        [node("Neg", ["x"], ["h"]), node("If", ["flag"], ["y"], then_branch=then, else_branch=other)],
        [X, info("flag", BOOL, [])],
        [info("y", F, None)],
    )
    for flag in (True, False):
        same(made, {"x": np.full((1, 6), np.inf, np.float32), "flag": np.array(flag)})


def test_what_openvino_cannot_build_is_computed_by_onnxruntime():
    nodes = [node("Relu", ["x"], ["h"]), node("Det", ["h"], ["d"]), node("Neg", ["d"], ["y"])]
    built = same(
        model(nodes, [info("x", F, [2, 3, 3])], [info("y", F, None)]),
        {"x": np.arange(18, dtype=np.float32).reshape(2, 3, 3) ** 2},
    )
    assert built.choices[BY] == "OpenVINO cannot build it"


def test_a_model_whose_ranks_are_known_at_run_time_alone_is_computed_as_a_whole():
    then = body([node("ReduceMax", ["x"], ["t"], keepdims=0)], [info("t", F, None)])
    other = body([node("Identity", ["x"], ["e"])], [info("e", F, None)])
    nodes = [node("If", ["flag"], ["h"], then_branch=then, else_branch=other), node("Neg", ["h"], ["y"])]
    made = model(nodes, [X, info("flag", BOOL, [])], [info("y", F, None)])
    for flag in (True, False):
        built = same(made, {"x": np.full((1, 6), -np.inf, np.float32), "flag": np.array(flag)})
        assert built.choices["computed by"] == "onnxruntime: the number of axes of 'h' is known only at run time"


def test_what_neither_has_is_refused_by_name():
    made = model(
        [node("Relu", ["x"], ["h"]), node("RNN", ["h", "w", "r"], ["y"], hidden_size=2, layout=1)],
        [info("x", F, [1, 3, 2])],
        [info("y", F, None)],
        {"w": np.ones((1, 2, 2), np.float32), "r": np.ones((1, 2, 2), np.float32)},
    )
    with pytest.raises(
        BuildError,
        match=r"(?s)node 'RNN_y' \(RNN\): OpenVINO is wrong for RNN with layout 1: .*; and onnxruntime cannot run it",
    ):
        build(made, engine="cpu")


@pytest.mark.parametrize("dtype", ["float64", "uint32", "uint64"])
def test_numbers_that_openvino_does_not_keep_are_computed_by_onnxruntime(dtype):
    made, (feeds,) = _of(dtype)
    built = same(made, feeds)
    assert built.choices["computed by"].startswith(
        "onnxruntime: OpenVINO is wrong for Mul of float64, uint32 or uint64"
    )


def _of(dtype):
    from onnx import helper

    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    made = model(
        [node("Mul", ["x", "three"], ["y"])],
        [info("x", kind, [2])],
        [info("y", kind, [2])],
        {"three": np.array(3, dtype)},
    )
    return made, [{"x": np.array([1 / 3, 1e300] if dtype == "float64" else [2**31 + 1, 5], dtype)}]


@ptp.plugin(namespace="tests.fallback")
class Times(ptp.Plugin):
    """The input, times a number."""

    factor: int = 1

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x * np.float32(self.factor)


def test_whole_numbers_beyond_32_bits_are_computed_by_onnxruntime_or_refused_by_name():
    concat = node("Concat", ["x", "x"], ["y"], axis=0)
    network = model([concat], [info("x", I64, ["n"])], [info("y", I64, ["m"])])
    with build(network, engine="cpu").create_context() as context:
        for number in (-5, 2**31, -(2**40)):
            np.testing.assert_array_equal(context.run({"x": np.array([number])})["y"], [number, number])
    nodes = [concat, as_node(Times(factor=2), ["f"], ["g"], "p")]
    network = model(
        nodes,
        [info("x", I64, ["n"]), info("f", F, [2])],
        [info("y", I64, ["m"]), info("g", F, [2])],
        domains=("tests.fallback",),
    )
    with build(network, engine="cpu").create_context() as context:
        f = np.ones(2, np.float32)
        np.testing.assert_array_equal(context.run({"x": np.array([-5]), "f": f})["y"], [-5, -5])
        with pytest.raises(
            BindingError, match=r"(?s)input 'x': OpenVINO keeps int64 in 32 bits.*Do: build with engine=.onnxruntime"
        ):
            context.run({"x": np.array([2**31]), "f": f})


def test_plugins_that_differ_in_a_field_alone_and_read_the_same_stay_two():
    nodes = [
        node("Relu", ["x"], ["h"]),
        as_node(Times(factor=2), ["h"], ["a"], "p"),
        as_node(Times(factor=3), ["h"], ["b"], "q"),
    ]
    made = model(nodes, [X], [info("a", F, ["n", 6]), info("b", F, ["n", 6])], domains=("tests.fallback",))
    with build(made, engine="cpu").create_context() as context:
        found = context.run({"x": ONES})
    np.testing.assert_array_equal(found["a"], 2 * ONES)
    np.testing.assert_array_equal(found["b"], 3 * ONES)


@ptp.plugin(namespace="tests.fallback")
class Bent(ptp.Plugin):
    """Slopes of three axes, which OpenVINO takes as ONNX does, in the input's type."""

    def output_dims(self, x):
        return x

    def compute(self, x):
        return np.where(x > 0, x, x / 2)

    def decompose(self, op, x):
        return op.PRelu(x, op.CastLike(np.full((x.dims[1], 1, 1), 0.5), x))


def test_what_a_decomposition_reads_has_known_dims():
    x, y = (info(name, F, ["n", 3, 2, 2]) for name in "xy")
    built = build(model([as_node(Bent(), ["x"], ["y"], "p")], [x], [y], domains=("tests.fallback",)), engine="cpu")
    assert BY not in built.choices


def test_an_engine_file_finds_the_same_again(tmp_path):
    made = model([node("TopK", ["x", "k"], ["v", "i"])], [X], [info("i", I64, None)], {"k": np.array([3])})
    build(made, engine="cpu").save(tmp_path / "a.engine")
    with ptp.load_engine(tmp_path / "a.engine").create_context() as context:
        np.testing.assert_array_equal(context.run({"x": ONES})["i"], alone(made, {"x": ONES})["i"])


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
    made = model(nodes, inputs, [info("y", F, None)], {} if given else {"s": slopes})
    feeds = {"x": x, **({"s": slopes} if given else {}), **({"shape": np.array(x.shape)} if dims is None else {})}
    built = same(made, feeds)
    with built.create_context() as context:
        np.testing.assert_array_equal(context.run(feeds)["y"], x * slopes)


@pytest.mark.parametrize("slopes", [(4, 1, 1), (1, 4, 1, 1), (1,), (), (5, 4)], ids=str)
def test_other_slopes_are_left_to_openvino(slopes):
    x = -np.random.default_rng(0).random((2, 4, 5, 4), np.float32)
    constants = {"s": np.random.default_rng(1).random(slopes, np.float32)}
    made = model([node("PRelu", ["x", "s"], ["y"])], [info("x", F, ["n", 4, 5, 4])], [info("y", F, None)], constants)
    assert BY not in same(made, {"x": x}).choices


def test_every_row_of_the_table_says_what_is_wrong():
    assert all((row.operators or row.where) and row.what for row in KNOWN_ERRORS)


@pytest.mark.parametrize("cut", [0, 1])
def test_constants_from_which_no_element_is_left(cut):
    """OpenVINO folds sums of such tensors and of others, and wrote outside of its memory."""
    nodes = [
        node("Slice", ["b", "start", "end"], ["u"]),
        node("Sub", ["a", "u"], ["t"]),
        node("Mul", ["t", "b"], ["m"]),
        node("Transpose", ["m"], ["y"], perm=[2, 1, 0]),
        node("Neg", ["x"], ["z"]),
    ]
    constants = {
        "a": np.arange(16, dtype=np.float32).reshape(1, 2, 8),
        "b": np.full((1, 1, 1), 3, np.float32),
        "start": np.array([0]),
        "end": np.array([cut]),
    }
    network = model(nodes, [X], [info("y", F, [8, 2, cut]), info("z", F, ["n", 6])], constants)
    same(network, {"x": ONES})


@pytest.mark.parametrize("scale", [1, 10])
def test_indices_of_sizes_that_were_quantized_are_held_against_the_axis(scale):
    """Quantizers round what relative positions are computed from (MPNet, T5); 6 becomes 10, which the table does not have."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Cast", ["s"], ["f"], to=F),
        node("QuantizeLinear", ["f", "scale", "zero"], ["q"]),
        node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        node("Cast", ["d"], ["i"], to=I64),
        node("Gather", ["table", "i"], ["y"]),
    ]
    constants = {"scale": np.float32(scale), "zero": np.uint8(0), "table": np.arange(9, dtype=np.float32)}
    made = model(nodes, [X], [info("y", F, [2])], constants)
    with build(made, engine="cpu", precision="int8").create_context() as context:
        if scale == 1:
            np.testing.assert_array_equal(context.run({"x": ONES})["y"], [1, 6])
            return
        with pytest.raises(ExecutionError, match="Gather"):
            context.run({"x": ONES})
