"""Unique on a GPU: what NumPy finds, of values that fit into shared memory, and of as many as the kernel takes."""

import numpy as np
import pytest

import pytrtplugins as ptp
from tests.engines.cuda.device.indexed.test_unique import assert_equal, repeated, unique_model, uniques

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]


@pytest.mark.parametrize("is_sorted", [0, 1])
@pytest.mark.parametrize(
    ("dims", "kind", "values"),
    [
        ((7,), np.float32, 3),
        ((3, 1000), np.float32, 500),
        ((1 << 14,), np.float32, 50000),
        ((1 << 14,), np.float32, 1),
        ((100, 101), np.int32, 5000),
        ((2, 41, 199), np.int64, 9000),
        ((129, 127), np.int64, 1 << 60),
    ],
)
def test_the_results_are_numpys_in_each_run(dims, kind, values, is_sorted):
    x = repeated(*dims, kind=kind, values=values)
    if kind is np.float32:
        x.reshape(-1)[:5] = [np.nan, -0.0, 0.0, -np.nan, np.inf]
    engine = ptp.build(unique_model(x, is_sorted), engine="cuda", precision="fp16")
    assert "(Slice)" in engine.choices["run node by node"]
    with engine.create_context() as context:
        for given in (x, x[::-1].copy(), x):  # the second is a graph's
            for found, wanted in zip(context.run({"x0": given}).values(), uniques(given, is_sorted), strict=True):
                assert_equal(found, wanted)
