"""Which inputs become int8: for each rule a network where it applies, and near-misses where one condition does not hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from pytrtplugins.calibration import CalibrationTable
from pytrtplugins.errors import ModelError, UsageError
from pytrtplugins.passes import Placement, quantize, to_ir
from pytrtplugins.passes._int8_demand import input_of
from pytrtplugins.passes.placement import absorbed, bounded, never_negative, rectifies
from tests.passes import nets
from tests.passes.nets import Net

KERNELS = Placement(kernels=frozenset(("Sigmoid", "Mul")))
RESULTS = Placement(results=frozenset(("Conv",)))


def closed(net, x):
    """The net with a quantized convolution behind ``x``, and one in float behind that."""
    net.conv(net.conv(x, "next"), "last", leaky=False)
    return net.model("last")


def split(net, name=None):
    """data → a_leaky → left and right."""
    ends = [net.conv("data", "a")], ["left", "right"]
    net.nodes.append(helper.make_node("Split", *ends, name, axis=1, num_outputs=2))
    net.channels |= {"left": 2, "right": 2}


def reads(model, name, **options):
    """For each input of a node of the quantized model, whether a DequantizeLinear gives it."""
    table = CalibrationTable({**nets.ones(model), **dict.fromkeys([o.name for o in model.graph.output], 0.01)})
    made = nets.producers(quantize(model, table, **options))
    return [x in made and made[x].op_type == "DequantizeLinear" for x in made[name].input]


# --- what makes a tensor -------------------------------------------------------------------------------------------


def kinds_net():
    net = Net()
    for name, value in (("zero", 0), ("half", 0.5), ("minus", -0.5), ("six", 6)):
        net.channels[net.constant(name, np.float32(value))] = 1
    net.constant("many", np.float32([0, 0]))
    net.add("Exp", ["minus"], "computed")
    for name, low in (("zero", ["zero"]), ("half", ["half", "six"]), ("minus", ["minus"]), ("computed", ["computed"]),
                      ("none", []), ("no_low", ["", "six"]), ("many", ["many"])):  # fmt: skip
        net.add("Clip", ["data", *low], f"clip_{name}")
    for op in ("Relu", "Neg", "Tanh", "Elu", "Sigmoid", "HardSigmoid", "Softmax"):
        net.add(op, ["data"], op)
    for op in ("Relu", "Clip", "Sigmoid"):
        net.add(op, ["data"], f"other_{op}", domain="elsewhere")
    for x in ("Relu", "Sigmoid", "Neg", "data", "other_Relu"):
        net.add("GlobalAveragePool", [x], f"mean_{x}")
        average = net.add("AveragePool", [x], f"average_{x}", kernel_shape=[1, 1])
        net.add("MaxPool", [average], f"most_{x}", kernel_shape=[1, 1])
    net.add("MaxPool", ["Relu"], "other_pool", domain="elsewhere")
    net.add("LpPool", ["Relu"], "lp", kernel_shape=[1, 1])
    names = [node.name for node in net.nodes]
    return {value.name: value for node in to_ir(net.model(*names)).graph for value in node.outputs}


def test_what_makes_a_tensor_says_which_values_it_has():
    values = kinds_net()
    rectified = {"clip_zero", "clip_half", "Relu"}
    gates = {"Sigmoid", "HardSigmoid", "Softmax"}
    pooled = {f"{pool}_{x}" for pool in ("mean", "average", "most") for x in ("Relu", "Sigmoid")}
    assert {name for name, value in values.items() if rectifies(value.producer())} == rectified
    assert {name for name, value in values.items() if bounded(value)} == gates
    assert {name for name, value in values.items() if never_negative(value)} == rectified | gates | pooled
    data = values["Relu"].producer().inputs[0]
    assert not rectifies(data.producer())
    assert not bounded(data)
    assert not never_negative(data)


def test_a_result_is_absorbed_by_a_rectifier_that_alone_reads_it():
    net = Net()
    for name, readers in (
        ("one", ["Relu"]),
        ("two", ["Relu", "Relu"]),
        ("neg", ["Neg"]),
        ("none", []),
        ("mixed", ["Relu", "Abs"]),
    ):
        net.add("Neg", ["data"], name)
        for number, reader in enumerate(readers):
            net.add(reader, [name], f"{name}_{number}")
    net.add("Relu", [net.add("Abs", ["data"], "output")], "behind")
    outputs = [node.name for node in net.nodes if node.name not in ("one", "two", "neg", "mixed")]
    values = {value.name: value for node in to_ir(net.model(*outputs)).graph for value in node.outputs}
    found = {name: absorbed(values[name]).name for name in ("one", "two", "neg", "none", "mixed", "output")}
    assert found == {"one": "one_0", "two": "two", "neg": "neg", "none": "none", "mixed": "mixed", "output": "output"}


def test_an_input_that_is_not_there_is_named():
    net = Net()
    model = to_ir(net.model(net.add("Clip", ["data", "", net.constant("six", np.float32(6))], "clip")))
    assert input_of(model.graph[0], 2).name == "six"
    with pytest.raises(ModelError, match="'clip' lacks input 1"):
        input_of(model.graph[0], 1)


# --- copying -------------------------------------------------------------------------------------------------------

COPYING: dict[str, tuple[list[Any], dict[str, Any], int]] = {
    "Concat": ([], {"axis": 1}, 4),
    "DepthToSpace": ([], {"blocksize": 2}, 1),
    "Dropout": ([np.float32(0.5)], {}, 4),
    "Expand": ([np.int64([1, 4, 8, 8])], {}, 4),
    "Flatten": ([], {}, 256),
    "Identity": ([], {}, 4),
    "MaxPool": ([], {"kernel_shape": [2, 2]}, 4),
    "Reshape": ([np.int64([0, 4, 8, 8])], {}, 4),
    "Resize": ([None, np.float32([1, 1, 2, 2])], {}, 4),
    "Slice": ([np.int64([0]), np.int64([4]), np.int64([2])], {}, 4),
    "SpaceToDepth": ([], {"blocksize": 2}, 16),
    "Split": ([], {"num_outputs": 1}, 4),
    "Squeeze": ([], {}, 4),
    "Tile": ([np.int64([1, 1, 1, 2])], {}, 4),
    "Transpose": ([], {"perm": [0, 1, 3, 2]}, 4),
    "Unsqueeze": ([np.int64([4])], {}, 4),
}


def copied(op, domain=""):
    """data → a_leaky → the operator → a matrix product in int8 → one in float."""
    operands, attributes, _ = COPYING[op]
    net = Net()
    given = ["" if value is None else net.constant(f"operand{k}", value) for k, value in enumerate(operands)]
    net.add(op, [net.conv("data", "a"), *given], "copied", domain=domain, **attributes)
    net.add("MatMul", ["copied", net.constant("m", np.ones((8, 8), np.float32))], "product")
    return net.model(net.add("MatMul", ["product", net.constant("n", np.ones((8, 8), np.float32))], "last"))


@pytest.mark.parametrize("op", COPYING)
def test_what_copies_hands_on_the_scale_of_what_it_reads(op):
    model = copied(op)
    assert nets.quantized_names(quantize(model, nets.ones(model))) == ["data", "a_leaky"]
    assert reads(model, "copied") == [True] + [False] * len(COPYING[op][0])
    other = copied(op, domain="elsewhere")
    assert nets.quantized_names(quantize(other, nets.ones(other))) == ["data", "copied"]


@pytest.mark.parametrize("op", ["Abs", "AveragePool", "Pad", "ReduceMax", "Softmax", "Where"])
def test_what_computes_does_not(op):
    net = Net()
    more = {"Pad": ["pads"], "AveragePool": [], "ReduceMax": [], "Where": ["data", "data"]}.get(op, [])
    if op == "Pad":
        net.constant("pads", np.int64([0] * 8))
    a = net.conv("data", "a", 3)
    x = [net.add("Greater", [a, "data"], "more"), a, "data"] if op == "Where" else [a, *more]
    net.add(op, x, "computed", 3, **({"kernel_shape": [1, 1]} if op == "AveragePool" else {}))
    model = closed(net, "computed")
    assert not any(reads(model, "computed"))
    assert "computed" in nets.quantized_names(quantize(model, nets.ones(model)))


def test_a_constant_is_not_copied_as_int8_and_one_wanted_output_is_enough():
    net = Net()
    a = net.conv("data", "a")
    net.constant("c", np.ones((1, 4, 8, 8), np.float32))
    model = closed(net, net.add("Concat", [a, "c"], "cat", 8, axis=1))
    assert reads(model, "cat") == [False, False]
    net = Net()
    split(net, "split")
    net.add("Neg", ["left"], "unread")
    model = closed(net, "right")
    assert reads(model, "right") == [True]
    assert nets.quantized_names(quantize(model, nets.ones(model))) == ["data", "a_leaky", "next_leaky"][:2]


def test_a_node_that_gives_an_output_of_the_model_copies_no_rounded_values():
    net = Net()
    split(net, "split")
    closed(net, "right")
    model = net.model("left", "last")
    assert reads(model, "right") == [False]


def test_a_node_without_a_name_is_excluded_by_its_first_output():
    net = Net()
    split(net)
    model = closed(net, "right")
    assert reads(model, "right") == [True]
    assert reads(model, "right", exclude=["left"]) == [False]
    with pytest.raises(UsageError, match="no node 'right'"):
        reads(model, "right", exclude=["right"])


# --- additions -----------------------------------------------------------------------------------------------------


def residual(first="c", second="a_leaky", *, behind=None, more=(), outputs=(), domain=""):
    """data → a → b → c, a convolution alone; first + second → behind → next → last."""
    net = Net(channels=4)
    net.input[0] = 1  # the constant has the shape of what it is added to
    net.conv(net.conv(net.conv("data", "a"), "b"), "c", leaky=False)
    net.channels[net.constant("constant", np.ones((1, 4, 8, 8), np.float32))] = 4
    net.add("GlobalMaxPool", ["a_leaky"], "pooled")
    net.add("Neg", ["data"], "negative")
    net.add("Add", [first, second], "sum", domain=domain)
    for op, x, name in more:
        net.add(op, [x], name)
    x = net.add(behind, ["sum"], "behind") if behind else "sum"
    closed(net, x)
    return net.model("last", "pooled", "negative", *(name for _, _, name in more), *outputs)


@pytest.mark.parametrize(
    ("expected", "arguments"),
    [
        ([False, True], {}),
        ([True, False], {"first": "a_leaky", "second": "c"}),
        ([False, True], {"behind": "Relu"}),
        ([False, True], {"behind": "LeakyRelu"}),
        ([False, True], {"behind": "Mish"}),
        ([False, True], {"behind": "Softsign"}),
        ([False, True], {"behind": "Celu"}),
        ([False, True], {"second": "negative"}),
        ([True, True], {"first": "negative"}),
        ([True, True], {"more": [("Neg", "c", "reader")]}),
        ([True, True], {"outputs": ["c"]}),
        ([True, True], {"first": "b_leaky"}),
        ([False, False], {"behind": "Abs"}),
        ([False, False], {"behind": "Relu", "more": [("Neg", "sum", "reader")]}),
        ([False, False], {"first": "constant"}),
        ([False, False], {"second": "constant"}),
        ([False, False], {"first": "a_leaky", "second": "a_leaky"}),
        ([False, False], {"second": "pooled"}),
        ([False, False], {"first": "pooled"}),
        ([False, False], {"domain": "elsewhere"}),
    ],
)
def test_additions_read_int8_except_for_the_result_of_a_convolution_that_they_alone_read(expected, arguments):
    assert reads(residual(**arguments), "sum") == expected


def test_a_convolution_in_float_does_not_take_the_addition_in():
    assert reads(residual(), "sum", exclude=["c"]) == [True, True]
    assert reads(residual(), "sum", exclude=["sum"]) == [False, False]


@pytest.mark.parametrize("unknown", ["c", "a_leaky"])
def test_an_addition_of_tensors_of_unknown_shape_stays_in_float(unknown):
    model = residual()
    for info in list(model.graph.value_info):
        if info.name == unknown:
            info.type.tensor_type.ClearField("shape")
    assert reads(model, "sum") == [False, False]


# --- kernels -------------------------------------------------------------------------------------------------------


def product(operand):
    """Erf times an operand, between convolutions."""
    net = Net(channels=4)
    a = net.conv("data", "a", leaky=False)
    net.channels[net.constant("c", np.ones((1, 4, 8, 8), np.float32))] = 4
    erf, x = net.add("Erf", [a], "erf"), "data"
    if operand == "constant operand":
        x = net.add("Mul", ["data", "c"], "x")
    elif operand == "constant":
        x = "c"
    elif operand == "of another domain":
        x = net.add("Erf", ["data"], "x", domain="elsewhere")
    elif operand == "Conv":
        x = net.conv("data", "x", leaky=False)
    elif operand != "data":
        x = net.add(operand, ["data"], "x")
    return closed(net, net.add("Mul", [erf, x], "product"))


@pytest.mark.parametrize(
    ("operand", "expected"),
    [
        ("data", True),
        ("Conv", True),
        ("Transpose", True),
        ("Relu", True),
        ("Clip", True),
        ("Sigmoid", True),
        ("of another domain", True),
        ("Erf", False),
        ("Tanh", False),
        ("constant operand", False),
        ("constant", False),
    ],
)
def test_a_kernel_reads_int8_where_at_least_one_operand_may_be_int8_already(operand, expected):
    assert reads(product(operand), "product", placement=KERNELS)[0] is expected
    assert reads(product(operand), "product") == [False] * 2


def test_a_kernel_reads_int8_only_where_its_result_is_wanted_and_if_it_is_onnxs():
    net = Net()
    gate = net.add("Sigmoid", [net.conv("data", "a", leaky=False)], "gate")
    other = net.add("Sigmoid", [net.conv("data", "b", leaky=False)], "other", domain="elsewhere")
    net.add("Sigmoid", [net.conv("data", "c", leaky=False)], "unwanted")
    closed(net, net.add("Concat", [gate, other], "cat", 8, axis=1))
    model = net.model("last", "unwanted")
    found = {name: reads(model, name, placement=KERNELS) for name in ("gate", "other", "unwanted")}
    assert found == {"gate": [True], "other": [False], "unwanted": [False]}
    assert reads(model, "gate", placement=KERNELS, exclude=["gate"]) == [False]


# --- results -------------------------------------------------------------------------------------------------------


def result(behind, *, outputs=(), more=()):
    net = Net()
    x = net.conv("data", "a", leaky=False)
    net.channels[net.constant("zero", np.float32(0))] = 1
    if behind:
        x = net.add(behind, [x, *(["zero"] if behind == "Clip" else [])], "behind")
    for op, source, name in more:
        net.add(op, [source], name)
    closed(net, x)
    return net.model("last", *(name for _, _, name in more), *outputs)


@pytest.mark.parametrize(
    ("arguments", "quantized", "names"),
    [
        ({"behind": None}, Placement(), ["a", "data"]),
        ({"behind": "LeakyRelu"}, Placement(), ["behind", "data"]),
        ({"behind": "LeakyRelu"}, RESULTS, ["a", "behind", "data"]),
        ({"behind": "LeakyRelu", "outputs": ["a"]}, RESULTS, ["behind", "data"]),
        ({"behind": "Abs"}, Placement(results=frozenset(("Gemm",))), ["behind", "data"]),
        ({"behind": "Relu"}, Placement(results=frozenset(("Conv",)), unsigned=True), ["behind", "data"]),
        ({"behind": "Clip"}, Placement(results=frozenset(("Conv",)), unsigned=True), ["behind", "data"]),
        ({"behind": "Relu"}, RESULTS, ["a", "behind", "data"]),
        (
            {"behind": "Relu", "more": [("Neg", "a", "reader")]},
            Placement(results=frozenset(("Conv",)), unsigned=True),
            ["a", "behind", "data"],
        ),
    ],
)
def test_results_of_layers_whose_kernels_give_int8_alone_are_quantized(arguments, quantized, names):
    model = result(**arguments)
    found = quantize(model, nets.ones(model), placement=quantized)
    onnx.checker.check_model(found)
    assert sorted(nets.quantized_names(found)) == names


def test_only_results_before_another_layer_in_int8_are_quantized():
    net = Net()
    net.add("Tanh", [net.conv("data", "a", leaky=False)], "end")
    closed(net, net.conv("data", "b"))
    model = net.model("end", "last")
    found = quantize(model, nets.ones(model), placement=RESULTS, float_last=False)
    assert sorted(nets.quantized_names(found)) == ["b", "b_leaky", "data", "next", "next_leaky"]


def test_layers_of_another_domain_are_never_quantized_and_follow_nobody():
    net = Net()
    w = net.constant("w", np.ones((4, 4, 1, 1), np.float32))
    a = net.conv("data", "a")
    net.add("Conv", [a, w], "other", domain="elsewhere")
    model = net.model("other")
    assert reads(model, "other", float_last=False) == [False, False]
    assert reads(model, "a", float_last=False)[0]
    assert not any(reads(model, "a"))  # the last layer: that of the other domain does not count
    assert not any(reads(model, "a", float_last=False, float_first=True))
