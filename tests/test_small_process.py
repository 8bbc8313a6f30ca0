"""Tests in the small process: what they raise is told, and the next one runs."""

import os
import warnings

import pytest

from tests.small_process import in_small_process


@in_small_process
def runs_elsewhere(parent, error):
    assert os.getpid() != parent
    if error:
        warnings.warn(error, stacklevel=1)


def test_what_a_test_raises_is_told_and_the_next_one_runs():
    with pytest.raises(AssertionError, match=r"(?s)in runs_elsewhere.*UserWarning: a warning is an error"):
        runs_elsewhere(os.getpid(), error="a warning is an error")
    runs_elsewhere(os.getpid(), error="")
