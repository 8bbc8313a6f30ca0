from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest

from pytrtplugins.errors import ImageError, UsageError
from pytrtplugins.models import ImageWriter, SourceImage, find_images, read_images
from pytrtplugins.vision import Detection, load_image, save_image

BOX = [Detection("dog", 1, 0.8, (10.0, 20.0, 50.0, 60.0))]


@pytest.fixture
def folder(tmp_path):
    for name in ("b.png", "a.jpg", "sub/c.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        save_image(np.full((80, 100, 3), 200, np.uint8), tmp_path / name)
    (tmp_path / "notes.txt").write_text("no image")
    return tmp_path


@pytest.fixture
def video(tmp_path):
    path = tmp_path / "film.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 10, (64, 48))
    for grey in (10, 120, 240):
        writer.write(np.full((48, 64, 3), grey, np.uint8))
    writer.release()
    return path


def test_a_folder_gives_its_images_in_order(folder):
    assert [path.name for path in find_images([folder])] == ["a.jpg", "b.png", "c.png"]


def test_files_and_folders_keep_the_order_of_the_words(folder):
    assert [path.name for path in find_images([folder / "sub" / "c.png", folder])] == [
        "c.png",
        "a.jpg",
        "b.png",
        "c.png",
    ]


def test_a_folder_without_images_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("no image")
    with pytest.raises(ImageError, match=r"no images: looked for .*found 1 other"):
        find_images([tmp_path])


def test_a_missing_image_says_every_place_that_was_looked_at(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ImageError, match="no such file") as caught:
        find_images(["nosuchdog.jpg"], folders=[tmp_path / "samples"])
    text = str(caught.value)
    for place in (
        tmp_path / "nosuchdog.jpg",
        tmp_path / "samples" / "nosuchdog.jpg",
        "/usr/share/darknet/data/nosuchdog.jpg",
    ):
        assert str(place) in text
    assert "apt-get install darknet" in text


def test_a_path_with_folders_is_looked_for_there_only(tmp_path):
    with pytest.raises(ImageError) as caught:
        find_images([tmp_path / "dog.jpg"])
    assert caught.value.candidates == (tmp_path / "dog.jpg",)


@pytest.mark.parametrize("name", ["chelsea", "astronaut", "chelsea.png"])
def test_scikit_images_images_are_found_by_name(name, tmp_path, monkeypatch):
    pytest.importorskip("skimage")
    monkeypatch.chdir(tmp_path)
    (path,) = find_images([name])
    assert path.stem == name.removesuffix(".png")
    assert load_image(path).ndim == 3


def test_no_source_is_refused():
    with pytest.raises(ImageError, match="no image given"):
        find_images([])


def test_a_video_gives_its_frames(video):
    frames = list(read_images([video]))
    assert [frame.frame for frame in frames] == [0, 1, 2]
    assert [round(float(frame.image.mean()), -1) for frame in frames] == [10, 120, 240]
    assert frames[0].frames_per_second == 10


def test_a_videos_colours_and_rate_stay_on_the_way_in_and_out(tmp_path):
    """OpenCV's order is blue, green, red; images are red, green, blue. JPEG and MPEG-4 keep half of the colours' pixels."""
    orange = (240, 120, 20)
    film = cv2.VideoWriter(str(tmp_path / "film.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 10, (64, 48))
    for _ in range(3):
        film.write(np.full((48, 64, 3), orange[::-1], np.uint8))
    film.release()
    frames = list(read_images([tmp_path / "film.avi"]))
    assert len(frames) == 3
    for frame in frames:
        assert frame.image.mean((0, 1)) == pytest.approx(orange, abs=8)
    with ImageWriter(tmp_path / "out.png") as writer:
        for frame in frames:
            writer.write(frame, [])
    written = cv2.VideoCapture(str(tmp_path / "out.mp4"))
    assert written.get(cv2.CAP_PROP_FPS) == 10
    assert written.read()[1].mean((0, 1)) == pytest.approx(orange[::-1], abs=16)
    written.release()


def test_a_video_without_frames_is_refused(tmp_path):
    (tmp_path / "film.mp4").write_bytes(b"nothing to see" * 10)
    with pytest.raises(ImageError, match="no frame"):
        list(read_images([tmp_path / "film.mp4"]))


def test_one_bad_image_does_not_hide_the_others(folder, caplog):
    (folder / "b.png").write_bytes(b"broken")
    seen = list[Any]()
    with pytest.raises(ImageError, match="1 of 3 files could not be read"):
        seen.extend(image.path.name for image in read_images(find_images([folder])))
    assert seen == ["a.jpg", "c.png"]


def test_a_single_bad_image_is_its_own_error(tmp_path):
    (tmp_path / "a.png").write_bytes(b"broken")
    with pytest.raises(ImageError, match="not an image"):
        list(read_images([tmp_path / "a.png"]))


def test_one_image_is_saved_under_the_given_name(folder, tmp_path):
    image = next(read_images([folder / "b.png"]))
    with ImageWriter(tmp_path / "out.png") as writer:
        writer.write(image, BOX)
    assert writer.written == [tmp_path / "out.png"]
    assert (load_image(tmp_path / "out.png") != image.image).any()


def test_several_images_get_their_own_names(folder, tmp_path):
    with ImageWriter(tmp_path / "out.png", several=True) as writer:
        for image in read_images([folder / "a.jpg", folder / "b.png", folder / "a.jpg"]):
            writer.write(image, BOX)
    assert [path.name for path in writer.written] == ["out-a.png", "out-b.png", "out-a-2.png"]


def test_frames_become_a_video(video, tmp_path):
    with ImageWriter(tmp_path / "out.png") as writer:
        for image in read_images([video]):
            writer.write(image, [])
    assert writer.written == [tmp_path / "out.mp4"]
    greys = [float(image.image.mean()) for image in read_images(writer.written)]
    assert greys == pytest.approx([10, 120, 240], abs=6)


def test_a_missing_output_folder_is_refused_at_once(tmp_path):
    with pytest.raises(UsageError, match="mkdir -p"):
        ImageWriter(tmp_path / "none" / "out.png")


def test_an_image_knows_its_name(tmp_path):
    image = np.zeros((1, 1, 3), np.uint8)
    assert SourceImage(tmp_path / "a.png", image).name == str(tmp_path / "a.png")
    assert SourceImage(tmp_path / "a.mp4", image, 7).name == f"{tmp_path / 'a.mp4'} frame 7"
