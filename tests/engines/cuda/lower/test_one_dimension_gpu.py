"""Convolutions and pools of one dimension on a GPU: the numbers in each precision, in one CUDA graph."""

import numpy as np
import pytest

from tests.engines.cuda.lower.test_one_dimension import Row, layer, of_any_length
from tests.engines.cuda.lower.test_pointwise import Graph, random
from tests.engines.cuda.lower.test_transposed_convolution import in_codes
from tests.engines.cuda.lower.test_transposed_convolution_gpu import BOUNDS, assert_right

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

FORMS = {
    "stride": ("Conv", 16, 32, 3, {"strides": [2], "pads": [1, 1]}),
    "dilation": ("Conv", 16, 24, 5, {"dilations": [3], "pads": [6, 6]}),
    "groups": ("Conv", 32, 32, 7, {"group": 32, "pads": [3, 3]}),
    "few groups": ("Conv", 32, 64, 9, {"group": 2, "pads": [4, 4]}),
    "one channel": ("Conv", 1, 16, 10, {"strides": [5]}),
    "pixels": ("Conv", 24, 40, 1, {}),
    "transposed": ("ConvTranspose", 32, 16, 4, {"strides": [2], "pads": [1, 1]}),
    "transposed in place": ("ConvTranspose", 32, 16, 4, {"strides": [4]}),
}


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_forms(form, precision):
    op, channels, filters, taps, attributes = form
    graph = Graph(x=random(2, channels, 300))
    x = graph.add("Relu", layer(graph, "x", channels, filters, taps, op, **attributes))
    assert_right(
        graph.model(graph.add("Add", layer(graph, x, filters, filters, 3, pads=[1, 1]), x)), graph.inputs, precision
    )


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("op", ["AveragePool", "MaxPool"])
def test_pools(op, precision):
    graph = Graph(x=random(2, 24, 301))
    x = graph.add(op, layer(graph, "x", 24, 24, 1), kernel_shape=[3], strides=[2], pads=[1, 1], ceil_mode=1)
    assert_right(graph.model(graph.add("Mul", x, graph.add("GlobalAveragePool", x))), graph.inputs, precision)


@pytest.mark.parametrize("disable", [["tactics"], ["tactics", "handwritten-kernels"]], ids=["handwritten", "libraries"])
@pytest.mark.parametrize("precision", list(BOUNDS))
def test_layers_of_all_kinds(precision, disable):
    inputs = {"data": random(2, 16, 24)}
    assert_right(in_codes(Row().network(), inputs, precision), inputs, precision, {"disable": disable, "batch": 2})


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_rows_of_a_transformer(precision):
    graph = Graph(x=random(2, 50, 64))
    rows = graph.add("MatMul", "x", graph.constant(random(64, 64, seed=1) / np.float32(8)))
    image = layer(graph, graph.add("Transpose", rows, perm=[0, 2, 1]), 64, 128, 3, strides=[2], pads=[1, 1])
    back = graph.add("Transpose", graph.add("Gelu", image), perm=[0, 2, 1])
    last = graph.add("MatMul", back, graph.constant(random(128, 32, seed=2) / np.float32(8)))
    assert_right(graph.model(last), graph.inputs, precision)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("borders", [{}, {"pads": [2, 2], "output_padding": [3]}], ids=str)
def test_lengths_may_be_free(borders, precision):
    assert_right(of_any_length(**borders), {"data": random(3, 16, 31)}, precision)
