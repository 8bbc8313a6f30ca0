import dataclasses

import numpy as np
import pytest
from PIL import Image, ImageDraw

from pytrtplugins.errors import ImageError
from pytrtplugins.vision import Detection, class_color, draw

GREY = np.full((200, 300, 3), 128, np.uint8)


def test_the_image_itself_is_left_alone():
    image = GREY.copy()
    drawn = draw(image, [Detection("dog", 1, 0.8, (50.0, 60.0, 150.0, 160.0))])
    np.testing.assert_array_equal(image, GREY)
    assert drawn.shape == image.shape
    assert (drawn != image).any()


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
def test_labels_stay_inside_the_image(box, name, labels):
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
def test_small_and_large_images_are_drawn_on(shape):
    image = np.zeros((*shape, 3), np.uint8)
    assert draw(image, [Detection("cat", 2, 0.5, (0.0, 0.0, float(shape[1]), float(shape[0])))]).any()


def test_neighbouring_classes_differ_in_colour():
    colors = np.array([class_color(number) for number in range(20)])
    assert np.abs(np.diff(colors, axis=0)).sum(1).min() > 100


def test_colours_are_those_of_the_hue_circle():
    """Worked out by hand: hues 0.02, 0.638 and 0.256, saturation 0.85, value 0.95."""
    assert [class_color(number) for number in range(3)] == [(242, 61, 36), (36, 72, 242), (132, 242, 36)]


@pytest.fixture
def rectangles(monkeypatch):
    """What Pillow is asked to draw: corners and options."""
    drawn, plain = [], ImageDraw.ImageDraw.rectangle

    def rectangle(self, xy, **options):
        drawn.append((tuple(xy), options))
        plain(self, xy, **options)

    monkeypatch.setattr(ImageDraw.ImageDraw, "rectangle", rectangle)
    return drawn


@pytest.mark.parametrize(("side", "thickness"), [(100, 1), (704, 3), (2200, 10)])
def test_a_label_lies_on_a_field_that_grows_with_the_image_and_stands_on_the_box(side, thickness, rectangles, labels):
    box = (side / 4, side / 2, side * 0.75, side * 0.875)
    draw(np.zeros((side, side, 3), np.uint8), [Detection("dog", 1, 0.8, box)])
    (outline, outlined), ((left, top, right, bottom), filled) = rectangles
    assert (outline, outlined) == (box, {"outline": class_color(1), "width": thickness})
    assert filled == {"fill": class_color(1)}
    assert (left, bottom) == (box[0], box[1])
    ((_, text),) = labels
    margins = (text[0] - left, text[1] - top, right - text[2], bottom - text[3])
    assert margins == (2 * thickness,) * 4


@pytest.mark.parametrize(("box", "corner"), [((10.0, 3.0, 90.0, 50.0), (10, 3)), ((95.0, 60.0, 99.0, 99.0), None)])
def test_a_label_without_room_above_or_beside_is_moved_inside(box, corner, rectangles):
    draw(np.zeros((100, 100, 3), np.uint8), [Detection("dog", 1, 0.8, box)])
    (_, ((left, top, right, bottom), _)) = rectangles
    if corner:
        assert (left, top) == corner
    else:
        assert (right, bottom) == (100, 60)


def test_a_label_that_is_higher_than_the_image_begins_at_the_top(rectangles):
    draw(np.zeros((6, 300, 3), np.uint8), [Detection("dog", 1, 0.8, (10.0, 4.0, 50.0, 6.0))])
    (_, ((_, top, _, bottom), _)) = rectangles
    assert top == 0
    assert bottom > 6


@pytest.mark.parametrize(("number", "ink"), [(1, (255, 255, 255)), (2, (0, 0, 0))])
def test_letters_are_white_on_dark_and_black_on_light_colours(number, ink):
    drawn = draw(GREY, [Detection("dog", number, 0.8, (50.0, 60.0, 150.0, 160.0))])
    assert (drawn[40:60, 50:110] == ink).all(2).any()
    assert not (drawn[40:60, 50:110] == [255 - value for value in ink]).all(2).any()


def test_a_detection_is_a_record_for_json_and_does_not_change():
    found = Detection("dog", 1, 0.5, (0.0, 0.0, 1.0, 2.0))
    assert found.to_dict() == {"label": "dog", "class_id": 1, "score": 0.5, "xyxy": [0.0, 0.0, 1.0, 2.0]}
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.score = 1.0


def test_a_detection_prints_darknets_line():
    assert str(Detection("dog", 1, 0.816, (0.0, 0.0, 1.0, 1.0))) == "dog: 82%"


def test_what_is_no_image_is_refused():
    with pytest.raises(ImageError):
        draw(np.zeros((4, 4)), [])


@pytest.mark.parametrize("number", range(3, 40))
def test_letters_are_black_where_the_colour_is_lighter_than_140_as_pillow_converts_it_to_gray(number):
    colour = class_color(number)
    is_light = Image.new("RGB", (1, 1), colour).convert("L").getpixel((0, 0)) > 140
    drawn = draw(GREY, [Detection("dog", number, 0.8, (50.0, 60.0, 150.0, 160.0))])[40:60, 50:110]
    assert (drawn == [0 if is_light else 255] * 3).all(2).any()
    assert not (drawn == [255 if is_light else 0] * 3).all(2).any()
