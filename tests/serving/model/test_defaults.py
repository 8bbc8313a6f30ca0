"""Models without code: a detector, and tensors in and out of an engine."""

import io
import json
import struct
import threading
import zlib

import numpy as np
import pytest
from onnx import parser

from pytrtplugins import build
from pytrtplugins.errors import UsageError
from pytrtplugins.models import Yolov2, describe
from pytrtplugins.serving import ModelSpec
from pytrtplugins.serving.model.defaults import Detector, Tensors, default_model
from pytrtplugins.serving.model.model import Request
from pytrtplugins.vision.image import decode_image
from tests.models.darknet_engine import FunctionEngine
from tests.serving.conftest import Client
from tests.serving.registered import registered
from tests.serving.served import Double

PIL = pytest.importorskip("PIL.Image")
NEGATED = '<ir_version: 10, opset_import: ["": 18]> g (float[N, 3] x) => (float[N, 3] y) { y = Neg (x) }'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("engines")
    build(parser.parse_model(NEGATED), engine="reference").save(made / "negated.engine")
    return made


def test_classes_have_the_names_that_the_model_says(tmp_path):
    network = parser.parse_model(NEGATED)
    describe(network, names=["cat", "dog", "cow"])
    build(network, engine="reference").save(tmp_path / "animals.engine")
    with Client([ModelSpec("animals", str(tmp_path / "animals.engine"))]) as served:
        body = {
            "inputs": [{"name": "x", "shape": [2, 3], "datatype": "FP32", "data": [1, -2, 0.5, -3, 1, 2]}],
            "outputs": [{"name": "y", "parameters": {"classification": 2}}],
        }
        best = ["2.000000:1:dog", "-0.500000:2:cow", "3.000000:0:cat", "-1.000000:1:dog"]
        assert served.post("/v2/models/animals/infer", body).json["outputs"][0]["data"] == best


def two_boxes(data):
    """Head of one anchor and two classes on 2x2 cells: something of class 1 in the first cell of each image."""
    head = np.full((len(data), 7, 2, 2), -20, np.float32)
    head[:, :4, 0, 0], head[:, 4, 0, 0], head[:, 6, 0, 0] = 0, 20, 20
    return head


def detector_engine(batch):
    fields = {"classes": 2, "num": 1, "coords": 4, "anchors": [1.0, 1.0], "softmax": True}
    return FunctionEngine(two_boxes, (batch, 3, 32, 32), (batch, 7, 2, 2), **fields)


def test_an_image_is_answered_with_the_version_of_the_registry(registry, monkeypatch):
    """Over plain HTTP the headers say it."""
    monkeypatch.setattr("pytrtplugins.serving.model.defaults.default_model", lambda *_: Detector(detector_engine(1)))
    with Client([registered(registry)]) as detecting:
        for path in ("/v1/detect", "/v1/models/scale:predict"):
            answer = detecting.post(path, encoded(np.zeros((8, 8, 3), np.uint8)))
            assert answer.status == 200
            assert answer.headers["x-model-version"] == "1"
            assert answer.headers["x-model-digest"] == registry.get("scale", 1).digest


@pytest.fixture(scope="module")
def client(folder):
    def serve(spec, device):
        return loaded(spec, device) if spec.name == "negated" else Detector(detector_engine(1))

    loaded = default_model
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pytrtplugins.serving.model.defaults.default_model", serve)
        made = Client([ModelSpec("negated", str(folder / "negated.engine")), ModelSpec("boxes", "boxes.engine")])
    with made:
        yield made


def encoded(image, form="PNG"):
    file = io.BytesIO()
    PIL.fromarray(image).save(file, format=form)
    return file.getvalue()


def claiming(width, height):
    """A PNG of a few pixels that says that it has so many."""
    data = encoded(np.zeros((2, 2, 3), np.uint8))
    head = b"IHDR" + struct.pack(">II", width, height) + data[24:29]
    return data[:12] + head + struct.pack(">I", zlib.crc32(head)) + data[33:]


IMAGE = np.random.default_rng(0).integers(0, 255, (24, 48, 3), dtype=np.uint8)


def test_an_engine_takes_tensors_by_the_names_of_its_own(client):
    body = {"inputs": [{"name": "x", "shape": [2, 3], "datatype": "FP32", "data": [1, 2, 3, 4, 5, 6]}]}
    output = client.post("/v2/models/negated/infer", body).json["outputs"][0]
    assert output == {"name": "y", "datatype": "FP32", "shape": [2, 3], "data": [-1, -2, -3, -4, -5, -6]}
    assert client.get("/v2/models/negated").json["platform"] == "pytrtplugins_reference"


def test_an_engine_of_tensors_takes_no_images_and_says_what_it_takes(client):
    answer = client.post("/v1/models/negated:predict", encoded(IMAGE))
    assert answer.status == 415
    assert "/v2/models/NAME/infer" in answer.json["error"]


@pytest.mark.parametrize("path", ["/v1/detect", "/v1/detect?model=boxes", "/v1/models/boxes:predict"])
def test_a_detector_answers_an_image_with_the_boxes_that_the_library_finds(client, path):
    expected = Yolov2(detector_engine(1))(IMAGE)
    assert expected
    answer = client.post(path, encoded(IMAGE))
    assert answer.status == 200
    assert (answer.json["width"], answer.json["height"]) == (48, 24)
    for found, box in zip(answer.json["detections"], expected, strict=True):
        assert (found["label"], found["class_id"]) == (box.label, box.class_id)
        assert found["score"] == pytest.approx(box.score)
        assert found["box"] == pytest.approx(box.xyxy, abs=1e-4)


@pytest.mark.parametrize(("batch", "max_batch", "most"), [("N", None, 8), ("N", 3, 3), (2, None, 2)])
def test_images_of_several_requests_are_computed_together_as_far_as_the_engine_lets_them(batch, max_batch, most):
    detector = Detector(detector_engine(batch), max_batch=max_batch)
    assert detector.max_batch == most
    assert len(detector.predict([{"image": IMAGE}] * (most + 1))) == most + 1
    sizes = [len(data) for data in detector.engine.batches]
    assert sizes == ([most, 1] if batch == "N" else [batch, batch])


def test_a_detector_draws_its_boxes_on_the_image(client):
    answer = client.post("/v1/detect?format=image", encoded(IMAGE))
    assert answer.headers["content-type"] == "image/jpeg"
    drawn = decode_image(answer.body)
    assert drawn.shape == IMAGE.shape
    assert np.abs(drawn.astype(int) - IMAGE).mean() > 5  # beyond what JPEG changes


@pytest.mark.parametrize(
    ("body", "query", "status", "text"),
    [
        (b"no image", "", 400, "not an image"),
        (b"", "", 400, "the file is empty"),
        (encoded(IMAGE)[:60], "", 400, "damaged or truncated"),
        (claiming(9000, 9000), "", 400, "memory"),
        (claiming(16000, 16000), "", 400, "too many pixels"),
        (encoded(IMAGE), "?format=xml", 400, "format: expected one of json, image"),
        (encoded(IMAGE), "?model=negated", 404, "no detector 'negated'"),
    ],
)
def test_what_is_no_image_or_too_large_is_refused(client, body, query, status, text):
    answer = client.post(f"/v1/detect{query}", body)
    assert answer.status == status
    assert text in answer.json["error"]


def test_over_the_protocol_an_image_is_a_tensor(client):
    head = b'{"inputs":[{"name":"image","shape":[24,48,3],"datatype":"UINT8","parameters":{"binary_data_size":3456}}]}'
    headers = {"Inference-Header-Content-Length": len(head)}
    outputs = client.post("/v2/models/boxes/infer", head + IMAGE.tobytes(), headers=headers).json["outputs"]
    count = len(Yolov2(detector_engine(1))(IMAGE))
    shapes = {each["name"]: each["shape"] for each in outputs}
    assert shapes == {"boxes": [count, 4], "scores": [count], "classes": [count]}


@pytest.mark.parametrize("alone", [True, False])
def test_over_the_protocol_an_image_may_be_a_file(client, alone):
    data = encoded(IMAGE)
    given = {"name": "image", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 4 + len(data)}}
    head = b"" if alone else json.dumps({"inputs": [given], "parameters": {"binary_data_output": True}}).encode()
    body = data if alone else head + len(data).to_bytes(4, "little") + data
    answer = client.post("/v2/models/boxes/infer", body, headers={"Inference-Header-Content-Length": len(head)})
    length = int(answer.headers["inference-header-content-length"])
    expected = np.float32([box.xyxy for box in Yolov2(detector_engine(1))(IMAGE)])
    assert answer.body[length:].startswith(expected.tobytes())
    config = client.get("/v2/models/boxes/config").json
    assert config["parameters"] == {"file_input": {"string_value": "image"}}


@pytest.mark.parametrize(
    ("shape", "data", "text"),
    [
        ([1], ["no image"], "not an image"),
        ([2], ["a", "b"], "the request has 2 files; the model takes one"),
        ([0], [], "one"),
    ],
)
def test_over_the_protocol_files_that_are_no_images_are_refused(client, shape, data, text):
    given = {"name": "image", "shape": shape, "datatype": "BYTES", "data": data}
    answer = client.post("/v2/models/boxes/infer", {"inputs": [given]})
    assert answer.status == 400
    assert text in answer.json["error"]


def test_an_engine_file_is_loaded_and_an_onnx_model_built(folder):
    loaded = default_model(ModelSpec("a", str(folder / "negated.engine")))
    assert isinstance(loaded, Tensors)
    path = folder / "built.onnx"
    path.write_bytes(loaded.engine.model.SerializeToString())
    assert default_model(ModelSpec("a", str(path), engine="null")).engine.name == "null"


@pytest.mark.parametrize(("name", "text"), [("none.engine", "no such file"), ("net.cfg", "expected an engine")])
def test_other_files_are_refused_with_the_next_command(tmp_path, name, text):
    (tmp_path / "net.cfg").write_text("[net]")
    with pytest.raises(UsageError, match=text) as caught:
        default_model(ModelSpec("a", str(tmp_path / name)))
    assert "Do: pytrt build" in str(caught.value)


class Quick(Double):
    """Says whether its answer is made where the question came."""

    def quick(self, request):
        request.kept["thread"] = threading.get_ident()
        return request.query.get("quick") == "yes"

    def postprocess(self, outputs, request):
        return {**super().postprocess(outputs, request), "at once": threading.get_ident() == request.kept["thread"]}


def test_only_a_quick_answer_is_made_without_a_thread_and_errors_in_it_are_told():
    with Client([ModelSpec("quick", f"{__name__}:Quick")]) as client:
        path = "/v1/models/quick:predict?quick="
        assert [client.post(path + said, b"1 2").json["at once"] for said in ("yes", "no")] == [True, False]
        answer = client.post(f"{path}yes&as=nothing", b"1 2")
        assert (answer.status, answer.json["error"]) == (500, "Quick.postprocess: KeyError: 'answer'")
        total = client.backend.services["quick"].statistics.total()
        assert (total["plain"], total["failed"]) == (2, 1)


@pytest.mark.parametrize(("query", "quick"), [({}, True), ({"format": "json"}, True), ({"format": "image"}, False)])
def test_boxes_are_a_quick_answer_and_a_drawing_is_none(query, quick):
    assert Detector().quick(Request(b"", query=query)) is quick
