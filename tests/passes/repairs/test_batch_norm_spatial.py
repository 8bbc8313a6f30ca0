"""spatial=0 goes where there is one number for each channel; statistics for each place keep it."""

import numpy as np
import pytest

from pytrtplugins.passes import repair
from tests.mxnet import loops
from tests.passes.repairs.exports import exported, refused, repairs_of, run

GIVEN = {"epsilon": 1e-3, "momentum": 0.9, "spatial": 0}
NAMES = ["bn_gamma", "bn_beta", "bn_moving_mean", "bn_moving_var"]


def network(dims, *shape):
    random = np.random.default_rng(6)
    weights = {name: random.uniform(0.5, 2, shape).astype(np.float32) for name in NAMES}
    return exported([("BatchNormalization", ["data", *NAMES], "bn", GIVEN)], weights, dims, "bn", opset=8), weights


@pytest.mark.parametrize("dims", [[2, 3], [2, 3, 4, 5]])
def test_statistics_of_channels_are_those_of_spatial_1(dims):
    model, weights = network(dims, 3)
    x = np.random.default_rng(7).normal(size=dims).astype(np.float32)
    assert refused(model, data=x) == (len(dims) > 2)
    found = repair(model)
    assert repairs_of(found) == {"batchnorm-spatial": 1}
    assert found.findings[0].fault == (len(dims) > 2)
    expected = loops.batch_norm(x, *weights.values(), fix_gamma=False)
    np.testing.assert_allclose(run(found.model, data=x), expected, rtol=1e-4, atol=1e-5)


def test_statistics_of_places_stay():
    model, _ = network([2, 3, 4, 5], 3, 4, 5)
    assert repair(model).findings == ()
