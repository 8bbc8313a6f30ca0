from __future__ import annotations

import logging
import os

import numpy as np
import pytest
from PIL import Image

from pytrtplugins.calibration import EntropyCalibrator, ImageBatches, MinMaxCalibrator
from pytrtplugins.errors import ImageError, NoDataError, UsageError
from pytrtplugins.vision import letterbox, load_image


def save(path, seed: int, size=(20, 12)):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture
def images(tmp_path):
    """Five images in two levels of folders, and two files that are none."""
    folder = tmp_path / "photos"
    for seed, name in enumerate(["b.png", "a.jpg", "sub/d.PNG", "sub/c.bmp", "z.jpeg"]):
        save(folder / name, seed)
    (folder / "notes.txt").write_text("no image")
    (folder / "folder.jpg").mkdir()
    return folder


def names(batches):
    return [path.name for path in batches.paths]


def test_a_folder_is_searched_with_its_subfolders_in_the_order_of_the_names(images):
    assert names(ImageBatches(images, (8, 8))) == ["a.jpg", "b.png", "c.bmp", "d.PNG", "z.jpeg"]


def test_a_list_of_files_keeps_its_order(images):
    files = [images / "z.jpeg", str(images / "a.jpg")]
    assert names(ImageBatches(files, (8, 8))) == ["z.jpeg", "a.jpg"]
    assert names(ImageBatches(images / "z.jpeg", (8, 8))) == ["z.jpeg"]


def test_batches_hold_the_images_as_the_network_will_see_them(images):
    batches = ImageBatches(images, size=(16, 8), batch=2)
    found = list(batches)
    assert len(batches) == 3
    assert [batch["data"].shape for batch in found] == [(2, 3, 8, 16), (2, 3, 8, 16), (1, 3, 8, 16)]
    assert {batch["data"].dtype for batch in found} == {np.dtype(np.float32)}
    expected = letterbox(load_image(images / "sub" / "c.bmp"), (16, 8), mode="stretch").data
    np.testing.assert_array_equal(found[1]["data"][0], expected)


def test_batches_can_be_iterated_again(images):
    batches = ImageBatches(images, (8, 8))
    np.testing.assert_array_equal(next(iter(batches))["data"], next(iter(batches))["data"])


def test_the_mode_is_the_vision_packages(images):
    fitted = next(iter(ImageBatches(images, (8, 8), mode="letterbox")))["data"][0]
    np.testing.assert_array_equal(fitted, letterbox(load_image(images / "a.jpg"), (8, 8), mode="letterbox").data)


def test_shuffling_with_a_seed_is_repeatable_and_comes_before_the_limit(images):
    first = ImageBatches(images, (8, 8), shuffle_seed=3)
    assert names(first) == names(ImageBatches(images, (8, 8), shuffle_seed=3))
    assert sorted(names(first)) == sorted(names(ImageBatches(images, (8, 8))))
    assert names(ImageBatches(images, (8, 8), shuffle_seed=3, limit=2)) == names(first)[:2]


def test_the_digest_tells_names_contents_and_preprocess(images, tmp_path):
    def digest(**options):
        return ImageBatches(images, **{"size": (8, 8), **options}).digest()

    first = digest()
    assert first == digest()
    assert len(first) == 64
    assert len({first, digest(limit=2), digest(size=(8, 4)), digest(mode="letterbox"), digest(shuffle_seed=3)}) == 5
    os.rename(images, tmp_path / "moved")
    assert ImageBatches(tmp_path / "moved", (8, 8)).digest() == first
    save(tmp_path / "moved" / "a.jpg", seed=99)
    assert ImageBatches(tmp_path / "moved", (8, 8)).digest() != first


def test_an_empty_folder_is_an_error_that_says_what_was_looked_for(tmp_path):
    (tmp_path / "notes.txt").write_text("no image")
    with pytest.raises(NoDataError, match=r"\.jpg") as error:
        ImageBatches(tmp_path, (8, 8))
    assert error.value.path == tmp_path
    assert ".png" in error.value.suffixes
    assert "1 files with other names" in str(error.value)


@pytest.mark.parametrize("source", [[], "does/not/exist"])
def test_no_source_is_an_error(source):
    with pytest.raises(NoDataError):
        ImageBatches(source, (8, 8))


def test_an_image_that_cannot_be_read_is_an_error_with_its_name(images):
    (images / "m.jpg").write_bytes(b"\xff\xd8 no jpg")
    with pytest.raises(ImageError, match=r"m\.jpg") as error:
        list(ImageBatches(images, (8, 8)))
    assert error.value.path == images / "m.jpg"
    assert 'on_error="skip"' in str(error.value).splitlines()[-1]


def test_an_image_that_cannot_be_read_is_skipped_with_a_warning_on_request(images, caplog):
    (images / "m.jpg").write_bytes(b"\xff\xd8 no jpg")
    with caplog.at_level(logging.WARNING):
        found = list(ImageBatches(images, (8, 8), on_error="skip"))
    assert sum(len(batch["data"]) for batch in found) == 5
    assert "m.jpg" in caplog.text


def test_only_unreadable_images_are_no_data(tmp_path):
    (tmp_path / "m.jpg").write_bytes(b"")
    calibrator = EntropyCalibrator(ImageBatches(tmp_path, (8, 8), on_error="skip"))
    with pytest.raises(NoDataError, match="no batch"):
        list(calibrator.get_batches())


def test_size_and_name_left_open_are_taken_from_the_network(images):
    calibrator = MinMaxCalibrator(ImageBatches(images))
    with pytest.raises(UsageError, match=r"size=\(416, 416\)"):
        list(calibrator.get_batches())
    calibrator.bind({"image": ("N", 3, 4, 6)})
    assert next(calibrator.get_batches())["image"].shape == (5, 3, 4, 6)


def test_size_and_name_that_were_given_win_over_the_networks(images):
    calibrator = MinMaxCalibrator(ImageBatches(images, (8, 8), input_name="data"))
    calibrator.bind({"image": ("N", 3, 4, 6)})
    assert next(calibrator.get_batches())["data"].shape == (5, 3, 8, 8)


@pytest.mark.parametrize(
    "options", [{"size": (0, 8)}, {"size": (8,)}, {"batch": 0}, {"limit": 0}, {"on_error": "ignore"}], ids=str
)
def test_options_that_make_no_sense_are_refused(images, options):
    with pytest.raises(UsageError):
        ImageBatches(images, **options)


def test_options_at_their_limits_are_taken(images):
    assert ImageBatches(images, (16384, 1), batch=4096, limit=1).size == (16384, 1)
    assert ImageBatches(images).batch == 8
    for options in ({"size": (16385, 8)}, {"size": (8, 16385)}, {"size": (8, 8, 8)}, {"batch": 4097}):
        with pytest.raises(UsageError, match=r"ImageBatches: (size|batch)"):
            ImageBatches(images, **options)


def test_every_file_is_read_once_for_the_digest(images):
    batches = ImageBatches(images, (8, 8))
    first = batches.digest()
    save(images / "a.jpg", seed=99)
    assert batches.digest() == first
    assert ImageBatches(images, (8, 8)).digest() != first


@pytest.mark.parametrize("dims", [("N", 3, "H", 6), ("N", 3, 4, "W"), (3, 4, 6), (1, 1, 3, 4, 6)])
def test_dims_that_give_no_size_leave_it_open(images, dims):
    batches = ImageBatches(images)
    batches.set_default_input("image", dims)
    with pytest.raises(UsageError, match=r"size=\(416, 416\)"):
        next(iter(batches))


@pytest.mark.parametrize("suffix", [".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"])
def test_each_kind_of_image_is_found(tmp_path, suffix):
    save(tmp_path / f"image{suffix}", 0)
    (batch,) = ImageBatches(tmp_path, (8, 4))
    assert batch["data"].shape == (1, 3, 4, 8)


def test_it_says_what_it_is(images):
    assert repr(ImageBatches(images, (8, 8))) == "ImageBatches(5 images, size=(8, 8), batch=8, mode='stretch')"
