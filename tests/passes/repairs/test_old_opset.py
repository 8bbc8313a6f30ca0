"""Models of opsets that onnxruntime does not run are converted; those that it runs stay."""

import numpy as np

from pytrtplugins.passes import repair
from tests.passes.repairs.exports import exported, refused, repairs_of, run

X = np.random.default_rng(14).normal(size=(2, 3, 4, 5)).astype(np.float32)
SCALE = np.array([2, -1, 0.5], np.float32)


def network(opset):
    """The form of broadcasting before opset 7: the axis is an attribute."""
    nodes = "scaled = Mul <broadcast = 1, axis = 1> (data, scale) y = Relu (scaled)"
    return exported(nodes, {"scale": SCALE}, X.shape, "y", opset=opset)


def test_opset_6_is_converted_with_its_broadcasting():
    assert refused(network(6), data=X)
    found = repair(network(6))
    assert repairs_of(found)["old-opset"] == 1
    np.testing.assert_allclose(run(found.model, data=X), np.maximum(X * SCALE[:, None, None], 0), rtol=1e-6)


def test_operators_that_did_not_change_stay():
    model = exported("y = Not (data)", {}, [2], "y", opset=1)
    model.graph.input[0].type.tensor_type.elem_type = model.graph.output[0].type.tensor_type.elem_type = 9
    assert repair(model).findings == ()


def test_opset_7_stays():
    assert repair(exported("y = Relu (data)", {}, [2, 3], "y", opset=7)).findings == ()
