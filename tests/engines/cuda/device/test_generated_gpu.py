"""Generated kernels on a GPU, beside the same source on the host."""

import numpy as np
import pytest

from pytrtplugins.engines.cuda.device.device import CudaDevice
from pytrtplugins.engines.cuda.device.expression import Expression
from pytrtplugins.engines.cuda.device.layout import Format, channels_last, linear
from pytrtplugins.engines.cuda.device.means import means_kernel
from pytrtplugins.engines.cuda.device.pointwise import pointwise_kernel
from pytrtplugins.engines.cuda.device.rows import rows_kernel
from pytrtplugins.tensor import DType
from tests.engines.cuda.device.test_pointwise import (
    FLOAT_CASES,
    FLOATS,
    INTEGER_CASES,
    INTEGERS,
    MULTIPLY_ADD,
    expression_of,
    filled,
    run,
)
from tests.engines.cuda.host import copied

pytestmark = pytest.mark.gpu
HALF, FLOAT = DType.FLOAT16, DType.FLOAT32
LAYER_NORM = [
    *("Add float32 0 1", "ReduceSum float32 3", "Mul float32 4 float32:{mean}", "Sub float32 3 5", "Mul float32 6 6"),
    *("ReduceSum float32 7", "Mul float32 8 float32:{mean}", "Add float32 9 float32:1e-05", "Sqrt float32 10"),
    *("Div float32 float32:1.0 11", "Mul float32 6 12", "Mul float32 13 2"),
]
SOFTMAX = [
    *("Mul float32 0 float32:0.125", "Add float32 3 1", "ReduceMax float32 4", "Sub float32 4 5", "Exp float32 6"),
    *("ReduceSum float32 7", "Div float32 float32:1.0 8", "Mul float32 7 9", "Mul float32 10 2"),
]


def on_both(make, inputs, outputs):
    """Each output of a kernel on the GPU, and on the host."""
    device, host = CudaDevice(), [filled(form, 0) for form in outputs]
    with device.current():
        tensors = [copied(device, tensor) for tensor in (*inputs, *host)]
        stream = device.new_streams(1)[0]
        make(device).prepare(tensors)(stream)
        stream.synchronize()
        return [device.download(tensor.flat) for tensor in tensors[len(inputs) :]]


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_every_operation_is_the_same_as_on_the_host(gpu, dtype):
    rng, whole = np.random.default_rng(0), dtype in INTEGERS
    cases = INTEGER_CASES if whole else FLOAT_CASES
    form = linear((1003,), dtype)
    low = 0 if dtype.value.startswith("u") else -50
    values = [rng.integers(low, 50, 1003) if whole else rng.normal(size=1003) * 3 for _ in range(2 if whole else 3)]
    inputs = [filled(form, each) for each in values]
    expression, types = expression_of(cases, dtype, len(values))
    outputs = [Format(form.dims, kind) for kind in types]
    forms = [tensor.format for tensor in inputs]
    found = on_both(lambda device: pointwise_kernel(device, expression, forms, outputs), inputs, outputs)
    for (op, _, _), each, wanted in zip(cases, found, run(expression, inputs, outputs), strict=True):
        if whole or wanted.flat.dtype == bool:
            np.testing.assert_array_equal(each, wanted.flat, err_msg=op)
        else:
            wide = each.astype(np.float64), wanted.flat.astype(np.float64)
            np.testing.assert_allclose(*wide, rtol=2 * FLOATS[dtype], atol=1e-6, err_msg=op)


@pytest.mark.parametrize("channels", [96, 5, 17])
@pytest.mark.parametrize("kinds", [(HALF, HALF, HALF), (HALF, FLOAT, HALF), (FLOAT, HALF, FLOAT)])
def test_images_with_gates_are_written_with_their_padding(gpu, channels, kinds):
    rng = np.random.default_rng(0)
    x, y = (channels_last((2, channels, 7, 9), kind) for kind in kinds[::2])
    gate = channels_last((2, channels, 1, 1), kinds[1])
    forms, outputs = [x, gate, linear((2, channels, 7, 9), HALF)], [y, linear(x.dims, FLOAT)]
    inputs = [filled(form, rng.integers(-8, 8, form.dims)) for form in forms]
    found = on_both(lambda device: pointwise_kernel(device, MULTIPLY_ADD, forms, outputs), inputs, outputs)
    for each, wanted in zip(found, run(MULTIPLY_ADD, inputs, outputs), strict=True):
        np.testing.assert_array_equal(each.view(np.uint8), wanted.flat.view(np.uint8))


@pytest.mark.parametrize("kind", [HALF, FLOAT])
@pytest.mark.parametrize("lines", [LAYER_NORM, SOFTMAX])
@pytest.mark.parametrize(
    "dims",
    [
        *((197, 768), (3136, 128), (2, 3, 33), (2364, 197), (5, 9000), (3, 30000), (2000, 7), (1, 2)),
        *((1, 50257), (1, 262144), (60, 9001), (17, 40000)),  # blocks share rows
    ],
)
def test_rows_of_any_length_give_what_the_host_gives(gpu, dims, lines, kind):
    rng, form = np.random.default_rng(0), linear(dims, kind)
    forms = [form, form, linear(dims[-1:], FLOAT)]
    inputs = [filled(each, rng.normal(size=each.dims)) for each in forms]
    texts, last = [line.format(mean=1 / dims[-1]) for line in lines], 2 + len(lines)
    expression, axes = Expression.parse(3, texts, [3, last]), (len(dims) - 1,)
    make = lambda device: rows_kernel(device, expression, dims, axes, forms, [form, form])  # noqa: E731
    x, y, scale = (tensor.view.astype(np.float64) for tensor in inputs)
    if lines is LAYER_NORM:
        first = x + y
        centered = first - first.mean(axis=-1, keepdims=True)
        wanted = centered / np.sqrt((centered**2).mean(axis=-1, keepdims=True) + 1e-5) * scale
    else:
        first = x * 0.125
        powers = np.exp(first + y - (first + y).max(axis=-1, keepdims=True))
        wanted = powers / powers.sum(axis=-1, keepdims=True) * scale
    room = 2e-5 if kind is FLOAT else 2e-3
    for each, exact in zip(on_both(make, inputs, [form, form]), (first, wanted), strict=True):
        np.testing.assert_allclose(each.reshape(dims).astype(np.float64), exact, rtol=room, atol=room / 10)


@pytest.mark.parametrize("dims", [(1, 1280, 7, 7), (2, 96, 112, 112), (3, 5, 4, 6)])
@pytest.mark.parametrize("kind", [HALF, FLOAT])
def test_means_of_images_give_what_the_host_gives(gpu, dims, kind):
    x, y = channels_last(dims, kind), channels_last((*dims[:2], 1, 1), kind)
    tensor = filled(x, np.random.default_rng(0).normal(size=dims) + 1)
    expression = Expression.parse(1, ["ReduceSum float32 0", f"Mul float32 1 float32:{1 / (dims[2] * dims[3])}"], [2])
    (found,) = on_both(lambda device: rows_kernel(device, expression, dims, (2, 3), [x], [y]), [tensor], [y])
    wanted = tensor.view.astype(np.float64).mean(axis=(2, 3))
    np.testing.assert_allclose(found.reshape(dims[0], y.pitch)[:, : dims[1]], wanted, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [HALF, FLOAT])
@pytest.mark.parametrize("dims", [(1, 32, 112, 112), (1, 960, 7, 7), (32, 72, 28, 28), (3, 13, 20, 20)])
def test_means_are_right_and_repeat_bit_by_bit(gpu, dims, dtype):
    n, c, h, w = dims
    x = filled(channels_last(dims, dtype), np.random.default_rng(0).standard_normal(dims) + 1)
    device, form = CudaDevice(), linear((n, c), FLOAT)
    expression = Expression.parse(1, ["ReduceSum float32 0", f"Mul float32 1 float32:{1 / (h * w)!r}"], [2])
    with device.current():
        given, y = copied(device, x), copied(device, filled(form, 0))
        stream = device.new_streams(1)[0]
        launch = means_kernel(device, expression, (2, 3), [x.format], [form]).prepare([given, y])
        found = []
        for _ in range(20):
            launch(stream)
            stream.synchronize()
            found.append(device.download(y.view))
    np.testing.assert_allclose(found[0], x.view.astype(np.float64).mean((2, 3)), rtol=2e-5, atol=2e-6)
    for again in found[1:]:
        np.testing.assert_array_equal(again, found[0])
