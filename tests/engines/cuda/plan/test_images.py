"""Which tensors lie in NHWC, and which nodes need no step since their output lies where their input does."""

import numpy as np
import onnxruntime
import pytest

from pytrtplugins.passes import prepare
from tests.engines.cuda.host import run_on_host
from tests.passes.nets import Net


def ran(net, *outputs, channels=8, size=8):
    """The steps of a network, each operator one by itself, and its formats; held against onnxruntime."""
    model = net.model(*outputs)
    x = np.random.default_rng(1).normal(size=(2, channels, size, size)).astype(np.float32)
    found, execution = run_on_host(prepare(model), {"data": x}, direct=True, disable=("pointwise",))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for array, wanted in zip(found.values(), session.run(list(found), {"data": x}), strict=True):
        np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-5)
    return [step.op for step in execution.plan.steps], execution.plan.tensors


def test_rows_between_convolutions_are_read_where_they_lie():
    net = Net(channels=8)
    x = net.conv("data", "first", 16, leaky=False)
    rows = net.add("Transpose", [x], "rows", perm=[0, 2, 3, 1])
    rows = net.add("Mul", [rows, net.constant("scale", np.full(16, 2, np.float32))], "scaled")
    steps, tensors = ran(net, net.conv(net.add("Transpose", [rows], "back", 16, perm=[0, 3, 1, 2]), "last", 8))
    assert "Transpose" not in steps
    assert not tensors["scaled"].format.nhwc
    assert tensors["back"].storage == tensors["scaled"].storage
    assert tensors["back"].format.nhwc


def test_other_dims_of_row_major_tensors_are_no_steps():
    net = Net(channels=8)
    x = net.add("Neg", ["data"], "negative")
    x = net.add("Reshape", [x, net.constant("shape", np.array([2, 2, 4, 64]))], "groups")
    x = net.add("Transpose", [x], "swapped", perm=[0, 2, 1, 3])
    x = net.add("Unsqueeze", [x, net.constant("axis", np.array([1]))], "longer")
    steps, tensors = ran(net, net.add("Flatten", [x], "flat", axis=1))
    assert steps == ["Neg", "Transpose"]
    assert not any(placed.format.nhwc for placed in tensors.values())


@pytest.mark.parametrize("read_by", ["concat", "itself"])
def test_a_part_of_a_larger_tensor_is_copied_before_its_dims_change(read_by):
    net = Net(channels=8)
    one, two = net.conv("data", "one", 8, kernel=1), net.conv("data", "two", 8)
    rows = net.add("Neg", [net.add("Transpose", [one], "rows", perm=[0, 2, 3, 1])], "negative")
    joined = net.add("Concat", [one, two] if read_by == "concat" else [two, one], "joined", 16, axis=1)
    ran(net, net.conv(joined, "last", 8), rows)


def test_what_a_convolution_reads_is_an_image_and_what_a_product_reads_is_not():
    net = Net(channels=8)
    x = net.add("Sqrt", [net.add("Abs", ["data"], "positive")], "root")
    product = net.add("MatMul", [net.add("Neg", ["data"], "negative"), "data"], "product")
    _, tensors = ran(net, net.conv(x, "last", 8), product)
    assert tensors["positive"].format.nhwc
    assert tensors["root"].format.nhwc
    assert not tensors["negative"].format.nhwc
    assert not tensors["product"].format.nhwc
