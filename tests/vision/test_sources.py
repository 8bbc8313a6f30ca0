"""Images, folders, globs, videos, cameras and URLs → frames, in order, with what cannot be read named."""

import functools
import http.server
import io
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest

from pytrtplugins.errors import ImageError
from pytrtplugins.vision import Frame, Source, Sources, load_image, save_image
from pytrtplugins.vision import sources as module
from pytrtplugins.vision.finding import find_sources

ORANGE = (240, 120, 20)


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


@pytest.fixture
def listed(monkeypatch):
    return lambda text: monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def names(sources, **options):
    return [source.address.name for source in find_sources(sources, **options)]


def test_a_folder_gives_its_images_in_order_and_its_subfolders_only_if_asked(folder):
    assert names([folder]) == ["a.jpg", "b.png"]
    assert names([folder], recursive=True) == ["a.jpg", "b.png", "c.png"]


def test_files_and_folders_keep_the_order_of_the_words(folder):
    assert names([folder / "sub" / "c.png", folder], recursive=True) == ["c.png", "a.jpg", "b.png", "c.png"]


def test_a_folder_has_videos_too(folder, video):
    assert [(source.stem, source.kind) for source in find_sources([folder])] == [
        ("a", "image"),
        ("b", "image"),
        ("film", "video"),
    ]


def test_a_folder_without_images_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("no image")
    with pytest.raises(ImageError, match=r"no images or videos: looked for .*found 1 other") as caught:
        find_sources([tmp_path])
    assert "--recursive" not in str(caught.value)
    (tmp_path / "sub").mkdir()
    with pytest.raises(ImageError, match="Do: --recursive"):
        find_sources([tmp_path])


def test_globs_give_what_they_match(folder):
    assert names([f"{folder}/*.png"]) == ["b.png"]
    assert names([f"{folder}/**/*.png"]) == ["b.png", "c.png"]
    assert names([f"{folder}/*"]) == ["a.jpg", "b.png"]
    with pytest.raises(ImageError, match=r"glob .*\.txt': no images or videos: it matches 1 other"):
        find_sources([f"{folder}/*.txt"])


def test_a_file_whose_name_looks_like_a_glob_is_itself(folder):
    (folder / "b.png").rename(folder / "b[1].png")
    assert names([f"{folder}/b[1].png"]) == ["b[1].png"]


def test_a_missing_image_says_every_place_that_was_looked_at(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ImageError, match="no such file") as caught:
        find_sources(["nosuchdog.jpg"], folders=[tmp_path / "samples"])
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
        find_sources([tmp_path / "dog.jpg"])
    assert caught.value.candidates == (tmp_path / "dog.jpg",)


@pytest.mark.parametrize("name", ["chelsea", "astronaut", "chelsea.png"])
def test_scikit_images_images_are_found_by_name(name, tmp_path, monkeypatch):
    pytest.importorskip("skimage")
    monkeypatch.chdir(tmp_path)
    (source,) = find_sources([name])
    assert source.stem == name.removesuffix(".png")
    assert load_image(source.address).ndim == 3


def test_no_source_is_refused():
    with pytest.raises(ImageError, match="no image given"):
        Sources([])


def test_paths_may_come_on_standard_input_and_are_read_at_their_turn(folder, listed):
    listed(f"{folder}/b.png\n\n{folder}/none.png\n{folder}/a.jpg\n")
    seen = list[str]()
    with pytest.raises(ImageError, match=r"1 of 3 files could not be read:[\s\S]*none\.png': no such file"):
        seen.extend(frame.source.address.name for frame in Sources(["-"]))
    assert seen == ["b.png", "a.jpg"]


def test_a_video_gives_its_frames(video):
    sources = Sources([video])
    frames = list(sources)
    assert [frame.number for frame in frames] == [frame.index for frame in frames] == [0, 1, 2]
    assert [round(float(frame.image.mean()), -1) for frame in frames] == [10, 120, 240]
    assert {frame.rate for frame in frames} == {10}
    assert sources.count() == 3


def test_a_videos_colours_are_red_green_blue(tmp_path):
    """OpenCV's order is blue, green, red. JPEG keeps half of the colours' pixels."""
    film = cv2.VideoWriter(str(tmp_path / "film.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 10, (64, 48))
    for _ in range(3):
        film.write(np.full((48, 64, 3), ORANGE[::-1], np.uint8))
    film.release()
    frames = list(Sources([tmp_path / "film.avi"]))
    assert len(frames) == 3
    for frame in frames:
        assert frame.image.mean((0, 1)) == pytest.approx(ORANGE, abs=8)


def test_images_and_videos_are_counted_through(folder, video):
    frames = list(Sources([folder / "b.png", video, folder / "a.jpg"]))
    assert [frame.index for frame in frames] == [0, 1, 2, 3, 4]
    assert [frame.item for frame in frames] == [0, 1, 1, 1, 2]
    assert [frame.number for frame in frames] == [None, 0, 1, 2, None]


def test_a_video_without_frames_is_refused(tmp_path):
    (tmp_path / "film.mp4").write_bytes(b"nothing to see" * 10)
    with pytest.raises(ImageError, match="no frame"):
        list(Sources([tmp_path / "film.mp4"]))
    assert Sources([tmp_path / "film.mp4"]).count() is None


def test_one_bad_image_does_not_hide_the_others(folder, caplog):
    (folder / "b.png").write_bytes(b"broken")
    seen, sources = list[Any](), Sources([folder], recursive=True)
    with pytest.raises(ImageError, match="1 of 3 files could not be read"):
        seen.extend(frame.source.address.name for frame in sources)
    assert seen == ["a.jpg", "c.png"]
    assert [error.path.name for error in sources.failures] == ["b.png"]
    assert "b.png" in caplog.text


def test_a_single_bad_image_is_its_own_error(tmp_path):
    (tmp_path / "a.png").write_bytes(b"broken")
    with pytest.raises(ImageError, match="not an image"):
        list(Sources([tmp_path / "a.png"]))


def test_only_a_few_images_are_decoded_ahead(folder, monkeypatch):
    asked = list[Path]()
    monkeypatch.setattr("pytrtplugins.vision.sources.threads_for_files", lambda: 2)
    monkeypatch.setattr(
        "pytrtplugins.vision.sources.load_image",
        lambda path, memory: asked.append(path) or np.zeros((2, 2, 3), np.uint8),
    )
    frames = Sources([folder / "a.jpg"] * 50).frames(ahead=3)
    next(frames)
    frames.close()
    assert len(asked) <= 5


class Camera:
    """OpenCV's capture of a camera that gives three frames."""

    def __init__(self, address):
        self.address, self.left, self.released = address, 3, False

    def isOpened(self):
        return self.address == 1

    def get(self, what):
        return 0.0

    def read(self):
        self.left -= 1
        return self.left >= 0, np.full((2, 2, 3), 10 * self.left, np.uint8)

    def release(self):
        self.released = True


def test_a_camera_has_a_number_and_no_end_is_known(monkeypatch):
    opened = []
    monkeypatch.setattr(cv2, "VideoCapture", lambda address: opened.append(Camera(address)) or opened[-1])
    sources = Sources([1])
    frames = sources.frames()
    first = next(frames)
    assert (first.name, first.stem, first.rate, sources.count()) == ("camera 1 frame 0", "camera-1-000000", 25, None)
    frames.close()
    assert all(camera.released for camera in opened)
    with pytest.raises(ImageError, match=r"camera 2: OpenCV cannot open it\.\nCauses:"):
        list(Sources([2]))


@pytest.fixture
def server(folder, video):
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    handler.log_message = handler.func.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join()


def test_urls_are_read_as_they_come(server):
    frames = list(Sources([f"{server}/film.avi", f"{server}/b.png?size=1"]))
    assert [frame.number for frame in frames] == [0, 1, 2, None]
    assert [round(float(frame.image.mean()), -1) for frame in frames] == [10, 120, 240, 200]
    assert frames[-1].stem == "b"
    with pytest.raises(ImageError, match=r"none\.avi': OpenCV cannot open it"):
        list(Sources([f"{server}/none.avi"]))


@pytest.mark.parametrize(
    ("address", "kind", "stem", "suffix"),
    [
        (Path("in/a.b.jpg"), "image", "a.b", ".jpg"),
        ("rtsp://me:secret@door:554/", "live", "door", ""),
        ("http://host/live/cam%201.MP4?x=1", "video", "cam-201", ".mp4"),
        (0, "live", "camera-0", ""),
    ],
)
def test_a_source_knows_what_its_files_are_called(address, kind, stem, suffix):
    source = Source(address, kind)
    assert (source.stem, source.suffix) == (stem, suffix)
    assert (find_sources([address])[0].kind == kind) if not isinstance(address, Path) else True


def test_a_frame_knows_its_name(tmp_path):
    image = np.zeros((1, 1, 3), np.uint8)
    assert Frame(image, Source(tmp_path / "a.png", "image")).name == str(tmp_path / "a.png")
    assert Frame(image, Source(tmp_path / "a.mp4", "video"), number=7).name == f"{tmp_path / 'a.mp4'} frame 7"


def test_a_video_that_ends_too_early_is_named(caplog, video, monkeypatch):
    capture = cv2.VideoCapture

    def promising(path):
        real = capture(path)
        get = lambda what: 9.0 if what == cv2.CAP_PROP_FRAME_COUNT else real.get(what)  # noqa: E731
        return SimpleNamespace(isOpened=real.isOpened, read=real.read, release=real.release, get=get)

    monkeypatch.setattr(cv2, "VideoCapture", promising)
    assert len(list(Sources([video]))) == 3
    assert "3 of 9 frames could be read" in caplog.text


@pytest.mark.parametrize(
    ("told", "rate"), [(0, 25), (-1, 25), (0.5, 0.5), (120, 120), (999, 999), (1000, 25), (90_000, 25)]
)
def test_a_rate_that_no_camera_has_is_the_usual_one(told, rate):
    assert module._rate(SimpleNamespace(get=lambda which: told)) == rate


@pytest.mark.parametrize(("readable", "named"), [(10, False), (9, False), (8, True)])
def test_a_video_may_lack_a_tenth_of_the_frames_that_its_header_promises(readable, named, caplog):
    frames = iter([(True, np.zeros((2, 2, 3), np.uint8))] * readable + [(False, None)])
    capture = SimpleNamespace(get=lambda which: 10, read=lambda: next(frames))
    source = SimpleNamespace(kind="video", name="a.mp4", address="a.mp4")
    assert len(list(module._decode_frames(capture, source))) == readable
    assert (f"{readable} of 10 frames could be read" in caplog.text) is named
