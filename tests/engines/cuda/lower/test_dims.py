"""Dims of what fused nodes give, where the model does not say them."""

import numpy as np
import pytest

from pytrtplugins.cuda.backends import host as host_backend
from pytrtplugins.engines.cuda.lower.dims import fused_dims
from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.engines.cuda.lower.rewrite import DOMAIN
from pytrtplugins.layers import Reorg
from pytrtplugins.model.ir import dims_of
from pytrtplugins.passes import PropagateConstants, prepare
from tests.engines.cuda.host import assert_close, by_reference, run_on_host
from tests.engines.cuda.lower.test_attention import WRITERS, B, D, Graph, H, S
from tests.engines.cuda.lower.test_pointwise import random
from tests.engines.cuda.lower.test_volumes import Volumes
from tests.passes.nets import Net


def results(model):
    return [value for node in model.graph for value in node.outputs]


def inferred(model, sizes=None):
    """Dims of all results, once those that the model says are forgotten."""
    for value in results(model):
        value.shape = None
    PropagateConstants(sizes, own_dims=fused_dims)(model)
    return {value.name: dims_of(value) for value in results(model)}


@pytest.mark.parametrize("write", WRITERS)
def test_dims_behind_attention_products_and_activations_follow_from_the_inputs(write):
    net = Graph(B, S, 3 * H * D, batch=None)
    y = net.op("Add", net.op("MatMul", write(net), net.floats(H * D, 5)), net.floats(5))
    y = net.op("Mul", y, net.op("Sigmoid", y))
    y = net.op("Exp", net.op("Neg", y))  # what nothing is fused with
    model = lower(prepare(net.model(y)))
    PropagateConstants()(model)
    wanted = {value.name: dims_of(value) for value in results(model)}
    own = [node.op_type for node in model.graph if node.domain == DOMAIN]
    assert {"Attention", "Conv"} <= set(own)
    assert inferred(model) == wanted


def test_dims_of_other_nodes_are_not_told():
    net = Graph(S, 3 * H * D)
    model = lower(prepare(net.model(net.op("Exp", "data"))))
    assert [fused_dims(node) for node in model.graph] == [None]


def free_net(height, width):
    net = Net(channels=8)
    net.input = ["N", 8, height, width]
    x = net.add("MaxPool", [net.conv("data", "a")], "pooled", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    x = net.plugin(Reorg(stride=2), net.conv(x, "b"), "moved")
    net.channels["moved"] = 16
    x = net.conv(net.add("Sigmoid", [x], "s"), "c", kernel=1, leaky=False)
    return prepare(net.model(net.add("Mish", [x], "m")))


@pytest.mark.skipif(not host_backend.available(), reason="no C++ compiler (apt-get install g++)")
@pytest.mark.parametrize(("height", "width"), [(8, 12), (20, 16)])
def test_free_heights_and_widths_follow_from_the_inputs(height, width):
    x = np.random.default_rng(height).standard_normal((2, 8, height, width)).astype(np.float32)
    free, execution = run_on_host(free_net("H", "W"), {"data": x})
    fixed, _ = run_on_host(free_net(height, width), {"data": x})
    np.testing.assert_array_equal(free["m"], fixed["m"])
    assert execution.plan.tail is None
    assert [step.kind for step in execution.plan.steps].count("conv") == 3


def test_a_pool_a_reorg_and_blocks_within_a_convolution_count():
    net = Net(channels=8, size=16)
    x = net.add("MaxPool", [net.conv("data", "a")], "pooled", kernel_shape=[2, 2], strides=[2, 2])
    moved = net.plugin(Reorg(stride=2), net.conv(x, "b", leaky=False), "moved")
    weights = net.constant("up_w", net.random.normal(size=(16, 16, 3, 3)).astype(np.float32))
    model = lower(prepare(net.model(net.add("ConvTranspose", [moved, weights], "up", strides=[3, 3]))))
    wanted = {value.name: (dims_of(value) or ())[1:] for value in results(model)}
    fused = [[node.attributes.get_int(name) for name in ("pool", "reorg", "blocks")] for node in model.graph]
    assert fused == [[1, 0, 0], [0, 2, 0], [0, 0, 3]]
    assert inferred(model, {"N": 3}) == {name: (3, *dims) for name, dims in wanted.items()}


@pytest.mark.skipif(not host_backend.available(), reason="no C++ compiler (apt-get install g++)")
def test_operands_that_are_left_out_leave_no_dims_unknown():
    """ONNX loses the name of the batch behind Resize; the slopes of PRelu are an operand behind one that is left out."""
    net = Net(channels=4, opset=13)
    scales = net.constant("scales", np.float32([1, 1, 2, 2]))
    x = net.add("Resize", ["data", "", scales], "wide", mode="nearest")
    total = net.add("Add", [net.conv(x, "a", leaky=False), net.conv(x, "b", kernel=1)], "total")
    slopes = net.constant("slopes", np.float32([[[0.1]], [[0.2]], [[0.3]], [[0.4]]]))
    model = prepare(net.model(net.add("PRelu", [total, slopes], "acted")))
    x = np.random.default_rng(0).standard_normal((2, 4, 8, 8)).astype(np.float32)
    found, execution = run_on_host(model, {"data": x})
    assert [step.kind for step in execution.plan.steps].count("conv") == 2
    assert_close(found, by_reference(model, {"data": x}), 1e-5)


def test_dims_behind_a_pool_of_volumes_follow_from_its_frames():
    net = Volumes(data=random(2, 3, 5, 7, 8))
    window = {"kernel_shape": [3, 2, 3], "strides": [2, 2, 1], "pads": [1, 0, 1, 1, 1, 1], "ceil_mode": 1}
    model = lower(net.model(net.add("MaxPool", net.conv("data", 3, 8), **window)))
    PropagateConstants()(model)
    wanted = {value.name: dims_of(value) for value in results(model)}
    assert "VolumePool" in [node.op_type for node in model.graph]
    assert inferred(model) == wanted
