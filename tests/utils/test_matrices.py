"""Copies of matrices."""

import numpy as np
import pytest

from pytrtplugins.utils import matrices
from pytrtplugins.utils.matrices import row_major


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
@pytest.mark.parametrize("shape", [(1, 1), (3, 16), (16, 3), (33, 50), (0, 4), (200, 15)])
def test_a_transposed_matrix_is_copied_row_by_row(shape, dtype):
    matrix = np.arange(shape[0] * shape[1]).reshape(shape).astype(dtype)
    copy = row_major(matrix.T)
    assert copy.flags.c_contiguous
    assert copy.dtype == dtype
    np.testing.assert_array_equal(copy, matrix.T)


def test_one_that_lies_in_rows_is_not_copied():
    matrix = np.ones((4, 5))
    assert row_major(matrix) is matrix


@pytest.mark.parametrize("shape", [(1, 1), (33, 50), (200, 15), (0, 4)])
def test_threads_copy_every_part(shape, monkeypatch):
    monkeypatch.setattr(matrices, "_THREADED", 0)
    matrix = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(row_major(matrix.T), matrix.T)
