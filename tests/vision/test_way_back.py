"""Boxes of the network's input, back in the image: worked out by hand, seen in the pixels, and as darknet maps them."""

import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.vision import letterbox, place_image

from . import darknet

# original, input, mode, a box (centre x, centre y, width, height) in 0..1 → its corners in the original, worked out by hand
BY_HAND = [
    ((200, 100), (100, 100), "letterbox", (0.5, 0.5, 0.5, 0.25), (50, 25, 150, 75)),  # half as large, 25 rows above
    ((200, 100), (100, 100), "darknet", (0.5, 0.5, 0.5, 0.25), (50, 25, 150, 75)),
    ((200, 100), (100, 100), "stretch", (0.5, 0.5, 0.5, 0.5), (50, 25, 150, 75)),
    ((100, 99), (100, 100), "letterbox", (0.5, 0.5, 0.2, 0.2), (40, 40, 60, 60)),  # 99 of 100 rows: from row 0 on
    ((100, 99), (100, 100), "darknet", (0.5, 0.5, 0.2, 0.2), (40, 39.5, 60, 59.5)),  # darknet: from row 0.5 on
    ((99, 100), (100, 100), "letterbox", (0.5, 0.5, 0.2, 0.2), (40, 40, 60, 60)),
    ((99, 100), (100, 100), "darknet", (0.5, 0.5, 0.2, 0.2), (39.5, 40, 59.5, 60)),
    ((50, 20), (100, 45), "letterbox", (0.5, 0.4, 0.2, 0.4), (20, 3.5, 30, 12.5)),  # twice as large, 2 rows above
    ((50, 20), (100, 45), "darknet", (0.5, 0.4, 0.2, 0.4), (20, 3.25, 30, 12.25)),  # 2.5 rows above
]


@pytest.mark.parametrize(("original", "size", "mode", "box", "corners"), BY_HAND)
def test_boxes_worked_out_by_hand(original, size, mode, box, corners):
    found = place_image(original, size, mode).to_image(np.array([box]))
    np.testing.assert_allclose(found, [corners], atol=1e-9)


@pytest.mark.parametrize("mode", ["letterbox", "stretch"])
@pytest.mark.parametrize("size", [(96, 96), (97, 96), (96, 97), (131, 64)])
@pytest.mark.parametrize("original", [(200, 149), (149, 200), (301, 177), (60, 41), (41, 60)])
def test_a_patch_is_found_where_it_was_painted(original, size, mode):
    """The centre of a white patch in the input's pixels, mapped back, is the patch's centre: within a quarter of a network pixel."""
    width, height = original
    x1, x2, y1, y2 = width // 4, width // 2, height // 3, 2 * height // 3
    image = np.zeros((height, width, 3), np.uint8)
    image[y1:y2, x1:x2] = 255
    fitted = letterbox(image, size, mode)
    light = fitted.data[0].copy()
    light[:, light.min(0) == 0.5] = 0  # what is grey from end to end is border
    light[light.min(1) == 0.5] = 0
    weights = light.sum(0), light.sum(1)
    centre = [
        float(((np.arange(len(w)) + 0.5) * w).sum() / w.sum()) for w in weights
    ]  # pixel k reaches from k to k + 1
    (left, top, right, bottom) = fitted.to_image(np.array([[centre[0] / size[0], centre[1] / size[1], 0, 0]]))[0]
    assert (left, top) == (right, bottom)
    assert left == pytest.approx((x1 + x2) / 2, abs=0.2 * width / size[0] + 0.05)
    inner = size[1] if mode == "stretch" else min(size[1], height * size[0] / width)
    assert top == pytest.approx((y1 + y2) / 2, abs=0.2 * height / inner + 0.05)


@given(
    original=st.tuples(st.integers(20, 2000), st.integers(20, 2000)),
    size=st.sampled_from([(416, 416), (320, 416), (417, 416), (608, 319)]),
    box=st.tuples(*[st.floats(0.3, 0.7)] * 2, *[st.floats(0.01, 0.2)] * 2),
)
def test_darknets_way_back_is_met(original, size, box):
    """correct_region_boxes of libdarknet, which computes in float32."""
    correct = darknet.library().correct_region_boxes
    correct.argtypes = [ctypes.POINTER(darknet.Found), *[ctypes.c_int] * 6]
    correct.restype = None
    found = darknet.Found()
    found.bbox = darknet.Box(*box)
    correct(ctypes.byref(found), 1, *original, *size, 0)
    x, y, w, h = (float(getattr(found.bbox, name)) for name in "xywh")
    corners = np.clip([x - w / 2, y - h / 2, x + w / 2, y + h / 2], 0, [*original, *original])
    ours = place_image(original, size, "darknet").to_image(np.array([np.float32(box)]))[0]
    np.testing.assert_allclose(ours, corners, atol=2e-6 * max(original) * max(1, max(original) / min(original)))
