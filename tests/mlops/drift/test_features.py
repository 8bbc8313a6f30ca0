"""What is measured of a photo, in exact numbers."""

import numpy as np
import pytest

from pytrtplugins.mlops.drift.features import FEATURES, measure_photos
from tests.mlops.drift.sets import Photos, halves

pytest.importorskip("PIL")
WHITE, BLACK = (255, 255, 255), (0, 0, 0)


def measured(images, boxes=None):
    photos = Photos(images, boxes or [[]] * len(images))
    return measure_photos(photos, len(images), 0, None, lambda: None)


@pytest.mark.parametrize(
    ("color", "luma"),
    [((255, 0, 0), 0.299), ((0, 255, 0), 0.587), ((0, 0, 255), 0.114), (WHITE, 1.0), ((0, 51, 102), 0.163)],
)
def test_brightness_is_the_luma_of_bt_601_and_contrast_its_deviation(color, luma):
    """A set of blue photos and one of red photos differ: the weights are those of red, green and blue in this order."""
    found = measured([halves(color, color), halves(BLACK, color)]).values
    assert sorted(found["brightness"]) == pytest.approx([luma / 2, luma])
    assert sorted(found["contrast"]) == pytest.approx([0, luma / 2])


@pytest.mark.parametrize("size", [(512, 512), (1024, 512), (2048, 2048)])
def test_large_photos_are_measured_at_pixels_that_are_evenly_spread(size):
    found = measured([halves(BLACK, WHITE, size)]).values
    assert (found["brightness"], found["contrast"]) == (pytest.approx([0.5]), pytest.approx([0.5]))


def test_only_about_512_by_512_pixels_of_a_photo_are_looked_at(monkeypatch):
    seen = []
    real = np.ndarray.__matmul__

    class Watched(np.ndarray):
        def __matmul__(self, other):
            seen.append(self.shape[:2])
            return real(np.asarray(self), other)

    from pytrtplugins.mlops.drift import features

    decode = features.decode_image
    monkeypatch.setattr(features, "decode_image", lambda *given: decode(*given).view(Watched))
    measured([halves(BLACK, WHITE, size) for size in ((32, 24), (512, 512), (1024, 1024), (2048, 2048))])
    assert sorted(seen) == [(24, 32), (512, 512), (512, 512), (512, 512)]


def test_a_box_is_measured_in_pixels_where_its_shape_counts_and_in_shares_where_its_size_does():
    """A photo of 64x32 with a box of a quarter of each side, and one of 32x64 with one half as wide as high in shares."""
    found = measured(
        [halves(BLACK, WHITE, (64, 32)), halves(BLACK, WHITE, (32, 64))],
        [[[0, 0.5, 0.5, 0.25, 0.25]], [[1, 0.5, 0.5, 0.25, 0.5], [1, 0.5, 0.5, 1, 1]]],
    )
    expected = {
        "width": [32, 64], "height": [32, 64], "aspect": [0.5, 2], "boxes": [1, 2],
        "box-size": [0.25, 0.125**0.5, 1], "box-shape": [0.25, 0.5, 2],
    }  # fmt: skip
    assert {name: sorted(found.values[name]) for name in expected} == {
        name: pytest.approx(values) for name, values in expected.items()
    }
    assert (found.photos, found.labelled, found.unreadable) == (2, 2, 0)
    assert found.classes == {"cat": 1, "dog": 2}
    assert set(found.values) == {feature.name for feature in FEATURES}
