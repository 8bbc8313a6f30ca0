"""Why layers stay in float, and what the planner and the writer of Q/DQ do at the edges of their rules."""

import json
import logging

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pytrtplugins.calibration import CalibrationTable
from pytrtplugins.errors import CalibrationTableError, ModelError, UsageError
from pytrtplugins.passes import Placement, Quantize, quantize, quantized_tensors, to_ir, to_proto
from pytrtplugins.passes._quantize_plan import make_plan
from pytrtplugins.passes.codes import quantize_weights
from pytrtplugins.passes.quantize import FLOAT_LAYERS
from tests.passes import nets
from tests.passes.nets import Net

LAST = "last layer before the outputs (float_last)"
FIRST = "first layer behind the inputs (float_first)"
IMAGE = "FP8 is too coarse for the image that it reads (float_first)"


def float_layers(model, **options):
    """Name of every layer that stays in float → why."""
    ir_model = model if not isinstance(model, onnx.ModelProto) else to_ir(model)
    names = [str(value.name) for node in ir_model.graph for value in node.outputs]
    table = CalibrationTable(dict.fromkeys(["data", *names], 0.01))
    return dict(Quantize(table, **options)(ir_model).float_layers)


# --- layers that cannot be quantized -------------------------------------------------------------------------------


def layer(op, weights, *, dims=("N", 4, 8, 8), x="data", **attributes):
    net = Net(channels=4)
    net.input = list(dims)
    net.channels[net.constant("constant", np.ones((1, 4, 8, 8), np.float32))] = 4
    net.constant("w", np.asarray(weights))
    return net.model(net.add(op, [x, "w"], "y", **attributes))


ONES = np.ones((4, 4, 1, 1), np.float32)
GROUPS = "a ConvTranspose with groups has no single axis of output channels"


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (layer("Conv", ONES), None),
        (layer("Conv", np.ones((4, 2, 1, 1), np.float32), group=2), None),
        (layer("Conv", np.ones((4, 4, 1, 1), np.float16)), "its weights are FLOAT16, not FLOAT"),
        (layer("Conv", ONES, x="constant"), "its input is constant"),
        (layer("Conv", np.float32([[[[np.nan]]] * 4] * 4)), "its weights are not finite"),
        (layer("ConvTranspose", np.ones((4, 5, 2, 2), np.float32)), None),
        (layer("ConvTranspose", np.ones((4, 5, 2, 2), np.float32), group=1), None),
        (layer("ConvTranspose", np.ones((4, 5, 2, 2), np.float32), group=2), GROUPS),
        (layer("MatMul", np.ones((8, 5), np.float32)), None),
        (layer("MatMul", np.ones((1, 8, 5), np.float32)), "its weights are not a matrix"),
        (layer("MatMul", np.ones((1, 1, 8, 5), np.float32)), "its weights are not a matrix"),
        (layer("MatMul", np.ones(8, np.float32)), "its weights are not a matrix"),
        (layer("Gemm", np.ones((8, 5), np.float32), dims=(3, 8)), None),
        (layer("Gemm", np.ones((8, 5), np.float32), dims=(8, 3), transA=1), "its input is transposed"),
        (layer("Gemm", np.ones((5, 8), np.float32), dims=(3, 8), transB=1), None),
    ],
)
def test_layers_say_why_they_cannot_be_quantized(model, why):
    assert float_layers(model, float_last=False) == ({} if why is None else {"y": why})


@pytest.mark.parametrize("index", [0, 1])
def test_a_layer_without_input_or_weights_stays_in_float(index):
    model = to_ir(layer("Conv", ONES))
    model.graph[0].replace_input_with(index, None)
    assert float_layers(model, float_last=False) == {"y": "it lacks an input"}
    model = to_ir(layer("Conv", ONES))
    model.graph[0].resize_inputs(1)
    assert float_layers(model, float_last=False) == {"y": "it lacks an input"}


def test_engines_may_lack_kernels():
    model = layer("ConvTranspose", np.ones((4, 5, 2, 2), np.float32))
    placement = Placement(layers=frozenset(("Conv",)))
    assert float_layers(model, placement=placement) == {"y": "the engine has no int8 kernel for ConvTranspose"}


@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent_layers_have_a_scale_for_each_row_of_w_where_the_engine_asks_for_them(op, gates):
    rng, net = np.random.default_rng(0), Net(channels=4)
    net.input = [5, 2, 4]
    w, r = (rng.normal(size=(2, 3 * gates, k)).astype(np.float32) for k in (4, 3))
    net.constant("w", w)
    net.constant("r", r)
    model = net.model(net.add(op, ["data", "w", "r"], "y", hidden_size=3, direction="bidirectional"))
    placement = Placement(layers=frozenset((op,)))
    assert float_layers(model) == {"y": f"the engine has no int8 kernel for {op}"}
    assert float_layers(model, placement=placement) == {"y": LAST}
    quantized = quantize(model, CalibrationTable({"data": 0.01, "y": 0.01}), placement=placement, float_last=False)
    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in quantized.graph.initializer}
    wanted, scales = quantize_weights(w, 1)
    np.testing.assert_array_equal(tensors["w_int8"], wanted)
    np.testing.assert_array_equal(tensors["w_scale"], scales)
    np.testing.assert_allclose(scales, abs(w).max(axis=(0, 2)) / 127, rtol=1e-6)
    np.testing.assert_array_equal(tensors["r"], r)
    assert [list(node.input) for node in quantized.graph.node if node.op_type == op] == [
        ["data_dequantized", "w_dequantized", "r"]
    ]
    model.opset_import[0].version, why = 19, f"the weights of {op} are quantized in INT8 alone"
    assert float_layers(model, placement=placement, float_last=False, precision="fp8") == {"y": why}


# --- the first and the last layers ---------------------------------------------------------------------------------


def branches():
    """data → a → (b, and past it) → sum → c → two heads, one behind further operators."""
    net = Net(channels=4)
    a = net.conv("data", "a")
    x = net.add("Add", [net.conv(a, "b"), a], "sum")
    c = net.conv(net.add("Abs", [net.add("Abs", [x], "abs")], "abs2"), "c")
    net.conv(c, "head1", leaky=False)
    net.conv(net.add("Sigmoid", [c], "gate"), "head2")
    net.conv("data", "alone")
    return net.model("head1", "head2_leaky", "alone_leaky")


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (False, False, {}),
        (False, True, {"head1": LAST, "head2": LAST, "alone": LAST}),
        (True, False, {"a": FIRST, "alone": FIRST}),
        (True, True, {"a": FIRST, "head1": LAST, "head2": LAST, "alone": LAST}),
    ],
)
def test_first_and_last_layers_are_found_through_everything_between(first, last, expected):
    assert float_layers(branches(), float_first=first, float_last=last) == expected


def test_the_last_layers_stay_in_float_if_nothing_is_said_and_the_first_do_not(caplog):
    model = branches()
    table = nets.ones(model)
    expected = {"head1": LAST, "head2": LAST, "alone": LAST}
    with caplog.at_level(logging.INFO):
        for made in (quantize(model, table), to_proto(Quantize(table)(to_ir(model)).model)):
            assert json.loads({p.key: p.value for p in made.metadata_props}[FLOAT_LAYERS]) == expected
    assert f"quantize: head1 stays in float: {LAST}" in caplog.messages
    assert quantized_tensors(to_ir(model)) == ("data", "a_leaky", "abs2")
    assert quantized_tensors(to_ir(model), float_first=True) == ("a_leaky", "abs2")
    without_gate = ["a_leaky", "abs2", "c_leaky", "data"]
    assert sorted(quantized_tensors(to_ir(model), float_last=False)) == without_gate


def starts(channels):
    """data → a convolution, a depthwise one and a product of rows; the first → c → c of few channels → head."""
    net = Net(channels=channels, opset=19)
    c = net.conv(net.add("Mul", [net.conv("data", "first"), net.constant("half", np.float32(0.5))], "scaled"), "c")
    d = net.conv("data", "depthwise", channels, group=channels)
    net.constant("w", np.ones((8, 4), np.float32))
    net.add("MatMul", ["data", "w"], "rows")
    return net.model(net.conv(c, "head", leaky=False), net.conv(d, "head2", leaky=False), "rows")


@pytest.mark.parametrize(
    ("channels", "options", "expected"),
    [
        (3, {"precision": "fp8"}, {"first": IMAGE, "depthwise": IMAGE}),
        (15, {"precision": "fp8"}, {"first": IMAGE, "depthwise": IMAGE}),
        (16, {"precision": "fp8"}, {}),
        (3, {"precision": "fp8", "float_first": False}, {}),
        (16, {"precision": "fp8", "float_first": True}, {"first": FIRST, "depthwise": FIRST, "rows": FIRST}),
        (3, {"precision": "int8"}, {}),
    ],
)
def test_in_fp8_convolutions_that_read_an_image_stay_in_float(channels, options, expected):
    assert float_layers(starts(channels), float_last=False, **options) == expected


def test_an_image_in_fp8_may_be_prepared_inside_the_network():
    net = Net(opset=19)
    shifted = net.add("Sub", ["data", net.constant("mean", np.float32(0.5))], "shifted")
    model = net.model(net.conv(net.conv(shifted, "first"), "second", leaky=False))
    assert float_layers(model, float_last=False, precision="fp8") == {"first": IMAGE}
    assert quantized_tensors(to_ir(model), float_last=False, precision="fp8") == ("first_leaky",)
    assert quantized_tensors(to_ir(model), float_last=False) == ("shifted", "first_leaky")


# --- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear"])
def test_a_quantized_model_is_refused_with_the_first_node(op):
    net = Net()
    given = net.constant("codes", np.ones((1, 3, 8, 8), np.uint8)) if op == "DequantizeLinear" else "data"
    net.channels["codes"] = 3
    net.constant("s", np.float32(1))
    net.add(op, [given, "s"], "first")
    net.add(op, [given, "s"], "second")
    model = net.model("first", "second")
    message = r"is quantized already: it holds 2 QuantizeLinear and DequantizeLinear nodes, the first is 'first'.\nDo: give the float model"
    with pytest.raises(ModelError, match=message) as caught:
        quantize(model, CalibrationTable({}))
    assert caught.value.node == "first"


@pytest.mark.parametrize(("opset", "refused"), [(11, True), (12, True), (13, False), (14, False)])
def test_opsets_from_13_on_are_taken(opset, refused):
    net = Net(opset=opset)
    net.conv("data", "a")
    model = net.model("a_leaky")
    if refused:
        with pytest.raises(ModelError, match=rf"has opset {opset}: expected 13 or newer.*\nDo: onnx.version_converter"):
            quantize(model, nets.ones(model))
    else:
        assert nets.quantized_names(quantize(model, nets.ones(model), float_last=False)) == ["data"]


def test_an_unknown_name_without_a_near_one_and_nodes_without_names():
    model = nets.tiny_yolo()
    with pytest.raises(UsageError) as caught:
        quantize(model, nets.ones(model), exclude=["zzzzzz"])
    assert str(caught.value) == "quantize: exclude: the model has no node 'zzzzzz'."
    assert (caught.value.name, caught.value.near) == ("zzzzzz", ())
    for number, node in enumerate(model.graph.node):
        node.name = f"layer{number}"
    with pytest.raises(UsageError, match=r"has no node 'layer'\. Near: 'layer.', 'layer.', 'layer.'\.$") as caught:
        quantize(model, nets.ones(model), exclude=["layer"])
    assert len(caught.value.near) == 3
    for node in model.graph.node:
        node.name = ""
    assert float_layers(model, exclude=["c"]) == {"c": "excluded", "e": LAST}


@pytest.mark.parametrize("levels", [2, 127])
def test_the_smallest_and_the_largest_number_of_levels(levels):
    model = nets.tiny_yolo()
    held = nets.constants(quantize(model, nets.ones(model), weight_levels=levels))
    assert {int(np.abs(held[name]).max()) for name in held if name.endswith("_w_int8")} == {levels}


# --- scales --------------------------------------------------------------------------------------------------------


def test_tiny_and_shared_scales_of_weights():
    tiny = float(np.finfo(np.float32).tiny)
    weights = np.float32([[127 * tiny * 2, 0], [tiny, tiny], [0, 0], [1, -254]])
    steps, scales = quantize_weights(weights, 0)
    assert scales.tolist() == [np.float32(tiny * 2), 1, 1, 2]
    assert steps.tolist() == [[127, 0], [0, 0], [0, 0], [0, -127]]
    steps, scales = quantize_weights(weights, 0, 64, shared=True)
    assert scales.tolist() == [np.float32(254 / 64)] * 4
    assert steps[3].tolist() == [0, -64]
    steps, scales = quantize_weights(np.zeros((2, 3), np.float32), 1, shared=True)
    assert (scales.tolist(), steps.any()) == ([1, 1, 1], False)
    assert quantize_weights(np.zeros((2, 0), np.float32), 0)[1].tolist() == [1, 1]


def codes(model):
    """Tensor that is quantized → scale, type of its codes."""
    held = nets.constants(model)
    nodes = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    return {n.input[0]: (float(held[n.input[1]]), held[n.input[2]].dtype.name) for n in nodes}


@pytest.mark.parametrize("unsigned", [False, True])
def test_a_scale_of_255_steps_is_for_what_cannot_be_negative(unsigned):
    net = Net()
    gate = net.add("Sigmoid", [net.conv("data", "a")], "gate")
    pooled = net.add("MaxPool", [net.add("Relu", [net.conv(gate, "b")], "relu")], "pooled", kernel_shape=[2, 2])
    both = net.add("Concat", [net.conv(pooled, "c"), net.add("Relu", ["c_leaky"], "relu2")], "both", 8, axis=1)
    net.conv(net.conv(both, "d"), "e")
    model = net.model("e_leaky")
    table = CalibrationTable(
        dict.fromkeys(nets.ones(model), 1 / 127) | {"relu": 2 / 127, "c_leaky": 0.5, "relu2": 0.25}
    )
    found = codes(quantize(model, table, placement=Placement(unsigned=unsigned)))
    kind, steps = ("uint8", 255) if unsigned else ("int8", 127)
    assert found == {
        "data": (pytest.approx(1 / 127), "int8"),
        "gate": (pytest.approx(1 / steps), kind),
        "relu": (pytest.approx(2 / steps), kind),
        "c_leaky": (0.5, "int8"),
        "relu2": (0.5, "int8"),  # shares its scale with what may be negative
    }


@pytest.mark.parametrize(("in_table", "expected"), [(None, 1 / 127), (0.5, 0.5)])
def test_a_gate_needs_no_scale_of_the_table_but_takes_it_where_no_kernel_reads_the_result(in_table, expected):
    net = Net()
    net.conv(net.conv(net.add("Sigmoid", [net.conv("data", "a")], "gate"), "b"), "c")
    model = net.model("c_leaky")
    assert quantized_tensors(to_ir(model)) == ("data",)
    table = {"data": 0.1} | ({} if in_table is None else {"gate": in_table})
    assert codes(quantize(model, CalibrationTable(table)))["gate"] == (pytest.approx(expected), "int8")
    kernels = Placement(kernels=frozenset(("Sigmoid",)))
    table |= {"a": 0.1, "a_leaky": 0.1}
    assert codes(quantize(model, CalibrationTable(table), placement=kernels))["gate"] == (
        pytest.approx(1 / 127),
        "int8",
    )


def test_chains_that_meet_have_one_scale_in_whichever_order_they_are_met():
    net = Net()
    for name in "abcd":
        net.conv("data", name, 2, leaky=False)
    left = net.add("Concat", ["a", "b"], "left", 4, axis=1)
    right = net.add("Concat", ["c", "d"], "right", 4, axis=1)
    middle = net.add("Concat", ["b", "c"], "middle", 4, axis=1)
    net.conv(net.add("Concat", [left, right, middle], "all", 12, axis=1), "next")
    net.conv(net.conv("next_leaky", "last"), "end")
    model = net.model("end_leaky")
    for largest in "abcd":
        table = CalibrationTable(dict.fromkeys(nets.ones(model), 0.01) | {largest: 0.5})
        found = codes(quantize(model, table))
        assert {found[name][0] for name in "abcd"} == {0.5}
        assert found["next_leaky"][0] == pytest.approx(0.01)


def test_tensors_of_whole_numbers_need_no_scale():
    net = Net()
    net.nodes.append(helper.make_node("Shape", ["data"], ["sizes"], "sizes"))
    net.conv(net.conv("data", "a"), "b")
    model = net.model("b_leaky", "sizes")
    model.graph.output[1].type.tensor_type.elem_type = TensorProto.INT64
    assert codes(quantize(model, CalibrationTable({"data": 1, "a_leaky": 1}), float_last=False)) == {
        "data": (1, "int8"),
        "a_leaky": (1, "int8"),
    }


def test_the_error_about_missing_scales_names_float_tensors_that_are_computed():
    net = Net()
    net.nodes.append(helper.make_node("Shape", ["data"], ["sizes"], "sizes"))
    net.nodes.append(helper.make_node("Constant", [], ["one"], "one", value_float=1.0))
    net.channels["one"] = 4
    net.conv(net.add("Add", [net.conv("data", "a"), "one"], "sum"), "b")
    model = net.model("b_leaky", "sizes")
    model.graph.output[1].type.tensor_type.elem_type = TensorProto.INT64
    with pytest.raises(CalibrationTableError) as caught:
        quantize(model, CalibrationTable({"data": 1, "other": 1}), float_last=False)
    assert caught.value.only_in_table == ("other",)
    assert caught.value.only_in_network == ("a", "a_leaky", "sum", "b", "b_leaky")


def test_a_model_without_onnxs_operators_has_opset_0():
    net = Net()
    net.plugin(nets.Swap(), "data", "y")
    model = net.model("y")
    del model.opset_import[0]
    with pytest.raises(ModelError, match=r"the model has opset 0: expected 13 or newer"):
        quantize(model, nets.ones(model))


def test_layers_are_reached_past_nodes_on_several_ways():
    net = Net(channels=4)
    x = net.add("Abs", ["data"], "abs")
    net.conv(net.add("Add", [net.add("Neg", [x], "neg"), net.add("Exp", [x], "exp")], "sum"), "a")
    net.conv(net.add("Mul", [net.add("Neg", ["a_leaky"], "n"), net.add("Exp", ["a_leaky"], "e")], "product"), "b")
    net.add("Sub", [net.add("Abs", ["n"], "m"), net.add("Exp", ["m"], "k")], "y")
    model = net.model("b_leaky", "y")
    assert float_layers(model) == {"b": LAST}
    assert float_layers(model, float_first=True, float_last=False) == {"a": FIRST}


def test_a_plan_leaves_the_last_layers_in_float_unless_it_is_told_otherwise():
    model = branches()
    assert dict(make_plan(to_ir(model), nets.ones(model)).float_layers) == {"head1": LAST, "head2": LAST, "alone": LAST}


# --- the writer ----------------------------------------------------------------------------------------------------


def test_written_tensors_have_types_and_shapes_and_unused_constants_go():
    net = Net(channels=4)
    net.nodes.append(helper.make_node("Constant", [], ["held"], "held", value=numpy_helper.from_array(ONES)))
    net.channels["held"] = 4
    net.add("Conv", [net.conv("data", "a"), "held"], "b")
    net.constant("kept_w", ONES)
    net.channels["kept_w"] = 4
    net.add("Conv", ["b", "kept_w"], "c")
    net.add("Neg", ["kept_w"], "negative")
    model = net.model("c", "negative")
    made = quantize(model, nets.ones(model), float_last=False)
    onnx.checker.check_model(made, full_check=True)
    ir_model = to_ir(made)
    values = {value.name: value for node in ir_model.graph for value in node.outputs}
    for name, kind in (("data_quantized", "INT8"), ("data_dequantized", "FLOAT"), ("a_w_dequantized", "FLOAT")):
        assert str(values[name].dtype) == kind
    assert [str(dim) for dim in values["data_quantized"].shape] == ["N", "4", "8", "8"]
    assert list(values["a_w_dequantized"].shape) == [4, 4, 3, 3]
    assert "Constant" not in {node.op_type for node in made.graph.node}
    held = nets.constants(made)
    assert "a_w" not in held
    assert "kept_w" in held  # somebody else reads it
    assert [node.name for node in made.graph.node][:2] == [
        "data_quantized_QuantizeLinear",
        "data_dequantized_DequantizeLinear",
    ]
    assert [name for name in held if name.endswith("zero") and held[name].ndim == 0] == ["int8_zero"]


def test_weights_that_are_an_output_of_the_model_stay():
    net = Net(channels=4)
    net.conv("data", "a", leaky=False)
    model = net.model("a", "a_w")
    made = quantize(model, nets.ones(model), float_last=False)
    assert "a_w" in nets.constants(made)
    assert nets.producers(made)["a"].input[1] == "a_w_dequantized"


def test_shared_weights_are_written_once_for_each_way_they_are_read():
    net = Net(channels=4)
    net.add("Conv", [net.conv("data", "a"), "a_w"], "b", pads=[1] * 4)
    net.add("Conv", ["b", "a_w"], "c", pads=[1] * 4)
    model = net.model("c")
    model.graph.node[2].name = ""
    made = quantize(model, nets.ones(model), float_last=False, per_tensor=["b", "c"])
    inputs = [nets.producers(made)[name].input[1] for name in "abc"]
    assert inputs == ["a_w_dequantized", "a_w_dequantized_2", "a_w_dequantized_2"]
    held, makers = nets.constants(made), nets.producers(made)
    assert len(set(held[makers[inputs[0]].input[1]].tolist())) == 4
    assert len(set(held[makers[inputs[1]].input[1]].tolist())) == 1
    assert not held[makers[inputs[1]].input[2]].any()
    assert "a_w" not in held


def test_results_name_layers_without_names_by_their_outputs():
    model = nets.tiny_yolo()
    for node in model.graph.node:
        node.name = ""
    assert Quantize(nets.ones(model))(to_ir(model)).layers == ("a", "b", "c", "d")


def test_names_of_weights_that_are_inputs_too_are_taken():
    net = Net()
    net.channels[net.constant("data_scale", np.float32(1))] = 1
    model = net.model(
        net.conv(net.add("Mul", ["data", "data_scale"], "x"), "a", leaky=False), net.add("Exp", ["data"], "y")
    )
    model.graph.node[1].input[0] = "data"
    model.graph.input.append(helper.make_tensor_value_info("data_scale", TensorProto.FLOAT, []))
    made = quantize(model, CalibrationTable({"data": 0.5}), float_last=False)
    held = nets.constants(made)
    assert (held["data_scale"], held["data_scale_2"]) == (1, 0.5)
