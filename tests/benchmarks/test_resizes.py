"""How near boxes are to darknet's: pairs, distances, what is missing and added."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.resizes import RESIZES, Resize, iou, nearness
from pytrtplugins.vision import Detection, letterbox
from pytrtplugins.vision.letterbox import resize_darknet


def box(kind, score, *corners):
    return Detection("", kind, score, tuple(map(float, corners)))


def test_boxes_are_paired_by_class_and_overlap_and_the_rest_is_counted():
    theirs = [box(0, 0.9, 0, 0, 10, 10), box(0, 0.5, 20, 20, 30, 30), box(1, 0.8, 50, 50, 60, 60)]
    ours = [box(0, 0.4, 20, 21, 30, 30), box(0, 0.8, 1, 0, 10, 8), box(0, 0.7, 50, 50, 60, 60)]
    difference = nearness([ours, []], [theirs, [box(2, 0.6, 0, 0, 1, 1)]])
    assert difference.distances.tolist() == [2, 1]
    assert difference.scores.tolist() == pytest.approx([0.1, 0.1])
    assert (difference.missing, difference.added) == (2, 1)


def test_one_box_is_no_pair_of_two():
    difference = nearness([[box(0, 0.9, 0, 0, 10, 10)]], [[box(0, 0.9, 0, 0, 10, 10), box(0, 0.8, 0, 0, 10, 10)]])
    assert (difference.distances.tolist(), difference.missing, difference.added) == ([0], 1, 0)


def test_overlap_is_intersection_over_union():
    assert iou(box(0, 1, 0, 0, 2, 2), box(0, 1, 1, 1, 3, 3)) == 1 / 7
    assert iou(box(0, 1, 0, 0, 2, 2), box(0, 1, 2, 0, 3, 3)) == 0


@pytest.mark.parametrize("resize", RESIZES, ids=lambda resize: resize.name)
def test_every_resize_gives_the_values_of_an_even_image_in_its_place(resize: Resize):
    image = np.full((30, 60, 3), 51, np.uint8)
    with resize.used():
        fitted = letterbox(image, (20, 20), resize.mode).data
    np.testing.assert_allclose(fitted[:, 5:15], 0.2, atol=1e-6)
    np.testing.assert_array_equal(fitted[:, :5], 0.5)


def test_the_first_resize_is_darknets_own():
    image = np.random.default_rng(0).integers(0, 256, (20, 40, 3), np.uint8)
    with RESIZES[0].used():
        np.testing.assert_array_equal(letterbox(image, (30, 15), RESIZES[0].mode).data, resize_darknet(image, 30, 15))
