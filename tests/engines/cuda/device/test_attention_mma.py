"""The kernel of attention on matrix units, against float64, on NumPy arrays."""

from __future__ import annotations

import numpy as np
import pytest

from pytrtplugins.engines.cuda.device import attention as module
from pytrtplugins.engines.cuda.device.strided import contiguous
from pytrtplugins.tensor import DType
from tests.engines.cuda.device.test_attention import (
    added,
    assert_first_row_is_empty,
    causal,
    heads_first,
    in_one_tensor,
    run,
)

HALF = DType.FLOAT16


@pytest.fixture(autouse=True)
def used(monkeypatch):
    """Names of the kernels that were launched."""
    names, real = [], module._kernel
    monkeypatch.setattr(module, "_kernel", lambda name, depth: names.append(name) or real(name, depth))
    return names


def assert_near(found, wanted):
    """Weights are rounded to float16 before the second product."""
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=4e-3, atol=3e-3)


@pytest.mark.parametrize(
    "dims",
    [
        (1, 2, 5, 7, 16, 16),
        (2, 3, 65, 65, 32, 32),  # a row and a key more than a tile
        (1, 1, 1, 130, 64, 64),  # one row, three tiles of keys
        (1, 2, 16, 64, 64, 48),  # v narrower than k
        (1, 1, 70, 40, 24, 40),  # wider, and neither a multiple of 16
        (1, 1, 20, 40, 128, 128),
        (2, 1, 3, 1, 80, 80),  # one key
    ],
)
def test_any_dims_give_what_float64_gives(dims, used):
    found, wanted, _ = run(dims, heads_first(dims), HALF, fast=True)
    assert_near(found, wanted)
    assert used == ["attention_mma"]


def test_one_tensor_that_holds_q_k_and_v_is_read_in_place():
    dims, views, memories = in_one_tensor(2, 3, 19, 16, HALF)
    found, wanted, tensors = run(dims, views, HALF, memories=memories, fast=True)
    assert_near(found, wanted)
    assert np.isfinite(tensors["y"].flat.astype(np.float32)).all()


@pytest.mark.parametrize("kind", [DType.FLOAT32, HALF])
@pytest.mark.parametrize("bias_dims", [(1, 1, 1, 21), (4, 3, 18, 21), (2, 3, 18, 21), (1, 1, 18, 1)])
def test_what_is_added_broadcasts_and_repeats(bias_dims, kind):
    dims = (4, 3, 18, 21, 8, 8)
    found, wanted, _ = run(dims, heads_first(dims), HALF, fast=True, **added(bias_dims, kind, dims))
    assert_near(found, wanted)


@pytest.mark.parametrize("zero", [False, True])
def test_masked_keys_do_not_count(zero):
    dims = (1, 2, 17, 70, 16, 16)
    found, wanted, _ = run(dims, heads_first(dims), HALF, bias=causal(dims, HALF, -np.inf), zero=zero, fast=True)
    assert_near(found, wanted)
    assert_first_row_is_empty(found, zero)


def test_other_problems_have_the_other_kernel(used):
    dims = b, h, _, n, d, _ = 1, 2, 6, 10, 16, 16
    views = heads_first(dims)
    turned = {**views, "k": contiguous((b, h, d, n)).transposed((0, 1, 3, 2))}
    wide, odd = (1, 1, 3, 9, 136, 136), (1, 1, 3, 9, 20, 20)
    for case in (
        (dims, views, DType.FLOAT32),
        (dims, turned, HALF),
        (wide, heads_first(wide), HALF),
        (odd, heads_first(odd), HALF),
    ):
        found, wanted, _ = run(*case, fast=True)
        assert_near(found, wanted)
    assert used == ["attention"] * 4
