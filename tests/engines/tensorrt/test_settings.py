"""The limits of TensorRT's settings, without TensorRT."""

import pytest

from pytrtplugins.engines.tensorrt.settings import Settings, _fitting
from pytrtplugins.errors import UsageError
from pytrtplugins.tensor import SymbolicDim, TensorDesc


@pytest.mark.parametrize(
    ("name", "fits", "others"),
    [
        ("level", (0, 5), (-1, 6, True, "5")),
        ("workspace_bytes", (1, 1 << 40), (0, -1, 1.0)),
        ("batch", ((1, 1, 1), (1, 8, 8)), (0, (2, 1, 8), (1, 8, 4))),
    ],
)
def test_a_number_at_its_limit_is_taken_and_the_next_one_refused(name, fits, others):
    for value in fits:
        assert getattr(Settings.read({name: value}), name) == value
    for value in others:
        with pytest.raises(UsageError, match=f"setting {name}: expected"):
            Settings.read({name: value})


@pytest.mark.parametrize(
    ("shapes", "fit"),
    [
        ([(1, 3), (2, 3), (8, 3)], True),
        ([(2, 3), (2, 3), (2, 3)], True),
        ([(1, 4), (2, 3), (8, 3)], False),
        ([(1, 3), (2, 3), (8, 4)], False),
        ([(1, 3), (2, 3), (8, 3, 1)], False),
        ([(1, 3), (2, 3)], False),
        ([(2, 3), (1, 3), (8, 3)], False),
        ([(1, 3), (8, 3), (7, 3)], False),
    ],
)
def test_three_growing_shapes_that_fit_the_input_are_taken_and_others_refused(shapes, fit):
    desc = TensorDesc("x", (SymbolicDim("N"), 3))
    if fit:
        assert _fitting(desc, shapes) == shapes
    else:
        with pytest.raises(UsageError, match="setting shapes: expected three growing shapes that fit"):
            _fitting(desc, shapes)
