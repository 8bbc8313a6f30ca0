"""The limits of each parameter of the reference engine's operators."""

from __future__ import annotations

import pytest

from pytrtplugins.engines.reference.ops import OPS
from tests.engines.sweeps import SWEEPS, assert_right


@pytest.mark.parametrize("op", sorted(SWEEPS.keys() & OPS.keys()))
def test_an_operator_is_right_at_the_limits_of_its_parameters(op):
    def compute(attributes, wanted, *inputs):
        counts = {"num_outputs": len(wanted)} if op in ("MaxPool", "Split") else {}
        return OPS[op](attributes | counts, *inputs)

    assert_right(op, compute)
