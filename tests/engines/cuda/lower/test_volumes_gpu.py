"""Convolutions and pools of volumes on a GPU: the numbers in each precision, and no step beside the engine's own kernels."""

import pytest

from tests.engines.cuda.lower.test_pointwise import random
from tests.engines.cuda.lower.test_transposed_convolution import in_codes
from tests.engines.cuda.lower.test_transposed_convolution_gpu import BOUNDS, assert_right
from tests.engines.cuda.lower.test_volumes import NETWORKS, Volumes

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

CONVOLUTIONS = {
    "frames of a window": ((16, 24), {}),
    "few channels": ((3, 24), {"kernel": (3, 7, 7), "strides": [1, 2, 2]}),
    "steps and dilations": ((16, 24), {"strides": [2, 1, 2], "dilations": [1, 2, 1]}),
    "through frames": ((16, 24), {"kernel": (3, 1, 1), "strides": [2, 1, 1]}),
    "places of frames": ((16, 24), {"kernel": (1, 1, 1), "strides": [2, 2, 2]}),
    "groups": ((32, 32), {"group": 2}),
    "depthwise": ((16, 16), {"group": 16}),
    "channels that fill no 16 bytes": ((5, 7), {}),
}


@pytest.mark.parametrize("precision", list(BOUNDS))
@pytest.mark.parametrize("network", list(NETWORKS))
def test_networks(network, precision):
    net, last = NETWORKS[network]()
    assert_right(in_codes(net.model(last), net.inputs, precision), net.inputs, precision)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("case", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_convolutions(case, precision):
    (channels, filters), attributes = case
    net = Volumes(data=random(2, channels, 5, 9, 10))
    assert_right(net.model(net.add("Relu", net.conv("data", channels, filters, **attributes))), net.inputs, precision)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pools(op, precision):
    net = Volumes(data=random(2, 16, 5, 9, 10))
    window = {"kernel_shape": [3, 3, 3], "strides": [2, 2, 2], "pads": [1] * 6, "ceil_mode": 1}
    assert_right(net.model(net.add(op, "data", **window)), net.inputs, precision)


@pytest.mark.parametrize("precision", list(BOUNDS))
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pools_between_convolutions(op, precision):
    net = Volumes(data=random(2, 16, 5, 9, 10))
    window = {"kernel_shape": [3, 2, 3], "strides": [2, 2, 1], "pads": [1, 0, 1, 1, 1, 1]}
    pooled = net.add(op, net.conv("data", 16, 24), **window)
    model = net.model(net.conv(net.add("Sin", pooled), 24, 16, (1, 1, 1)))
    assert_right(in_codes(model, net.inputs, precision), net.inputs, precision)
