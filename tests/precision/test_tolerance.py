"""Tolerances: what is just tolerated has the error 1."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.errors import UsageError
from pytrtplugins.precision import parse_tolerance
from pytrtplugins.precision.tolerance import CosineTolerance, ElementTolerance, MapTolerance


def test_the_worst_element_counts_or_the_median():
    expected, found = np.array([1.0, 2, 4]), np.array([1.0, 2.1, 5])
    assert parse_tolerance("atol=0.1,rtol=0.1").error(found, expected) == pytest.approx(1 / 0.5)
    assert parse_tolerance("atol=0.1,rtol=0.1,stat=median").error(found, expected) == pytest.approx(0.1 / 0.3)


@pytest.mark.parametrize(("found", "expected"), [(1e-3, 0), (101.001, 100), (98.999, 100)])
def test_a_thousandth_and_a_hundredth_of_the_value_are_tolerated_by_default(found, expected):
    assert ElementTolerance().error(np.array([found]), np.array([expected])) == pytest.approx(1)


@pytest.mark.parametrize(("kind", "text"), [(CosineTolerance, "cosine=0.999"), (MapTolerance, "map50=0.005")])
def test_the_limits_are_those_of_the_reference_pages_where_none_are_given(kind, text):
    assert kind() == parse_tolerance(text)


@given(st.floats(0.01, 3.1))
def test_the_cosine_is_that_of_the_angle(angle):
    error = parse_tolerance("cosine=0.9").error(np.array([np.cos(angle), np.sin(angle)]) * 7, np.array([1.0, 0.0]))
    assert error == pytest.approx((1 - np.cos(angle)) / 0.1, rel=1e-6)


@pytest.mark.parametrize("text", ["atol=1", "cosine=0.9", "map50=0.1"])
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_what_is_no_number_is_never_tolerated_unless_expected(text, bad):
    tolerance, expected = parse_tolerance(text), np.array([1.0, 2.0])
    assert tolerance.error(np.array([1.0, bad]), expected) == np.inf
    assert tolerance.error(np.array([1.0, 5.0]), np.array([1.0, bad])) == 0


@pytest.mark.parametrize("text", ["atol=1", "rtol=0.1,stat=median", "cosine=0.9"])
def test_equal_tensors_have_no_error(text):
    for values in (np.zeros(5), np.arange(5.0), np.zeros(0)):
        assert parse_tolerance(text).error(values, values) == 0


def test_zeros_where_values_are_expected_are_out_of_tolerance():
    assert parse_tolerance("cosine=0.9").error(np.zeros(3), np.ones(3)) == pytest.approx(10)


@pytest.mark.parametrize(
    "text",
    ["", "atol", "atol=x", "atol=-1", "atol=0,rtol=0", "atol=1,stat=mean", "cosine=1", "cosine=nan", "map50=0",
     "map50=2", "cosine=0.9,atol=1", "psnr=30", "atol=1,atol=2", "rtol=inf", "stat=max", "map50=1", "cosine=-1.01",
     "atol=1000000.1", "rtol=1000000.1", "map50=0.1,cosine=0.5", "stat=median"],
)  # fmt: skip
def test_other_texts_are_refused_with_an_example(text):
    with pytest.raises(UsageError, match=r"expected atol=1e-3,rtol=1e-2,stat=median, cosine=0\.999, or map50=0\.005"):
        parse_tolerance(text)


@pytest.mark.parametrize(
    "text",
    ["atol=0.5,rtol=0.25,stat=median", "cosine=0.99", "cosine=0.9999998", "map50=0.01", "cosine=-1.0",
     "atol=0.0,rtol=1000000.0,stat=max", "atol=1000000.0,rtol=0.0,stat=max"],
)  # fmt: skip
def test_a_tolerance_is_written_as_it_is_typed(text):
    assert str(parse_tolerance(text)) == text
    assert parse_tolerance(str(parse_tolerance(text))) == parse_tolerance(text)
