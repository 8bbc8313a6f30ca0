"""Batch normalization in the weights of the layer before it."""

import numpy as np
import pytest

from darknet2caffe import fold


@pytest.mark.parametrize("block", [1, 7, 1 << 20], ids=["less than a filter", "some", "all"])
@pytest.mark.parametrize(("axis", "shape"), [(0, (5, 3, 2, 2)), (1, (3, 5, 2, 2)), (0, (5, 4))])
def test_weights_are_scaled_filter_by_filter_whatever_the_size_of_a_block_is(monkeypatch, block, axis, shape):
    random = np.random.default_rng(0)
    monkeypatch.setattr(fold, "_BLOCK", block)
    weights = random.standard_normal(shape).astype(np.float32)
    scales, variances = random.uniform(1, 2, (2, 5)).astype(np.float32)
    parameters = dict.fromkeys(("scales", "rolling_mean", "biases"), scales)
    parameters |= {"weights": weights, "rolling_variance": variances}
    found = fold.folded_weights(parameters, "darknet-gpu", axis=axis)
    factor = scales.astype(np.float64) / np.sqrt(variances.astype(np.float64) + 1e-5)
    expected = weights * factor.reshape([5 if place == axis else 1 for place in range(len(shape))])
    np.testing.assert_array_equal(found, expected.astype(np.float32))
