"""Which inputs share a dim."""

import numpy as np

import pytrtplugins as ptp
from pytrtplugins.check.cases import Case
from pytrtplugins.check.shared_dims import inputs_that_share
from pytrtplugins.errors import DimsError


@ptp.plugin(namespace="shared_dims")
class Beside(ptp.Plugin):
    """Rows of two inputs in line."""

    def output_dims(self, x, y):
        if x[0] != y[0]:
            raise DimsError("x and y need as many rows")
        return x[0], x[1] + y[1]

    def compute(self, x, y):
        return np.concatenate([x, y], axis=1)


def test_each_axis_of_a_case_has_the_inputs_that_share_it():
    case = Case(Beside(), ((3, 2), (3, 2)), (ptp.DType.FLOAT32,) * 2)
    assert [inputs_that_share(case, axis) for axis in (0, 1, 2)] == [(0, 1), (0,), ()]
