import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from pytrtplugins.calibration import ChannelMaximaCalibrator
from pytrtplugins.passes import CrossLayerEqualization, quantize, to_ir, to_proto
from tests.measures import sqnr

from .nets import Net, calibrated, constants, image, run


def spread(model, tensor, factors):
    """Make the channels of a convolution's result as different as the factors."""
    for constant in model.graph.initializer:
        if constant.name in (f"{tensor}_w", f"{tensor}_b"):
            array = numpy_helper.to_array(constant)
            scaled = array * np.reshape(factors, (-1, *[1] * (array.ndim - 1)))
            constant.CopyFrom(numpy_helper.from_array(scaled.astype(np.float32), constant.name))
    return model


def channels(model):
    calibrator = ChannelMaximaCalibrator()
    for name, value in {"data": image(model), **run(model, image(model))}.items():
        calibrator.observe(name, value)
    return calibrator.channels


def equalize(model, maxima=None):
    ir_model = to_ir(model)
    result = CrossLayerEqualization(channels(model) if maxima is None else maxima)(ir_model)
    return to_proto(ir_model), result


def mobile(between=(), group=8, ratio=1.5):
    """Convolution, depthwise convolution, convolution; the first two with channels of very different ranges."""
    net = Net()
    x = net.conv("data", "a", 8)
    for op in between:
        attributes = {"kernel_shape": [2, 2], "strides": [2, 2]} if op == "MaxPool" else {}
        inputs = [x, net.constant("slope", np.full((8, 1, 1), 0.3, np.float32))] if op == "PRelu" else [x]
        x = net.add(op, inputs, f"a_{op}", **attributes)
    b = net.conv(x, "b", 8, group=group)
    c = net.conv(b, "c", 8, kernel=1)
    model = net.model(net.conv(c, "d", 4, kernel=1, leaky=False))
    return spread(spread(model, "a", ratio ** np.arange(-4, 4)), "b", ratio ** np.arange(4, -4, -1))


@pytest.mark.parametrize("group", [1, 8])
@pytest.mark.parametrize("between", [(), ("MaxPool",), ("Relu", "Identity"), ("PRelu", "MaxPool")])
def test_the_network_computes_the_same_in_float(between, group):
    model = mobile(between, group)
    equalized, result = equalize(model)
    assert {("a", "b"), ("b", "c")} <= set(result.pairs)
    expected, actual = run(model, image(model, 7), ["d"])["d"], run(equalized, image(model, 7), ["d"])["d"]
    np.testing.assert_array_equal(actual, expected)  # powers of two: not one bit differs


def test_factors_are_powers_of_two():
    model = mobile()
    equalized, _ = equalize(model)
    before, after = constants(model), constants(equalized)
    for name in ("a_w", "a_b", "b_w"):
        exponents = np.log2(after[name] / before[name])
        np.testing.assert_array_equal(exponents, np.rint(exponents))


def test_int8_loses_less():
    model = mobile(ratio=3.0)
    equalized, _ = equalize(model)
    x = image(model, 7)
    expected = run(model, x, ["d"])["d"]
    plain, better = (run(quantize(m, calibrated(m)), x, ["d"])["d"] for m in (model, equalized))
    assert sqnr(expected, better) > sqnr(expected, plain) + 6


def test_channels_before_a_depthwise_convolution_get_ranges_within_a_factor_of_two():
    equalized, _ = equalize(mobile())
    maxima = channels(equalized)["a_leaky"]
    assert maxima.min() > 0.5 * maxima.max()


@pytest.mark.parametrize("tensor", ["a_leaky", "b_leaky", "c_leaky"])
def test_no_tensor_gets_a_larger_range(tensor):
    model = mobile()
    equalized, _ = equalize(model)
    assert channels(equalized)[tensor].max() <= channels(model)[tensor].max()


def test_a_factor_weighs_a_channels_range_against_what_it_takes_from_the_weights():
    """sqrt(range / share of the weights): the second filter reads both channels alike, however small its weights are.

    Ranges of 1 and 1/16 and shares of 1 give factors of 1 and 1/4. Of the weights as they are, the shares would be 256 and 1,
    and the first channel would be the one to be enlarged.
    """
    net = Net()
    model = net.model(net.conv(net.conv(net.conv("data", "a", 2), "b", 2, kernel=1), "c", 2, kernel=1, leaky=False))
    for constant in model.graph.initializer:
        if constant.name == "b_w":
            weights = np.float32([[256, 1], [1 / 16, 1 / 16]]).reshape(2, 2, 1, 1)
            constant.CopyFrom(numpy_helper.from_array(weights, "b_w"))
    equalized, result = equalize(model, {"a_leaky": np.array([1, 1 / 16])})
    before, after = constants(model), constants(equalized)
    assert result.pairs == (("a", "b"),)
    for name in ("a_w", "a_b"):
        ratios = after[name] / before[name]
        np.testing.assert_array_equal(ratios[0], 1)
        np.testing.assert_array_equal(ratios[1], 4)
    np.testing.assert_array_equal(after["b_w"][:, :, 0, 0], [[256, 1 / 4], [1 / 16, 1 / 64]])


def test_a_channel_that_calibration_hardly_saw_is_enlarged_by_32_at_most():
    model = mobile()
    maxima = channels(model)
    maxima["a_leaky"] = maxima["a_leaky"] * np.where(np.arange(8) == 2, 1e-6, 1)
    equalized, _ = equalize(model, maxima)
    ratio = constants(equalized)["a_w"][2] / constants(model)["a_w"][2]
    np.testing.assert_array_equal(ratio, 32)


def test_channels_that_were_0_throughout_keep_their_weights():
    model = mobile()
    maxima = channels(model)
    maxima["a_leaky"] = maxima["a_leaky"] * (np.arange(8) != 2)
    equalized, _ = equalize(model, maxima)
    np.testing.assert_array_equal(constants(equalized)["a_w"][2], constants(model)["a_w"][2])


def test_tensors_without_maxima_are_left_alone():
    _, result = equalize(mobile(), {})
    assert not result.modified
    assert result.pairs == ()


OTHERS = {
    "second reader": lambda net, x: net.add("Add", [net.conv(x, "left", 8), net.conv(x, "right", 8)], "sum"),
    "route": lambda net, x: net.conv(net.add("Concat", [x, x], "route", 16, axis=1), "b", 8),
    "residual": lambda net, x: net.add("Add", [net.conv(x, "b", 8), x], "sum"),
    "grouped": lambda net, x: net.conv(x, "b", 8, group=2),
    "sigmoid": lambda net, x: net.conv(net.add("Sigmoid", [x], "s"), "b", 8),
}


@pytest.mark.parametrize("build", OTHERS.values(), ids=OTHERS)
def test_what_is_not_one_convolution_behind_another_is_left_alone(build):
    net = Net()
    model = net.model(net.conv(build(net, net.conv("data", "a", 8)), "d", 4, leaky=False))
    equalized, result = equalize(spread(model, "a", 4.0 ** np.arange(-4, 4)))
    assert all(first != "a" for first, _ in result.pairs)
    np.testing.assert_array_equal(constants(equalized)["a_w"], constants(model)["a_w"])


def test_a_tensor_that_is_an_output_is_left_alone():
    model = mobile()
    model.graph.output.append(next(info for info in model.graph.value_info if info.name == "a_leaky"))
    _, result = equalize(model)
    assert "a" not in [first for first, _ in result.pairs]


def test_weights_that_two_layers_share_are_left_alone():
    model = mobile()
    shared = next(node for node in model.graph.node if node.name == "c")
    copy = onnx.NodeProto()
    copy.CopyFrom(shared)
    copy.name, copy.input[0], copy.output[0] = "copy", "a_leaky", "copy"
    model.graph.node.append(copy)
    _, result = equalize(model)
    assert result.pairs == ()


def two(read, *, first=None, bias=True, group=1, between=None, domain="", **attributes):
    """data → a → between → b; ``read``: the weights of b; those of a are 1."""
    net = Net(channels=2)
    channels = read.shape[0] if group > 1 else read.shape[1]
    net.constant("a_w", np.ones((channels, 2, 1, 1), np.float32) if first is None else first)
    net.constant("a_b", np.ones(channels, np.float32))
    x = net.add("Conv", ["data", "a_w", *(["a_b"] if bias else [])], "a", channels)
    if between:
        x = net.add(between, [x], "between", domain=domain, **attributes)
    net.add("Conv", [x, net.constant("b_w", np.asarray(read, np.float32))], "b", len(read), group=group)
    return net.model("b")


def factors(model, maxima, tensor="a"):
    """By what the channels of a were divided; what b reads must have been multiplied by the same."""
    equalized, result = equalize(model, {tensor: np.asarray(maxima, np.float32)})
    before, after = constants(model), constants(equalized)
    found = (before["a_w"] / after["a_w"])[:, 0, 0, 0]
    if len(equalized.graph.node[0].input) > 2:
        np.testing.assert_array_equal(before["a_b"] / after["a_b"], found)
    depthwise = before["b_w"].shape[1] == 1 < len(found)
    np.testing.assert_array_equal(
        after["b_w"], before["b_w"] * found.reshape((-1, 1, 1, 1) if depthwise else (1, -1, 1, 1))
    )
    assert result.modified is bool((found != 1).any())
    assert result.pairs == ((("a", "b"),) if result.modified else ())
    return found.tolist()


WIDE = np.zeros((3, 4, 3, 3), np.float32)  # rows: shares of the largest are 1, 1/4, 1, 0; all 0; 1, 1/4, 1/8, 0
WIDE[0, [0, 1, 2], [0, 1, 2], [2, 1, 0]] = 4, -1, 4
WIDE[2, [0, 1, 2], [0, 1, 2], [2, 1, 0]] = -8, 2, 1


@pytest.mark.parametrize(
    ("read", "group", "maxima", "expected"),
    [
        (np.ones((2, 4, 1, 1)), 1, [1, 1 / 16, 4, 0], [0.5, 0.125, 1, 1]),  # sqrt of the range
        (WIDE, 1, [1, 1 / 16, 4, 8], [0.5, 0.25, 1, 1]),  # sqrt of the range / weights; the last is read by nobody
        (np.ones((4, 1, 1, 1)), 4, [1, 1 / 16, 4, 0], [0.25, 1 / 32, 1, 1]),  # depthwise: the full range, 1/32 at least
        (np.ones((2, 1, 3, 3)), 2, [4, 1.9], [1, 0.5]),  # rounded up to a power of two
        (np.ones((2, 1, 3, 3)), 2, [4, 3], [1, 1]),
        (np.float32([[[[1]], [[2.0**-40]]]]), 1, [1, 1], [1, 32]),  # 32 at most
        (np.ones((2, 4, 1, 1)), 1, [0, 0, 0, 0], [1, 1, 1, 1]),
        (np.zeros((2, 4, 1, 1)), 1, [1, 2, 3, 4], [1, 1, 1, 1]),
        (np.ones((2, 4, 1, 1)), 1, [1, 1 / 16, 4], [1, 1, 1, 1]),  # of another network
        (np.ones((1, 1, 1, 1)), 1, [16], [1]),
    ],
)
@pytest.mark.parametrize("bias", [False, True])
def test_factors_are_those_that_were_worked_out_by_hand(read, group, maxima, expected, bias):
    assert factors(two(read, group=group, bias=bias), maxima) == expected


def test_factors_come_from_the_tensor_that_the_second_convolution_reads():
    model = two(np.ones((2, 2, 1, 1)), between="Relu")
    assert factors(model, [1, 1 / 16], "between") == [1, 0.25]
    assert factors(model, [1, 1 / 16], "a") == [1, 1]


@pytest.mark.parametrize(
    "model",
    [
        two(np.ones((2, 2, 1, 1)), between="Relu", domain="elsewhere"),
        two(np.ones((2, 2, 1, 1)), between="Neg"),
        two(np.float32([[[[np.inf]], [[1]]]])),
        two(np.float32([[[[np.nan]], [[1]]]])),
        two(np.ones((2, 2, 1, 1)), first=np.full((2, 2, 1, 1), np.inf, np.float32)),
        two(np.ones((4, 1, 1, 1)), group=2, first=np.ones((2, 2, 1, 1), np.float32)),
    ],
)
def test_what_the_factors_would_not_pass_through_is_left_alone(model):
    maxima = dict.fromkeys(("a", "between"), np.float32([1, 1 / 16]))
    equalized, result = equalize(model, maxima)
    assert not result.modified
    for name, value in constants(equalized).items():
        np.testing.assert_array_equal(value, constants(model)[name])


@pytest.mark.parametrize("what", ["a_w", "a_b", "b_w"])
@pytest.mark.parametrize("how", ["computed", "read twice", "Constant", "another domain", "float16", "float64"])
def test_weights_and_biases_must_be_initializers_of_one_convolution(what, how):
    model = two(np.ones((2, 2, 1, 1)))
    node = model.graph.node[what == "b_w"]
    if how == "another domain":
        node.domain = "elsewhere"
        model.opset_import.append(onnx.helper.make_opsetid("elsewhere", 1))
    elif how.startswith("float"):
        held = next(item for item in model.graph.initializer if item.name == what)
        held.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(held).astype(how), what))
    elif how == "Constant":
        held = next(item for item in model.graph.initializer if item.name == what)
        model.graph.node.insert(0, onnx.helper.make_node("Constant", [], [what], "constant", value=held))
        model.graph.initializer.remove(held)
    elif how == "computed":
        node.input[list(node.input).index(what)] = "computed"
        model.graph.node.insert(0, onnx.helper.make_node("Abs", [what], ["computed"], "abs"))
    else:
        model.graph.node.append(onnx.helper.make_node("Abs", [what], ["also"], "abs"))
        model.graph.output.append(onnx.helper.make_tensor_value_info("also", onnx.TensorProto.FLOAT, None))
    assert not equalize(model, {"a": np.float32([1, 1 / 16])})[1].modified


def test_a_pooling_layer_whose_places_are_asked_for_is_left_alone():
    model = two(np.ones((2, 2, 1, 1)), between="MaxPool", kernel_shape=[1, 1])
    assert equalize(model, {"between": np.float32([1, 1 / 16])})[1].modified
    model.graph.node[1].output.append("places")
    assert not equalize(model, {"between": np.float32([1, 1 / 16])})[1].modified


def test_a_convolution_behind_the_input_is_no_pair():
    model = two(np.ones((2, 2, 1, 1)))
    assert not equalize(model, {"data": np.float32([1, 1 / 16])})[1].modified


def test_the_pairs_behind_one_that_is_left_alone_are_still_equalized():
    model = mobile()
    maxima = channels(model)
    del maxima["a_leaky"]
    assert equalize(model, maxima)[1].pairs == (("b", "c"), ("c", "d"))
