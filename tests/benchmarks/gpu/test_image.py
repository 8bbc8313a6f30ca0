"""What counts as darknet's boxes."""

import numpy as np

from benchmarks.gpu.test_image import missing
from pytrtplugins.engines import Boxes
from pytrtplugins.vision import letterbox


def test_boxes_of_another_class_score_or_place_are_missing():
    placement = letterbox(np.zeros((200, 400, 3), np.uint8), (416, 416)).placement
    places = np.array([[0.5, 0.5, 0.1, 0.1], [0.3, 0.5, 0.1, 0.1]], np.float32)
    boxes = Boxes(np.array([3, 4]), np.array([0.9, 0.8], np.float32), places, placement)
    corners = placement.to_image(places)
    rows = np.array([[3, 0.905, *corners[0]], [4, 0.8, *corners[1]]], np.float32)
    assert missing(rows, boxes) == 0
    assert missing(np.array([[4, 0.9, *corners[0]]]), boxes) == 1
    assert missing(np.array([[3, 0.8, *corners[0]]]), boxes) == 1
    assert missing(np.array([[3, 0.9, *(corners[0] + 20)]]), boxes) == 1
    assert missing(np.array([[9, 0.71, *corners[0]]]), boxes) == 0  # by a hair over the threshold
