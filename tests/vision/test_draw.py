from __future__ import annotations

import numpy as np
import pytest

from pytrtplugins.errors import ImageError
from pytrtplugins.vision import Detection, class_color, draw

GREY = np.full((200, 300, 3), 128, np.uint8)


def test_the_photo_itself_is_left_alone():
    photo = GREY.copy()
    drawn = draw(photo, [Detection("dog", 1, 0.8, (50.0, 60.0, 150.0, 160.0))])
    np.testing.assert_array_equal(photo, GREY)
    assert drawn.shape == photo.shape
    assert (drawn != photo).any()


def test_a_box_lies_on_its_edges_in_the_classs_colour():
    drawn = draw(GREY, [Detection("dog", 1, 0.8, (50.0, 60.0, 150.0, 160.0))])
    assert tuple(drawn[160, 100]) == class_color(1)
    assert tuple(drawn[110, 50]) == class_color(1)
    assert tuple(drawn[110, 100]) == (128, 128, 128)


def test_nothing_found_changes_nothing():
    np.testing.assert_array_equal(draw(GREY, []), GREY)


@pytest.mark.parametrize("box", [(0.0, 0.0, 300.0, 200.0), (299.0, 199.0, 300.0, 200.0), (5.0, 5.0, 5.0, 5.0)])
def test_labels_stay_inside_the_photo(box):
    assert draw(GREY, [Detection("a very long name of a class " * 3, 0, 1.0, box)]).shape == GREY.shape


@pytest.mark.parametrize("shape", [(1, 1), (3, 900), (2000, 1500)])
def test_small_and_large_photos_are_drawn_on(shape):
    photo = np.zeros((*shape, 3), np.uint8)
    assert draw(photo, [Detection("cat", 2, 0.5, (0.0, 0.0, float(shape[1]), float(shape[0])))]).any()


def test_neighbouring_classes_differ_in_colour():
    colors = np.array([class_color(number) for number in range(20)])
    assert np.abs(np.diff(colors, axis=0)).sum(1).min() > 100


def test_a_detection_prints_darknets_line():
    assert str(Detection("dog", 1, 0.816, (0.0, 0.0, 1.0, 1.0))) == "dog: 82%"


def test_what_is_no_photo_is_refused():
    with pytest.raises(ImageError):
        draw(np.zeros((4, 4)), [])
