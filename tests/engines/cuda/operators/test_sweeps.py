"""The limits of each parameter of operators that run array by array, on NumPy arrays."""

import numpy as np
import pytest
from onnx import helper

from pytrtplugins.engines.cuda.operators import OPS
from tests.engines.sweeps import SWEEPS, assert_right


@pytest.mark.parametrize("op", SWEEPS)
def test_an_operator_is_right_at_the_limits_of_its_parameters(op):
    def compute(attributes, wanted, *inputs):
        codes = {"output_dtype": helper.np_dtype_to_tensor_dtype(wanted[0].dtype)} if op == "QuantizeLinear" else {}
        return OPS[op](np, attributes | codes, [each.shape for each in wanted], *inputs)

    assert_right(op, compute)
