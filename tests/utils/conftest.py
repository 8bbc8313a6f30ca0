"""Files that are none: devices and FIFOs."""

import os
import stat

import pytest

DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7)}


@pytest.fixture
def device(tmp_path):
    """Makes a device of this name in a folder of its own; skips where that is not allowed."""

    def make(name, kind=stat.S_IFCHR):
        path = tmp_path / name
        try:
            os.mknod(path, kind | 0o666, os.makedev(*DEVICES.get(name, (7, 250))))
            if kind == stat.S_IFCHR:
                with open(path, "rb"):
                    pass
        except OSError as error:
            pytest.skip(f"no device can be made here: {error}")
        return path

    return make


@pytest.fixture
def fifo(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path
