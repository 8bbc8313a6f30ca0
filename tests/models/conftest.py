import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def shipped():
    """Stem of the shipped model's files."""
    return ROOT / "samples" / "models" / "yolov2-animals"


@pytest.fixture(scope="session")
def shared():
    """Data that are not part of the project, where a developer has them."""
    folder = Path(os.environ.get("PYTRTPLUGINS_SHARED", ROOT.parent / "shared")) / "data"
    if not folder.is_dir():
        pytest.skip(f"{folder} is missing: set PYTRTPLUGINS_SHARED to the folder of the development data")
    return folder
