"""The measures that other tests compare with bounds."""

import math

import numpy as np
import pytest

from tests.measures import relative, relative_error, sqnr

ONES, ZEROS = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)


@pytest.mark.parametrize("values", [ONES, ZEROS, -ONES], ids=["ones", "zeros", "negative"])
def test_equal_values_are_as_near_as_can_be(values):
    assert sqnr(values, values.copy()) == math.inf
    assert relative(values.copy(), values) == 0
    assert relative_error(values.copy(), values) == 0


def test_known_distances_have_their_sizes():
    assert sqnr(ONES, ONES * np.float32(1.5)) == pytest.approx(10 * math.log10(4))
    assert relative(ONES * np.float32(1.5), ONES) == pytest.approx(0.5)
    assert relative_error(np.float32([1, 2, 5]), np.float32([1, 2, 4])) == pytest.approx(0.25)


def test_anything_is_infinitely_far_from_zeros():
    assert sqnr(ZEROS, ONES) == -math.inf
    assert relative(ONES, ZEROS) == relative_error(ONES, ZEROS) == math.inf


def test_differences_below_float32_are_seen():
    assert 0 < relative(np.float64([1 + 1e-12]), np.float64([1])) < 1e-11


@pytest.mark.parametrize("measure", [relative, relative_error])
def test_nan_is_within_no_bound(measure):
    assert not measure(np.full_like(ONES, np.nan), ONES) < 1e9


def test_nan_is_no_signal():
    assert not sqnr(ONES, np.full_like(ONES, np.nan)) > 0
