"""Kernels of rows, on NumPy arrays: how blocks share long ones, and the numbers."""

import numpy as np
import pytest

from pytrtplugins.engines.cuda.device.device import HostDevice
from pytrtplugins.engines.cuda.device.expression import Expression
from pytrtplugins.engines.cuda.device.layout import linear
from pytrtplugins.engines.cuda.device.row_loops import row_loops
from pytrtplugins.engines.cuda.device.rows import rows_kernel
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import filled

HALF, FLOAT = DType.FLOAT16, DType.FLOAT32
SOFTMAX = [
    *("ReduceMax float32 0", "Sub float32 0 1", "Exp float32 2", "ReduceSum float32 3"),
    *("Div float32 float32:1.0 4", "Mul float32 3 5"),
]


@pytest.mark.parametrize(
    ("dims", "blocks", "threads"),
    [
        ((1, 50257), 8, 8192),
        ((1, 262144), 8, 8192),
        ((1, 16384), 2, 2048),
        ((20, 50257), 4, 4096),
        ((100, 50257), 1, 1024),
        ((1, 8000), 1, 1024),
        ((197, 768), 1, 128),
    ],
)
def test_blocks_share_long_rows_where_there_are_few(dims, blocks, threads):
    form = linear(dims, HALF)
    loops = row_loops(dims, (1,), [form], [form], 8)
    assert (loops.blocks, loops.threads, loops.block_threads * loops.blocks) == (blocks, threads, threads * loops.rows)
    assert row_loops(dims, (1,), [form], [form]).blocks == 1  # without clusters


@pytest.mark.parametrize("kind", [HALF, FLOAT])
@pytest.mark.parametrize("dims", [(1, 50257), (3, 9001), (2, 65536)])
def test_long_rows(dims, kind):
    form = linear(dims, kind)
    x, y, total = (
        filled(each, np.random.default_rng(0).normal(size=each.dims) * 3)
        for each in (form, form, linear((dims[0], 1), FLOAT))
    )
    expression = Expression.parse(1, SOFTMAX, [6, 4])
    kernel = rows_kernel(HostDevice(), expression, dims, (1,), [form], [form, total.format])
    assert kernel.cluster > 1
    kernel.prepare([x, y, total])(None)
    values = x.view.astype(np.float64)
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    sums = powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(total.view, sums, rtol=1e-5)
    np.testing.assert_allclose(y.view, powers / sums, rtol=2e-5 if kind is FLOAT else 2e-3, atol=1e-7)
