"""Images through the server on engine `cuda`, with NumPy in the GPU's place and Pillow in nvImageCodec's; test_gpu.py has the real ones."""

import asyncio
import io
import struct
import sys
import threading
import zlib
from concurrent.futures import Future

import numpy as np
import pytest
from PIL import Image as Pillow

from pytrtplugins.cuda.backends import host as host_backend
from pytrtplugins.engines.cuda.run.detection import CudaDetection
from pytrtplugins.errors import MissingExtraError, UsageError
from pytrtplugins.models import Yolov2
from pytrtplugins.serving import ModelSpec
from pytrtplugins.serving.model.defaults import Detector
from pytrtplugins.serving.model.model import Request
from pytrtplugins.utils.prefetch import threads_for_files
from pytrtplugins.vision import decode_image
from tests.engines.cuda.run.test_decoding import codec  # noqa: F401  # a fixture
from tests.engines.cuda.run.test_detection import Engine
from tests.engines.cuda.run.test_image_run import detection_model, random_image
from tests.models.darknet_engine import FunctionEngine
from tests.serving.conftest import Client
from tests.serving.rig import Rig
from tests.serving.served import Double

pytestmark = pytest.mark.skipif(not host_backend.available(), reason="no C++ compiler (apt-get install g++)")


def cuda_engine(model):
    engine = Engine(model, batches=(4, 1), disable=["graph"])  # a stand-in of a graph computes nothing
    engine.model_without_weights, engine.name, engine.precision = model, "cuda", "fp32"
    engine.create_detection_context = lambda *arguments: CudaDetection(engine, *arguments)
    return engine


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return detection_model("region", tmp_path_factory.mktemp("model"))


@pytest.fixture
def loaded(model, codec, monkeypatch):  # noqa: F811
    """Detectors are made of the model, whatever file is named."""

    def load(spec, device):
        made = Detector(cuda_engine(model), decode=spec.decode)
        made.detector.score_threshold = 0.1  # of random weights
        return made

    monkeypatch.setattr("pytrtplugins.serving.model.defaults.default_model", load)


@pytest.fixture
def client(loaded):
    """Serves one detector three times: by who decodes."""
    with Client([ModelSpec(decode, "boxes.engine", decode=decode) for decode in ("cpu", "gpu", "auto")]) as made:
        yield made


def jpeg(size=(40, 33), seed=0, **options):
    file, image = io.BytesIO(), Pillow.fromarray(random_image(size, seed))
    mode = options.pop("mode", "RGB")
    image.convert(mode).save(file, format=options.pop("format", "JPEG"), **options)
    return file.getvalue()


def turned(orientation):
    exif = Pillow.Exif()
    exif[0x0112] = orientation
    return jpeg(exif=exif)


def with_comment(data, text):
    return data[:2] + b"\xff\xfe" + struct.pack(">H", len(text) + 2) + text + data[2:]


def claiming(data, width, height, bits=8):
    """A JPEG file that says that it has such pixels."""
    at = data.index(b"\xff\xc0") + 4
    return data[:at] + struct.pack(">BHH", bits, height, width) + data[at + 5 :]


def png_claiming(width, height):
    data = jpeg(format="PNG")
    head = b"IHDR" + struct.pack(">II", width, height) + data[24:29]
    return data[:12] + head + struct.pack(">I", zlib.crc32(head)) + data[33:]


def asked(client, decode, data, query=""):
    answer = client.post(f"/v1/detect?model={decode}{query}", data)
    return answer.status, answer.json if answer.headers["content-type"] == "application/json" else answer.body


@pytest.mark.parametrize("orientation", [1, 2, 3, 4, 5, 6, 7, 8])
def test_every_orientation_has_the_boxes_of_the_cpu(client, codec, orientation):  # noqa: F811
    data = turned(orientation)
    status, found = asked(client, "gpu", data)
    assert (status, codec.batches) == (200, [1])
    assert found["detections"]
    assert (status, found) == asked(client, "cpu", data)
    assert codec.batches == [1]
    assert (found["width"], found["height"]) == ((40, 33) if orientation < 5 else (33, 40))


ON_CPU = {
    "progressive": jpeg(progressive=True),
    "CMYK": jpeg(mode="CMYK"),
    "PNG": jpeg(format="PNG"),
    "12 bits": claiming(jpeg(), 40, 33, bits=12),
    "a huge JPEG": claiming(jpeg(), 60_000, 60_000),
    "more than the limit": claiming(jpeg(), 9_000, 9_000),
    "a huge PNG": png_claiming(30_000, 30_000),
    "cut off": jpeg()[:300],
    "no end": jpeg()[:-2],
    "more behind the end": jpeg() + b"more",
    "nothing": b"",
    "text": b"no image",
}


@pytest.mark.parametrize("data", ON_CPU.values(), ids=ON_CPU)
def test_unusual_and_damaged_files_go_to_the_cpu_and_have_its_answer(client, codec, data):  # noqa: F811
    assert asked(client, "gpu", data) == asked(client, "cpu", data)
    assert codec.batches == []


def test_what_the_device_refuses_has_the_answer_or_the_error_of_the_cpu(client, codec):  # noqa: F811
    whole = jpeg()
    for data, status in (
        (with_comment(whole, b"refused"), 200),
        (with_comment(whole[: len(whole) // 2] + b"\xff\xd8\xff\xd9", b"refused"), 400),
    ):
        codec.batches.clear()
        found = asked(client, "gpu", data)
        assert (found[0], codec.batches) == (status, [1])
        assert found == asked(client, "cpu", data)
    total = client.backend.services["gpu"].statistics.total()
    assert (total["on_device"], total["plain"]) == (0, 1)


def test_a_file_travels_to_an_engine_process_as_it_is_and_so_does_one_of_the_protocol(loaded, client, codec):  # noqa: F811
    with Rig([ModelSpec("boxes", "boxes.engine", decode="gpu")]) as rig:
        rig.engine()
        (service,) = rig.backend.services.every
        for data, on_device in ((jpeg(), 1), (with_comment(jpeg(), b"refused"), 1), (jpeg(progressive=True), 0)):
            wanted = asked(client, "cpu", data)[1]
            codec.batches.clear()
            assert rig.do(service.answer(Request(data))).value == wanted
            assert codec.batches == [1] * on_device
            boxes = rig.do(service.infer({"image": np.array([data], object)})).outputs["boxes"]
            assert boxes.tolist() == [each["box"] for each in wanted["detections"]]
            assert codec.batches == [1, 1] * on_device
        assert rig.backend._slots.free_units == rig.free
        assert rig.counts.statistics[0].total()["on_device"] == 2


def test_an_image_that_is_drawn_on_is_decoded_by_the_cpu(client, codec):  # noqa: F811
    assert asked(client, "gpu", jpeg(), "&format=image") == asked(client, "cpu", jpeg(), "&format=image")
    assert codec.batches == []


def test_metrics_say_who_decoded(client):
    for decode, files in (("gpu", [jpeg(), jpeg(format="PNG")]), ("auto", [jpeg()]), ("cpu", [jpeg()])):
        assert [asked(client, decode, data)[0] for data in files] == [200] * len(files)
    lines = client.get("/metrics").body.decode().splitlines()
    found = [line.removeprefix("pytrt_images_total") for line in lines if line.startswith("pytrt_images_total")]
    assert found == [
        f'{{decoder="{decoder}",model="{model}",version="1"}} {count}.0'
        for model, cpu, gpu in (("cpu", 1, 0), ("gpu", 1, 1), ("auto", 1, 0))
        for decoder, count in (("cpu", cpu), ("gpu", gpu))
    ]


def library(model, images):
    with Yolov2(cuda_engine(model)) as detector:
        return detector(images, score_threshold=0.1)


def assert_same(found, wanted):
    """Bit by bit."""
    for outputs, boxes in zip(found, wanted, strict=True):
        assert len(boxes)
        np.testing.assert_array_equal(outputs["boxes"], boxes.boxes_xyxy.astype(np.float32))
        np.testing.assert_array_equal(outputs["scores"], boxes.scores.astype(np.float32))
        np.testing.assert_array_equal(outputs["classes"], boxes.class_ids)


@pytest.fixture
def detector(model, codec):  # noqa: F811
    made = Detector(cuda_engine(model), decode="gpu")
    made.detector.score_threshold = 0.1
    yield made
    made.close()


def test_images_of_other_sizes_and_files_make_one_run_and_two_runs_are_in_flight(detector, codec, model):  # noqa: F811
    files = [jpeg((20 + 9 * seed, 50 - seed), seed) for seed in range(4)]
    batches = [
        [{"jpeg": np.frombuffer(files[0], np.uint8)}, {"image": decode_image(files[1])}],
        [{"image": decode_image(files[2])}, {"jpeg": np.frombuffer(files[3], np.uint8)}, {"image": decode_image(files[0])}],
    ]  # fmt: skip
    futures = [detector.predict(batch) for batch in batches]
    assert all(isinstance(future, Future) and not future.done() for future in futures)
    assert codec.batches == [1, 1]
    assert len(detector.engine.executions) == 2  # one of each context: no run waited for another
    found = [outputs for future in futures for outputs in future.result()]
    assert_same(found[:2], library(model, [decode_image(data) for data in files[:2]]))
    assert_same(found[2:], library(model, [decode_image(files[index]) for index in (2, 3, 0)]))


def test_a_batch_larger_than_a_run_is_several_runs(detector, model):
    images = [random_image((20 + seed, 30), seed) for seed in range(9)]
    found = detector.predict([{"image": image} for image in images]).result()
    assert_same(found, library(model, images))


def test_the_network_goes_before_decoding(detector):
    detector.predict([{"image": random_image((20, 30))}]).result()
    for context in detector.detector._async_contexts:
        assert context._stream.priority < detector._decoder._memory.stream.priority  # lower numbers go first


@pytest.mark.parametrize(("max_batch", "batch", "runs"), [(None, 4, [1, 4]), (3, 4, [1, 4]), (6, 6, [6])])
def test_the_sizes_that_the_engine_has_graphs_for_are_kept_unless_a_batch_may_be_larger(model, max_batch, batch, runs):
    made = Detector(cuda_engine(model), max_batch=max_batch, decode="cpu")
    for count in (1, 3):
        made.predict([{"image": random_image((20, 30))}] * count).result()
    assert made.max_batch == batch
    assert sorted({execution.input("data").shape[0] for execution in made.engine.executions}) == runs
    made.close()


def test_a_missing_library_is_an_error_only_where_the_gpu_must_decode(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "nvidia.nvimgcodec", None)
    with pytest.raises(MissingExtraError, match=r'pip install "pytrtplugins\[nvjpeg\]"'):
        Detector(cuda_engine(model), decode="gpu")
    assert not Detector(cuda_engine(model), decode="auto").decodes


def test_another_engine_decodes_nothing():
    fields = {"classes": 2, "num": 1, "coords": 4, "anchors": [1.0, 1.0], "softmax": True}
    engine = FunctionEngine(None, (1, 3, 32, 32), (1, 7, 2, 2), **fields)
    with pytest.raises(UsageError, match=r"no decoder of images[\s\S]*Do:"):
        Detector(engine, decode="gpu")
    assert not Detector(engine, decode="auto").decodes


class Decoding(Double):
    """Says whether its device was asked to decode; the CPU decodes until it is let go."""

    decodes, go = True, threading.Event()

    def encoded(self, request):
        return {"x": super().preprocess(request)["x"], "jpeg": np.ones((1, 1), np.float32)}

    def preprocess(self, request):
        self.go.wait(20)
        return {"x": super().preprocess(request)["x"], "jpeg": np.zeros((1, 1), np.float32)}

    def predict(self, batch):
        return {"y": batch["jpeg"]}


@pytest.mark.parametrize("decode", ["auto", "cpu", "gpu"])
def test_the_device_decodes_what_comes_while_all_threads_decode(decode):
    threads = threads_for_files()
    Decoding.go.clear()

    async def ask():
        calls = [
            asyncio.ensure_future(client.call("POST", "/v1/models/decoding:predict", b"1 2"))
            for _ in range(threads + 3)
        ]
        asyncio.get_running_loop().call_later(0.05, Decoding.go.set)
        return [answer.json["rows"][0][0] for answer in await asyncio.gather(*calls)]

    with Client([ModelSpec("decoding", f"{__name__}:Decoding", decode=decode)]) as client:
        on_device = client.do(ask())
    assert on_device == [0.0] * threads + [1.0] * 3 if decode == "auto" else [float(decode == "gpu")] * (threads + 3)
