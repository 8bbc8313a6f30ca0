import dataclasses
import math

import numpy as np
import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.vision import Head, decode_region, decode_yolo

ANCHORS = (1.5, 2.0, 3.0, 0.5)
CLASSES, H, W = 3, 4, 5


def head(seed=0, anchors=2, batch=2):
    return np.random.default_rng(seed).normal(0, 1, (batch, anchors * (5 + CLASSES), H, W)).astype(np.float32)


def one_box(values, anchor, row, column):
    entries = values.reshape(-1, 5 + CLASSES, H, W)[anchor, :, row, column]
    return [float(value) for value in entries]


@pytest.mark.parametrize("place", [(0, 0, 0), (1, 3, 4), (1, 0, 2), (0, 2, 1)])
def test_region_boxes_are_darknets_formula(place):
    values = head()
    boxes, scores = decode_region(values, ANCHORS, CLASSES)
    anchor, row, column = place
    x, y, w, h, objectness, *classes = one_box(values[1], *place)
    at = (anchor * H + row) * W + column
    expected = [
        (column + x) / W,
        (row + y) / H,
        math.exp(w) * ANCHORS[2 * anchor] / W,
        math.exp(h) * ANCHORS[2 * anchor + 1] / H,
    ]
    np.testing.assert_allclose(boxes[1, at], expected, rtol=1e-5)
    np.testing.assert_allclose(scores[1, at], [objectness * value for value in classes], rtol=1e-5)


PIXELS = (10.0, 14.0, 23.0, 27.0, 37.0, 58.0)


@pytest.mark.parametrize(
    ("anchors", "options", "place", "factor"),
    [
        (PIXELS, {"mask": (1,)}, (0, 0), math.exp),
        (PIXELS[:4], {"new_coords": True}, (1, 1), lambda v: v * v * 4),  # as AlexeyAB's get_yolo_box
    ],
)
def test_yolo_boxes_use_the_masked_anchors_in_pixels(anchors, options, place, factor):
    values = head(anchors=1 if "mask" in options else 2)
    boxes, _ = decode_yolo(values, anchors, CLASSES, size=(160, 128), **options)
    image, anchor = place
    x, y, w, h, *_ = one_box(values[image], anchor, 2, 3)
    expected = [(3 + x) / W, (2 + y) / H, factor(w) * 23 / 160, factor(h) * 27 / 128]
    np.testing.assert_allclose(boxes[image, (anchor * H + 2) * W + 3], expected, rtol=1e-5)


def test_without_objectness_the_class_probability_is_the_score():
    values = head(batch=1)
    _, scores = decode_region(values, ANCHORS, CLASSES, background=True)
    np.testing.assert_array_equal(scores[0, 7], one_box(values[0], 0, 1, 2)[5:])


def test_every_cell_of_every_anchor_gives_a_box():
    boxes, scores = decode_region(head(), ANCHORS, CLASSES)
    assert boxes.shape == (2, 2 * H * W, 4)
    assert scores.shape == (2, 2 * H * W, CLASSES)


@pytest.mark.parametrize(
    ("values", "anchors", "classes", "message"),
    [
        (head(), ANCHORS, 4, r"\(N, 18, H, W\) for 2 anchors and 4 classes, found \(2, 16, 4, 5\)\."),
        (head(), ANCHORS[:2], 3, r"\(N, 8, H, W\) for 1 anchors and 3 classes, found \(2, 16, 4, 5\)\."),
        (head(), ANCHORS[:3], 3, r"expected pairs of width and height, found 3 numbers\."),
        (head(), (), 3, r"^head: anchors: expected pairs of width and height, found 0 numbers\."),
        (np.zeros((1, 0, 2, 2), np.float32), (), 3, r"^head: anchors: expected pairs .* found 0 numbers\."),
        (head()[0], ANCHORS, CLASSES, r"found \(16, 4, 5\)\."),
    ],
)
def test_refusals_say_what_was_expected_and_found(values, anchors, classes, message):
    with pytest.raises(UsageError, match=message):
        decode_region(values, anchors, classes)


def test_a_mask_beyond_the_anchors_is_refused():
    with pytest.raises(UsageError, match="mask"):
        decode_yolo(head(anchors=1), ANCHORS, CLASSES, mask=(2,), size=(32, 32))
    with pytest.raises(UsageError, match=r"mask \(0, -1\) names an anchor that is not there; there are 2\."):
        decode_yolo(head(), ANCHORS, CLASSES, mask=(0, -1), size=(32, 32))


def test_without_a_mask_all_anchors_are_used_in_order():
    values = head()
    for found, wanted in zip(
        decode_yolo(values, ANCHORS, CLASSES, size=(32, 32)),
        decode_yolo(values, ANCHORS, CLASSES, mask=(0, 1), size=(32, 32)),
        strict=True,
    ):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("options", "sides"),
    [
        ({"type": "region"}, (5, 4)),
        ({"type": "region", "background": True}, (5, 4)),
        ({"type": "yolo"}, (160, 128)),
        ({"type": "yolo", "mask": (1,)}, (160, 128)),
        ({"type": "yolo", "new_coords": True}, (160, 128)),
    ],
)
def test_a_head_decodes_by_its_type(options, sides):
    layer = Head("y", anchors=ANCHORS, classes=CLASSES, **options)
    used = ANCHORS[2:] if "mask" in options else ANCHORS
    values = head(anchors=len(used) // 2)
    boxes, scores = layer.decode(values, (160, 128))
    assert layer.unit((5, 4), (160, 128)) == sides
    _, _, w, _, objectness, *classes = one_box(values[0], 0, 1, 3)
    factor = 4 * w * w if options.get("new_coords") else math.exp(w)
    assert boxes[0, W + 3, 2] == pytest.approx(factor * used[0] / sides[0], rel=1e-5)
    share = 1 if options.get("background") else objectness
    np.testing.assert_allclose(scores[0, W + 3], [share * value for value in classes], rtol=1e-5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        layer.classes = 2
