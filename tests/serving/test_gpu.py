"""A server on engine `cuda`: boxes, decoding, killed processes, a context that an illegal address has ended, another GPU."""

import io
import itertools
import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from PIL import Image as Pillow

import pytrtplugins as ptp
from darknet2caffe import read_network, to_onnx
from pytrtplugins.engines.base.engine_file import read_engine_file, write_engine_file
from pytrtplugins.models import Yolov2, describe
from pytrtplugins.serving import ModelSpec
from pytrtplugins.vision import decode_image
from tests.serving.server_process import ROOT, command, server_process

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

PLACES = {"one process": {"cpu": 0}, "1 engine process": {"cpu": 2, "engines": 1}, "2": {"cpu": 2, "engines": 2}}


@contextmanager
def server(target, decode="auto", **options):
    """A server of one model, which ends in order."""
    with server_process([ModelSpec("net", str(target), decode=decode)], **options) as process:
        yield process
        process.stop()


def post(address, path, body):
    """Status and JSON."""
    try:
        with urllib.request.urlopen(urllib.request.Request(address + path, body), timeout=120) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def jpeg(number, size=None, **options):
    """A file with spots of colour; each number has a size of its own."""
    size = size or (320 + 16 * number, 240 + number)
    spots = np.random.default_rng(number).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    file, image = io.BytesIO(), Pillow.fromarray(spots).resize(size, Pillow.Resampling.BICUBIC)
    image.convert(options.pop("mode", "RGB")).save(file, "JPEG", quality=90, **options)
    return file.getvalue()


FILES = [jpeg(number) for number in range(12)]


@pytest.fixture(scope="module")
def engine_file(gpu, tmp_path_factory):
    base = ROOT / "samples/models/yolov2-animals"
    network = read_network(base.with_suffix(".cfg"), base.with_suffix(".weights"))
    model = to_onnx(network, input_size=(224, 224), batch="dynamic")
    describe(model, names=base.with_suffix(".names"), score_threshold=0.005)  # low, so that there are boxes
    settings = {"batch": [1, 8], "disable": ["tactics"]}
    path = tmp_path_factory.mktemp("engine") / "animals.engine"
    ptp.build(model, engine=gpu, precision="fp16", settings=settings).save(path)
    return path


@pytest.fixture(scope="module")
def wanted(engine_file):
    """What the library finds in each file, one at a time."""
    with Yolov2(ptp.load_engine(engine_file)) as detector:
        found = [detector(decode_image(data)) for data in FILES]
    assert all(map(len, found))
    return found


def boxes_of(answer):
    """Labels, scores and boxes of an answer, as the server has them: float32."""
    each = answer["detections"]
    return (
        [one["label"] for one in each],
        np.array([one["score"] for one in each], np.float32),
        np.array([one["box"] for one in each], np.float32).reshape(-1, 4),
    )


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_boxes_are_those_of_the_library_bit_by_bit(place, engine_file, wanted):
    with server(engine_file, "cpu", **place) as process:
        for data, found in zip(FILES, wanted, strict=True):
            status, answer = post(process.address, "/v1/detect", data)
            labels, scores, boxes = boxes_of(answer)
            assert (status, labels) == (200, [box.label for box in found])
            np.testing.assert_array_equal(scores, found.scores.astype(np.float32))
            np.testing.assert_array_equal(boxes, found.boxes_xyxy.astype(np.float32))


def assert_near(answer, found):
    """The best box, and about as many: batches and decoders differ by some bits."""
    _, scores, boxes = boxes_of(answer)
    assert len(scores) == pytest.approx(len(found), rel=0.2, abs=4)
    assert scores[0] == pytest.approx(found.scores[0], abs=0.05)
    if found.scores[0] - found.scores[1:2].max(initial=0) > 0.1:
        np.testing.assert_allclose(boxes[0], found.boxes_xyxy[0], atol=4)


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("decode", ["cpu", "auto", "gpu"])
def test_images_of_all_sizes_are_computed_together_with_each_decoder(decode, place, engine_file, wanted):
    if decode == "gpu":
        pytest.importorskip("nvidia.nvimgcodec", reason='pip install "pytrtplugins[nvjpeg]"')
    with (
        server(engine_file, decode, **place) as process,
        ThreadPoolExecutor(8) as threads,
    ):
        asked = [threads.submit(post, process.address, "/v1/detect", data) for data in 5 * FILES]
        for each, found in zip(asked, 5 * wanted, strict=True):
            status, answer = each.result()
            assert status == 200, answer
            assert_near(answer, found)


ON_CPU = {
    "progressive": jpeg(1, progressive=True),
    "CMYK": jpeg(1, mode="CMYK"),
    "RGB without YCbCr": jpeg(1, keep_rgb=True),
    "cut off": FILES[1][:3000],
    "damaged": FILES[1][: len(FILES[1]) // 2] + b"\xff\xd8\xff\xd9",
    "no image": b"nothing",
}


def test_decoders_agree_on_orientations_and_on_unusual_and_damaged_files(engine_file):
    pytest.importorskip("nvidia.nvimgcodec", reason='pip install "pytrtplugins[nvjpeg]"')
    files = dict(ON_CPU)
    for orientation in range(1, 9):
        exif = Pillow.Exif()
        exif[0x0112] = orientation
        files[f"orientation {orientation}"] = jpeg(3, exif=exif, subsampling=0)
    different = []
    with (
        server(engine_file, "cpu", cpu=1, engines=1) as by_cpu,
        server(engine_file, "gpu", cpu=1, engines=1) as by_gpu,
        Yolov2(ptp.load_engine(engine_file)) as library,
    ):
        for name, data in files.items():
            (status, wanted), (code, found) = (post(each.address, "/v1/detect", data) for each in (by_cpu, by_gpu))
            assert code == status, name
            if status != 200:
                assert found == wanted, name
                continue
            assert (found["width"], found["height"]) == (wanted["width"], wanted["height"]), name
            try:
                assert_near(found, library(decode_image(data)))
            except AssertionError as error:
                different.append((name, str(error)[:300], boxes_of(found)[1][:3], boxes_of(wanted)[1][:3]))
    assert not different


def test_the_gpu_has_decoded_what_metrics_say(engine_file):
    pytest.importorskip("nvidia.nvimgcodec", reason='pip install "pytrtplugins[nvjpeg]"')
    pytest.importorskip("prometheus_client")
    with server(engine_file, "gpu", cpu=1, engines=1) as process:
        for data in (*FILES, ON_CPU["CMYK"]):
            assert post(process.address, "/v1/detect", data)[0] == 200
        with urllib.request.urlopen(f"{process.address}/metrics", timeout=60) as answer:
            lines = [line for line in answer.read().decode().splitlines() if line.startswith("pytrt_images_total")]
    assert [float(line.split()[-1]) for line in lines] == [1, len(FILES)]


@pytest.mark.parametrize("decode", ["cpu", "gpu"])
def test_an_engine_process_that_is_killed_under_load_loses_no_request(decode, engine_file, wanted):
    if decode == "gpu":
        pytest.importorskip("nvidia.nvimgcodec", reason='pip install "pytrtplugins[nvjpeg]"')
    with server(engine_file, decode, cpu=2, engines=2) as process:
        answered = itertools.count()

        def ask(number):
            found = post(process.address, "/v1/detect", FILES[number % len(FILES)])
            if next(answered) in (60, 160):  # while the other clients have requests on their way
                os.kill(process.children()["engine"][0], signal.SIGKILL)
            return found

        with ThreadPoolExecutor(8) as threads:
            for number, (status, answer) in enumerate(threads.map(ask, range(300))):
                assert status == 200, answer
                assert_near(answer, wanted[number % len(wanted)])


def infer(address, *row):
    body = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": row}]}
    status, answer = post(address, "/v2/models/net/infer", json.dumps(body).encode())
    return status, answer["outputs"][0]["data"] if status == 200 else answer["error"]


def test_an_illegal_address_ends_processes_but_no_other_request_and_the_next_are_answered():
    with server("tests.serving.served_gpu:Reaching", cpu=1, engines=2) as process:
        assert infer(process.address, 1, 2) == (200, [2, 4])
        before = set(process.children()["engine"])
        with ThreadPoolExecutor(9) as threads:
            good = [threads.submit(infer, process.address, number, 0) for number in range(40)]
            bad = threads.submit(infer, process.address, -1, 0)
            assert [each.result() for each in good] == [(200, [2 * number, 0]) for number in range(40)]
        status, error = bad.result()
        assert status == 500
        assert "died 3 times" in error
        assert infer(process.address, 3, 4) == (200, [6, 8])
        assert set(process.children()["engine"]) - before


def ended(target, **options):
    """What a server says that cannot start."""
    line = command([ModelSpec("net", str(target))], **options)
    found = subprocess.run(line, capture_output=True, cwd=ROOT, text=True, timeout=300, check=False)
    assert found.returncode
    return found.stderr.strip()


@pytest.mark.parametrize("place", [{"cpu": 0}, {"cpu": 1, "engines": 2}], ids=["one process", "several"])
def test_an_engine_of_another_gpu_is_refused_at_the_start_with_the_next_command(place, engine_file, tmp_path):
    file, other = read_engine_file(engine_file), tmp_path / "other.engine"
    metadata = {**file.metadata, "requirements": {**file.metadata["requirements"], "gpu": "NVIDIA Other"}}
    write_engine_file(other, metadata, file.model().SerializeToString(), file.payload())
    said = ended(other, **place)
    assert "built for 'NVIDIA Other', here is" in said
    assert "Do: " in said


def test_a_gpu_that_is_not_there_is_named_at_the_start(engine_file):
    assert "63" in ended(engine_file, cpu=1, engines=1, devices=["cuda:63"])
