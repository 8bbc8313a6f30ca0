"""Where images of the host are decoded."""

import pytest

from pytrtplugins.engines.cuda.device.device import HostDevice
from pytrtplugins.engines.cuda.run.staging import image_memory
from pytrtplugins.errors import UnavailableError


class Locking(HostDevice):
    """Notes what is asked for, and has so many bytes that can be locked."""

    def __init__(self, room=1 << 40):
        self.asked, self.room = [], room

    def pinned_memory(self, size):
        self.asked.append(size)
        if size > self.room:
            raise UnavailableError("no memory to lock")
        return super().pinned_memory(size)


@pytest.mark.parametrize(
    ("size", "asked"),
    [(1, 4096), (4096, 4096), (4097, 8192), (1_000_000, 1 << 20), ((5 << 20) - 7, 5 << 20), (8 << 20, 8 << 20)],
)
def test_images_of_up_to_8_mib_are_decoded_into_page_locked_memory_of_a_round_size(size, asked):
    device = Locking()
    assert image_memory(device, size).nbytes == size
    assert device.asked == [asked]


@pytest.mark.parametrize(("size", "room", "asked"), [((8 << 20) + 1, 1 << 40, []), (5000, 0, [8192])])
def test_larger_ones_and_those_that_cannot_be_locked_have_ordinary_memory(size, room, asked):
    device = Locking(room)
    assert image_memory(device, size).nbytes == size
    assert device.asked == asked
