"""A Reshape that fixes a free batch is freed, where it is certain that it is the batch."""

import numpy as np
import pytest

from pytrtplugins.passes import repair
from tests.passes.repairs.exports import exported, refused, repairs_of, run

X = np.random.default_rng(13).normal(size=(3, 2, 4, 5)).astype(np.float32)


def network(*wanted, dims=("N", 2, 4, 5)):
    nodes = "r = Relu (data) flat = Reshape (r, shape) y = Neg (flat)"
    model = exported(nodes, {"shape": np.array(wanted, np.int64)}, dims, "y", opset=13)
    model.graph.output[0].type.tensor_type.shape.Clear()
    for size in wanted:
        dim = model.graph.output[0].type.tensor_type.shape.dim.add()
        if size > 0:
            dim.dim_value = size
    return model


def test_a_computed_shape_is_left_alone():
    model = exported("s = Shape (data) y = Reshape (data, s)", {}, ("N", 2, 4, 5), "y", opset=13)
    assert "batch-reshape" not in repairs_of(repair(model))


@pytest.mark.parametrize("wanted", [(1, 40), (1, 2, 20), (7, 8, 5)])
def test_the_batch_is_freed(wanted):
    model = network(*wanted)
    assert refused(model, data=X)
    found = repair(model)
    assert repairs_of(found) == {"batch-reshape": 1}
    np.testing.assert_array_equal(run(found.model, data=X), -np.maximum(X, 0).reshape(3, *wanted[1:]))
    assert found.model.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "N"


@pytest.mark.parametrize(
    ("wanted", "dims"),
    [
        ((1, -1), ("N", 2, 4, 5)),  # fits every batch, whatever was meant
        ((3, 40), (3, 2, 4, 5)),  # the batch is fixed everywhere
        ((10, 4), ("N", 2, 4, 5)),  # other elements remain: the first dim is not the batch
        ((1, 40), ("N", 2, "h", 5)),  # not certain
        ((0, 40), ("N", 2, 4, 5)),
    ],
)
def test_what_is_not_certain_stays(wanted, dims):
    assert repair(network(*wanted, dims=dims)).findings == ()
