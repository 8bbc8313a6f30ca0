"""Networks that compute each row by itself, and others: what a trial says of them."""

import numpy as np
import pytest

from pytrtplugins import DType, SymbolicDim, TensorDesc
from pytrtplugins.serving.model.rows import rows_are_independent

N, M = SymbolicDim("N"), SymbolicDim("M")


def trial(function, *dims, dtype=DType.FLOAT32, sizes=()):
    """What the trial says of a function of one input, and the rows of its runs."""
    runs = []

    def run(arrays):
        runs.append(len(arrays["x"]))
        return {"y": np.asarray(function(arrays["x"]))}

    return rows_are_independent([TensorDesc("x", (N, *dims), dtype)], run, sizes), runs


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, DType.INT64, DType.UINT8, DType.BOOL])
def test_rows_that_are_copied_are_independent_and_rows_in_another_order_are_not(dtype):
    assert trial(lambda x: x, 8, dtype=dtype)[0] is True
    assert trial(lambda x: x[::-1], 8, dtype=dtype)[0] is False
    assert trial(lambda x: np.roll(x, 1, axis=0), 8, dtype=dtype)[0] is False


def test_another_kernel_for_a_larger_batch_is_no_other_answer():
    def rounded(x):
        return x * np.float32(1 + 0.001 * len(x))

    assert trial(rounded, 8)[0] is True
    assert trial(lambda x: np.argmax(x, axis=1), 8)[0] is True


def test_what_leaks_through_a_scale_of_all_rows_is_seen():
    assert trial(lambda x: np.round(x / np.abs(x).max() * 127) * np.abs(x).max() / 127, 8)[0] is False


def test_values_and_sizes_are_tried_until_the_network_takes_them():
    def positive(x):
        if x.shape[1] != 1:
            raise ValueError("one column is expected")
        with np.errstate(invalid="ignore"):
            return np.log(x.clip(-1))

    assert trial(positive, M)[0] is True


def test_a_network_that_refuses_all_values_or_gives_nothing_finite_is_not_known():
    def refuses(x):
        raise ValueError("no")

    assert trial(refuses, M)[0] is None
    assert trial(lambda x: x * np.nan, 8)[0] is None


@pytest.mark.parametrize(
    ("sizes", "rows"), [((), [1, 4]), ((1, 8), [1, 8]), ((8,), [8, 8]), ((1, 2), [1, 2]), ((1,), [])]
)
def test_batches_have_sizes_of_the_engine(sizes, rows):
    found, runs = trial(lambda x: x, 8, sizes=sizes)
    assert (found, runs) == (True, rows)
    if rows:
        assert trial(lambda x: np.cumsum(x, axis=0), 8, sizes=sizes)[0] is False
