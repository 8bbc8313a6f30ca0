"""Cases of `check_plugin` that a failing one is made shorter by."""

import pytest

from pytrtplugins.check.cases import shorter_cases


@pytest.mark.parametrize(("size", "shorter"), [(1, []), (2, [1]), (3, [1, 2]), (5, [1, 2, 4, 3]), (9, [1, 2, 4, 8, 7])])
def test_an_axis_becomes_one_two_half_or_a_little_shorter(size, shorter):
    assert list(shorter_cases(((size,),))) == [((less,),) for less in shorter]


def test_inputs_of_the_same_dims_stay_the_same_and_others_change_alone():
    assert list(shorter_cases(((2,), (2,)))) == [((1,), (1,))]
    assert list(shorter_cases(((2,), (1, 2)))) == [((1,), (1, 2)), ((2,), (1, 1))]
