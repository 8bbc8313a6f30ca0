import contextlib
import io
import os
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pillow
from PIL import ImageOps

from pytrtplugins.errors import ImageError, UsageError
from pytrtplugins.vision import check_image, decode_image, load_image, save_image

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)


def encoded(array, kind="PNG", mode=None, **options):
    file = io.BytesIO()
    image = Pillow.fromarray(array)
    (image.convert(mode) if mode else image).save(file, format=kind, **options)
    return file.getvalue()


def test_a_lossless_image_keeps_every_pixel(tmp_path):
    save_image(PIXELS, tmp_path / "a.png")
    np.testing.assert_array_equal(load_image(tmp_path / "a.png"), PIXELS)


def test_a_file_whose_name_is_before_a_dash_in_the_alphabet_is_no_standard_input(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_image(PIXELS, "+.png")
    np.testing.assert_array_equal(load_image("+.png"), PIXELS)


GRAY, ALPHA = PIXELS[:, :, 0], np.full((20, 30), 10, np.uint8)
DEEP = np.arange(600, dtype=np.uint16).reshape(20, 30) * 109
FLAT = np.full((8, 8, 3), (0, 204, 51), np.uint8)  # of the palette that Pillow uses
WIDE = np.zeros((9, 12_000, 3), np.uint8)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        *(pytest.param(encoded(PIXELS, kind), PIXELS, id=kind) for kind in ("PNG", "BMP", "TIFF", "PPM")),
        pytest.param(encoded(GRAY), GRAY, id="gray"),
        pytest.param(encoded(np.dstack([GRAY, ALPHA])), GRAY, id="gray with alpha"),
        pytest.param(encoded(np.dstack([PIXELS, ALPHA])), PIXELS, id="alpha, dropped as darknet drops it"),
        pytest.param(encoded(DEEP), np.rint(DEEP / 257), id="sixteen bits"),
        pytest.param(encoded(GRAY > 128), 255 * (GRAY > 128), id="two levels"),
        pytest.param(encoded(FLAT, "GIF", "P"), FLAT, id="palette"),
        pytest.param(encoded(PIXELS[:1, :1]), PIXELS[:1, :1], id="one pixel"),
        pytest.param(encoded(WIDE), WIDE, id="12,000 pixels"),
    ],
)
def test_every_kind_of_pixels_becomes_rgb(data, expected):
    expected = np.stack([expected] * 3, 2) if expected.ndim == 2 else expected
    np.testing.assert_array_equal(decode_image(data), expected.astype(np.uint8), strict=True)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.int32([0, 100, 255]), [0, 100, 255]),  # 8 bits in a wider type
        (np.int32([0, 129, 65535]), [0, 1, 255]),  # 16 bits: 129 / 257 is 0.502
        (np.int32([-5, 300, 70_000]), [0, 1, 255]),
        (np.float32([0, 0.25, 1]), [0, 64, 255]),
        (np.float32([-1, 0.25, 0.5]), [0, 64, 128]),  # a dark image stays dark
        (np.float32([0, 100, 400]), [0, 64, 255]),  # beyond 1 the largest value is white
    ],
)
def test_deep_values_become_eight_bits_by_their_range(values, expected):
    found = decode_image(encoded(values[None], "TIFF"))
    np.testing.assert_array_equal(found, np.repeat(np.array(expected, np.uint8)[None, :, None], 3, 2))


def test_cmyk_images_are_read():
    found = decode_image(encoded(np.full((8, 8, 3), (200, 30, 40), np.uint8), "JPEG", "CMYK", quality=95))
    assert abs(found.astype(int) - (200, 30, 40)).max() < 12


def rotated_jpeg():
    exif = Pillow.Exif()
    exif[0x0112] = 6  # turn by 90 degrees clockwise to see it upright
    return encoded(np.kron(PIXELS, np.ones((8, 8, 1), np.uint8)), "JPEG", exif=exif, quality=95)


def test_a_phones_image_is_turned_upright():
    lying = decode_image(rotated_jpeg(), exif=False)
    np.testing.assert_array_equal(decode_image(rotated_jpeg()), np.rot90(lying, -1))


def test_a_file_is_turned_upright_unless_told_otherwise(tmp_path):
    (tmp_path / "phone.jpg").write_bytes(rotated_jpeg())
    assert load_image(tmp_path / "phone.jpg").shape == (240, 160, 3)
    assert load_image(tmp_path / "phone.jpg", exif=False).shape == (160, 240, 3)


def test_a_missing_file_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ImageError, match="no such file") as caught:
        load_image("dog.jpg")
    assert str(tmp_path / "dog.jpg") in str(caught.value)


@pytest.mark.parametrize(("name", "kind"), [(".", "folder"), ("a.jpg", "FIFO"), ("/dev/zero", "character device")])
def test_a_folder_a_fifo_and_a_device_are_refused_without_waiting(tmp_path, name, kind):
    os.mkfifo(tmp_path / "a.jpg")
    with pytest.raises(ImageError, match=f"found a {kind}"):
        load_image(tmp_path / name)


@pytest.mark.parametrize(
    ("data", "text"), [(b"", "empty"), (b"hello, this is text", "not an image"), (b"%PDF-1.7 ...", "not an image")]
)
def test_what_is_not_an_image_is_refused(tmp_path, data, text):
    (tmp_path / "a.jpg").write_bytes(data)
    with pytest.raises(ImageError, match=text) as caught:
        load_image(tmp_path / "a.jpg")
    assert caught.value.path == tmp_path / "a.jpg"


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "WEBP", "TIFF", "GIF"])
def test_a_truncated_image_is_refused(kind):
    data = encoded(np.kron(PIXELS, np.ones((8, 8, 1), np.uint8)), kind)
    with pytest.raises(ImageError, match=r"damaged or truncated|not an image"):
        decode_image(data[: len(data) // 2], "half")


@given(
    position=st.integers(0, 400), value=st.integers(0, 255), kind=st.sampled_from(["JPEG", "PNG", "BMP", "TIFF", "GIF"])
)
def test_a_damaged_image_gives_an_image_or_our_error(position, value, kind):
    data = bytearray(encoded(PIXELS, kind))
    data[position % len(data)] = value
    with contextlib.suppress(ImageError):
        assert decode_image(bytes(data)).shape[2] == 3


@pytest.mark.parametrize(
    ("size", "message", "needed"),
    [
        ((15_339_169, 10), r"take 1,073,741,830 bytes of memory; the limit is 1,073,741,824\.", 7 * 153_391_690),
        ((60_000, 60_000), r"Image size \(3600000000 pixels\) exceeds limit", None),  # Pillow's own
    ],
)
def test_an_image_takes_a_gibibyte_at_most_unless_told_otherwise(size, message, needed):
    header = bytearray(encoded(PIXELS, "BMP"))
    header[18:26] = struct.pack("<II", *size)
    with pytest.raises(ImageError, match=message) as caught:
        decode_image(bytes(header))
    assert caught.value.facts.get("needed") == needed


@pytest.mark.parametrize(
    "array",
    [np.zeros((4, 4, 3), np.float32), np.zeros((3, 4, 5), np.uint8), np.zeros((0, 4, 3), np.uint8), "text", None],
)
def test_arrays_that_are_no_images_are_refused(array):
    with pytest.raises(ImageError, match="expected a"):
        check_image(array)


@pytest.mark.parametrize(("name", "message"), [("a.xyz", "unknown suffix"), ("none/a.png", "mkdir -p")])
def test_a_name_that_cannot_be_written_is_refused(tmp_path, name, message):
    with pytest.raises(UsageError, match=message):
        save_image(PIXELS, tmp_path / name)


# --- what images may cost ------------------------------------------------------------------------------------------------


def test_the_size_that_an_image_claims_is_checked_before_it_is_decoded():
    data = encoded(np.zeros((1000, 1000), np.float32), "TIFF", compression="tiff_adobe_deflate")
    assert decode_image(data, max_bytes=7_000_000).shape == (1000, 1000, 3)
    with pytest.raises(ImageError, match=r"1,000 x 1,000 pixels \(F\) take 7,000,000 bytes") as caught:
        decode_image(data, max_bytes=6_999_999)
    assert caught.value.needed == 7_000_000


@pytest.mark.parametrize("kind", ["PNG", "BMP", "WEBP", "TIFF", "GIF", "PPM", "JPEG"])
def test_the_limit_holds_for_every_format(kind):
    data = encoded(PIXELS, kind, "P" if kind == "GIF" else None)
    with pytest.raises(ImageError, match="the limit is 1,000"):
        decode_image(data, max_bytes=1000)


def test_a_large_image_takes_the_memory_that_is_said():
    """Measured in a process of its own: a float TIFF once took 28 bytes a pixel."""
    side = 6000
    code = f"""
import io, resource, sys
import numpy as np
from PIL import Image
from pytrtplugins.vision import decode_image
decode_image({encoded(PIXELS, "TIFF")!r})
file = io.BytesIO()
Image.new("F", ({side}, {side})).save(file, format="TIFF", compression="tiff_adobe_deflate")
before = int(open("/proc/self/status").read().split("VmRSS:")[1].split()[0])
open("/proc/self/clear_refs", "w").write("5")
decode_image(file.getvalue())
print(int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) * 1024 < side * side * 7 + (150 << 20)  # what is said, and a few rows


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_without_exif_every_kind_gives_the_pixels_as_they_are_stored(orientation, kind):
    """TIFF files, too, which Pillow turns when it loads them."""
    exif = Pillow.Exif()
    exif[0x0112] = orientation
    data = encoded(PIXELS, kind, exif=exif)
    np.testing.assert_array_equal(decode_image(data, exif=False), PIXELS)
    with Pillow.open(io.BytesIO(data)) as image:
        np.testing.assert_array_equal(decode_image(data), np.asarray(ImageOps.exif_transpose(image)))


@pytest.mark.parametrize("orientation", [0, 2, 3, 4, 5, 6, 7, 8, 9, 65535])
def test_every_orientation_is_undone_as_pillow_undoes_it(orientation):
    exif = Pillow.Exif()
    exif[0x0112] = orientation
    data = encoded(PIXELS, "PNG", exif=exif)
    with Pillow.open(io.BytesIO(data)) as image:
        expected = np.array(ImageOps.exif_transpose(image))
    np.testing.assert_array_equal(decode_image(data), expected)


def test_damaged_exif_does_not_keep_an_image_from_being_read():
    data = encoded(
        np.kron(PIXELS, np.ones((8, 8, 1), np.uint8)), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff" + b"\xff" * 40
    )
    assert decode_image(data).shape == (160, 240, 3)


@pytest.mark.parametrize("pixels", [64, 8])
@pytest.mark.parametrize("mode", ["P", "LA", "1", "L", "RGBA", "CMYK"])
def test_rows_that_are_converted_by_parts_are_the_same(mode, pixels, monkeypatch):
    data = encoded(PIXELS, "TIFF" if mode == "CMYK" else "PNG", mode)
    whole = decode_image(data)
    monkeypatch.setattr("pytrtplugins.vision.image._STRIPE_PIXELS", pixels)
    np.testing.assert_array_equal(decode_image(data), whole)


@pytest.mark.parametrize("kind", [np.uint16, np.int32, np.float32])
def test_deep_images_that_are_converted_by_parts_have_one_range(kind, monkeypatch):
    deep = (np.arange(600).reshape(20, 30) * 100).astype(kind)
    data = encoded(deep, "TIFF")
    whole = decode_image(data)
    monkeypatch.setattr("pytrtplugins.vision.image._STRIPE_PIXELS", 64)
    np.testing.assert_array_equal(decode_image(data), whole)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "PPM"])
@pytest.mark.parametrize("size", [(0, 20), (30, 0)])
def test_an_image_without_pixels_is_refused(kind, size):
    data = bytearray(encoded(PIXELS, kind))
    if kind == "PNG":
        data[16:24] = struct.pack(">II", *size)
        data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    elif kind == "BMP":
        data[18:26] = struct.pack("<II", *size)
    else:
        data = bytearray(b"P6\n%d %d\n255\n" % size)
    with pytest.raises(ImageError, match="image 'none': not an image"):
        decode_image(bytes(data), "none")


@pytest.mark.parametrize(("mode", "each"), [("1", 1), ("L", 1), ("P", 1), ("RGB", 4), ("CMYK", 4), ("I;16", 2)])
def test_the_memory_is_that_of_pillows_mode_and_of_the_result(mode, each):
    deep = np.zeros((20, 30), np.uint16)
    data = encoded(deep) if mode == "I;16" else encoded(PIXELS, "TIFF", mode)
    needed = 600 * (each + 3)
    assert decode_image(data, max_bytes=needed).shape == (20, 30, 3)
    with pytest.raises(ImageError, match=f"take {needed:,} bytes of memory; the limit is {needed - 1:,}"):
        decode_image(data, max_bytes=needed - 1)


@pytest.mark.parametrize(
    ("suffix", "kind"),
    [
        (".jpg", "JPEG"),
        (".JPEG", "JPEG"),
        (".png", "PNG"),
        (".bmp", "BMP"),
        (".webp", "WEBP"),
        (".tif", "TIFF"),
        (".tiff", "TIFF"),
    ],
)
def test_the_suffix_chooses_the_format(tmp_path, suffix, kind):
    save_image(PIXELS, tmp_path / f"a{suffix}")
    assert (tmp_path / f"a{suffix}").read_bytes() == encoded(PIXELS, kind, quality=92)


@pytest.mark.parametrize(
    ("shape", "kept"), [((4, 5), 3), ((4, 5, 3), 3), ((4, 5, 4), 3), ((4, 5, 1), 0), ((4, 5, 5), 0), ((1, 4, 5, 3), 0)]
)
def test_images_are_gray_rgb_or_rgb_and_a_fourth_channel(shape, kept):
    array = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    if kept:
        wanted = np.stack([array] * 3, 2) if array.ndim == 2 else array[:, :, :3]
        np.testing.assert_array_equal(check_image(array), wanted)
    else:
        with pytest.raises(ImageError, match=r"at least one pixel, found uint8 \(") as caught:
            check_image(array)
        assert caught.value.path is None


def test_the_first_frame_of_many_is_read():
    file = io.BytesIO()
    frames = [Pillow.fromarray(np.full((8, 8), value, np.uint8)) for value in (10, 200, 90)]
    frames[0].save(file, format="GIF", save_all=True, append_images=frames[1:])
    assert np.unique(decode_image(file.getvalue())).tolist() == [10]


def test_an_image_file_has_a_largest_size(tmp_path):
    with open(tmp_path / "a.png", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ImageError, match="expected at most 536,870,912 bytes"):
        load_image(tmp_path / "a.png")


def test_a_dash_is_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(encoded(PIXELS))))
    np.testing.assert_array_equal(load_image("-"), PIXELS)
