"""Dims that are known become constants; what depends on a free dim, and what are numbers of the network, stays."""

import numpy as np

from pytrtplugins.passes import repair
from tests.passes.repairs.exports import exported, repairs_of, run

X = np.random.default_rng(11).normal(size=(2, 3, 4)).astype(np.float32)


def dense(batch):
    """FullyConnected with flatten=False as MXNet 1.8 exports it: the last axis is multiplied, and the others are put back."""
    nodes = """fc_orig_shape = Shape (data) fc_dim = Shape (fc_orig_shape) fc_data_flattened = Flatten <axis = -1> (data)
        fc_gemm = Gemm <alpha = 1.0, beta = 1.0, transA = 0, transB = 1> (fc_data_flattened, w, b)
        fcdim_minus_1 = Sub (fc_dim, fc_1) fc_shape_sliced = Slice (fc_orig_shape, fc_0, fcdim_minus_1)
        fc_shape_new = Concat <axis = 0> (fc_shape_sliced, fc_num_hidden) fc = Reshape (fc_gemm, fc_shape_new)"""
    random = np.random.default_rng(12)
    weights = {"w": random.normal(size=(5, 4)).astype(np.float32), "b": random.normal(size=5).astype(np.float32)}
    weights |= {f"fc_{name}": np.array([value], np.int64) for name, value in (("0", 0), ("1", 1), ("num_hidden", 5))}
    return exported(nodes, weights, [batch, 3, 4], "fc", opset=13)


def test_known_dims_become_constants():
    found = repair(dense(2))
    assert [node.op_type for node in found.model.graph.node] == ["Flatten", "Gemm", "Reshape"]
    assert repairs_of(found) == {"shape-arithmetic": 5}
    assert not any(each.fault for each in found.findings)
    np.testing.assert_array_equal(run(found.model, data=X), run(dense(2), data=X))


def test_what_depends_on_a_free_batch_stays_free():
    found = repair(dense("N"))
    assert "Slice" in [node.op_type for node in found.model.graph.node]
    for x in (X, X[:1]):
        np.testing.assert_array_equal(run(found.model, data=x), run(dense("N"), data=x))


def test_arithmetic_with_numbers_of_the_network_stays():
    assert (
        repair(
            exported("square = Mul (w, w) y = Add (data, square)", {"w": np.float32([3])}, [2, 3], "y", opset=13)
        ).findings
        == ()
    )
