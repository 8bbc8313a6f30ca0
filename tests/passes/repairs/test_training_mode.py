"""What was exported in training mode is put into that of inference, unless something reads what only the training needs."""

import numpy as np
from onnx import TensorProto, helper

from pytrtplugins.passes import repair
from tests.mxnet import loops
from tests.passes.repairs.exports import exported, repairs_of, run

X = np.random.default_rng(8).normal(size=(8, 3, 4, 4)).astype(np.float32)
NAMES = ["gamma", "beta", "mean", "var"]


def dropout(**options):
    weights = {"ratio": np.float32(0.5), "training": np.bool_(True)}
    return exported("y = Dropout (data, ratio, training)", weights, X.shape, "y", opset=13, **options)


def test_dropout_in_training_mode_drops_nothing():
    assert not np.array_equal(run(dropout(), data=X), X)
    found = repair(dropout())
    assert repairs_of(found) == {"training-mode": 1}
    np.testing.assert_array_equal(run(found.model, data=X), X)


def test_batch_norm_in_training_mode_takes_the_stored_statistics():
    """PyTorch's exporter with training=TRAINING: three outputs, of which the last two are new statistics."""
    weights = {name: np.random.default_rng(9).uniform(0.5, 2, 3).astype(np.float32) for name in NAMES}
    node = ("BatchNormalization", ["data", *NAMES], "y", {"training_mode": 1, "epsilon": 1e-3})
    model = exported([node], weights, X.shape, "y", opset=15)
    model.graph.node[0].output.extend(["new_mean", "new_var"])
    expected = loops.batch_norm(X, *weights.values(), fix_gamma=False)
    assert not np.allclose(run(model, data=X), expected, atol=1e-2)
    np.testing.assert_allclose(run(repair(model).model, data=X), expected, rtol=1e-4, atol=1e-5)
    model.graph.output.append(helper.make_tensor_value_info("new_mean", TensorProto.FLOAT, [3]))
    assert repair(model).findings == ()


def test_a_mask_that_is_read_means_training():
    model = dropout()
    model.graph.node[0].output.append("mask")
    model.graph.output.append(helper.make_tensor_value_info("mask", TensorProto.BOOL, None))
    assert repair(model).findings == ()
