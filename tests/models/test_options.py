"""Options of the sample programs that have files."""

from pathlib import Path

import pytest

from pytrtplugins.models.options import _parser


@pytest.mark.parametrize("option", ["cfg", "weights", "names", "calibration"])
def test_a_file_can_be_given(option):
    assert getattr(_parser("a sample").parse_args(["dog.jpg", f"--{option}", "some/file"]), option) == Path("some/file")
