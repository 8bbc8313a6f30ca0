"""The helpers for users' tests."""

import sys

import numpy as np
import pytest

from pytrtplugins import testing
from pytrtplugins.errors import ConformanceError
from pytrtplugins.layers import Reorg
from pytrtplugins.tensor import DType
from tests.broken_plugins import WrongDims

pytest_plugins = ["pytester"]
test_reorg = testing.plugin_test(Reorg, engines=[])


def test_the_made_test_fails_with_the_report():
    with pytest.raises(ConformanceError, match="dims"):
        testing.plugin_test(WrongDims, engines=[])("dims")


def test_the_made_test_has_an_item_for_each_check_and_checks_once(pytester, monkeypatch):
    checked, real = [], testing.check_plugin
    monkeypatch.setattr(testing, "check_plugin", lambda *given, **more: checked.append(1) or real(*given, **more))
    pytester.makepyfile(
        test_it="""
        import pytrtplugins as ptp
        runs = []
        @ptp.plugin(namespace="made")
        class Wrong(ptp.Plugin):
            def output_dims(self, x): return x
            def compute(self, x):
                if not runs: runs.append(1)
                return x.astype("float64")
        test_wrong = ptp.testing.plugin_test(Wrong, engines=[])
        """
    )
    done = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider", "-rA")
    outcomes = done.parseoutcomes()
    assert outcomes["failed"] == 1
    assert outcomes["passed"] >= 2
    assert checked == [1]
    done.stdout.fnmatch_lines(["*FAILED test_it.py::test_wrong[[]dtypes[]]*"])
    done.stdout.fnmatch_lines(["*SKIPPED*needs 'dtypes', which failed*"])


def test_without_pytest_the_made_test_takes_all_checks(monkeypatch):
    monkeypatch.delitem(sys.modules, "pytest")
    with pytest.raises(ConformanceError, match="dims"):
        testing.plugin_test(WrongDims, engines=[])()


def test_an_engines_contract_runs_every_check_or_the_one_that_is_asked_for(monkeypatch):
    seen = []
    checks = {name: lambda engine, name=name: seen.append((name, engine)) for name in ("numbers", "files")}
    monkeypatch.setattr("pytrtplugins.engines.contract.CHECKS", checks)
    made = testing.engine_contract("cpu")
    assert made.pytestmark[0].args == ("check", ["numbers", "files"])
    made("files")
    monkeypatch.delitem(sys.modules, "pytest")
    testing.engine_contract("cpu")()
    assert seen == [("files", "cpu"), ("numbers", "cpu"), ("files", "cpu")]


def test_the_made_test_is_named_after_the_plugin():
    assert test_reorg.__name__ == "test_Reorg"


def test_assert_same_names_the_worst_elements():
    expected = np.zeros((2, 3), np.float32)
    actual = expected.copy()
    actual[1, 2], actual[0, 1] = 5, 1
    with pytest.raises(AssertionError, match=r"2 of 6 elements differ; worst at \[1, 2\]: 5.0.*; \[0, 1\]: 1.0"):
        testing.assert_same(actual, expected)


@pytest.mark.parametrize(
    ("actual", "text"),
    [(np.zeros(3, np.float32), "shape"), (np.zeros(2), "element type"), (np.float32([0, np.nan]), "nan")],
)
def test_assert_same_compares_shape_type_and_nan(actual, text):
    with pytest.raises(AssertionError, match=text):
        testing.assert_same(actual, np.zeros(2, np.float32))


def test_assert_same_allows_rounding_of_floats_but_not_of_integers():
    testing.assert_same(np.float32([1.00001]), np.float32([1]))
    testing.assert_same(np.float32([np.nan, np.inf]), np.float32([np.nan, np.inf]))
    testing.assert_same(np.float32([1.5]), np.float32([1]), atol=1)
    with pytest.raises(AssertionError):
        testing.assert_same(np.int8([1]), np.int8([2]))
    with pytest.raises(AssertionError):
        testing.assert_same(np.float32([1.00001]), np.float32([1]), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("dtype", "relative", "absolute"),
    [("float64", 1e-4, 1e-5), ("float32", 1e-4, 1e-5), ("float16", 1e-2, 1e-3), ("bfloat16", 2e-2, 1e-2)],
)
def test_assert_same_allows_no_more_than_the_rounding_of_the_type(dtype, relative, absolute):
    """Near 64 steps of float16 are 1/32, and steps of bfloat16 1/2: 0.64 and 1.28 are allowed."""
    kind = DType(dtype).numpy
    for expected, room in ((64.0, 64 * relative + absolute), (0.0, absolute)):
        inside, outside = (np.array([expected + share * room]).astype(kind) for share in (0.7, 1.4))
        testing.assert_same(inside, np.array([expected]).astype(kind))
        with pytest.raises(AssertionError, match="1 of 1 elements differ"):
            testing.assert_same(outside, np.array([expected]).astype(kind))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "int64", "bool"])
def test_random_tensor_has_the_type_and_repeats(dtype):
    x = testing.random_tensor((2, 3), dtype, seed=5)
    assert (x.shape, x.dtype.name) == ((2, 3), dtype)
    assert x.tobytes() == testing.random_tensor((2, 3), dtype, seed=5).tobytes()


@pytest.mark.parametrize(
    ("options", "largest"), [({"rtol": 0.5, "atol": 0.25}, 2.25), ({"rtol": 0.25, "atol": 0.5}, 1.5)]
)
def test_tolerances_are_the_relative_one_times_the_expected_value_and_the_absolute_one(options, largest):
    expected = np.array([4.0])
    testing.assert_same(expected + largest, expected, **options)
    with pytest.raises(AssertionError, match="1 of 1 elements differ"):
        testing.assert_same(expected + largest + 0.01, expected, **options)


def test_another_seed_gives_other_numbers():
    first, second, again = (testing.random_tensor((100,), seed=seed) for seed in (0, 1, 0))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, second)


def test_random_tensor_is_float32_of_the_first_seed():
    assert testing.random_tensor((2, 3)).tobytes() == testing.random_tensor((2, 3), "float32", seed=0).tobytes()
    assert testing.random_tensor((2, 3)).tobytes() != testing.random_tensor((2, 3), seed=1).tobytes()


def test_assert_same_takes_the_relative_tolerance_before_the_absolute_one():
    one, other = np.float32([0, 100]), np.float32([0, 101])
    testing.assert_same(one, other, 0.02, 0)
    testing.assert_same(one, other, 0, 2)
    with pytest.raises(AssertionError, match="1 of 2 elements differ"):
        testing.assert_same(one, other, 0, 0.02)
