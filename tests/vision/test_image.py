from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow

from pytrtplugins.errors import ImageError, UsageError
from pytrtplugins.vision import check_image, decode_image, load_image, save_image

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)


def encoded(array, kind="PNG", mode=None, **options):
    file = io.BytesIO()
    picture = Pillow.fromarray(array)
    (picture.convert(mode) if mode else picture).save(file, format=kind, **options)
    return file.getvalue()


def test_a_lossless_picture_keeps_every_pixel(tmp_path):
    save_image(PIXELS, tmp_path / "a.png")
    np.testing.assert_array_equal(load_image(tmp_path / "a.png"), PIXELS)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM"])
def test_lossless_formats_agree(kind):
    np.testing.assert_array_equal(decode_image(encoded(PIXELS, kind)), PIXELS)


def test_grayscale_becomes_rgb():
    gray = PIXELS[:, :, 0]
    np.testing.assert_array_equal(decode_image(encoded(gray)), np.stack([gray] * 3, 2))


def test_alpha_is_dropped_as_darknet_drops_it():
    rgba = np.dstack([PIXELS, np.full((20, 30), 10, np.uint8)])
    np.testing.assert_array_equal(decode_image(encoded(rgba)), PIXELS)


def test_sixteen_bits_become_eight():
    deep = np.arange(600, dtype=np.uint16).reshape(20, 30) * 109
    found = decode_image(encoded(deep))
    np.testing.assert_array_equal(found[:, :, 0], np.rint(deep / 257).astype(np.uint8))


def test_cmyk_photos_are_read():
    found = decode_image(encoded(np.full((8, 8, 3), (200, 30, 40), np.uint8), "JPEG", "CMYK", quality=95))
    assert abs(found.astype(int) - (200, 30, 40)).max() < 12


def test_palettes_are_read():
    flat = np.full((8, 8, 3), (0, 204, 51), np.uint8)  # of the palette that Pillow uses
    np.testing.assert_array_equal(decode_image(encoded(flat, "GIF", "P")), flat)


def rotated_jpeg():
    exif = Pillow.Exif()
    exif[0x0112] = 6  # turn by 90 degrees clockwise to see it upright
    return encoded(np.kron(PIXELS, np.ones((8, 8, 1), np.uint8)), "JPEG", exif=exif, quality=95)


def test_a_phones_photo_is_turned_upright():
    lying = decode_image(rotated_jpeg(), exif=False)
    np.testing.assert_array_equal(decode_image(rotated_jpeg()), np.rot90(lying, -1))


def test_without_exif_the_pixels_are_as_darknet_sees_them():
    assert decode_image(rotated_jpeg(), exif=False).shape == (160, 240, 3)


def test_a_missing_file_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ImageError, match="no such file") as caught:
        load_image("dog.jpg")
    assert str(tmp_path / "dog.jpg") in str(caught.value)


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(ImageError, match="found a folder"):
        load_image(tmp_path)


@pytest.mark.parametrize(
    ("data", "text"), [(b"", "empty"), (b"hello, this is text", "not a picture"), (b"%PDF-1.7 ...", "not a picture")]
)
def test_what_is_not_a_picture_is_refused(tmp_path, data, text):
    (tmp_path / "a.jpg").write_bytes(data)
    with pytest.raises(ImageError, match=text) as caught:
        load_image(tmp_path / "a.jpg")
    assert caught.value.path == tmp_path / "a.jpg"


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "WEBP", "TIFF", "GIF"])
def test_a_truncated_picture_is_refused(kind):
    data = encoded(np.kron(PIXELS, np.ones((8, 8, 1), np.uint8)), kind)
    with pytest.raises(ImageError, match=r"damaged or truncated|not a picture"):
        decode_image(data[: len(data) // 2], "half")


@settings(max_examples=60, deadline=None)
@given(
    position=st.integers(0, 400), value=st.integers(0, 255), kind=st.sampled_from(["JPEG", "PNG", "BMP", "TIFF", "GIF"])
)
def test_a_damaged_picture_gives_a_picture_or_our_error(position, value, kind):
    data = bytearray(encoded(PIXELS, kind))
    data[position % len(data)] = value
    with contextlib.suppress(ImageError):
        assert decode_image(bytes(data)).shape[2] == 3


def test_one_pixel_is_a_photo():
    assert decode_image(encoded(PIXELS[:1, :1])).shape == (1, 1, 3)


def test_a_photo_of_12000_pixels_is_read():
    assert decode_image(encoded(np.zeros((9, 12_000, 3), np.uint8))).shape == (9, 12_000, 3)


def test_a_decompression_bomb_is_refused_before_it_is_decoded():
    header = bytearray(encoded(PIXELS, "BMP"))
    header[18:26] = (60_000).to_bytes(4, "little") * 2
    with pytest.raises(ImageError, match="pixels"):
        decode_image(bytes(header))


@pytest.mark.parametrize(
    "array",
    [np.zeros((4, 4, 3), np.float32), np.zeros((3, 4, 5), np.uint8), np.zeros((0, 4, 3), np.uint8), "text", None],
)
def test_arrays_that_are_no_photos_are_refused(array):
    with pytest.raises(ImageError, match="expected a"):
        check_image(array)


def test_an_unknown_suffix_is_refused(tmp_path):
    with pytest.raises(UsageError, match="unknown suffix"):
        save_image(PIXELS, tmp_path / "a.xyz")


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(UsageError, match="mkdir -p"):
        save_image(PIXELS, tmp_path / "none" / "a.png")
