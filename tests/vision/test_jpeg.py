"""JPEG files through simplejpeg and OpenCV: the pixels, and the refusals, are those of Pillow."""

import io

import numpy as np
import pytest
from PIL import Image as Pillow

from pytrtplugins.errors import ImageError, MissingExtraError
from pytrtplugins.vision import decode_image, device_images, image, jpeg
from pytrtplugins.vision.jpeg import decode_jpeg, read_header

NOISE = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
PIXELS = np.asarray(Pillow.fromarray(NOISE).resize((77, 51)))
DECODERS = {"simplejpeg": "cv2", "cv2": "simplejpeg"}


@pytest.fixture(params=DECODERS)
def decoder(request, monkeypatch):
    """One of the libraries; the other one is missing."""

    def require(module, **facts):
        if module == DECODERS[request.param]:
            raise MissingExtraError(module)
        return __import__(module)

    monkeypatch.setattr(jpeg, "require", require)
    jpeg._decoder.cache_clear()
    yield request.param
    jpeg._decoder.cache_clear()


def encoded(array=PIXELS, mode=None, **options):
    file, made = io.BytesIO(), Pillow.fromarray(array)
    (made.convert(mode) if mode else made).save(file, format="JPEG", **options)
    return file.getvalue()


def by_pillow(data, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(image, "read_header", lambda data: None)
        return decode_image(data)


def outcome(function, *arguments):
    """What a function gives, or the message of its error."""
    try:
        return function(*arguments)
    except ImageError as error:
        return str(error)


@pytest.mark.parametrize(
    "options",
    [
        *({"quality": quality, "subsampling": kind} for quality in (30, 100) for kind in (0, 1, 2)),
        {"mode": "L"},
        {"progressive": True},
        {"optimize": True, "restart_marker_rows": 1},
        {"progressive": True, "mode": "L"},
        {"comment": b"\xff\xda not a scan"},
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", [(51, 77), (1, 1), (8, 9), (33, 16)], ids=str)
def test_the_bits_are_those_of_pillow(shape, options, decoder, monkeypatch):
    data = encoded(PIXELS[: shape[0], : shape[1]], **options)
    header = read_header(data)
    found = decode_jpeg(data, header)
    assert (header.height, header.width, header.mode) == (*shape, options.get("mode", "RGB"))
    np.testing.assert_array_equal(found, by_pillow(data, monkeypatch))
    np.testing.assert_array_equal(found, decode_image(data))


@pytest.mark.parametrize("progressive", [False, True])
def test_a_damaged_file_is_refused_or_decoded_as_by_pillow(progressive, decoder, monkeypatch, capfd):
    whole, draw = encoded(progressive=progressive, quality=95), np.random.default_rng(1)
    refused = decoded = 0
    for turn in range(300):
        damaged = bytearray(whole)
        for place in draw.integers(0, len(whole), 1 + turn % 3):
            damaged[place] = draw.integers(0, 256)
        data = bytes(damaged)
        wanted, found = outcome(by_pillow, data, monkeypatch), outcome(decode_image, data)
        if isinstance(wanted, str):
            refused += 1
            assert found == wanted
        else:
            decoded += 1
            np.testing.assert_array_equal(found, wanted)
    capfd.readouterr()  # libjpeg's own warnings
    assert refused > 20
    assert decoded > 20


@pytest.mark.parametrize(
    ("place", "value"),
    [(0, b"\x0c"), (1, b"\0\0"), (3, b"\0\0"), (5, b"\x02")],
    ids=["bits", "height", "width", "components"],
)
def test_a_header_without_pixels_or_of_another_kind_is_left_to_pillow(place, value):
    data = encoded()
    assert read_header(data).width == 77
    begin = data.index(b"\xff\xc0") + 4 + place
    assert read_header(data[:begin] + value + data[begin + len(value) :]) is None


@pytest.mark.parametrize("longest", [76, 77])
@pytest.mark.parametrize("array", [PIXELS, PIXELS.swapaxes(0, 1)], ids=["wide", "high"])
def test_the_longer_side_decides_whether_a_device_decodes(monkeypatch, array, longest):
    monkeypatch.setattr(device_images, "_LONGEST_SIDE", longest)
    data = encoded(np.ascontiguousarray(array))
    assert device_images.for_device(data) == (read_header(data) if longest == 77 else None)


@pytest.mark.parametrize("cut", [1, 2, 3, 50, 400])
def test_a_truncated_file_is_pillows(cut):
    data = encoded()
    assert read_header(data[:-cut]) is None
    assert read_header(data + b"\0") is None


@pytest.mark.parametrize("orientation", [1, 2, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("order", ["II", "MM"])
def test_orientations_are_those_of_pillow(orientation, order, decoder, monkeypatch):
    exif = Pillow.Exif()
    exif.endian = "<" if order == "II" else ">"
    exif[0x010F], exif[0x0112], exif[0x0131] = "maker", orientation, "software"
    data = encoded(exif=exif)
    assert data[data.index(b"Exif\0\0") + 6 :].startswith(order.encode())
    assert read_header(data).orientation == orientation
    np.testing.assert_array_equal(decode_image(data), by_pillow(data, monkeypatch))
    np.testing.assert_array_equal(decode_image(data, exif=False), decode_jpeg(data, read_header(data)))


XMP = b'http://ns.adobe.com/xap/1.0/\0<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'


@pytest.mark.parametrize(
    "metadata",
    [
        b"Exif\0\0II*\0\xff\xff\xff\xff" + b"\xff" * 40,
        b"Exif\0\0II*\0\x08\0\0\0\xff\xff",
        b"Exif\0\0nothing",
        b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x09\0\0\0\0\0\0\0",
        b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x04\0\x01\0\0\0\x06\0\0\0\0\0\0\0",
        XMP,
    ],
    ids=["far", "long", "text", "nine", "another type", "xmp"],
)
def test_metadata_that_are_damaged_or_elsewhere_are_pillows(metadata, decoder, monkeypatch):
    plain = encoded()
    data = plain[:2] + b"\xff\xe1" + (len(metadata) + 2).to_bytes(2, "big") + metadata + plain[2:]
    assert read_header(data) is None
    np.testing.assert_array_equal(decode_image(data), by_pillow(data, monkeypatch))


def test_cmyk_and_other_formats_are_pillows():
    assert read_header(encoded(mode="CMYK")) is None
    assert read_header(b"") is None
    assert read_header(b"\xff\xd8\xff\xd9") is None
    assert read_header(b"\xff\xd8" + b"\xff\xe0\0\x02" * 9 + b"\xff\xd9") is None


def test_pixels_go_into_the_memory_that_is_given(decoder):
    memory = list[np.ndarray]()

    def given(size):
        memory.append(np.zeros(size, np.uint8))
        return memory[-1]

    data = encoded()
    found = decode_image(data, memory=given)
    (held,) = memory
    assert np.shares_memory(found, held)
    np.testing.assert_array_equal(held.reshape(51, 77, 3), decode_image(data))


def test_without_a_decoder_pillow_decodes(monkeypatch):
    def require(module, **facts):
        raise MissingExtraError(module)

    monkeypatch.setattr(jpeg, "require", require)
    jpeg._decoder.cache_clear()
    data = encoded()
    assert decode_jpeg(data, read_header(data)) is None
    assert decode_image(data).shape == (51, 77, 3)
    jpeg._decoder.cache_clear()


def test_rgb_that_was_not_made_ycbcr_is_pillows_as_decoders_on_gpus_do_not_see_it():
    data = encoded(keep_rgb=True, quality=100)
    assert read_header(data) is None
    assert np.abs(decode_image(data).astype(int) - PIXELS).max() <= 4
    assert read_header(encoded()).mode == "RGB"
    assert read_header(encoded(mode="L")).mode == "L"
