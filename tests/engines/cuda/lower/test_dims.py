"""Dims of what fused nodes give, where the model does not say them."""

from __future__ import annotations

import pytest

from pytrtplugins.engines.cuda.lower.dims import fused_dims
from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.engines.cuda.lower.rewrite import DOMAIN
from pytrtplugins.model.ir import dims_of
from pytrtplugins.passes import PropagateConstants, prepare
from tests.engines.cuda.lower.test_attention import WRITERS, B, D, Graph, H, S


@pytest.mark.parametrize("write", WRITERS)
def test_dims_behind_attention_products_and_activations_follow_from_the_inputs(write):
    net = Graph(B, S, 3 * H * D, batch=None)
    y = net.op("Add", net.op("MatMul", write(net), net.floats(H * D, 5)), net.floats(5))
    y = net.op("Mul", y, net.op("Sigmoid", y))
    y = net.op("Exp", net.op("Neg", y))  # what nothing is fused with
    model = lower(prepare(net.model(y)))
    PropagateConstants()(model)
    wanted = {value.name: dims_of(value) for node in model.graph for value in node.outputs}
    own = [node.op_type for node in model.graph if node.domain == DOMAIN]
    assert {"Attention", "Conv"} <= set(own)
    for node in model.graph:
        for value in node.outputs:
            value.shape = None
    PropagateConstants(own_dims=fused_dims)(model)
    found = {value.name: dims_of(value) for node in model.graph for value in node.outputs}
    assert found == wanted


def test_dims_of_other_nodes_are_not_told():
    net = Graph(S, 3 * H * D)
    model = lower(prepare(net.model(net.op("Exp", "data"))))
    assert [fused_dims(node) for node in model.graph] == [None]
