"""Data that the tests of tables share."""

import numpy as np
import pytest

from pytrtplugins.mlops.tables import LabelledImages

from .people import photos


@pytest.fixture
def faces(tmp_path):
    """Six people with three photos each, in an .npz file."""
    path = tmp_path / "faces.npz"
    np.savez(path, **photos())
    return LabelledImages(path)
