"""Samples of a network's inputs from files of arrays."""

import numpy as np
import pytest

from pytrtplugins.cli.shared import samples
from pytrtplugins.errors import UsageError
from pytrtplugins.tensor import DType, TensorDesc

INPUTS = [TensorDesc("x", (1, 3, 4, 4), DType.FLOAT32)]


def read(folder):
    return samples.read_samples([folder], INPUTS, limit=4, seed=0, mode="letterbox")


def test_arrays_get_the_types_of_the_network(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones((1, 3, 4, 4), np.uint8))
    ((name, array),) = read(tmp_path)[0].items()
    assert (name, array.dtype, array.sum()) == ("x", np.float32, 48)


def test_arrays_that_would_take_too_much_memory_in_these_types_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(samples, "MAX_BYTES", 4 * 48 - 1)
    np.savez_compressed(tmp_path / "a.npz", x=np.ones((1, 3, 4, 4), np.uint8))
    with pytest.raises(UsageError, match="its arrays take 192 bytes in the types of the network; the limit is 191"):
        read(tmp_path)
