"""The kernels of attention, against float64, on NumPy arrays."""

import math

import numpy as np
import pytest

from pytrtplugins.engines.cuda.device import attention as module
from pytrtplugins.engines.cuda.device.attention import AttentionProblem, Operand, attention
from pytrtplugins.engines.cuda.device.device import HostDevice, tensor_at
from pytrtplugins.engines.cuda.device.layout import linear
from pytrtplugins.engines.cuda.device.strided import contiguous
from pytrtplugins.tensor import DType
from tests.engines.cuda.attention import attended

DEVICE = HostDevice()
HALF = DType.FLOAT16
ROOM = {DType.FLOAT32: 3e-6, HALF: 2e-3}
KERNELS = [(DType.FLOAT32, False), (HALF, False), (HALF, True)]
"""The element type, and whether matrix units are asked for: weights are rounded to float16 before their second product."""


@pytest.fixture(autouse=True)
def used(monkeypatch):
    """Names of the kernels that were launched."""
    names, real = [], module._kernel
    monkeypatch.setattr(module, "_kernel", lambda name, depth: names.append(name) or real(name, depth))
    return names


def memory(size, dtype, seed, spread=1.0):
    """Random numbers in a row."""
    tensor = tensor_at(np, DEVICE.allocate(size * dtype.itemsize), 0, linear((size,), dtype))
    tensor.flat[...] = np.random.default_rng(seed).standard_normal(size) * spread
    return tensor


def values_of(tensor, view):
    """What a view shows."""
    strides = [stride * tensor.flat.itemsize for stride in view.strides]
    return np.lib.stride_tricks.as_strided(tensor.flat[view.offset :], view.dims, strides)


def run(dims, views, dtype=DType.FLOAT32, bias=None, period=1, zero=False, memories=None, fast=False):
    """What the kernel gives and what float64 does: views of q, k, v, y along batch, heads, rows or keys, values."""
    sizes = {
        name: view.offset + 1 + sum((size - 1) * stride for size, stride in zip(view.dims, view.strides, strict=True))
        for name, view in views.items()
    }
    tensors = memories or {name: memory(size, dtype, seed) for seed, (name, size) in enumerate(sizes.items())}
    tensors["y"].flat[...] = np.nan
    problem = AttentionProblem(
        dims,
        **{name: Operand(view.offset, view.strides, dtype) for name, view in views.items()},
        bias=None if bias is None else Operand(0, bias[1].strides, bias[0].format.dtype),
        period=period,
        scale=1 / math.sqrt(dims[4]),
        zero=zero,
    )
    q, k, v, y = (tensors[name] for name in "qkvy")
    attention(problem, q, k, v, y, None if bias is None else bias[0].flat, fast)(None)
    added = None if bias is None else np.concatenate([values_of(*bias)] * (dims[0] // bias[1].dims[0]))
    known = [values_of(tensors[name], views[name]) for name in "qkv"]
    wanted = attended(known, problem.scale, added, zero)
    return values_of(y, views["y"]), wanted, tensors


def heads_first(dims):
    """Views of four tensors of their own, (batch, heads, rows or keys, values)."""
    b, h, m, n, d, e = dims
    sides = {"q": (m, d), "k": (n, d), "v": (n, e), "y": (m, e)}
    return {name: contiguous((b, h, *side)) for name, side in sides.items()}


def filled(views):
    """Memory for views of tensors of their own."""
    return {name: memory(math.prod(view.dims), DType.FLOAT32, seed) for seed, (name, view) in enumerate(views.items())}


def in_one_tensor(b, h, s, d, dtype):
    """Dims, views and memory of q, k and v in one tensor (batch, rows, three, heads, values), and of y beside them."""
    whole = contiguous((b, s, 3, h, d))
    views = {name: whole.selected(2, index).transposed((0, 2, 1, 3)) for index, name in enumerate("qkv")}
    views["y"] = contiguous((b, s, h, d)).transposed((0, 2, 1, 3))
    qkv, y = memory(b * s * 3 * h * d, dtype, 0), memory(b * s * h * d, dtype, 1)
    return (b, h, s, s, d, d), views, {"q": qkv, "k": qkv, "v": qkv, "y": y}


def added(bias_dims, kind, dims):
    """Random numbers that are added to scores, broadcast to them, and how many batches they repeat after."""
    _, h, m, n, _, _ = dims
    view = contiguous(bias_dims).expanded((bias_dims[0], h, m, n))
    return {"bias": (memory(math.prod(bias_dims), kind, 9), view), "period": bias_dims[0]}


def causal(dims, dtype, fill):
    """What takes keys from rows, all of them from the first row."""
    _, h, m, n, _, _ = dims
    mask, view = memory(m * n, dtype, 0), contiguous((1, 1, m, n))
    mask.flat[...] = np.where(np.tri(m, n, -1, dtype=bool), 0, fill).ravel()
    return mask, view.expanded((1, h, m, n))


def assert_near(found, wanted, dtype, fast=False):
    rtol, atol = (4e-3, 3e-3) if fast else (ROOM[dtype], ROOM[dtype])
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol, atol)


@pytest.mark.parametrize(("dtype", "fast"), KERNELS)
@pytest.mark.parametrize(
    ("dims", "units"),
    [
        ((1, 2, 5, 7, 16, 16), True),
        ((2, 3, 17, 65, 32, 32), True),  # a row and a key more than a tile
        ((2, 3, 65, 65, 32, 32), True),  # and than a tile of matrix units
        ((1, 1, 1, 130, 64, 64), True),  # one row, three tiles of keys
        ((1, 2, 16, 64, 64, 48), True),  # v narrower than k
        ((1, 1, 70, 40, 24, 40), True),  # wider, and neither a multiple of 16
        ((1, 1, 3, 40, 5, 19), False),  # nothing a multiple of anything
        ((1, 1, 20, 40, 128, 128), True),
        ((1, 1, 18, 20, 256, 256), False),
        ((2, 1, 3, 1, 80, 80), True),  # one key
        ((1, 1, 3, 20, 300, 270), False),  # a head in two parts
        ((1, 1, 3, 9, 136, 136), False),
        ((1, 1, 3, 9, 20, 20), False),
    ],
)
def test_any_dims_give_what_float64_gives(dims, units, dtype, fast, used):
    found, wanted, _ = run(dims, heads_first(dims), dtype, fast=fast)
    assert_near(found, wanted, dtype, fast)
    assert set(used) == {"attention_mma" if fast and units else "attention"}


@pytest.mark.parametrize(("dtype", "fast"), KERNELS)
def test_one_tensor_that_holds_q_k_and_v_is_read_in_place(dtype, fast):
    dims, views, memories = in_one_tensor(2, 3, 19, 16, dtype)
    found, wanted, tensors = run(dims, views, dtype, memories=memories, fast=fast)
    assert_near(found, wanted, dtype, fast)
    assert np.isfinite(tensors["y"].flat.astype(np.float32)).all()


@pytest.mark.parametrize("dtype", list(ROOM))
@pytest.mark.parametrize("fast", [False, True])
def test_keys_may_lie_transposed_for_the_kernel_without_matrix_units(dtype, fast, used):
    dims = b, h, _, n, d, _ = 1, 2, 6, 70, 16, 16
    views = {**heads_first(dims), "k": contiguous((b, h, d, n)).transposed((0, 1, 3, 2))}
    found, wanted, _ = run(dims, views, dtype, fast=fast)
    assert_near(found, wanted, dtype, fast and dtype is HALF)
    assert used == ["attention"]


def test_float32_has_no_matrix_units(used):
    dims = (1, 2, 6, 10, 16, 16)
    found, wanted, _ = run(dims, heads_first(dims), fast=True)
    assert_near(found, wanted, DType.FLOAT32)
    assert used == ["attention"]


@pytest.mark.parametrize("kind", list(ROOM))
@pytest.mark.parametrize(("dtype", "fast"), [(DType.FLOAT32, False), (HALF, True)])
@pytest.mark.parametrize(
    "bias_dims", [(1, 1, 1, 21), (4, 1, 1, 21), (1, 3, 18, 21), (4, 3, 18, 21), (2, 3, 18, 21), (1, 1, 18, 1)]
)
def test_what_is_added_broadcasts_and_repeats(bias_dims, dtype, fast, kind):
    dims = (4, 3, 18, 21, 8, 8)
    found, wanted, _ = run(dims, heads_first(dims), dtype, fast=fast, **added(bias_dims, kind, dims))
    assert_near(found, wanted, dtype, fast)


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize(
    ("fill", "dtype", "fast"),
    [(-np.inf, DType.FLOAT32, False), (np.float32(-3.4028235e38), DType.FLOAT32, False), (-np.inf, HALF, True)],
)
def test_masked_keys_do_not_count(zero, fill, dtype, fast):
    dims = (1, 2, 17, 70, 16, 16)
    found, wanted, _ = run(dims, heads_first(dims), dtype, bias=causal(dims, dtype, fill), zero=zero, fast=fast)
    assert_near(found, wanted, dtype, fast)
    if np.isinf(fill):
        np.testing.assert_array_equal(found[:, :, 0], 0 if zero else np.nan)


def test_large_scores_do_not_overflow():
    dims = (1, 1, 4, 200, 16, 16)
    views = heads_first(dims)
    memories = filled(views)
    for name in "qk":
        memories[name].flat[...] *= 60
    found, wanted, _ = run(dims, views, memories=memories)
    np.testing.assert_allclose(found, wanted, atol=2e-3)  # a score of 10,000 is rounded by as much


def test_a_nan_stays_in_its_rows():
    dims = (1, 1, 20, 70, 16, 16)
    views = heads_first(dims)
    memories = filled(views)
    memories["q"].flat[3 * 16] = np.nan
    found, wanted, _ = run(dims, views, memories=memories)
    assert np.isnan(found[0, 0, 3]).all()
    assert_near(np.delete(found, 3, 2), np.delete(wanted, 3, 2), DType.FLOAT32)
