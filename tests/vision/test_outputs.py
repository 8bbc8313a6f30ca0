"""Where results go: names that are checked first, and files that hold what was found."""

import itertools
import json

import cv2
import numpy as np
import pytest

from pytrtplugins.errors import MissingExtraError, UsageError
from pytrtplugins.models.dataset import YoloData
from pytrtplugins.utils import files
from pytrtplugins.vision import Detection, Detections, Outputs, Sources, load_image, save_image
from pytrtplugins.vision import window as window_module
from pytrtplugins.vision.video import CODECS, VideoFile, check_video_path

DOG = Detection("dog", 1, 0.8, (10.0, 20.0, 50.0, 60.0))
FOUND = Detections([DOG])
ORANGE = (240, 120, 20)


@pytest.fixture
def folder(tmp_path):
    for name in ("in/a.jpg", "in/b.png", "in/sub/a.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        save_image(np.full((80, 100, 3), 200, np.uint8), tmp_path / name)
    return tmp_path / "in"


@pytest.fixture
def video(tmp_path):
    film = VideoFile(tmp_path / "film.avi", (64, 48), 10)
    for grey in (10, 120, 240):
        film.write(np.full((48, 64, 3), grey, np.uint8))
    film.close()
    return tmp_path / "film.avi"


def write(sources, found=FOUND, **where):
    with Outputs(sources, **where) as outputs:
        for frame in sources:
            outputs.write(frame, found)
    return outputs.saved()


def test_one_image_is_saved_under_the_given_name(folder, tmp_path):
    assert write(Sources([folder / "b.png"]), output=tmp_path / "out.png") == [f"{tmp_path}/out.png"]
    assert (load_image(tmp_path / "out.png") != load_image(folder / "b.png")).any()


def test_several_images_get_their_own_names(folder, tmp_path):
    saved = write(Sources([folder / "a.jpg", folder / "b.png", folder / "a.jpg"]), output=tmp_path / "out.png")
    assert saved == [f"{tmp_path}/{name}" for name in ("out-a.png", "out-b.png", "out-a-2.png")]


def test_a_folder_keeps_names_and_is_made(folder, video, tmp_path):
    (folder / "c.ppm").write_bytes(b"P6 1 1 255\n\0\0\0")
    saved = write(Sources([folder, video], recursive=True), output=tmp_path / "new" / "found")
    written = sorted(path.name for path in (tmp_path / "new" / "found").iterdir())
    assert written == ["a.jpg", "a.png", "b.png", "c.png", "film.avi"]
    assert saved[1] == f"{tmp_path}/new/found/ (3 files .png)"
    assert saved[-1] == f"{tmp_path}/new/found/film.avi"


@pytest.mark.parametrize("suffix", CODECS)
def test_the_suffix_that_is_asked_for_is_what_is_written(video, tmp_path, suffix):
    write(Sources([video]), Detections(), output=tmp_path / f"out{suffix}")
    frames = list(Sources([tmp_path / f"out{suffix}"]))
    assert [float(frame.image.mean()) for frame in frames] == pytest.approx([10, 120, 240], abs=8)
    kind = {".avi": b"RIFF", ".mkv": b"\x1aE\xdf\xa3", ".webm": b"\x1aE\xdf\xa3"}
    head = (tmp_path / f"out{suffix}").read_bytes()[:12]
    assert head.startswith(kind[suffix]) if suffix in kind else head[4:8] == b"ftyp"


def test_a_videos_colours_and_rate_stay_on_the_way_out(tmp_path):
    """OpenCV's order is blue, green, red; images are red, green, blue. JPEG and MPEG-4 keep half of the colours' pixels."""
    film = VideoFile(tmp_path / "film.avi", (64, 48), 10)
    for _ in range(3):
        film.write(np.full((48, 64, 3), ORANGE, np.uint8))
    film.close()
    write(Sources([tmp_path / "film.avi"]), Detections(), output=tmp_path / "out.mp4")
    written = cv2.VideoCapture(str(tmp_path / "out.mp4"))
    assert written.get(cv2.CAP_PROP_FPS) == 10
    assert written.read()[1].mean((0, 1)) == pytest.approx(ORANGE[::-1], abs=16)
    written.release()


def test_two_videos_become_two_videos(video, tmp_path):
    write(Sources([video, video]), output=tmp_path / "out.mp4")
    for name in ("out-film.mp4", "out-film-2.mp4"):
        assert Sources([tmp_path / name]).count() == 3


@pytest.mark.parametrize(
    ("source", "output", "text"),
    [
        (
            "film.avi",
            "out.png",
            r"film\.avi is a video, which cannot be written to a file \.png\.\nDo: --output out\.mp4",
        ),
        ("in", "out.mp4", r"in/a\.jpg is an image.*\nDo: --output out\.png, or a folder, --output out/"),
        ("in", "none/out.png", "mkdir -p"),
        ("in", "out.xyz", r"unknown suffix '\.xyz'\. Known: \.jpg .* \.mp4"),
        ("in", "notes", "expected a folder, or a file with a suffix"),
        ("in", "in", "would be overwritten"),
        ("film.avi", "film.avi", "would be overwritten"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_read(folder, video, tmp_path, source, output, text):
    (tmp_path / "notes").write_text("")
    before = (tmp_path / "film.avi").read_bytes()
    with pytest.raises(UsageError, match=text):
        Outputs(Sources([tmp_path / source]), output=tmp_path / output)
    assert (tmp_path / "film.avi").read_bytes() == before


@pytest.mark.parametrize(
    "where", [{"json": "none/a.json"}, {"coco": "none/a.json"}, {"labels": "film.avi"}, {"crops": "film.avi"}]
)
def test_other_names_are_checked_as_well(video, tmp_path, monkeypatch, where):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"mkdir -p|expected a folder"):
        Outputs(Sources([video]), **where)


def test_a_format_that_opencv_cannot_write_is_refused(monkeypatch, video, tmp_path):
    monkeypatch.setitem(CODECS, ".mp4", "none")
    monkeypatch.setattr("pytrtplugins.vision.video._can_write", lambda suffix: False)
    with pytest.raises(UsageError, match=r"cannot write \.mp4 files\.\nDo: "):
        check_video_path(tmp_path / "a.mp4")
    with pytest.raises(UsageError, match=r"cannot write \.mp4 files\.\nDo: "):
        Outputs(Sources([video]), output=tmp_path / "a.mp4")


def test_labels_are_those_of_a_yolo_data_set(folder, tmp_path):
    write(Sources([folder / "a.jpg"]), labels=tmp_path / "labels")
    assert (tmp_path / "labels" / "a.txt").read_text() == "1 0.300000 0.500000 0.400000 0.500000\n"
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.jpg").write_bytes((folder / "a.jpg").read_bytes())
    assert YoloData([tmp_path]).boxes("images/a.jpg").tolist() == [[1, 0.3, 0.5, 0.4, 0.5]]


def test_labels_of_an_image_without_objects_are_an_empty_file_and_tracks_a_sixth_column(folder, video, tmp_path):
    write(Sources([folder]), Detections(), labels=tmp_path / "empty")
    assert {path.name: path.read_text() for path in (tmp_path / "empty").iterdir()} == {"a.txt": "", "b.txt": ""}
    write(Sources([video]), Detections([Detection("dog", 1, 0.8, DOG.xyxy, 4)]), labels=tmp_path / "tracks")
    texts = {path.name: path.read_text().split() for path in sorted((tmp_path / "tracks").iterdir())}
    assert list(texts) == ["film-000000.txt", "film-000001.txt", "film-000002.txt"]
    assert [len(words) for words in texts.values()] == [6, 6, 6]
    assert texts["film-000000.txt"][-1] == "4"


def test_thousands_of_files_do_not_wait_for_the_disk_each(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(files.os, "fsync", lambda handle: pytest.fail("a result can be made again"))
    left = [tmp_path / f"{name}/.a.jpg.{2**22 + 1}-abcdabcd.part.jpg" for name in ("drawn", "labels", "crops/dog")]
    for path in left:
        path.parent.mkdir(parents=True)
        path.touch()
    folders = {name: tmp_path / name for name in ("labels", "crops")}
    assert len(write(Sources([folder]), output=tmp_path / "drawn", **folders)) > 2
    assert not any(path.exists() for path in left), "what a killed run left"


def test_json_names_the_file_of_each_image(folder, tmp_path):
    write(Sources([folder]), json=tmp_path / "found.json")
    first, second = json.loads((tmp_path / "found.json").read_text())
    assert first == {"file": f"{folder}/a.jpg", "detections": [DOG.to_dict()]}
    assert second["file"] == f"{folder}/b.png"


def test_coco_s_results_take_the_numbers_in_the_names(folder, tmp_path):
    write(Sources([folder]), coco=tmp_path / "found.json")
    entries = json.loads((tmp_path / "found.json").read_text())
    assert [entry["image_id"] for entry in entries] == [0, 1]
    box = {"category_id": 1, "bbox": [10.0, 20.0, 40.0, 40.0], "score": 0.8}
    assert entries[0] == {"image_id": 0, **box, "file_name": f"{folder}/a.jpg"}
    for old, new in (("a.jpg", "000000000139.jpg"), ("b.png", "000000000285.png")):
        (folder / old).rename(folder / new)
    write(Sources([folder]), coco=tmp_path / "found.json")
    assert [entry["image_id"] for entry in json.loads((tmp_path / "found.json").read_text())] == [139, 285]


def test_crops_are_the_inside_of_boxes(folder, tmp_path):
    outside = Detection("../a cat", 0, 0.7, (90.5, -3.0, 140.0, 5.5))
    saved = write(Sources([folder / "b.png"]), Detections([DOG, DOG, outside]), crops=tmp_path / "crops")
    assert saved == [f"{tmp_path}/crops/ (3 crops)"]
    found = {path.relative_to(tmp_path / "crops").as_posix(): load_image(path).shape for path in tmp_path.rglob("b-*")}
    assert found == {"dog/b-1.jpg": (40, 40, 3), "dog/b-2.jpg": (40, 40, 3), "-a cat/b-1.jpg": (6, 10, 3)}


def test_what_was_written_before_an_error_stays(video, tmp_path):
    class Broken(Sources):
        def __iter__(self):
            yield from itertools.islice(self.frames(), 2)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write(Broken([video]), output=tmp_path / "out.mp4", json=tmp_path / "found.json")
    assert Sources([tmp_path / "out.mp4"]).count() == 2
    assert len(json.loads((tmp_path / "found.json").read_text())) == 2


def test_an_image_that_cannot_be_written_is_an_error_at_the_latest_in_the_end(folder, tmp_path):
    outputs = Outputs(sources := Sources([folder]), output=tmp_path / "out")
    (tmp_path / "out").rmdir()
    for frame in sources:
        outputs.write(frame, FOUND)
    with pytest.raises(UsageError, match="out"):
        outputs.close()


class Windows:
    """OpenCV with windows; the user presses these keys."""

    __version__ = "4.14"
    WINDOW_NORMAL = WINDOW_KEEPRATIO = WND_PROP_VISIBLE = 0

    def __init__(self, keys, gui="QT5"):
        self.keys, self.gui, self.shown, self.waits = list(keys), gui, [], []

    def getBuildInformation(self):
        return f"  Media:\n  GUI:                {self.gui}\n"

    def namedWindow(self, *_):
        pass

    def setWindowTitle(self, _, title):
        self.shown.append(title)

    def imshow(self, _, image):
        assert image[0, 0].tolist() == [3, 2, 1]

    def waitKey(self, milliseconds):
        self.waits.append(milliseconds)
        return self.keys.pop(0)

    def getWindowProperty(self, *_):
        return 1.0

    def destroyAllWindows(self):
        self.shown.append("closed")


@pytest.fixture
def display(monkeypatch):
    def show(windows):
        monkeypatch.setattr(window_module, "require", lambda *_, **__: windows)
        monkeypatch.setenv("DISPLAY", ":0")
        return windows

    return show


def test_frames_are_shown_until_the_user_ends_it(display):
    windows = display(Windows([-1, ord("x"), 27]))
    shown = window_module.Window(wait=True)
    for number in range(3):
        assert not shown.stopped
        shown.show(np.full((2, 2, 3), (1, 2, 3), np.uint8), f"frame {number}")
    assert shown.stopped
    shown.close()
    assert windows.shown == ["frame 0", "frame 1", "frame 2", "closed"]
    assert windows.waits == [0, 0, 0]


def test_an_opencv_without_windows_says_what_to_install(display, video):
    display(Windows([], gui="NONE"))
    with pytest.raises(MissingExtraError, match=r'pip install "opencv-python>=4\.11,<6"$') as caught:
        Outputs(Sources([video]), show=True)
    assert caught.value.package == "opencv-python"


def test_without_a_display_nothing_is_shown(display, monkeypatch, video):
    display(Windows([]))
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match=r"needs a display[\s\S]*Do: --output"):
        Outputs(Sources([video]), show=True)
