"""Photos keep their bytes unless they have to change, and are refused where shards cannot hold them."""

import io
import tarfile
from itertools import product

import pytest

from pytrtplugins.errors import FormatError, ImageError
from pytrtplugins.mlops.shards import Shards, make_shards
from pytrtplugins.utils.file_set import FileSet
from pytrtplugins.vision import decode_image
from pytrtplugins.vision.labels.photo import read_file_header, read_header, shrunk
from tests.mlops.shards.photos import make_set, photo

Image = pytest.importorskip("PIL.Image")
ImageOps = pytest.importorskip("PIL.ImageOps")


def turned(orientation, size=(24, 16)):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return photo(1, size, exif=exif)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF"])
def test_a_head_says_what_decoding_gives(kind):
    data = photo(0, kind=kind)
    found = read_header(data, "x")
    assert (found.format, found.turned) == (kind, False)
    assert (found.height, found.width, 3) == decode_image(data).shape


@pytest.mark.parametrize(("orientation", "kind"), list(product(range(1, 9), ("JPEG", "PNG", "WEBP", "TIFF"))))
def test_a_head_says_how_the_photo_is_turned(tmp_path, orientation, kind):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = photo(1, (24, 16), kind, exif=exif)
    found = read_header(data, "x")
    assert found.size("shown") == ImageOps.exif_transpose(Image.open(io.BytesIO(data))).size
    assert (found.size("stored"), found.orientation) == ((24, 16), orientation)
    (tmp_path / "x").write_bytes(data)
    assert read_file_header(FileSet(tmp_path), "x") == found


def test_of_a_photo_in_a_set_only_the_head_is_read(tmp_path, monkeypatch):
    """And all of it, where what stands before the pixels is longer."""
    small, long = turned(6), turned(8)
    comments = b"".join(b"\xff\xfe\xff\xff" + bytes(65533) for _ in range(3))
    for name, data in (("small.jpg", small + bytes(1 << 20)), ("long.jpg", long[:2] + comments + long[2:])):
        (tmp_path / name).write_bytes(data)
    with tarfile.open(tmp_path / "set.tar", "w") as tar:
        for name in ("long.jpg", "small.jpg"):
            tar.add(tmp_path / name, arcname=name)
    for files in (FileSet(tmp_path), FileSet(tmp_path / "set.tar")):
        read = list[str]()
        whole = files.read
        monkeypatch.setattr(
            files, "read", lambda name, most, whole=whole, read=read: read.append(name) or whole(name, most)
        )
        assert [read_file_header(files, name).orientation for name in ("small.jpg", "long.jpg")] == [6, 8]
        assert read == ["long.jpg"]


def test_the_head_of_a_png_is_read_without_its_pixels(monkeypatch):
    data = photo(1, kind="PNG")
    monkeypatch.setattr(Image.Image, "load", lambda image: pytest.fail("the pixels are decoded"))
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda image: pytest.fail("the pixels are decoded"))
    assert read_header(data, "x").orientation == 1


def test_what_is_no_image():
    with pytest.raises(ImageError, match=r"photo a\.jpg: not an image") as raised:
        read_header(b"no photo", "a.jpg")
    assert raised.value.path == "a.jpg"


def test_a_photo_that_is_small_enough_stays_as_it_is():
    for data in (photo(0), photo(0, kind="PNG")):
        assert shrunk(data, "x", 24) is data


def test_others_become_upright_jpeg_of_that_side():
    for data, size in (
        (photo(0, (40, 20)), (24, 12)),
        (turned(6, (40, 20)), (12, 24)),
        (turned(3), (24, 16)),
        (photo(0, kind="BMP"), (24, 16)),
    ):
        found = read_header(shrunk(data, "x", 24), "x")
        assert (found.format, found.width, found.height, found.turned) == ("JPEG", *size, False)


def test_a_format_that_shards_do_not_hold_is_refused_or_becomes_jpeg(tmp_path):
    data = make_set(tmp_path / "data", 1)
    (data / "images/p0.jpg").rename(data / "images/p0.bmp")
    (data / "images/p0.bmp").write_bytes(photo(0, kind="BMP"))
    with pytest.raises(FormatError, match=r"p0\.bmp: a BMP file; shards hold JPEG, PNG, WEBP: --longest-side"):
        make_shards(data, tmp_path / "a")
    make_shards(data, tmp_path / "a", longest_side=24)
    assert read_header(Shards.open(tmp_path / "a").read(0).image, "x").format == "JPEG"


def test_the_suffix_is_that_of_the_contents(tmp_path):
    data = make_set(tmp_path / "data", 1)
    (data / "images/p0.jpg").write_bytes(photo(0, kind="PNG"))
    make_shards(data, tmp_path / "a")
    assert b"p0.png\0" in (tmp_path / "a/shard-00000.tar").read_bytes()
