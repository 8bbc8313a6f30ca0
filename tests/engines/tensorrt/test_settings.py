"""The limits of TensorRT's settings, without TensorRT."""

import pytest

from pytrtplugins.engines.tensorrt.settings import Settings
from pytrtplugins.errors import UsageError


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
