"""Mirrored and shifted copies of images, against NumPy's pads."""

import numpy as np
import pytest

from pytrtplugins.mlops.tables.augmentation import augmented_copy

SHIFTS = [(0, 0), (0, -1), (0, 1), (-1, 0), (1, 0)]  # down, to the right, in fiftieths of a side


@pytest.mark.parametrize("size", [(100, 150), (99, 149), (49, 7)])
@pytest.mark.parametrize("number", range(2 * len(SHIFTS)))
def test_a_copy_is_moved_by_a_fiftieth_and_mirrored(size, number):
    image = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    down, right = (part * max(1, side // 50) for part, side in zip(SHIFTS[number // 2], size, strict=True))
    padded = np.pad(image, ((2, 2), (3, 3), (0, 0)), mode="edge")
    expected = padded[2 - down : 2 - down + size[0], 3 - right : 3 - right + size[1]]
    np.testing.assert_array_equal(augmented_copy(image, number), expected[:, ::-1] if number % 2 else expected)
