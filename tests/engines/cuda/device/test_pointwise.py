"""Generated kernels of pointwise groups, on NumPy arrays: every operation, every format."""

import warnings

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.engines.cuda.device.device import HostDevice, tensor_at
from pytrtplugins.engines.cuda.device.expression import Expression
from pytrtplugins.engines.cuda.device.layout import Format, channels_last, linear
from pytrtplugins.engines.cuda.device.loops import padded_channels
from pytrtplugins.engines.cuda.device.pointwise import pointwise_kernel, pointwise_loops
from pytrtplugins.engines.cuda.lower.operations import Writer, is_elementwise
from pytrtplugins.engines.cuda.operators import OPS
from pytrtplugins.errors import BuildError
from pytrtplugins.tensor import DType

DEVICE = HostDevice()
HALF, FLOAT, DOUBLE = DType.FLOAT16, DType.FLOAT32, DType.FLOAT64
FLOATS = {FLOAT: 3e-6, HALF: 1e-3, DOUBLE: 1e-13, DType.BFLOAT16: 8e-3}
"""Type → the largest relative error beside NumPy's functions, which round elsewhere."""
INTEGERS = [DType.INT8, DType.INT16, DType.INT32, DType.INT64, DType.UINT8, DType.UINT16, DType.UINT32, DType.UINT64]
UNARY = [
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Elu"),
    *("Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu"),
    *("Log", "Mean", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin"),
    *("Sinh", "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu"),
]
BINARY = [
    *("Add", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
    *("Max", "Min", "Mul", "PRelu", "Pow", "Sub", "Sum"),
]
ATTRIBUTES = {
    "Celu": {"alpha": 1.5},
    "Elu": {"alpha": 0.7},
    "Gelu": {"approximate": "tanh"},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.4},
    "LeakyRelu": {"alpha": 0.1},
    "Shrink": {"bias": 0.25, "lambd": 0.75},
    "Swish": {"alpha": 1.25},
}
FLOAT_CASES = [
    *((op, attributes, 1) for op in UNARY for attributes in ({}, ATTRIBUTES.get(op)) if attributes is not None),
    *((op, {}, 2) for op in BINARY),
    *(("IsInf", {"detect_positive": p, "detect_negative": n}, 1) for p, n in ((0, 1), (1, 0))),
    ("Mod", {"fmod": 1}, 2),
    ("Max", {}, 3),
    ("Mean", {}, 3),
]
INTEGER_CASES = [
    *((op, {}, 1) for op in ("Abs", "BitwiseNot", "Identity", "Neg", "Sign")),
    *(
        (op, {}, 2)
        for op in ("Add", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual")
    ),
    *((op, {}, 2) for op in ("Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Sub")),
    *(("BitShift", {"direction": side}, 2) for side in ("LEFT", "RIGHT")),
    ("Mod", {"fmod": 1}, 2),
]
TRUTHS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "IsInf", "IsNaN")


def filled(form, values):
    """A tensor of these values, others between and behind them."""
    tensor = tensor_at(np, DEVICE.allocate(form.bytes + 64), 0, form)
    tensor.flat.view(np.uint8)[:] = 0x5A if form.dtype is not DType.BOOL else 1
    tensor.view[...] = values
    return tensor


def run(expression, inputs, outputs):
    """Each output's tensor."""
    tensors = [filled(form, 0) for form in outputs]
    kernel = pointwise_kernel(DEVICE, expression, [tensor.format for tensor in inputs], outputs)
    kernel.prepare([*inputs, *tensors])(None)
    return tensors


def expression_of(cases, dtype, count):
    """All cases as one expression on the same inputs, as the pass writes them, and the type of each result."""
    kind = ir.DataType.from_numpy(dtype.numpy)
    inputs = [ir.Value(name=f"x{index}", type=ir.TensorType(kind)) for index in range(count)]
    graph = ir.Graph(inputs, [], nodes=[], opset_imports={"": 22})
    writer, results, types = Writer(graph), [], []
    for op, attributes, arity in cases:
        node = ir.node(op, inputs[:arity], attributes)
        node.outputs[0].dtype = ir.DataType.BOOL if op in TRUTHS else kind
        assert is_elementwise(node)
        writer.node(node)
        results.append(count + writer.made[node.outputs[0]])
        types.append(DType.BOOL if op in TRUTHS else dtype)
    operations = writer.finished(inputs)
    return Expression.parse(count, Expression(count, operations, ()).lines(), results), types


def found_and_wanted(cases, values, dtype):
    form = linear((len(values[0]),), dtype)
    inputs = [filled(form, each) for each in values]
    expression, types = expression_of(cases, dtype, len(values))
    found = run(expression, inputs, [Format(form.dims, kind) for kind in types])
    wide = [tensor.view.astype(np.float32) if dtype in (HALF, DType.BFLOAT16) else tensor.view for tensor in inputs]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for (op, attributes, arity), tensor in zip(cases, found, strict=True):
            narrow = op == "Clip" and dtype is HALF  # its bounds are the type's largest numbers
            given = [tensor.view for tensor in inputs] if narrow else wide
            wanted = OPS[op](np, attributes, [form.dims], *given[:arity])
            yield op, tensor.view, np.asarray(wanted).astype(tensor.view.dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_operations_on_fractions_are_those_of_the_array_functions(dtype):
    special = np.array([0, -0.0, 1, -1, 0.5, -0.5, 2.5, -3.5, 6, 20, -20, 90, -90, np.inf, -np.inf, np.nan, 1e-3])
    a, b = (each.ravel() for each in np.meshgrid(special, special))
    values = [each.astype(dtype.numpy) for each in (a, b, np.roll(a, 7))]
    for op, found, wanted in found_and_wanted(FLOAT_CASES, values, dtype):
        if found.dtype == bool:
            np.testing.assert_array_equal(found, wanted, err_msg=op)
        else:
            wide = found.astype(np.float64), wanted.astype(np.float64)
            np.testing.assert_allclose(*wide, rtol=FLOATS[dtype], atol=1e-7, err_msg=op)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_operations_on_whole_numbers_are_those_of_the_array_functions(dtype):
    limits = np.iinfo(dtype.numpy)
    negative = (-1, -2, -7, -100, limits.min) if limits.min else ()
    few = [0, 1, 2, 3, 7, 8, 15, 100, limits.max, limits.max - 1, *negative]
    a, b = (each.ravel() for each in np.meshgrid(np.array(few, dtype.numpy), np.array(few, dtype.numpy)))
    for op, found, wanted in found_and_wanted(INTEGER_CASES, [a, b], dtype):
        defined = b != 0 if op in ("Div", "Mod") else b == b
        np.testing.assert_array_equal(found[defined], wanted[defined], err_msg=op)


@st.composite
def formats(draw, dims, output=False):
    """A tensor of these dims: row-major, or NHWC with room between pixels or none."""
    dtype = draw(st.sampled_from([FLOAT, HALF, HALF]))
    if len(dims) != 4 or draw(st.booleans()):
        return linear(dims, dtype)
    form = channels_last(dims, dtype, dense=draw(st.booleans()) and not output)
    wider = dims[1] % form.vector == 0 and draw(st.booleans())
    return Format(dims, dtype, form.pitch + form.vector) if wider else form


@st.composite
def problems(draw):
    """Formats of two outputs, and of three inputs that are broadcast to them."""
    rank = draw(st.sampled_from([4, 4, 4, 3, 2, 1, 0]))
    sides = st.sampled_from([1, 2, 3, 5, 8, 16, 17])
    dims = tuple(draw(sides) for _ in range(rank))
    inputs = []
    for _ in range(3):
        own = tuple(1 if draw(st.sampled_from([False, False, True])) else dim for dim in dims)
        first = draw(st.integers(0, rank)) if draw(st.sampled_from([False, False, True])) else 0
        inputs.append(draw(formats(own[first:])))
    return inputs, [draw(formats(dims, output=True)) for _ in range(2)]


MULTIPLY_ADD = Expression.parse(3, ["Mul float32 0 1", "Add float32 3 2", "Sub float32 4 float32:0.5"], [4, 5])


@given(problems())
def test_a_kernel_reads_and_writes_every_format(problem):
    inputs, outputs = problem
    rng = np.random.default_rng(0)
    tensors = [filled(form, rng.integers(-8, 8, form.dims)) for form in inputs]
    found = run(MULTIPLY_ADD, tensors, outputs)
    a, b, c = (tensor.view.astype(np.float64) for tensor in tensors)
    for tensor, wanted in zip(found, (a * b + c, a * b + c - 0.5), strict=True):
        np.testing.assert_array_equal(tensor.view, np.broadcast_to(wanted, tensor.view.shape))
        assert_room_is_kept(tensor)


def assert_room_is_kept(tensor):
    """Channels that fill 16 bytes are zero, and nothing is written beyond them."""
    form = tensor.format
    if form.nhwc:
        n, c, h, w = form.dims
        pixels = tensor.flat.reshape(n * h * w, form.pitch)
        filled_to = padded_channels(form)
        assert not pixels[:, c:filled_to].any()
        assert (pixels[:, filled_to:].view(np.uint8) == 0x5A).all()


@pytest.mark.parametrize(
    ("channels", "pitch", "padded"), [(6, 8, 8), (6, 6, 6), (6, 320, 8), (9, 12, 12), (16, 320, 16)]
)
def test_channels_are_filled_to_16_bytes_where_a_pixel_has_room(channels, pitch, padded):
    assert padded_channels(Format((1, channels, 2, 2), HALF, pitch)) == padded


def test_sixteen_bytes_go_at_a_time_where_tensors_lie_so():
    x, gate = channels_last((1, 96, 14, 14), HALF), channels_last((1, 96, 1, 1), HALF)
    loops = pointwise_loops([x, gate], [x])
    assert (loops.lanes, loops.packed, [axis.size for axis in loops.outer]) == (8, (True, True, True), [196])
    rows = linear((12, 197, 197), FLOAT)
    assert pointwise_loops([rows], [rows]).items == -(-12 * 197 * 197 // 4)
    assert pointwise_loops([linear((197,), FLOAT), rows], [rows]).lanes == 1


@pytest.mark.parametrize(
    ("lines", "results"),
    [
        (["Add float32 0"], [1]),
        (["Add float32 0 1"], [1]),
        (["Add float32 0 -1"], [1]),
        (["Add float32 0 0"], [2]),
        (["system float32 0 0"], [1]),
        (["Add complex64 0 0"], [1]),
        (["Add float32 0 float32:0);system("], [1]),
        ([""], [0]),
    ],
)
def test_what_is_no_expression_is_refused(lines, results):
    with pytest.raises(BuildError, match="Pointwise is damaged"):
        Expression.parse(1, lines, results)
