import dataclasses

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.errors import ImageError, UsageError
from pytrtplugins.vision import MODES, letterbox, load_image, place_image, resize_darknet
from pytrtplugins.vision.letterbox import thin_out

from . import darknet

IMAGES = ("dog.jpg", "person.jpg", "kite.jpg", "scream.jpg")


def noise(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@given(
    h=st.integers(1, 90),
    w=st.integers(1, 90),
    new_h=st.integers(2, 130),
    new_w=st.integers(2, 130),
    seed=st.integers(0, 9),
)
def test_darknets_resize_is_met_to_the_bit(h, w, new_h, new_w, seed):
    image = noise(h, w, seed)
    expected = darknet.fitted(darknet.library().resize_image, image, new_w, new_h)
    np.testing.assert_array_equal(resize_darknet(image, new_w, new_h), expected)


@given(h=st.integers(2, 200), w=st.integers(2, 200), size=st.sampled_from([(96, 96), (64, 128), (160, 96)]))
def test_darknets_letterbox_is_met_to_the_bit(h, w, size):
    if min(h * size[0] // w, w * size[1] // h) < 2:  # darknet divides by zero where one row or column is left
        return
    image = noise(h, w)
    expected = darknet.fitted(darknet.library().letterbox_image, image, *size)
    np.testing.assert_array_equal(letterbox(image, size, "darknet").data, expected)


@pytest.mark.parametrize("name", IMAGES)
def test_darknets_letterbox_of_its_own_images_is_met_to_the_bit(name, darknet_image):
    image = load_image(darknet_image(name))
    expected = darknet.fitted(darknet.library().letterbox_image, image, 416, 416)
    np.testing.assert_array_equal(letterbox(image, (416, 416), "darknet").data, expected)


@pytest.mark.parametrize("name", IMAGES[:2])
def test_the_fast_mode_sees_the_same_image(name, darknet_image):
    image = load_image(darknet_image(name))
    fast, exact = letterbox(image, (416, 416)), letterbox(image, (416, 416), "darknet")
    assert np.abs(fast.data - exact.data).mean() < 0.01
    assert fast.scale == exact.scale
    assert np.abs(np.subtract(fast.offset, exact.offset)).max() <= 0.5


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (50, 1), (2, 3), (416, 416), (700, 300), (3, 12_000), (40_000, 20)])
def test_every_size_gives_a_full_input_in_0_to_1(mode, shape):
    result = letterbox(noise(*shape), (416, 320), mode)
    assert result.data.shape == (3, 320, 416)
    assert result.data.dtype == np.float32
    assert np.isfinite(result.data).all()
    assert 0 <= result.data.min() <= result.data.max() <= 1
    assert result.original_size == shape[::-1]


def test_around_the_image_is_grey():
    data = letterbox(np.zeros((50, 100, 3), np.uint8), (100, 100)).data
    assert (data[:, :25] == 0.5).all()
    assert (data[:, 75:] == 0.5).all()
    assert (data[:, 25:75] == 0).all()


def test_an_image_of_the_inputs_size_keeps_its_values():
    image = noise(64, 64)
    expected = (image / 255).astype(np.float32).transpose(2, 0, 1)
    for mode in MODES:
        np.testing.assert_array_equal(letterbox(image, (64, 64), mode).data, expected)


@pytest.mark.parametrize("mode", MODES)
@given(w=st.integers(20, 900), h=st.integers(20, 900), box=st.tuples(*[st.floats(0.1, 0.9)] * 4))
def test_boxes_go_there_and_back(mode, w, h, box):
    fitted = letterbox(np.zeros((h, w, 3), np.uint8), (320, 416), mode)
    x1, x2 = sorted((box[0] * w, box[2] * w))
    y1, y2 = sorted((box[1] * h, box[3] * h))
    corners = np.array([[x1, y1], [x2, y2]]) * fitted.scale + fitted.offset
    network = np.concatenate([corners.mean(0), corners[1] - corners[0]]) / [320, 416, 320, 416]
    np.testing.assert_allclose(fitted.to_image(network[None]), [[x1, y1, x2, y2]], atol=1e-3)


def test_boxes_are_clipped_to_the_image():
    fitted = letterbox(np.zeros((100, 200, 3), np.uint8), (416, 416))
    np.testing.assert_allclose(fitted.to_image(np.array([[0.5, 0.5, 9.0, 9.0]])), [[0, 0, 200, 100]])


def test_no_boxes_stay_no_boxes():
    assert letterbox(noise(9, 9), (32, 32)).to_image(np.zeros((0, 4))).shape == (0, 4)


@pytest.mark.parametrize("mode", ["", "fit", "DARKNET"])
def test_an_unknown_mode_is_refused(mode):
    with pytest.raises(UsageError, match="letterbox, darknet, stretch"):
        letterbox(noise(9, 9), (32, 32), mode)


def test_floats_are_refused():
    with pytest.raises(ImageError, match="uint8"):
        letterbox(np.zeros((9, 9, 3), np.float32), (32, 32))


@pytest.mark.parametrize("size", [(0, 32), (32, 0), (32,), (32, 32, 3)])
def test_a_size_is_a_width_and_a_height_of_at_least_1(size):
    for place in (place_image, lambda image, size: letterbox(noise(*image), size)):
        with pytest.raises(UsageError, match="both at least 1, found") as caught:
            place((9, 9), size)
        assert caught.value.size == size
    assert place_image((9, 9), (1, 1)).inner == (1, 1)


@pytest.mark.parametrize(
    ("old", "size", "mode", "inner", "corner", "offset"),
    [
        ((200, 100), (100, 101), "letterbox", (100, 50), (0, 25), (0.0, 25.0)),
        ((200, 100), (100, 101), "darknet", (100, 50), (0, 25), (0.0, 25.5)),
        ((100, 200), (101, 100), "darknet", (50, 100), (25, 0), (25.5, 0.0)),
        ((200, 100), (100, 101), "stretch", (100, 101), (0, 0), (0.0, 0.0)),
        ((1000, 1), (10, 10), "letterbox", (10, 1), (0, 4), (0.0, 4.0)),
        ((1, 1000), (10, 10), "letterbox", (1, 10), (4, 0), (4.0, 0.0)),
    ],
)
def test_where_an_image_stands_worked_out_by_hand(old, size, mode, inner, corner, offset):
    found = place_image(old, size, mode)
    assert (found.size, found.original_size) == (size, old)
    assert (found.inner, found.corner, found.offset) == (inner, corner, offset)
    assert found.scale == (inner[0] / old[0], inner[1] / old[1])
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.inner = size


@pytest.mark.parametrize(
    ("shape", "thinned"),
    [((32767, 2), (32767, 2)), ((32768, 2), (16384, 2)), ((2, 32768), (2, 16384)), ((65535, 32768), (21845, 16384))],
)
def test_images_beyond_opencvs_sides_lose_lines_and_columns(shape, thinned):
    image = np.broadcast_to(np.uint8(7), (*shape, 3))
    assert thin_out(image).shape == (*thinned, 3)


@pytest.mark.parametrize("size", [(40, 20), (80, 60), (40, 60), (80, 20), (60, 20), (40, 30)])
def test_an_image_that_shrinks_either_way_is_averaged_and_others_are_interpolated(size):
    image = noise(30, 60)
    kind = cv2.INTER_AREA if size[0] < 60 or size[1] < 30 else cv2.INTER_LINEAR
    expected = cv2.resize(image, size, interpolation=kind).transpose(2, 0, 1) / np.float64(255)
    found = letterbox(image, size, "stretch").data
    np.testing.assert_array_equal(found, expected.astype(np.float32))


def test_a_letterboxed_image_knows_where_it_stands():
    fitted = letterbox(noise(50, 100), (40, 40))
    assert (fitted.scale, fitted.offset, fitted.original_size) == ((0.4, 0.4), (0.0, 10.0), (100, 50))
    assert fitted != letterbox(noise(50, 100), (40, 40))  # compared as objects: arrays have no one truth
    with pytest.raises(dataclasses.FrozenInstanceError):
        fitted.data = None  # type: ignore[assignment]


@pytest.mark.parametrize(("old", "new"), [(2, 42), (2, 48), (2, 165)])
def test_the_last_column_is_the_images_last_though_its_position_rounds_down(old, new):
    position = np.float32(new - 1) * (np.float32(old - 1) / np.float32(new - 1))
    assert position < old - 1
    image = noise(5, old)
    found = resize_darknet(image, new, 5)
    np.testing.assert_array_equal(found[:, 0, -1], (image[0, -1] / 255).astype(np.float32))
