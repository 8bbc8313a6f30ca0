from __future__ import annotations

import numpy as np
import pytest
from PIL import ImageDraw

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


@pytest.fixture
def labels(monkeypatch):
    """What Pillow is asked to write: texts, and the boxes that it says they fill."""
    written, plain = [], ImageDraw.ImageDraw.text

    def text(self, xy, words, **options):
        written.append((words, self.textbbox(xy, words, font=options["font"])))
        plain(self, xy, words, **options)

    monkeypatch.setattr(ImageDraw.ImageDraw, "text", text)
    return written


def test_a_label_has_the_class_and_the_score_in_percent(labels):
    draw(GREY, [Detection("dog", 1, 0.816, (50.0, 60.0, 150.0, 160.0))])
    ((words, (left, _, _, bottom)),) = labels
    assert words == "dog 82%"
    assert 50 <= left < 60  # it stands on the box, at its left end
    assert 50 < bottom < 60


@pytest.mark.parametrize("box", [(0.0, 0.0, 300.0, 200.0), (299.0, 199.0, 300.0, 200.0), (5.0, 5.0, 5.0, 5.0)])
@pytest.mark.parametrize("name", ["cat", "a very long name of a class " * 3])
def test_labels_stay_inside_the_photo(box, name, labels):
    draw(GREY, [Detection(name, 0, 1.0, box)])
    ((_, (left, top, right, bottom)),) = labels
    assert min(left, top) >= 0
    assert bottom <= 200
    assert right <= 300 or right - left > 300 > left  # what does not fit begins inside


@pytest.mark.parametrize("order", [1, -1])
def test_the_highest_score_is_on_top(order, labels):
    box = (50.0, 60.0, 150.0, 160.0)
    drawn = draw(GREY, [Detection("cat", 0, 0.3, box), Detection("dog", 1, 0.9, box)][::order])
    assert tuple(drawn[160, 100]) == class_color(1)
    assert [words for words, _ in labels] == ["cat 30%", "dog 90%"]


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
