"""Networks of MXNet compute in ONNX what loops after MXNet's source compute; what is not supported is refused by its node's name."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from pytrtplugins.errors import ModelError, UsageError
from pytrtplugins.mxnet import from_mxnet
from pytrtplugins.mxnet.attributes import Attributes
from tests.engines.operators import literal
from tests.mxnet import loops
from tests.mxnet.files import Symbol, face

SHARED = Path(__file__).parents[3] / "shared" / "data" / "face"
X = np.random.default_rng(1).normal(size=(2, 4, 7, 6)).astype(np.float32)


def computed(model, *arrays):
    """What onnxruntime computes, of the first output."""
    onnx.checker.check_model(model, full_check=True)
    names = [info.name for info in model.graph.input]
    return literal(model, dict(zip(names, arrays, strict=True)))[0]


def result(tmp_path, net, *arrays, shape=(4, 7, 6), **options):
    return computed(from_mxnet(*net.write(tmp_path), shapes={"data": shape}, **options), *arrays)


def one(op, *, extra=0, **attributes):
    """A network of one operator on the input."""
    net = Symbol()
    x = net.variable("data")
    net.node(op, "y", *[x] * (1 + extra), **attributes)
    return net


def test_a_face_network_computes_what_loops_compute(tmp_path):
    net = face()
    w = {name.partition(":")[2]: array for name, array in net.arrays.items()}
    x = np.random.default_rng(2).uniform(0, 255, (2, 3, 16, 16)).astype(np.float32)

    def norm(name, y, **options):
        return loops.batch_norm(
            y, *(w[f"{name}_{part}"] for part in ("gamma", "beta", "moving_mean", "moving_var")), **options
        )

    y = loops.convolution((x - 127.5) * 0.0078125, w["conv_1_weight"], stride=(2, 2), pad=(1, 1))
    first = loops.prelu(norm("conv_1_bn", y, fix_gamma=False), w["conv_1_relu_gamma"])
    y = loops.convolution(first, w["conv_2_dw_weight"], pad=(1, 1), group=8)
    y = loops.prelu(norm("conv_2_dw_bn", y, eps=2e-5), w["conv_2_dw_relu_gamma"])
    y = norm("conv_3_bn", loops.convolution(y, w["conv_3_weight"]), fix_gamma=False) + first
    y = norm("conv_4_bn", loops.convolution(y, w["conv_4_weight"], group=8), fix_gamma=False)
    y = norm("fc1", y.reshape(2, -1) @ w["pre_fc1_weight"].T + w["pre_fc1_bias"], eps=2e-5)
    for shapes in (None, {"data": (3, 16, 16)}):
        model = from_mxnet(*net.write(tmp_path), shapes=shapes)
        np.testing.assert_allclose(computed(model, x), y, rtol=1e-4, atol=1e-4)
        dims = [dim.dim_param or dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
        assert dims == (["N", 3, "height", "width"] if shapes is None else ["N", 3, 16, 16])
        assert [info.name for info in model.graph.output] == ["fc1"]


@pytest.mark.parametrize(
    "options",
    [
        {"bias": True, "pad": (1, 0), "stride": (2, 1)},
        {"group": 2, "dilate": (2, 2), "kernel": (2, 2)},
        {"group": 4, "pad": "[1L, 1L]", "layout": "None", "workspace": 1024, "cudnn_tune": "off"},
    ],
)
def test_convolutions_equal_loops(tmp_path, options):
    net = Symbol()
    net.conv("y", net.variable("data"), 4, 8, **options)
    kept = {key: options[key] for key in ("stride", "dilate", "group") if key in options}
    pad = (1, 1) if isinstance(options.get("pad"), str) else options.get("pad", (0, 0))
    expected = loops.convolution(X, net.arrays["arg:y_weight"], net.arrays.get("arg:y_bias"), pad=pad, **kept)
    np.testing.assert_allclose(result(tmp_path, net, X), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("counts_border", [True, False])
@pytest.mark.parametrize("sizes", [((2, 2), (2, 2), (0, 0)), ((3, 3), (2, 2), (1, 1)), ((3, 2), (3, 2), (0, 1))])
def test_pools_equal_loops(tmp_path, kind, full, counts_border, sizes):
    kernel, stride, pad = sizes
    convention = "full" if full else "valid"
    net = one(
        "Pooling", kernel=kernel, stride=stride, pad=pad, pool_type=kind, pooling_convention=convention,
        count_include_pad=counts_border,
    )  # fmt: skip
    expected = loops.pooling(X, kernel, stride, pad, kind, full, counts_border)
    np.testing.assert_allclose(result(tmp_path, net, X), expected, rtol=1e-5, atol=1e-6)


SLOPES = np.float32([0.1, -0.5, 2, 0])
SUMS = (X.astype(np.float64) ** 2).sum


@pytest.mark.parametrize(
    ("net", "expected"),
    [
        (one("Pooling", pool_type="avg", global_pool=True, kernel=(1, 1)), X.mean((2, 3), keepdims=True)),
        (one("Pooling", pool_type="max", global_pool="True"), X.max((2, 3), keepdims=True)),
        (one("LeakyReLU", act_type="leaky", slope=0.1), np.where(X > 0, X, X * 0.1)),
        (one("LeakyReLU"), np.where(X > 0, X, X * 0.25)),
        (one("LeakyReLU", act_type="elu", slope=0.5), np.where(X > 0, X, 0.5 * np.expm1(X))),
        (one("LeakyReLU", act_type="rrelu", lower_bound=0.1, upper_bound=0.3), np.where(X > 0, X, X * 0.2)),
        (one("Activation", act_type="relu"), np.maximum(X, 0)),
        (one("Activation", act_type="sigmoid"), 1 / (1 + np.exp(-X))),
        (one("Activation", act_type="tanh"), np.tanh(X)),
        (one("relu"), np.maximum(X, 0)),
        (one("abs"), abs(X)),
        (one("SoftmaxActivation", mode="channel"), np.exp(X) / np.exp(X).sum(1, keepdims=True)),
        (one("SoftmaxOutput", extra=1, preserve_shape=True), np.exp(X) / np.exp(X).sum(-1, keepdims=True)),
        (one("softmax"), np.exp(X) / np.exp(X).sum(-1, keepdims=True)),
        (one("Activation", act_type="softrelu"), np.log1p(np.exp(X))),
        (one("Activation", act_type="softsign"), X / (1 + abs(X))),
        (one("clip", a_min=0, a_max=0.5), np.clip(X, 0, 0.5)),
        (one("_plus_scalar", scalar=2), X + 2),
        (one("_div_scalar", scalar=2), X / 2),
        (one("_rminus_scalar", scalar=2), 2 - X),
        (one("_RDivScalar", scalar=2), 2 / X),
        (one("_Plus", extra=1), X + X),
        (one("broadcast_mul", extra=1), X * X),
        (one("elemwise_sub", extra=1), X - X),
        (one("Concat", extra=1, num_args=2), np.concatenate([X, X], 1)),
        (one("Concat", extra=1, num_args=2, dim=-1), np.concatenate([X, X], 3)),
        (one("Flatten"), X.reshape(2, -1)),
        (one("Reshape", shape=(0, -1)), X.reshape(2, -1)),
        (one("Reshape", shape=(-1, 2, 84)), X.reshape(2, 2, 84)),
        (one("Reshape", shape=(0, 0, 42)), X.reshape(2, 4, 42)),
        (one("Dropout", p=0.4), X),
        (one("_copy"), X),
        (one("L2Normalization"), X / np.sqrt(SUMS((1, 2, 3), keepdims=True) + 1e-10)),
        (one("L2Normalization", mode="channel", eps=0.5), X / np.sqrt(SUMS(1, keepdims=True) + 0.5)),
        (one("L2Normalization", mode="spatial"), X / np.sqrt(SUMS((2, 3), keepdims=True) + 1e-10)),
        (one("softmax", axis=1), np.exp(X) / np.exp(X).sum(1, keepdims=True)),
        (one("SoftmaxOutput", extra=1, multi_output=True), np.exp(X) / np.exp(X).sum(1, keepdims=True)),
    ],
    ids=lambda value: json.dumps(value.nodes[-1].get("attrs", {})) + value.nodes[-1]["op"] if isinstance(value, Symbol) else "",
)  # fmt: skip
def test_operators_equal_formulas(tmp_path, net, expected):
    np.testing.assert_allclose(result(tmp_path, net, X), expected, rtol=2e-5, atol=1e-6)


POSITIVE = abs(X) + 0.5
FORMULAS = {
    "log_softmax": np.log(np.exp(POSITIVE) / np.exp(POSITIVE).sum(-1, keepdims=True)),
    "sigmoid": 1 / (1 + np.exp(-POSITIVE)),
    "exp": np.exp(POSITIVE),
    "tanh": np.tanh(POSITIVE),
    "LogisticRegressionOutput": 1 / (1 + np.exp(-POSITIVE)),
    "sqrt": np.sqrt(POSITIVE),
    "negative": -POSITIVE,
    "identity": POSITIVE,
    "stop_gradient": POSITIVE,
}
PAIRS = {"Add": ("plus", np.add), "Sub": ("minus", np.subtract), "Mul": ("mul", np.multiply), "Div": ("div", np.divide)}


@pytest.mark.parametrize("op", FORMULAS)
def test_an_operator_without_parameters_equals_its_formula(tmp_path, op):
    np.testing.assert_allclose(result(tmp_path, one(op), POSITIVE), FORMULAS[op], rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("op", "word", "formula"), [(op, *pair) for op, pair in PAIRS.items()] + [("", "power", np.power)]
)
def test_arithmetic_has_all_of_its_names(tmp_path, op, word, formula):
    pairs = [f"elemwise_{op.lower()}", f"broadcast_{op.lower()}", f"_{word}", f"_{word.title()}"] if op else []
    for name in pairs:
        net = Symbol()
        x = net.variable("data")
        net.node(name, "y", x, net.node("_MulScalar", "double", x, scalar=2))
        np.testing.assert_allclose(result(tmp_path, net, POSITIVE), formula(POSITIVE, 2 * POSITIVE), rtol=2e-5)
    for name, expected in {"_": formula(POSITIVE, 3), "_r": formula(3, POSITIVE)}.items():
        for op_name in (f"{name}{word}_scalar", f"{name.title()}{word.title()}Scalar"):
            np.testing.assert_allclose(result(tmp_path, one(op_name, scalar=3), POSITIVE), expected, rtol=2e-5)


def test_gelu_and_selu_equal_their_formulas(tmp_path):
    import math

    erf = np.vectorize(math.erf)(X / np.sqrt(2.0))
    np.testing.assert_allclose(
        result(tmp_path, one("LeakyReLU", act_type="gelu"), X), X * 0.5 * (1 + erf), rtol=1e-4, atol=1e-6
    )
    selu = 1.0507009873554805 * np.where(X > 0, X, 1.6732632423543772 * np.expm1(X))
    np.testing.assert_allclose(result(tmp_path, one("LeakyReLU", act_type="selu"), X), selu, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rank", [2, 3, 4, 5])
def test_slopes_lie_along_the_channels_at_every_rank(tmp_path, rank):
    x = np.random.default_rng(3).normal(size=(3, *(4,) * (rank - 1))).astype(np.float32)
    net = Symbol()
    net.prelu("y", net.variable("data"), 4)
    expected = loops.prelu(x, net.arrays["arg:y_gamma"])
    np.testing.assert_allclose(result(tmp_path, net, x, shape=x.shape[1:]), expected, rtol=1e-6)


def test_one_slope_may_serve_all_channels_and_operators(tmp_path):
    net = Symbol()
    slope = net.param("slope", [0.5])
    flat = net.node("Flatten", "flat", net.node("LeakyReLU", "a", net.variable("data"), slope, act_type="prelu"))
    net.node("LeakyReLU", "b", flat, slope, act_type="prelu")
    expected = np.where(X > 0, X, X * 0.25).reshape(2, -1)
    np.testing.assert_allclose(result(tmp_path, net, X), expected, rtol=1e-6)


@pytest.mark.parametrize(("flatten", "bias"), [(True, True), (True, False), (False, True), (False, False)])
def test_dense_layers_equal_their_formula(tmp_path, flatten, bias):
    net = Symbol()
    net.dense("y", net.variable("data"), 168 if flatten else 6, 5, bias=bias, flatten=flatten)
    x = X.reshape(2, -1) if flatten else X
    expected = x @ net.arrays["arg:y_weight"].T + (net.arrays["arg:y_bias"] if bias else 0)
    np.testing.assert_allclose(result(tmp_path, net, X), expected, rtol=1e-4, atol=1e-5)


def test_a_square_matrix_serves_a_layer_of_rows_and_a_layer_of_all_axes(tmp_path):
    """One of them multiplies with its transpose."""
    data = np.arange(8, dtype=np.float32).reshape(2, 1, 4)
    for order in ((False, True), (True, False)):
        net = Symbol()
        x, w = net.variable("data"), net.drawn("w", 4, 4)
        options = {"num_hidden": 4, "no_bias": True}
        dense = [net.node("FullyConnected", f"d{flatten}", x, w, flatten=flatten, **options) for flatten in order]
        net.node("elemwise_add", "y", *(net.node("Flatten", f"f{number}", number) for number in dense))
        expected = 2 * data[:, 0] @ net.arrays["arg:w"].T
        np.testing.assert_allclose(result(tmp_path, net, data, shape=(1, 4)), expected, rtol=1e-5)


def test_files_of_before_0_9_are_read(tmp_path):
    """Attributes are called param, the statistics stand not among the inputs, and entries have no version."""
    net = Symbol()
    inputs = [net.variable("data"), net.drawn("y_gamma", 4), net.drawn("y_beta", 4)]
    net.node("BatchNorm", "y", *inputs, key="param", eps=0.001, fix_gamma=False)
    for node in net.nodes:
        node.update(backward_source_id=-1, inputs=[entry[:2] for entry in node["inputs"]], attr={"lr_mult": "2"})
    net.arrays["aux:y_moving_mean"], net.arrays["aux:y_moving_var"] = np.float32([0, 1, 2, 3]), np.float32([1, 2, 3, 4])
    w = [net.arrays[name] for name in ("arg:y_gamma", "arg:y_beta", "aux:y_moving_mean", "aux:y_moving_var")]
    files = net.write(tmp_path, version=0)
    np.testing.assert_allclose(
        computed(from_mxnet(*files, shapes={"data": (4, 7, 6)}), X), loops.batch_norm(X, *w, fix_gamma=False), rtol=1e-4, atol=1e-5
    )  # fmt: skip


def test_labels_are_no_input_and_what_leads_nowhere_is_left_out(tmp_path):
    net = Symbol()
    x, label = net.variable("data"), net.variable("softmax_label")
    y = net.node("SoftmaxOutput", "softmax", net.dense("fc", x, 6, 3), label, grad_scale=1)
    net.node("Unknown", "aside", y)
    model = from_mxnet(*net.write(tmp_path, y))
    assert [info.name for info in model.graph.input] == ["data"]
    assert {node.op_type for node in model.graph.node} == {"Gemm", "Softmax"}


def test_several_outputs_keep_their_names(tmp_path):
    net = Symbol()
    x = net.node("relu", "a", net.variable("data", __shape__="(0, 4, 7, 6)"))
    model = from_mxnet(*net.write(tmp_path, net.node("Dropout", "b", x, p=0.5), x))
    assert [info.name for info in model.graph.output] == ["b", "a"]
    np.testing.assert_array_equal(computed(model, X), np.maximum(X, 0))


def test_a_variance_of_zero_is_none_that_is_refused(tmp_path):
    net = Symbol()
    x = net.variable("data")
    net.norm("y", x, 4)
    (name,) = (name for name in net.arrays if name.endswith("moving_var"))
    net.arrays[name][...] = 0
    model = from_mxnet(*net.write(tmp_path), shapes={"data": (4, 7, 6)})
    assert np.isfinite(computed(model, X)).all()
    assert (model.graph.name is not None, model.ir_version, model.opset_import[0].version) == (True, 10, 18)
    net.arrays[name][1] = -1e-6
    with pytest.raises(ModelError, match="no variance is negative"):
        from_mxnet(*net.write(tmp_path), shapes={"data": (4, 7, 6)})


@pytest.mark.parametrize("text", ["3", "3L", "7"])
def test_whole_numbers_reach_both_limits(text):
    node = SimpleNamespace(attributes={"p": text}, error=lambda *words: ModelError(words[0]))
    assert Attributes(node).integer("p", least=3, most=7) == int(text[0])
    for least, most in ((int(text[0]) + 1, 9), (0, int(text[0]) - 1)):
        with pytest.raises(ModelError, match=f"a whole number of {least} to {most}"):
            Attributes(node).integer("p", least=least, most=most)


REFUSED = {
    "an operator that nobody knows": (lambda n, x: n.node("Deconvolution", "y", x), "node 'y' (Deconvolution): this operator is not"),
    "an attribute that nobody knows": (lambda n, x: n.node("Flatten", "y", x, odd=3), "the attribute 'odd' = '3' is unknown"),
    "an attribute that is missing": (lambda n, x: n.node("clip", "y", x, a_min=0), "it lacks the attribute 'a_max'"),
    "an attribute that is code": (
        lambda n, x: n.conv("y", x, 4, 2, pad="__import__('os')"),
        "'pad' is \"__import__('os')\"; expected whole numbers",
    ),
    "a negative size": (lambda n, x: n.conv("y", x, 4, 2, pad=(-1, 0)), "'pad' is '(-1, 0)'; expected 2 whole numbers of 0 to"),
    "a number beyond float32": (lambda n, x: n.node("_mul_scalar", "y", x, scalar="1e39"), "a number that float32 can hold"),
    "a kernel larger than the image": (lambda n, x: n.conv("y", x, 4, 2, kernel=(9, 9)), "its result would have dims N x 2 x -1 x -2"),
    "a size of twenty digits": (
        lambda n, x: n.node("Flatten", "y", n.conv("z", x, 4, 4, pad=(2**30 - 4,) * 2, kernel=(3, 3))),
        f"its result would have dims N x {4 * (2**31 - 3) * (2**31 - 4)};",
    ),
    "sizes without bounds": (lambda n, x: n.conv("y", x, 4, 2, pad=(2**31 - 1,) * 2), "expected sizes of 1 to 2,147,483,647"),
    "groups that do not divide": (lambda n, x: n.conv("y", x, 4, 3, group=2), "2 groups do not divide 4 channels and 3 filters"),
    "a slope of another length": (lambda n, x: n.prelu("y", x, 5), "'y_gamma' has dims 5; expected 4"),
    "a statistic of another length": (lambda n, x: n.norm("y", x, 3), "'y_gamma' has dims 3; expected 4"),
    "a weight of another length": (lambda n, x: n.dense("y", x, 167, 3), "'y_weight' has dims 3 x 167; expected 3 x 168"),
    "another axis": (lambda n, x: n.norm("y", x, 4, axis=3), "axis=3 is not supported"),
    "a window outside": (
        lambda n, x: n.node("Pooling", "y", x, kernel=(1, 1), stride=(5, 5), pooling_convention="full"),
        "a window of it lies outside",
    ),
    "a fixed batch": (lambda n, x: n.node("Reshape", "y", x, shape=(1, -1)), "fixes the batch"),
    "a shape that does not fit": (lambda n, x: n.node("Reshape", "y", x, shape=(0, 5, -1)), "does not fit dims N x 4 x 7 x 6"),
    "dims that differ": (lambda n, x: n.node("elemwise_add", "y", x, n.node("Flatten", "f", x)), "which do not fit"),
    "too few inputs": (lambda n, x: n.node("elemwise_add", "y", x), "it reads 1 tensors; expected 2"),
    "no inputs": (lambda n, x: n.node("relu", "y"), "it reads nothing"),
    "dropout in inference": (lambda n, x: n.node("Dropout", "y", x, mode="always"), "'mode' is 'always'; expected training"),
    "a missing parameter": (
        lambda n, x: n.node("LeakyReLU", "y", x, n.variable("slope"), act_type="prelu"),
        "node 'y' (LeakyReLU): the parameter 'slope' is missing",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_supported_is_refused_by_its_node(tmp_path, case):
    make, text = REFUSED[case]
    net = Symbol()
    make(net, net.variable("data"))
    with pytest.raises(ModelError, match="Do: ") as caught:
        from_mxnet(*net.write(tmp_path), shapes={"data": (4, 7, 6)})
    assert text in str(caught.value)
    assert caught.value.node in ("y", "f")


PLAIN = ("Dropout", "_copy", "BlockGrad", "relu", "Flatten", "softmax", "SoftmaxActivation", "L2Normalization")
ONE_INPUT = {
    **{op: {} for op in PLAIN},
    "Activation": {"act_type": "tanh"},
    "LeakyReLU": {"act_type": "leaky"},
    "Pooling": {"kernel": (2, 2)},
    "Reshape": {"shape": (0, -1)},
    "_plus_scalar": {"scalar": 2},
    "clip": {"a_min": 0, "a_max": 6},
}


@pytest.mark.parametrize("op", ONE_INPUT)
def test_an_operator_on_one_tensor_refuses_a_second(tmp_path, op):
    with pytest.raises(ModelError, match=r"it reads 2 tensors; expected 1\b"):
        from_mxnet(*one(op, extra=1, **ONE_INPUT[op]).write(tmp_path), shapes={"data": (4, 7, 6)})


def test_parameters_of_another_network_are_refused_by_their_names(tmp_path):
    symbol, params = face().write(tmp_path)
    net = Symbol()
    net.conv("other", net.variable("data"), 3, 4)
    _, others = net.write(tmp_path, name="other")
    with pytest.raises(ModelError, match=r"1 of 1 arrays have no parameter in .*: 'other_weight'\.") as caught:
        from_mxnet(symbol, others)
    assert caught.value.extra == ("other_weight",)
    with pytest.raises(ModelError, match="'conv_1_weight' is missing"):
        from_mxnet(symbol, others, allow_extra=True, shapes={"data": (3, 16, 16)})
    more = face()
    more.drawn("fc7_weight", 3, 8)
    _, params = more.write(tmp_path, name="more")
    assert from_mxnet(symbol, params, allow_extra=True).graph.output[0].name == "fc1"


def test_inputs_whose_dims_nobody_knows_are_asked_for(tmp_path):
    files = one("relu").write(tmp_path)
    with pytest.raises(ModelError, match=r"which dims this input has\.\nDo: .* --shape data=3x112x112"):
        from_mxnet(*files)
    with pytest.raises(UsageError, match=r"'x' is no input of .*\nInputs: 'data'"):
        from_mxnet(*files, shapes={"data": (2,), "x": (1,)})
    with pytest.raises(UsageError, match=r"the shape of 'data' is \[0\]"):
        from_mxnet(*files, shapes={"data": (0,)})


def test_what_is_multiplied_with_a_matrix_of_another_kind_has_unknown_dims(tmp_path):
    net = Symbol()
    net.node("broadcast_mul", "scaled", net.variable("data"), net.drawn("scales", 1, 4))
    with pytest.raises(ModelError, match="which dims this input has"):
        from_mxnet(*net.write(tmp_path))


@pytest.mark.parametrize("name", ["mobilefacenet-y1"])
def test_a_published_network_equals_its_repaired_export(name):
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is missing: the files of a published network, which may not be shipped")
    model = from_mxnet(folder / "model-symbol.json", folder / "model-0000.params")
    with np.load(SHARED / "orl_aligned.npz") as faces:
        x = np.stack([faces[key] for key in faces.files[:4]]).transpose(0, 3, 1, 2).astype(np.float32)
    expected = computed(onnx.load(folder / f"{name}.onnx"), x)
    np.testing.assert_allclose(computed(model, x), expected, rtol=0, atol=1e-5)
