"""Products with constant matrices: what becomes of them, and their numbers against the reference engine's."""

import numpy as np
import onnx
import pytest
from onnx import helper

from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines import calibrate
from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.engines.cuda.lower.rewrite import DOMAIN
from pytrtplugins.engines.cuda.plan import in_place
from pytrtplugins.passes import prepare, quantize
from pytrtplugins.plugin.onnx_node import node_attributes
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import assert_near, by_reference, run_on_host
from tests.engines.model_parts import F, info, model

TYPES = pytest.mark.parametrize("float_type", [DType.FLOAT32, DType.FLOAT16])
DIRECT = pytest.mark.parametrize("direct", [False, True])


class Rows:
    """A model of one input ``x``, written node by node; tensors are named by their nodes."""

    def __init__(self, *dims, seed=0):
        self.random = np.random.default_rng(seed)
        self.dims, self.nodes, self.constants, self.inputs = dims, [], {}, {"x": dims}

    def values(self, *dims):
        return self.random.standard_normal(dims).astype(np.float32) / 4

    def constant(self, name, array, kind=np.float32):
        self.constants[name] = np.asarray(array, kind)
        return name

    def add(self, op, inputs, output, **attributes):
        names = [
            each if isinstance(each, str) else self.constant(f"{output}.{i}", each) for i, each in enumerate(inputs)
        ]
        self.nodes.append(helper.make_node(op, names, [output], name=output, **attributes))
        return output

    def model(self, *outputs):
        inputs = [info(name, F, dims) for name, dims in self.inputs.items()]
        results = [info(output, F, None) for output in outputs]
        return onnx.shape_inference.infer_shapes(model(self.nodes, inputs, results, self.constants, opset=20, ir=10))

    def arrays(self):
        return {name: self.values(*dims) for name, dims in self.inputs.items()}


def checked(net, model, float_type=DType.FLOAT32, direct=False, disable=()):
    """The plan's steps, once its numbers are known to be the reference engine's."""
    prepared, inputs = prepare(model), net.arrays()
    found, execution = run_on_host(prepared, inputs, float_type, disable=disable, direct=direct)
    wanted = by_reference(prepared, inputs)
    assert [(y.shape, y.dtype) for y in found.values()] == [(y.shape, y.dtype) for y in wanted.values()]
    assert_near(found, wanted, 2e-6 if float_type is DType.FLOAT32 else 2e-3)
    return execution.plan.steps


def kinds(steps):
    return [step.kind for step in steps]


def fused(model):
    return [node_attributes(node) for node in lower(prepare(model)).graph if node.domain == DOMAIN]


@TYPES
@DIRECT
@pytest.mark.parametrize("dims", [(1, 16), (7, 16), (5, 13), (2, 3, 24), (2, 3, 5, 11), (1, 1, 1, 8), (2, 9, 16, 4)])
@pytest.mark.parametrize("columns", [1, 8, 21])
def test_a_product_is_a_convolution_of_rows_for_any_size(dims, columns, float_type, direct):
    """In float32 it is one step where rows fill 16 bytes."""
    net = Rows(*dims)
    model = net.model(net.add("MatMul", ["x", net.values(dims[-1], columns)], "y"))
    steps = checked(net, model, float_type, direct)
    assert all(step.capturable for step in steps)
    assert kinds(steps).count("conv") == 1
    assert not {"generic", "pointwise"} & set(kinds(steps))
    if float_type is DType.FLOAT32 and dims[-1] % 4 == 0:
        assert kinds(steps) == ["conv"]


@pytest.mark.parametrize(("dims", "copied"), [((2, 8, 5), True), ((2, 5, 8), False), ((8, 5), True), ((5, 8), False)])
def test_rows_that_do_not_fill_16_bytes_are_copied(dims, copied):
    net = Rows(*dims)
    steps = checked(net, net.model(net.add("MatMul", ["x", net.values(dims[-1], 8)], "y")), DType.FLOAT16)
    (product,) = (step for step in steps if step.kind == "conv")
    assert product.inputs[0].endswith("@rows") is copied


@pytest.mark.parametrize("trans", [0, 1])
@pytest.mark.parametrize("alpha", [1.0, 0.5])
@pytest.mark.parametrize("beta", [1.0, -2.0])
@pytest.mark.parametrize("c", [None, (6,), (1, 6), (1,), (), (1, 1)])
def test_a_gemms_factors_and_its_row_are_part_of_its_weights(c, beta, alpha, trans):
    net = Rows(5, 12)
    matrix = net.values(6, 12) if trans else net.values(12, 6)
    rest = [] if c is None else [net.values(*c)]
    model = net.model(net.add("Gemm", ["x", matrix, *rest], "y", transB=trans, alpha=alpha, beta=beta))
    assert kinds(checked(net, model)) == ["conv"]


@pytest.mark.parametrize("c", [(5, 6), (5, 1)])
def test_what_is_no_row_is_added_behind_a_gemm(c):
    net = Rows(5, 12)
    steps = checked(net, net.model(net.add("Gemm", ["x", net.values(12, 6), net.values(*c)], "y", alpha=2.0)))
    assert kinds(steps) == ["conv", "pointwise"]


def test_a_computed_c_of_the_same_dims_is_a_residual():
    net = Rows(5, 12)
    other = net.add("MatMul", ["x", net.values(12, 6)], "other")
    assert kinds(checked(net, net.model(net.add("Gemm", ["x", net.values(12, 6), other], "y")))) == ["conv", "conv"]


@pytest.mark.parametrize(
    "attributes", [{"transA": 1}, {"beta": 0.5}], ids=["a transposed input", "a computed c with a factor"]
)
def test_other_gemms_stay(attributes):
    net = Rows(6, 6)
    c = net.add("Neg", ["x"], "c")
    steps = checked(net, net.model(net.add("Gemm", ["x", net.values(6, 6), c], "y", **attributes)))
    assert "conv" not in kinds(steps)


def test_products_of_other_types_and_ranks_stay():
    net = Rows(2, 3, 4)
    batched = net.add("MatMul", ["x", net.values(2, 4, 5)], "batched")
    vector = net.add("MatMul", ["x", net.values(4)], "vector")
    left = net.add("MatMul", [net.values(7, 3), "x"], "left")
    assert not fused(net.model(batched, vector, left))
    checked(net, net.model(batched, vector, left))


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("row", [(8,), (1, 8), (1, 1, 8), (), (1,)])
def test_an_addition_behind_a_product_is_its_bias(row, swapped):
    net = Rows(2, 3, 16)
    product, values = net.add("MatMul", ["x", net.values(16, 8)], "product"), net.values(*row)
    model = net.model(net.add("Add", [values, product] if swapped else [product, values], "y"))
    assert kinds(checked(net, model)) == ["conv"]


@pytest.mark.parametrize(
    ("dims", "columns", "row"),
    [*(((2, 3, 16), 8, row) for row in ((3, 8), (2, 1, 8), (3, 1), (1, 1, 1, 8))), ((3, 16), 1, (4,))],
)
def test_an_addition_of_more_than_a_row_or_of_a_wider_one_stays(dims, columns, row):
    net = Rows(*dims)
    product = net.add("MatMul", ["x", net.values(16, columns)], "product")
    assert "pointwise" in kinds(checked(net, net.model(net.add("Add", [product, net.values(*row)], "y"))))


def gelu_of_erf(net, x, order):
    scaled = net.add("Div", [x, np.sqrt(2)], "scaled") if order else net.add("Mul", [x, np.sqrt(0.5)], "scaled")
    gate = net.add("Add", [net.add("Erf", [scaled], "erf"), 1.0], "gate")
    if order == 2:
        return net.add("Mul", [net.add("Mul", [0.5, x], "half"), gate], "gelu")
    if order == 1:
        return net.add("Mul", [net.add("Mul", [x, gate], "both"), 0.5], "gelu")
    return net.add("Mul", [x, net.add("Mul", [gate, 0.5], "half")], "gelu")


def gelu_of_tanh(net, x, order):
    if order:
        cube = net.add("Mul", [0.044715, net.add("Pow", [x, 3.0], "cube")], "cubic")
    else:
        cube = net.add("Mul", [net.add("Mul", [x, x], "square"), net.add("Mul", [x, 0.044715], "third")], "cubic")
    inner = net.add("Mul", [net.add("Add", [x, cube], "sum"), np.sqrt(2 / np.pi)], "inner")
    gate = net.add("Add", [1.0, net.add("Tanh", [inner], "tanh")], "gate")
    if order == 2:
        return net.add("Mul", [net.add("Mul", [0.5, x], "half"), gate], "gelu")
    return net.add("Mul", [x, net.add("Mul", [0.5, gate], "half")], "gelu")


@TYPES
@DIRECT
@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize(("write", "kind"), [(gelu_of_erf, "gelu"), (gelu_of_tanh, "gelu_tanh")])
def test_gelu_in_several_operators_is_a_products_activation(write, kind, order, float_type, direct):
    net = Rows(2, 3, 16)
    model = net.model(write(net, net.add("MatMul", ["x", 8 * net.values(16, 24)], "product"), order))
    assert [node["activation"] for node in fused(model)] == [kind]
    assert kinds(checked(net, model, float_type, direct)).count("conv") == 1


ONE_STEP = {
    "gelu": lambda net, x: net.add("Gelu", [x], "y", approximate="none"),
    "gelu_tanh": lambda net, x: net.add("Gelu", [x], "y", approximate="tanh"),
    "swish": lambda net, x: net.add("Mul", [x, net.add("Sigmoid", [x], "gate")], "y"),
}


@DIRECT
@pytest.mark.parametrize("kind", ONE_STEP)
def test_onnx_gelu_and_silu_are_a_products_activation(kind, direct):
    net = Rows(3, 16)
    model = net.model(ONE_STEP[kind](net, net.add("MatMul", ["x", 8 * net.values(16, 24)], "product")))
    assert [node["activation"] for node in fused(model)] == [kind]
    assert kinds(checked(net, model, direct=direct)) == ["conv"]
    assert "pointwise" in kinds(checked(net, model, disable=("activations",)))


@pytest.mark.parametrize("changed", ["half", "one", "root", "other"])
def test_what_is_no_gelu_stays(changed):
    net = Rows(3, 16)
    x = net.add("MatMul", ["x", net.values(16, 16)], "product")
    scaled = net.add("Div", ["x" if changed == "other" else x, 1.5 if changed == "root" else np.sqrt(2)], "scaled")
    gate = net.add("Add", [net.add("Erf", [scaled], "erf"), 2.0 if changed == "one" else 1.0], "gate")
    model = net.model(net.add("Mul", [net.add("Mul", [x, gate], "both"), 0.4 if changed == "half" else 0.5], "y"))
    assert [node["activation"] for node in fused(model)] == ["linear"]
    checked(net, model)


def test_a_gelu_whose_parts_something_else_reads_stays():
    net = Rows(3, 16)
    model = net.model(gelu_of_erf(net, net.add("MatMul", ["x", net.values(16, 16)], "product"), 1), "erf")
    assert [node["activation"] for node in fused(model)] == ["linear"]
    checked(net, model)


def attention(net, columns, widths=(32, 32, 32)):
    """Two heads of an attention whose q, k and v are products of ``columns``, and its result."""
    dims, heads = net.dims, {}
    for name, x, width in zip("qkv", columns, widths, strict=True):
        product = net.add("MatMul", [x, net.values(dims[-1], width)], f"{name}.product")
        biased = net.add("Add", [product, net.values(width)], name)
        shape = net.constant(f"{name}.dims", [dims[0], dims[1], 2, width // 2], np.int64)
        parts = net.add("Reshape", [biased, shape], f"{name}.parts")
        order = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        heads[name] = net.add("Transpose", [parts], f"{name}.heads", perm=order)
    scores = net.add("Mul", [net.add("MatMul", [heads["q"], heads["k"]], "scores"), 0.25], "scaled")
    return net.add("MatMul", [net.add("Softmax", [scores], "shares", axis=-1), heads["v"]], "attended")


@TYPES
def test_an_attentions_projections_are_one_product(float_type):
    net = Rows(2, 5, 16)
    steps = checked(net, net.model(attention(net, ["x"] * 3, (32, 32, 48))), float_type)
    assert [kind for kind in kinds(steps) if kind != "reformat"] == ["conv", "attention"]
    without = checked(net, net.model("attended"), float_type, disable=("horizontal-fusion",))
    assert kinds(without).count("conv") == 3


def test_projections_of_two_tensors_are_two_products():
    net = Rows(2, 5, 16)
    other = net.add("Neg", ["x"], "other")
    steps = checked(net, net.model(attention(net, ["x", other, other])))
    assert kinds(steps).count("conv") == 2
    assert kinds(steps).count("attention") == 1


def test_a_projection_that_something_else_reads_stays_apart():
    net = Rows(2, 5, 16)
    steps = checked(net, net.model(attention(net, ["x"] * 3), net.add("Abs", ["k"], "seen")))
    assert kinds(steps).count("conv") == 2


@TYPES
def test_two_layers_with_gelu_and_a_residual_are_two_steps(float_type):
    net = Rows(2, 5, 16)
    first = net.add("Add", [net.add("MatMul", ["x", net.values(16, 64)], "first"), net.values(64)], "biased")
    second = net.add("MatMul", [gelu_of_erf(net, first, 1), net.values(64, 16)], "second")
    model = net.model(net.add("Add", ["x", net.add("Add", [second, net.values(16)], "shifted")], "y"))
    steps = checked(net, model, float_type)
    rounding = float_type is DType.FLOAT16
    assert kinds(steps) == ["reformat"] * rounding + ["conv", "conv"]
    assert all(step.capturable for step in steps)


@TYPES
@pytest.mark.parametrize("disable", [(), ("cublaslt-kernels",)])
@pytest.mark.parametrize("other", [(2, 3, 16, 5), (3, 16, 5), (16, 5), (2, 1, 16, 1), (16,)])
def test_a_product_of_two_computed_tensors_is_captured_where_cublaslt_is(other, disable, float_type):
    net = Rows(2, 3, 7, 16)
    net.inputs["z"] = other
    model = net.model(net.add("MatMul", ["x", net.add("Neg", ["z"], "negated")], "y"))
    steps = checked(net, model, float_type, disable=disable)
    assert [step.capturable for step in steps if step.kind == "matmul"] == [not disable]
    assert all(step.capturable for step in steps if step.kind != "matmul")


@TYPES
@pytest.mark.parametrize(
    ("dims", "other", "wanted"),
    [
        ((6, 4, 3, 5), (4, 5, 3), ["pointwise", "pointwise", "matmul"]),  # Neg, a copy, one call
        ((4, 5, 3), (6, 4, 3, 5), ["pointwise", "pointwise", "matmul"]),
        ((5, 1, 3, 4), (1, 6, 4, 5), ["pointwise", "pointwise", "pointwise", "matmul"]),
        ((2, 4, 3, 5), (4, 5, 3), ["pointwise", "matmul"]),  # two calls
        ((2, 4, 3, 5), (4, 5, 300), ["pointwise", "matmul"]),  # 48 KB are copied sooner than two calls are made
        ((6, 4, 3, 5), (5, 3), ["pointwise", "matmul"]),  # one
    ],
)
def test_a_small_factor_that_several_axes_repeat_is_copied_and_one_call_made(dims, other, wanted, float_type):
    net = Rows(*dims)
    net.inputs["z"] = other
    second = net.add("Neg", ["z"], "negated")
    first = net.add("Identity", ["x"], "same")
    steps = checked(net, net.model(net.add("MatMul", [first, second], "y")), float_type)
    assert [kind for kind in kinds(steps) if kind != "reformat"] == wanted


def test_a_large_factor_is_not_repeated(monkeypatch):
    monkeypatch.setattr(in_place, "_CALL_BYTES", 64)
    net = Rows(6, 4, 3, 5)
    net.inputs["z"] = (4, 5, 3)
    assert kinds(checked(net, net.model(net.add("MatMul", ["x", "z"], "y")))) == ["matmul"]


def test_a_constant_factor_is_repeated_before_the_run():
    net = Rows(6, 4, 3, 5)
    assert kinds(checked(net, net.model(net.add("MatMul", ["x", net.values(4, 5, 3)], "y")))) == ["matmul"]


def test_products_of_whole_numbers_or_of_nothing_stay():
    net = Rows(2, 3, 0)
    net.inputs["z"] = (2, 0, 5)
    assert "matmul" not in kinds(checked(net, net.model(net.add("MatMul", ["x", "z"], "y"))))


def test_rows_of_four_axes_are_no_images():
    net = Rows(2, 4, 4, 16)
    product = net.add("MatMul", ["x", net.values(16, 8)], "product")
    pool = net.add("MaxPool", [product], "pool", kernel_shape=[2, 2], strides=[2, 2])
    assert [node["pool"] for node in fused(net.model(pool))] == [0]
    checked(net, net.model(pool))


def test_products_of_one_tensor_stay_apart():
    net = Rows(2, 4, 4, 16)
    names = [net.add("MatMul", ["x", net.values(16, 16)], name) for name in ("q", "k", "v")]
    checked(net, net.model(*(net.add("Relu", [name], f"{name}_acted") for name in names)))


@pytest.mark.parametrize(("op", "dims"), [("MatMul", (1, 6, 32)), ("Gemm", (1, 32))])
def test_quantized_products_multiply_codes(op, dims):
    net, x = Rows(*dims), "x"
    for name in ("a", "b", "c"):
        if op == "MatMul":
            x = net.add("Add", [net.add(op, [x, net.values(32, 32)], name), net.values(32)], f"{name}_biased")
        else:
            x = net.add(op, [x, net.values(32, 32), net.values(32)], name, transB=1)
        x = net.add("Relu", [x], f"{name}_acted")
    model, inputs = prepare(net.model(x)), net.arrays()
    table = calibrate(model, MinMaxCalibrator([inputs]), engine="onnxruntime", progress=False)
    quantized = prepare(quantize(model, table))
    found, execution = run_on_host(quantized, inputs)
    products = [step for step in execution.plan.steps if step.kind == "conv"]
    types = [execution.plan.tensors[step.inputs[0]].format.dtype for step in products]
    assert types == [DType.INT8, DType.INT8, DType.FLOAT32]
    assert_near(found, by_reference(quantized, inputs, "int8"), 3e-3)
