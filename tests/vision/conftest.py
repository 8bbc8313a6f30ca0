from __future__ import annotations

from pathlib import Path

import pytest

DATA = Path("/usr/share/darknet/data")


@pytest.fixture
def darknet_photo():
    def find(name):
        if not (DATA / name).is_file():
            pytest.skip(f"{DATA / name} is missing (apt-get install darknet)")
        return DATA / name

    return find
