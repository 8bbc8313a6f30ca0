"""Copies and dropout at inference go, with what leads nowhere; the numbers stay."""

import numpy as np

from pytrtplugins.passes import repair
from tests.passes.repairs.exports import exported, repairs_of, run

X = np.float32([[1, -2]])


def test_copies_dropout_and_dead_nodes_go():
    nodes = """_copy0 = Identity (data) r = Relu (_copy0) dropout0 = Dropout <ratio = 0.4> (r)
        y = Neg (dropout0) aside = Sigmoid (r)"""
    found = repair(exported(nodes, {}, X.shape, "y", opset=10))
    assert [(each.node, each.found) for each in found.findings] == [
        ("_copy0", "Identity, which changes nothing"),
        ("dropout0", "Dropout, which changes nothing"),
        ("aside", "Sigmoid, which leads to no output"),
    ]
    assert repairs_of(found) == {"leftovers": 3}
    np.testing.assert_array_equal(run(found.model, data=X), [[-1, 0]])
