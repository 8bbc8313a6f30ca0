"""Sizes of tensors that a model computes, at their limits."""

import math

import numpy as np
import pytest
from onnx import TensorProto

from pytrtplugins.errors import ModelError
from pytrtplugins.validation import infer, sizes
from pytrtplugins.validation.sizes import check_sizes
from tests.onnx_parts import body, branches, info, node, parsed
from tests.onnx_parts import model as model_of


def refused(*args, match):
    with pytest.raises(ModelError, match=match) as caught:
        check_sizes(*args)
    return caught.value


def expanded(count, opset=18):
    """A constant of a number of float32 elements that is network of one."""
    return parsed("() => (float[] y) { y = Expand (one, n) }", opset, one=np.ones(1, np.float32), n=[count])


@pytest.mark.parametrize(("limit", "good"), [(68, True), (67, False)])
def test_what_is_computed_from_constants_is_limited_with_the_bytes_of_the_weights(monkeypatch, limit, good):
    """40 float32 are network of the weights' 4 + 8 bytes: 160 bytes, of which 8 times 12 are allowed besides the limit."""
    monkeypatch.setattr(sizes, "MAX_COMPUTED_BYTES", limit - 4)
    monkeypatch.setattr(sizes, "MAX_GROWTH", 8)
    network = infer(expanded(40))
    infos = {item.name: item for item in network.graph.output}
    if good:
        check_sizes(network, infos, infer)
    else:
        error = refused(network, infos, infer, match="160 bytes computed from constants alone; the limit is 159 bytes")
        assert (error.found, error.limit) == (160, 159)


@pytest.mark.parametrize(("count", "good"), [(2**32, True), (2**32 + 1, False)])
def test_a_computed_tensor_has_at_most_16_gib(count, good):
    network = model_of(node("Relu", "x", "y"), inputs=[info("x", [count])])
    network.graph.output[0].CopyFrom(info("y", [count]))
    check = (network, {"y": info("y", [count])}, infer)
    if good:
        check_sizes(*check)
    else:
        refused(*check, match="the limit of one tensor is 16 GiB")


def test_dims_that_are_no_sizes_have_no_product():
    network = model_of(node("Relu", "x", "y"))
    for dims in ([-(2**20), -(2**20)], [8, -(2**20), -(2**20)]):
        check_sizes(network, {"y": info("y", dims)}, infer)


@pytest.mark.parametrize(
    ("before", "after", "good"),
    [((2, 6), (3, 4), True), ((2, 6), (12,), True), ((), (1,), True), ((0, 3), (0,), True), ((2, 6), (3, 5), False),
     ((2, 6), (), False), ((0, 3), (3,), False), (("N", 6), (5,), True), ((2, 6), ("N", 5), True), (None, (5,), True),
     ((2, 6), None, True)],
)  # fmt: skip
@pytest.mark.parametrize("place", ["main graph", "body"])
def test_a_reshape_keeps_the_number_of_elements_where_it_is_known(before, after, good, place):
    network = model_of(node("Reshape", "x s", "y"), inputs=[info("x", before), info("s", None, TensorProto.INT64)])
    infos = {"x": info("x", before), "y": info("y", after)}
    if place == "body":
        network = branches(body(node("Reshape", "x s", "b")))
        inner = model_of(node("Relu", "x", "b"), outputs=())
        inner.graph.output.append(info("b", after))
        infos = {"x": info("x", before)}
    check = (network, infos, lambda alone: inner if place == "body" else alone)
    if good:
        check_sizes(*check)
    else:
        error = refused(*check, match="which has another number of elements")
        assert (error.expected, error.found) == (math.prod(before), math.prod(after))
