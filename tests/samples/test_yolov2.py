"""The sample, run as a user runs it."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import pytrtplugins.engines
from pytrtplugins.vision import load_image, save_image

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "samples" / "yolov2.py"
MODEL = ROOT / "samples" / "models" / "yolov2-animals"
DARKNET_DATA = Path("/usr/share/darknet/data")


@pytest.fixture(scope="module")
def build_once():
    """As `build`, but a network without calibration is built once for all tests: engines keep no state of their runs."""
    built = {}

    def build(model, *, calibration, **options):
        if calibration is not None:
            return pytrtplugins.engines.build(model, calibration=calibration, **options)
        key = model.SerializeToString(), *sorted(options.items())
        if key not in built:
            built[key] = pytrtplugins.engines.build(model, **options)
        return built[key]

    return build


@pytest.fixture
def sample(tmp_path, monkeypatch, capsys, build_once):
    """Run the sample in an empty folder; gives exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pytrtplugins, "build", build_once)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["yolov2.py", *map(str, words)])
        code: Any = 0
        try:
            runpy.run_path(str(SAMPLE), run_name="__main__")
        except SystemExit as end:
            code = end.code
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out, captured.err

    return run


@pytest.fixture
def chelsea():
    return Path(pytest.importorskip("skimage").__file__).parent / "data" / "chelsea.png"


def test_the_cat_is_found_and_drawn(sample, tmp_path, chelsea):
    code, out, err = sample("chelsea")
    assert (code, err) == (0, "")
    assert re.search(r"^cat: \d\d%$", out, re.MULTILINE)
    assert re.search(r"^engine \w+, fp32, input 416x416$", out, re.MULTILINE)
    assert re.search(r"preprocess [\d.]+ ms, network [\d.]+ ms, postprocess [\d.]+ ms", out)
    drawn = load_image(tmp_path / "predictions.png")
    assert drawn.shape == load_image(chelsea).shape
    assert (drawn != load_image(chelsea)).any()


def test_dog_jpg_is_found_where_debian_keeps_it(sample):
    if not (DARKNET_DATA / "dog.jpg").exists():
        pytest.skip("Debian's darknet is not installed (apt-get install darknet)")
    code, out, _ = sample("dog.jpg")
    assert code == 0
    assert re.search(r"^dog: \d\d%$", out, re.MULTILINE)


def test_several_images_and_folders_are_taken(sample, tmp_path, chelsea):
    (tmp_path / "photos").mkdir()
    save_image(load_image(chelsea), tmp_path / "photos" / "cat.jpg")
    code, _, _ = sample("photos", "astronaut", "--json", "found.json", "--output", "boxes.jpg")
    assert code == 0
    assert {path.name for path in tmp_path.glob("boxes*")} == {"boxes-cat.jpg", "boxes-astronaut.jpg"}
    results = json.loads((tmp_path / "found.json").read_text())
    assert [Path(result["file"]).name for result in results] == ["cat.jpg", "astronaut.png"]
    assert [result["detections"][0]["label"] for result in results] == ["cat", "person"]


def test_a_video_gives_a_video(sample, tmp_path, chelsea):
    frame = cv2.resize(cv2.imread(str(chelsea)), (320, 208))
    writer = cv2.VideoWriter("film.avi", cv2.VideoWriter_fourcc(*"MJPG"), 5, (320, 208))
    for _ in range(2):
        writer.write(frame)
    writer.release()
    code, out, _ = sample("film.avi")
    assert code == 0
    assert len(re.findall(r"^cat: \d\d%$", out, re.MULTILINE)) == 2
    assert (tmp_path / "predictions.mp4").stat().st_size > 0


def small():
    """The options of the network for images of 160 x 160 pixels."""
    Path("small.cfg").write_text(re.sub(r"(?m)^(width|height)=416$", r"\1=160", MODEL.with_suffix(".cfg").read_text()))
    return "--cfg", "small.cfg", "--weights", MODEL.with_suffix(".weights"), "--names", MODEL.with_suffix(".names")


def test_int8_calibrates_once_and_reads_its_cache_afterwards(sample, tmp_path, chelsea):
    (tmp_path / "photos").mkdir()
    save_image(load_image(chelsea), tmp_path / "photos" / "cat.png")
    save_image(
        np.random.default_rng(0).integers(0, 256, (200, 300, 3), dtype=np.uint8), tmp_path / "photos" / "noise.png"
    )
    code, first, err = sample(*small(), "--int8", "--calibration", "photos", "--cache", "my.cache", chelsea)
    assert code == 0, err
    written = (tmp_path / "my.cache").read_bytes()
    assert written.startswith(b"TRT-")
    code, second, err = sample(*small(), "--int8", "--cache", "my.cache", chelsea)
    assert code == 0, err
    assert (tmp_path / "my.cache").read_bytes() == written
    cats = [re.findall(r"^cat: (\d\d)%$", out, re.MULTILINE)[0] for out in (first, second)]
    assert cats[0] == cats[1]
    assert re.search(r"^engine \w+, int8[^\n]*, input 160x160$", second, re.MULTILINE)


@pytest.mark.parametrize("precision", ["int8", "fp8"])
def test_int8_and_fp8_start_from_the_shipped_cache(sample, precision):
    """INT8 finds it beside the network; FP8, which only engine reference has on a CPU, takes it for smaller images."""
    words = ["--int8"]
    if precision == "fp8":
        words = [*small(), "--fp8", "--engine", "reference", "--cache", str(MODEL.with_suffix(".cache"))]
    if not MODEL.with_suffix(".cache").exists():
        pytest.skip(f"{MODEL}.cache has not been made: python samples/yolov2.py --int8 --calibration IMAGES chelsea")
    code, out, err = sample(*words, "chelsea")
    assert (code, err) == (0, "")
    assert re.search(r"^cat: \d\d%$", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        (["--int8", "--cache", "none.cache"], ["there is no calibration cache none.cache", "--calibration DIR"]),
        (["--int8", "--cache", "other.cache"], ["^CalibrationTableError", "some_other_tensor"]),
        (["--fp16", "--engine", "cpu"], ["^PrecisionError", "fp32"]),
    ],
    ids=["neither cache nor images", "a cache of another network", "no such precision on a CPU"],
)
def test_a_precision_that_cannot_be_is_refused_with_the_alternatives(sample, tmp_path, words, texts):
    (tmp_path / "other.cache").write_text("TRT-8601-EntropyCalibration2\nsome_other_tensor: 3c010a14\n")
    code, _, err = sample(*words, "chelsea")
    assert code == 2
    assert all(re.search(text, err) for text in texts)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda path: None, "no such file. Looked for:"),
        (lambda path: path.write_bytes(b""), "empty"),
        (lambda path: path.write_text("hello"), "not an image"),
        (lambda path: path.mkdir(), "no images"),
        (lambda path: path.write_bytes(half_a_jpeg()), "damaged or truncated"),
    ],
    ids=["missing", "empty", "text", "empty folder", "truncated"],
)
def test_bad_images_end_with_a_clear_error(sample, tmp_path, make, text):
    make(tmp_path / "bad.jpg")
    code, _, err = sample("bad.jpg")
    assert code == 2
    assert err.startswith("ImageError: ")
    assert text in err
    assert "bad.jpg" in err


def half_a_jpeg():
    data = cv2.imencode(".jpg", np.random.default_rng(0).integers(0, 256, (99, 99, 3), dtype=np.uint8))[1].tobytes()
    return data[: len(data) // 2]


def test_one_bad_image_of_several_is_named_and_the_others_are_done(sample, tmp_path):
    (tmp_path / "bad.png").write_text("hello")
    code, out, err = sample("chelsea", "bad.png")
    assert code == 2
    assert "1 of 2 files could not be read" in err
    assert re.search(r"^cat: \d\d%$", out, re.MULTILINE)
    assert (tmp_path / "predictions-chelsea.png").exists()


@pytest.mark.parametrize("shape", [(1, 1), (12_000, 2_000), (2, 12_000)])
def test_tiny_and_huge_images_are_looked_at(sample, tmp_path, shape):
    cv2.imwrite("odd.jpg", np.full((*shape, 3), 90, np.uint8))
    code, out, _ = sample("odd.jpg", "--output", "predictions.jpg")
    assert code == 0
    assert "odd.jpg" in out
    assert load_image(tmp_path / "predictions.jpg").shape == (*shape, 3)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--cfg", "none.cfg"], "none.cfg: no such file"),
        (["--names", "none.names"], "none.names"),
        (["--output", "nowhere/out.png"], "mkdir -p"),
        (["--output", "out.xyz"], "unknown suffix"),
        (["--json", "nowhere/found.json"], "mkdir -p"),
        (["--threads", "0"], "threads"),
        (["--int8", "--calibration", "nowhere", "--cache", "new.cache"], "expected a folder of images"),
        (["--weights", __file__], "the file ends inside layer"),
        (["--names", "/usr/share/darknet/data/voc.names"], "names"),
        (["--engine", "nonsense"], "nonsense"),
        (["--threshold", "2"], "--threshold: expected a number from 0 to 1, found '2'"),
        (["--download", "yolov2-voc", "--cfg", "a.cfg"], "leave out --cfg"),
    ],
)
def test_wrong_options_end_with_a_clear_error(sample, words, text):
    code, _, err = sample(*words, "chelsea")
    assert code == 2
    assert text in err


def test_a_fifo_that_nobody_reads_takes_no_results_and_stays(sample, tmp_path):
    os.mkfifo(tmp_path / "found.json")
    code, _, err = sample("chelsea", "--json", "found.json")
    assert code == 2
    assert "found.json: nobody reads this FIFO" in err
    assert (tmp_path / "found.json").is_fifo()


def test_downloaded_networks_are_used(sample, tmp_path, monkeypatch):
    """As after a download: the files lie in the user's cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "pytrtplugins"
    folder.mkdir(parents=True)
    for suffix, name in ((".cfg", "yolov2-voc.cfg"), (".weights", "yolov2-voc.weights"), (".names", "voc.names")):
        (folder / name).write_bytes(MODEL.with_suffix(suffix).read_bytes())
    code, out, err = sample("--download", "yolov2-voc", "chelsea")
    assert code == 0, err
    assert re.search(r"^cat: \d\d%$", out, re.MULTILINE)


def test_without_network_a_download_says_where_to_put_the_files(sample, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    code, _, err = sample("--download", "yolov2-voc", "chelsea")
    assert code == 2
    assert err.startswith("DownloadError")
    assert str(tmp_path / "cache" / "pytrtplugins" / "voc.names") in err


def test_the_help_shows_examples(sample):
    code, out, _ = sample("--help")
    assert code == 0
    assert "python samples/yolov2.py --int8 dog.jpg" in out


def test_it_runs_as_a_process(tmp_path, chelsea):
    done = subprocess.run([sys.executable, SAMPLE, chelsea], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "cat: " in done.stdout
