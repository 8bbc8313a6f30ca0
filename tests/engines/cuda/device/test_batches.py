"""Products of tensors as batches of products of matrices."""

import math

import numpy as np
import pytest

from pytrtplugins.engines.cuda.device.batches import batched
from pytrtplugins.engines.cuda.device.layout import linear
from pytrtplugins.tensor import DType

HALF = DType.FLOAT16


@pytest.mark.parametrize(
    ("a", "b", "batch", "calls"),
    [
        ((2, 12, 19, 64), (2, 12, 64, 19), 24, 1),
        ((2, 12, 19, 64), (64, 19), 1, 1),  # one matrix with all rows
        ((2, 1, 3, 4), (1, 6, 4, 5), 6, 2),
        ((2, 6, 3, 4), (6, 4, 5), 6, 2),
    ],
)
def test_as_few_calls_as_can_be_are_made(a, b, batch, calls):
    dims = (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])
    product, places = batched(*(linear(each, HALF) for each in (a, b, dims)))
    assert (product.batch, len(places)) == (batch, calls)
    assert product.m * product.batch * calls == math.prod(dims) // dims[-1]
