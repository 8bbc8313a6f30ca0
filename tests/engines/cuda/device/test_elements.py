"""Element types below 8 bits, and real ones of 8: stored, read and rounded as the package ml_dtypes does."""

import numpy as np
import pytest

from pytrtplugins.engines.cuda.device.elements import decoded, encoded, from_stored, stored, to_stored
from pytrtplugins.tensor import SMALL_DTYPES, DType

ml_dtypes = pytest.importorskip("ml_dtypes")

REAL = [dtype for dtype in SMALL_DTYPES if dtype.value.startswith("float") and dtype is not DType.FLOAT8E8M0]
WHOLE = [dtype for dtype in SMALL_DTYPES if "int" in dtype.value]


def codes(dtype):
    bits = {"float4": 4, "int4": 4, "uint4": 4, "int2": 2, "uint2": 2}
    count = 1 << next((bits[name] for name in bits if dtype.value.startswith(name)), 8)
    return np.arange(count, dtype=np.uint8).view(dtype.numpy) if dtype in REAL else np.arange(count).astype(dtype.numpy)


@pytest.mark.parametrize("dtype", [*REAL, *WHOLE, DType.FLOAT8E8M0], ids=str)
def test_every_value_comes_back(dtype):
    values = np.arange(255, dtype=np.uint8).view(dtype.numpy) if dtype is DType.FLOAT8E8M0 else codes(dtype)
    kept = to_stored(values)
    assert kept.dtype == stored(dtype)
    np.testing.assert_array_equal(decoded(np, kept, dtype).astype(np.float32), values.astype(np.float32))
    again = from_stored(encoded(np, decoded(np, kept, dtype), dtype, {}), dtype)
    np.testing.assert_array_equal(again.astype(np.float32), np.where(finite(values), values.astype(np.float32), again))


def finite(values):
    return np.isfinite(values.astype(np.float32))


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_numbers_between_are_rounded_to_the_nearest_of_two_to_the_even(dtype):
    known = np.unique(codes(dtype).astype(np.float32)[finite(codes(dtype))])
    halfway = (known[1:] + known[:-1]) / 2
    near = np.concatenate([halfway, np.nextafter(halfway, np.inf), np.nextafter(halfway, -np.inf), known])
    drawn = np.random.default_rng(3).uniform(1.1 * known.min(), 1.1 * known.max(), 2000).astype(np.float32)
    values = np.concatenate([near, drawn, np.float32([0.0, -0.0, 1e30, -1e30, np.inf, -np.inf, np.nan])])
    with np.errstate(all="ignore"):
        wanted = values.astype(dtype.numpy).astype(np.float32)
    found = decoded(np, encoded(np, values, dtype, {"saturate": 0}), dtype)
    if dtype is DType.FLOAT4E2M1:
        found, wanted = found[:-1], wanted[:-1]  # which has no code for what is no number
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_what_is_too_large_becomes_the_largest(dtype):
    largest = float(ml_dtypes.finfo(dtype.numpy).max)
    found = decoded(np, encoded(np, np.float32([1e30, -np.inf, 2 * largest]), dtype, {}), dtype)
    np.testing.assert_array_equal(found, np.float32([largest, -largest, largest]))


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
def test_of_wider_whole_numbers_the_lowest_bits_stay(dtype):
    values = np.arange(-40, 40, dtype=np.int32)
    np.testing.assert_array_equal(
        encoded(np, values, dtype, {}).astype(np.int32), values.astype(dtype.numpy).astype(np.int32)
    )
