"""Defaults, words, limits and other names of MXNet's operators, as its documentation lists them, one row for each."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from pytrtplugins.errors import ModelError, UsageError
from pytrtplugins.mxnet import from_mxnet
from tests.engines.operators import literal
from tests.mxnet import loops
from tests.mxnet.files import Symbol
from tests.mxnet.test_convert import X, computed, one

SHAPE = (4, 7, 6)


def network(op, **attributes):
    """A network of one operator on the input, with its parameters."""
    net = Symbol()
    x = net.variable("data")
    if op.startswith("Convolution"):
        given = {"kernel": (3, 3), "num_filter": 2, **attributes}
        inputs = [net.drawn("w", 2, 4, *given["kernel"]), net.drawn("b", 2)]
        net.node(op, "y", x, *inputs, **given)
    elif op == "FullyConnected":
        net.node(op, "y", x, net.drawn("w", 3, 168), net.drawn("b", 3), num_hidden=3, **attributes)
    elif op.startswith("BatchNorm"):
        net.norm("y", x, 4, **attributes)
        net.nodes[-1]["op"] = op
    else:
        count = {"Concat": 2, "concat": 2, "SoftmaxOutput": 2, "Softmax": 2}.get(op, 1)
        net.node(op, "y", *[x] * count, **attributes)
    return net


def converted(folder, net, shape=SHAPE):
    return from_mxnet(*net.write(folder), shapes={"data": shape})


DEFAULTS: dict[str, dict[str, Any]] = {
    "Convolution": {"stride": (1, 1), "dilate": (1, 1), "pad": (0, 0), "num_group": 1, "no_bias": False, "layout": "NCHW"},
    "FullyConnected": {"no_bias": False, "flatten": True},
    "BatchNorm": {"eps": 0.001, "fix_gamma": True, "output_mean_var": False, "axis": 1},
    "LeakyReLU": {"act_type": "leaky", "slope": 0.25, "lower_bound": 0.125, "upper_bound": 0.334},
    "Pooling": {
        "pool_type": "max", "pooling_convention": "valid", "global_pool": False, "stride": (1, 1), "pad": (0, 0), "layout": "NCHW",
    },
    "Pooling avg": {"count_include_pad": True},
    "LeakyReLU rrelu": {"lower_bound": 0.125, "upper_bound": 0.334},
    "softmax": {"axis": -1, "temperature": "None", "dtype": "None", "use_length": False},
    "log_softmax": {"axis": -1, "temperature": 1.0},
    "L2Normalization": {"eps": 1e-10, "mode": "instance"},
    "Concat": {"dim": 1, "num_args": 2},
    "Dropout": {"p": 0.5, "axes": "()", "mode": "training"},
    "Reshape": {"reverse": False},
    "_plus_scalar": {"is_int": False},
}  # fmt: skip
NEEDED: dict[str, dict[str, Any]] = {
    "Pooling": {"kernel": (3, 2)},
    "Pooling avg": {"kernel": (3, 2), "pool_type": "avg", "pad": (1, 1)},
    "LeakyReLU rrelu": {"act_type": "rrelu"},
    "Reshape": {"shape": (0, -1)},
    "_plus_scalar": {"scalar": 3},
    "Activation": {"act_type": "relu"},
    "clip": {"a_min": -1, "a_max": 1},
}


@pytest.mark.parametrize("case", DEFAULTS)
def test_what_is_not_written_has_mxnets_default(tmp_path, case):
    op, needed = case.partition(" ")[0], NEEDED.get(case, {})
    plain = converted(tmp_path, network(op, **needed))
    for name, value in DEFAULTS[case].items():
        assert converted(tmp_path, network(op, **{**needed, name: value})) == plain, name


NAMES = {
    "Convolution": ["Convolution_v1"],
    "BatchNorm": ["BatchNorm_v1"],
    "Pooling": ["Pooling_v1"],
    "Flatten": ["flatten"],
    "Concat": ["concat"],
    "Reshape": ["reshape"],
    "Dropout": ["_copy", "identity", "BlockGrad", "stop_gradient", "LinearRegressionOutput"],
}


@pytest.mark.parametrize("op", NAMES)
def test_other_names_of_an_operator_mean_the_same(tmp_path, op):
    plain = converted(tmp_path, network(op, **NEEDED.get(op, {})))
    for name in NAMES[op]:
        assert converted(tmp_path, network(name, **NEEDED.get(op, {}))) == plain, name


WORDS = {
    ("Activation", "act_type"): "relu or sigmoid or tanh or softrelu or softsign",
    ("LeakyReLU", "act_type"): "leaky or prelu or elu or selu or gelu or rrelu",
    ("Pooling", "pool_type"): "max or avg",
    ("Pooling", "pooling_convention"): "valid or full",
    ("Pooling", "layout"): "NCHW",
    ("Convolution", "layout"): "NCHW",
    ("Dropout", "mode"): "training",
    ("L2Normalization", "mode"): "instance or channel or spatial",
    ("SoftmaxActivation", "mode"): "instance or channel",
    ("softmax", "temperature"): "None or 1 or 1.0",
    ("softmax", "dtype"): "None or float32",
    ("softmax", "use_length"): "False or 0",
    ("BatchNorm", "fix_gamma"): "True or False",
}


@pytest.mark.parametrize(("op", "attribute"), WORDS)
def test_another_word_is_refused_with_those_that_are_known(tmp_path, op, attribute):
    net = network(op, **{**NEEDED.get(op, {}), attribute: "odd"})
    with pytest.raises(ModelError) as caught:
        converted(tmp_path, net)
    assert f"the attribute '{attribute}' is 'odd'; expected {WORDS[op, attribute]}." in str(caught.value)


BY_CHANNEL = [
    *(
        "Activation",
        "BatchNorm",
        "BatchNorm_v1",
        "BlockGrad",
        "Dropout",
        "LeakyReLU",
        "LinearRegressionOutput",
        "_copy",
    ),
    *("abs", "clip", "exp", "identity", "negative", "relu", "sigmoid", "sqrt", "stop_gradient", "tanh"),
    *(f"{side}{word}_scalar" for word in ("plus", "minus", "mul", "div", "power") for side in ("_", "_r")),
    *(f"{side}{word}Scalar" for word in ("Plus", "Minus", "Mul", "Div", "Power") for side in ("_", "_R")),
]


@pytest.mark.parametrize("op", [*BY_CHANNEL, "Flatten", "softmax", "Pooling"])
def test_channels_are_those_of_the_convolution_behind_what_keeps_them(tmp_path, op):
    needed = {"scalar": 2} if "calar" in op else {"kernel": (1, 1)} if op == "Pooling" else NEEDED.get(op, {})
    net = network(op, **needed)
    net.conv("c", len(net.nodes) - 1, 4, 2)
    if op in BY_CHANNEL:
        dims = from_mxnet(*net.write(tmp_path)).graph.input[0].type.tensor_type.shape.dim
        assert [dim.dim_param or dim.dim_value for dim in dims] == ["N", 4, "height", "width"]
    else:
        with pytest.raises(ModelError, match="nothing says which dims this input has"):
            from_mxnet(*net.write(tmp_path))


@pytest.mark.parametrize("kernel", [(3,), (3, 3), (1, 2, 3)])
def test_convolutions_of_1_to_3_axes_are_pytorchs_and_name_their_axes(tmp_path, kernel):
    net = Symbol()
    net.conv(
        "y", net.variable("data"), 4, 6, kernel, group=2, bias=True, stride=(2,) * len(kernel), pad=(1,) * len(kernel)
    )
    model = from_mxnet(*net.write(tmp_path))
    assert [tensor.name for tensor in model.graph.initializer] == ["y_weight", "y_bias"]
    dims = model.graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in dims] == ["N", 4, *("depth", "height", "width")[-len(kernel) :]]
    x = np.random.default_rng(0).normal(size=(2, 4, *(7, 6, 5)[: len(kernel)])).astype(np.float32)
    weight, bias = (torch.from_numpy(net.arrays[f"arg:y_{part}"]) for part in ("weight", "bias"))
    function = getattr(torch.nn.functional, f"conv{len(kernel)}d")
    wanted = function(torch.from_numpy(x), weight, bias, stride=2, padding=1, groups=2)
    np.testing.assert_allclose(computed(model, x), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("full", [False, True])
def test_pools_of_1_to_3_axes_are_pytorchs(tmp_path, rank, full):
    x = np.random.default_rng(0).normal(size=(2, 4, *(8, 7, 6)[:rank])).astype(np.float32)
    convention = "full" if full else "valid"
    net = one("Pooling", kernel=(3,) * rank, stride=(2,) * rank, pad=(1,) * rank, pooling_convention=convention)
    model = converted(tmp_path, net, x.shape[1:])
    wanted = getattr(torch.nn.functional, f"max_pool{rank}d")(torch.from_numpy(x), 3, 2, 1, ceil_mode=full).numpy()
    np.testing.assert_array_equal(computed(model, x), wanted)
    assert [dim.dim_value for dim in model.graph.output[0].type.tensor_type.shape.dim[1:]] == [*wanted.shape[1:]]


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div"])
def test_only_broadcast_operators_broadcast(tmp_path, op):
    formula = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}[op]
    for name in (f"broadcast_{op}", f"elemwise_{op}"):
        net = Symbol()
        net.node(name, "y", net.variable("data"), net.drawn("p", 1, 4, 1, 1, low=1, high=2))
        if name.startswith("elemwise"):
            with pytest.raises(ModelError, match="dims N x 4 x 7 x 6 and 1 x 4 x 1 x 1, which do not fit"):
                converted(tmp_path, net)
            continue
        model = converted(tmp_path, net)
        np.testing.assert_allclose(computed(model, X), formula(X, net.arrays["arg:p"]), rtol=1e-6)
        assert [dim.dim_value for dim in model.graph.output[0].type.tensor_type.shape.dim[1:]] == [4, 7, 6]


ACCEPTED = {
    "a border one smaller than the window": one("Pooling", kernel=(3, 2), pad=(2, 1)),
    "a window of the image's size": one("Pooling", kernel=(7, 6)),
    "the first axis": one("Concat", extra=1, dim=-3),
    "the last axis": one("Concat", extra=1, dim=3),
    "a softmax of the first axis": one("softmax", axis=-4),
    "a softmax of the last axis": one("softmax", axis=3),
    "a number that float32 holds": one("_plus_scalar", scalar="3.3e38"),
    "all sizes": one("Reshape", shape=(0, 0, 0, 0)),
    "a truth value as a number": one("Pooling", kernel=(2, 2), global_pool="1"),
    "a list": one("Pooling", kernel="[2, 2]"),
    "a tuple with a comma at its end": one("Reshape", shape="(0, -1,)"),
}
REFUSED = {
    "a border as large as the window": (one("Pooling", kernel=(3, 2), pad=(2, 2)), "do not fit kernel=(3, 2)"),
    "a stride of 0": (one("Pooling", kernel=(3, 2), stride=(0, 1)), "stride=(0, 1)"),
    "a stride for one axis": (one("Pooling", kernel=(3, 2), stride="(1,)"), "stride=(1,)"),
    "a border for one axis": (one("Pooling", kernel=(3, 2), pad="(1,)"), "pad=(1,)"),
    "a window of 0": (one("Pooling", kernel=(0, 2)), "'kernel' is '(0, 2)'; expected 2 whole numbers of 1 to"),
    "a window of three axes": (one("Pooling", kernel=(1, 1, 1)), "expected 2 whole numbers of 1 to"),
    "an axis before the first": (one("Concat", extra=1, dim=-5), "'dim' is '-5'; expected a whole number of -4 to 3"),
    "an axis behind the last": (one("Concat", extra=1, dim=4), "'dim' is '4'; expected a whole number of -4 to 3"),
    "another number of inputs": (one("Concat", extra=1, num_args=3), "it reads 2 tensors; expected 3"),
    "a softmax behind the last axis": (one("softmax", axis=4), "expected a whole number of -4 to 3"),
    "a softmax before the first axis": (one("softmax", axis=-5), "expected a whole number of -4 to 3"),
    "two inferred sizes": (one("Reshape", shape=(0, -1, -1)), "does not fit dims N x 4 x 7 x 6"),
    "another number of elements": (one("Reshape", shape=(0, 5, 33)), "does not fit dims N x 4 x 7 x 6"),
    "a size that is copied from no axis": (one("Reshape", shape=(0, 4, 7, 6, 0)), "does not fit dims"),
    "a size of -2": (one("Reshape", shape=(0, -2)), "whole numbers of -1 to"),
    "reversed": (one("Reshape", shape=(0, -1), reverse=True), "reverse=True is not supported"),
    "a softmax of a whole sample": (one("SoftmaxActivation"), "a softmax over all of a sample of dims N x 4 x 7 x 6"),
    "four axes of a kernel": (network("Convolution", kernel=(1, 1, 1, 1)), "its kernel has 4 axes; expected 1 to 3"),
    "a kernel of one axis on an image": (network("Convolution", kernel=(3,)), "of dims N x 4 x 7 x 6; expected rank 3"),
    "a scale without its statistics": (network("BatchNorm", output_mean_var=True), "output_mean_var=True is not supported"),
    "the last axis of four": (network("BatchNorm", axis=-1), "axis=-1 is not supported"),
    "the batch as axis": (network("BatchNorm", axis=0), "axis=0 is not supported"),
    "no number": (one("_plus_scalar", scalar="nan"), "a number that float32 can hold"),
    "3.4e38": (one("_plus_scalar", scalar="3.4e38"), "a number that float32 can hold"),
    "no filters": (network("Convolution", num_filter=0), "a whole number of 1 to 2,147,483,647"),
    "no groups": (network("Convolution", num_group=0), "a whole number of 1 to 2,147,483,647"),
    "2^31 filters": (network("Convolution", num_filter=2**31), "a whole number of 1 to 2,147,483,647"),
    "groups that do not divide the channels": (network("Convolution", num_group=3, num_filter=3), "3 groups do not divide 4"),
}  # fmt: skip


@pytest.mark.parametrize("case", ACCEPTED)
def test_attributes_at_their_limits_are_taken(tmp_path, case):
    assert len(computed(converted(tmp_path, ACCEPTED[case]), X)) == 2


@pytest.mark.parametrize("case", REFUSED)
def test_attributes_beyond_their_limits_are_refused(tmp_path, case):
    net, text = REFUSED[case]
    with pytest.raises(ModelError) as caught:
        converted(tmp_path, net)
    assert text in str(caught.value)


@pytest.mark.parametrize(("op", "shape", "good"), [
    *(("Pooling", (4, *(3,) * rank), 1 <= rank <= 3) for rank in (0, 1, 2, 3, 4)),
    *(("L2Normalization spatial", (4, *(3,) * rank), rank > 0) for rank in (0, 1)),
    *(("L2Normalization channel", shape, bool(shape)) for shape in ((), (4,))),
    *(("SoftmaxActivation instance", shape, len(shape) == 1) for shape in ((4,), (4, 3))),
    ("SoftmaxActivation channel", (4, 3), True),
])  # fmt: skip
def test_operators_take_tensors_of_their_ranks(tmp_path, op, shape, good):
    name, _, mode = op.partition(" ")
    net = one(name, **({"mode": mode} if mode else {"kernel": (1,) * (len(shape) - 1)}))
    if good:
        x = np.random.default_rng(0).normal(size=(2, *shape)).astype(np.float32)
        assert computed(converted(tmp_path, net, shape), x).shape[:2] == (2, 4)
    else:
        with pytest.raises(ModelError):
            converted(tmp_path, net, shape)


@pytest.mark.parametrize(
    ("size", "good"), [(1, True), (2**31 - 1, True), (0, False), (2**31, False), (1.0, False), (True, False)]
)
def test_sizes_of_an_input_are_whole_numbers_of_32_bits(tmp_path, size, good):
    if good:
        assert converted(tmp_path, one("relu"), (size,)).graph.input[0].type.tensor_type.shape.dim[1].dim_value == size
    else:
        with pytest.raises(UsageError, match="expected numbers of 1 to 2,147,483,647"):
            converted(tmp_path, one("relu"), (size,))


@pytest.mark.parametrize("count", [5, 6])
def test_five_arrays_that_nobody_reads_are_named(tmp_path, count):
    net = one("relu")
    files = net.write(tmp_path)
    for number in range(count):
        net.drawn(f"a{number}", 1)
    with pytest.raises(
        ModelError, match=r": 'a0', 'a1', 'a2', 'a3', 'a4'" + (r" \(and 1 more\)" if count > 5 else r"\.\n")
    ):
        from_mxnet(files[0], net.write(tmp_path, name="other")[1])


def test_dims_in_a_message_are_those_of_the_first_nine_axes(tmp_path):
    for rank, more in ((8, ""), (9, " x ...")):
        shape = tuple(range(2, 2 + rank))
        with pytest.raises(ModelError) as caught:
            converted(tmp_path, one("Pooling", kernel=(1, 1)), shape)
        assert f"of dims N x {' x '.join(map(str, shape[:8]))}{more}; expected 3 to 5 axes" in str(caught.value)


def test_the_labels_of_every_loss_are_left_out(tmp_path):
    for op in ("SoftmaxOutput", "Softmax", "LogisticRegressionOutput", "LinearRegressionOutput"):
        net = Symbol()
        x = net.dense("fc", net.variable("data"), 6, 3)
        net.node(op, "y", x, net.variable("label"), grad_scale=json.dumps(2))
        model = from_mxnet(*net.write(tmp_path))
        assert [info.name for info in model.graph.input] == ["data"]
        assert model.graph.node[-1].op_type == {"Lin": "Identity", "Log": "Sigmoid"}.get(op[:3], "Softmax")


CONSTANTS = {  # what an operator writes beside its parameters, by the names that it gets, with their dims
    "_plus_scalar": ({"scalar": 3}, {"y/scalar": ()}),
    "clip": ({"a_min": -0.5, "a_max": 0.5}, {"y/a_min": (), "y/a_max": ()}),
    "Reshape": ({"shape": (0, 0, 42)}, {"y/shape": (3,)}),
    "L2Normalization": ({"eps": 0.5}, {"y/axes": (3,), "y/eps": ()}),
    "Pooling": (
        {"kernel": (3, 3), "pad": (1, 1), "pool_type": "avg", "stride": (2, 2), "pooling_convention": "full"},
        {"y/pads": (8,)},
    ),
    "LeakyReLU": ({"act_type": "gelu"}, {"gelu/half": (), "gelu/root": (), "gelu/one": ()}),
}


@pytest.mark.parametrize("op", CONSTANTS)
def test_a_parameter_of_the_name_of_a_constant_is_another(tmp_path, op):
    """It is written first, since another operator reads it."""
    attributes, names = CONSTANTS[op]
    (name, dims), *_ = names.items()
    net = Symbol()
    x, parameter = net.variable("data"), net.param(name, np.full(dims, 7, np.float32))
    read = net.node("relu", "read", parameter)
    files = net.write(tmp_path, net.node(op, "y", x, **attributes), read, version=3)
    model = from_mxnet(*files, shapes={"data": SHAPE})
    found = dict(zip([info.name for info in model.graph.output], literal(model, {"data": X}), strict=True))
    np.testing.assert_array_equal(found["y"], computed(converted(tmp_path, one(op, **attributes)), X))
    assert (found["read"] == 7).all()


def test_a_scale_that_is_fixed_in_one_place_is_not_in_another(tmp_path):
    net = Symbol()
    x = net.variable("data")
    net.norm("a", x, 4, fix_gamma=True)
    inputs = [net.nodes[-1]["inputs"][place][0] for place in range(1, 5)]
    net.node("BatchNorm", "b", len(net.nodes) - 1, *inputs, fix_gamma=False)
    arrays = [net.arrays[name] for name in ("arg:a_gamma", "arg:a_beta", "aux:a_moving_mean", "aux:a_moving_var")]
    expected = loops.batch_norm(loops.batch_norm(X, *arrays), *arrays, fix_gamma=False)
    np.testing.assert_allclose(computed(converted(tmp_path, net), X), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", ["relu", "BatchNorm"])
def test_a_second_output_of_an_operator_is_not_read(tmp_path, op):
    net = Symbol()
    x = net.node("relu", "several", net.variable("data"))
    net.norm("y", x, 4) if op == "BatchNorm" else net.node(op, "y", x)
    net.nodes[-1]["inputs"][0][1] = 1
    with pytest.raises(
        ModelError, match="it reads output 1 of node 'several'; operators with several are not supported"
    ):
        converted(tmp_path, net)
