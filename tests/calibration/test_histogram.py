from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pytrtplugins.calibration import Histogram
from pytrtplugins.errors import CalibrationError

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
data = arrays.arrays(np.float32, st.integers(0, 40), elements=floats)


def histogram_of(*parts: np.ndarray) -> Histogram:
    histogram = Histogram()
    for part in parts:
        histogram.add(part)
    return histogram


def counted_by_hand(values: np.ndarray, histogram: Histogram) -> np.ndarray:
    counts = np.zeros(2048, np.int64)
    for value in values.ravel():
        counts[int(abs(float(value)) / histogram.width)] += 1
    return counts


@given(first=data, second=data)
def test_merging_equals_counting_all_data_at_once(first, second):
    together = histogram_of(np.concatenate([first, second]))
    assert histogram_of(first).merge(histogram_of(second)) == together
    assert histogram_of(first, second) == together
    assert histogram_of(second, first) == together


@given(values=data)
def test_every_value_is_counted_in_the_bin_that_holds_it(values):
    histogram = histogram_of(values)
    np.testing.assert_array_equal(histogram.counts, counted_by_hand(values, histogram))
    assert histogram.count == values.size
    assert histogram.maximum == np.abs(values).max(initial=0)


@given(values=arrays.arrays(np.float32, st.integers(1, 40), elements=st.floats(-1000, 1000, width=32)))
def test_the_range_is_the_smallest_power_of_two_above_every_value(values):
    histogram = histogram_of(values)
    largest = np.abs(values).max()
    assert histogram.range > largest
    assert largest < 2.0**-96 or histogram.range / 2 <= largest


def test_merging_changes_neither_operand():
    small, large = histogram_of(np.float32([1])), histogram_of(np.float32([100]))
    small.merge(large)
    assert small == histogram_of(np.float32([1]))
    assert large == histogram_of(np.float32([100]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused_and_nothing_is_counted(bad):
    histogram = histogram_of(np.float32([1, 2]))
    with pytest.raises(CalibrationError, match="finite"):
        histogram.add(np.float32([3, bad, 4]))
    assert histogram == histogram_of(np.float32([1, 2]))


def test_a_double_beyond_float32_is_refused():
    with pytest.raises(CalibrationError, match="finite"):
        Histogram().add(np.array([1e300]))


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.uint8, np.int32])
def test_other_dtypes_count_as_float32(dtype):
    values = np.array([0, 1, 5, 100], dtype)
    assert histogram_of(values) == histogram_of(values.astype(np.float32))


def test_a_double_just_below_a_power_of_two_is_rounded_first():
    assert histogram_of(np.array([np.nextafter(2.0, 0)])) == histogram_of(np.float32([2.0]))


def test_strided_and_large_arrays_are_counted_whole():
    values = np.random.default_rng(0).normal(size=(3, 700_000)).astype(np.float32)
    assert histogram_of(values.T[::2]) == histogram_of(np.ascontiguousarray(values.T[::2]))
    assert histogram_of(values).count == values.size


def test_a_histogram_is_not_equal_to_something_else():
    assert histogram_of() != 3
    assert "count=1" in repr(histogram_of(np.float32([1])))
    assert repr(histogram_of(np.float32([1, -3]))) == "Histogram(count=2, maximum=3, range=4)"


def test_histograms_differ_in_counts_in_the_maximum_or_in_the_range():
    one = histogram_of(np.float32([1.5, 3.0]))
    assert one != histogram_of(np.float32([1.5, 1.5, 3.0]))
    assert one != histogram_of(np.float32([1.5, np.nextafter(np.float32(3), np.float32(4))]))
    assert one != histogram_of(np.float32([1.5, 6.0]))


def test_histograms_with_the_same_counts_and_maximum_differ_in_the_range():
    first, second = histogram_of(np.zeros(3, np.float32)), histogram_of(np.zeros(3, np.float32))
    assert first == second
    second.exponent += 1
    assert first != second


def test_the_range_is_never_below_two_to_the_minus_96():
    for values in ([], [0.0, 0.0], [1e-38]):
        histogram = histogram_of(np.float32(values))
        assert histogram.range == 2.0**-96
        assert histogram.width == 2.0**-107
        assert histogram.counts[0] == len(values)
