"""Shape rules as TensorRT's expressions, with expressions of the test's making."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import pytest

import pytrtplugins as ptp
from pytrtplugins.engines.tensorrt.dims import count_outputs, output_exprs
from pytrtplugins.errors import DimsError
from pytrtplugins.tensor import SymbolicDim

OPERATIONS = SimpleNamespace(SUM=operator.add, SUB=operator.sub, PROD=operator.mul, FLOOR_DIV=operator.floordiv)


@dataclass(frozen=True)
class Expr:
    value: int
    free: bool = True

    def is_constant(self):
        return not self.free

    def get_constant_value(self):
        return self.value


class Builder:
    def constant(self, value):
        return Expr(value, False)

    def operation(self, function, a, b):
        return Expr(function(a.value, b.value))


@ptp.plugin(namespace="test.dims")
class Arithmetic(ptp.Plugin):
    """Dims by every operation, of two inputs."""

    def output_dims(self, x, y):
        return (x[0] + y[0], x[1] - y[1], x[2] * y[2], x[3] // 3, x[3] % 4), (5, x[1])

    def compute(self, x, y):
        raise NotImplementedError


@ptp.plugin(namespace="test.dims")
class SameBatch(Arithmetic):
    """Refuses batches that differ; the second dim may be anything."""

    def output_dims(self, x, y):
        if x[0] != y[0]:
            raise DimsError("batches differ")
        return ((x[0], y[1]),)


@ptp.plugin(namespace="test.dims")
class Counted(SameBatch):
    """Refuses all free dims, and has a dim that no input has."""

    num_outputs: ClassVar[int] = 3

    def compute(self, x):  # type: ignore[override]
        raise NotImplementedError

    def output_dims(self, x):  # type: ignore[override]
        if x[0] == 1:
            raise DimsError("one")
        return ((SymbolicDim("count"),),)


@pytest.mark.parametrize("free", [True, False])
def test_every_operation_on_dims_becomes_tensorrts(free):
    x, y = (11, 9, 4, 14), (2, 3, 5, 1)
    inputs = [[Expr(size, free) for size in dims] for dims in (x, y)]
    found = output_exprs(Arithmetic(), inputs, Builder(), OPERATIONS)
    assert [tuple(each.value for each in dims) for dims in found] == [
        tuple(dims) for dims in Arithmetic().output_dims(x, y)
    ]
    assert [each.is_constant() for each in found[1]] == [True, not free]


def test_free_dims_at_one_axis_are_equal_where_the_rule_demands_it():
    inputs = [[Expr(8), Expr(3, False)], [Expr(8), Expr(4, False)]]
    assert output_exprs(SameBatch(), inputs, Builder(), OPERATIONS) == [[Expr(8), Expr(4, False)]]
    with pytest.raises(DimsError, match="batches differ"):
        output_exprs(SameBatch(), [[Expr(8, False), Expr(3)], [Expr(7, False), Expr(4)]], Builder(), OPERATIONS)


def test_a_dim_that_no_input_has_is_refused():
    with pytest.raises(DimsError, match="dim 'count' of output 0 is not made of the inputs' dims") as caught:
        output_exprs(Counted(), [[Expr(8)]], Builder(), OPERATIONS)
    assert caught.value.dim == SymbolicDim("count")


@pytest.mark.parametrize(("plugin", "count"), [(Arithmetic(), 2), (Counted(), 3)])
def test_the_number_of_outputs_is_told_or_that_of_the_shape_rule(plugin, count):
    assert count_outputs(plugin) == count


def test_a_rule_that_refuses_free_dims_needs_the_number():
    with pytest.raises(DimsError, match="the number of its outputs is unknown"):
        count_outputs(SameBatch())
