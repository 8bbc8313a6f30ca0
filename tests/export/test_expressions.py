"""Comparisons in exported C++ hold where Python's do."""

import itertools
import math
import operator
import shutil
import subprocess

import pytest

from pytrtplugins.errors import ExportError
from pytrtplugins.export._expressions import Scope
from pytrtplugins.export._layer import _rank_condition
from pytrtplugins.export._values import Expr, TracedFloat, TracedInt, as_expr
from pytrtplugins.utils.cpp_literals import float_literal, int_literal

K = TracedInt(Expr("field", ("k",), "i"))
X = TracedFloat(Expr("field", ("x",), "f"))
OPERATORS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
WHOLE = (0, -1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63))
REAL = (0.0, -0.5, 2.0**53, -(2.0**53), 2.0**63, -(2.0**63), math.inf, -math.inf, math.nan)


def truth(compare, left, right):
    return Scope("inputs[{}].dims").truth(compare(left, right).expr)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_whole_numbers_and_floats_are_compared_exactly_as_python_does(tmp_path):
    """As doubles, 2**53 + 1 would be equal to 2.0**53: an exported plugin would take another branch than the Python class."""
    cases = list(itertools.product(OPERATORS, WHOLE, REAL))
    lines = ["#include <cstdint>", "#include <cstdio>", "#include <limits>", "int main() {"]
    for compare, whole, real in cases:
        fields = f"const int64_t k_ = {int_literal(whole)}; const double x_ = {float_literal(real)};"
        lines += [
            f'{{ {fields} std::putchar("01"[{truth(compare, side, other)}]); }}' for side, other in ((K, X), (X, K))
        ]
    (tmp_path / "compare.cpp").write_text("\n".join([*lines, "}"]))
    subprocess.run(["g++", "-w", "-o", tmp_path / "compare", tmp_path / "compare.cpp"], check=True)
    printed = subprocess.run([tmp_path / "compare"], check=True, capture_output=True, text=True).stdout
    expected = [compare(*sides) for compare, whole, real in cases for sides in ((whole, real), (real, whole))]
    assert [each == "1" for each in printed] == expected


def test_two_numbers_of_one_type_are_compared_as_they_are():
    other = TracedFloat(Expr("field", ("z",), "f"))
    assert truth(operator.lt, X, other) == "static_cast<double>(x_) < static_cast<double>(z_)"
    assert truth(operator.lt, K, TracedInt(Expr("field", ("m",), "i"))) == "k_ < m_"


def test_the_first_power_is_the_number_itself():
    assert (K**1 is K, X**1 is X) == (True, True)
    assert Scope("inputs[{}].dims").whole((K**3).expr) == Scope("inputs[{}].dims").whole((K * K * K).expr)


def test_literals_at_the_ends_of_64_bits_are_exact():
    ends = {2**63 - 1: "9223372036854775807", -(2**63) + 1: "-9223372036854775807", -(2**62): "-4611686018427387904"}
    assert {value: int_literal(value) for value in ends} == ends
    assert float_literal(0.1) == "0.1"
    assert float_literal(16777217.0) == "16777217.0"
    assert float_literal(16777217.0, "f") == "1.6777216e+07f"  # what a float holds


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63)])
def test_the_largest_and_the_smallest_number_of_64_bits_are_exported_and_the_next_is_not(value):
    assert as_expr(value).args == (value,)
    with pytest.raises(ExportError, match="64 bits"):
        as_expr(value + (1 if value > 0 else -1))


@pytest.mark.parametrize("ranks", [{0, 1, 2}, {1, 2, 3, 4}, {4}, {0}, {1, 4}, {2, 4, 5}])
def test_numbers_of_axes_are_taken_exactly_where_the_python_class_takes_them(ranks):
    for pairs in (
        [(one,) for one in ranks],
        [(one, two) for one in ranks for two in ranks],
        [(one, one) for one in ranks],
    ):
        condition = _rank_condition(pairs, "r{}")
        python = condition.replace("&&", "and").replace("||", "or")
        for sizes in itertools.product(range(7), repeat=len(pairs[0])):
            values = {f"r{index}": size for index, size in enumerate(sizes)}
            assert eval(python, values) is (sizes in pairs), (condition, sizes)
