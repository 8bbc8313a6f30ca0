"""Services that move answer alike before and after, and the diffs on the pages are those of the files."""

import asyncio
import base64
import difflib
import importlib.util
import re
from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest

from pytrtplugins.serving import ModelSpec
from tests.serving.conftest import Client

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "samples" / "serving"
PAGES = {"flask": "docs/how-to/serving_migration.md", "kserve": "docs/how-to/serving_from_kserve.md"}


def write_classifier(path):
    """The mean of each channel, times a matrix."""
    text = """<ir_version: 10, opset_import: ["": 18]> classifier (float[N, 3, 32, 32] data) => (float[N, 3] scores)
        <float[3, 3] weights = {3, -1, 0, 0, 2, -1, -1, 0, 3}> {
            means = GlobalAveragePool (data)
            rows = Flatten (means)
            products = MatMul (rows, weights)
            scores = Softmax <axis = 1> (products)
        }"""
    onnx.save(onnx.parser.parse_model(text), path)


def images():
    """PNG files, one for each class."""
    for color in ((200, 30, 10), (20, 180, 40), (10, 40, 220)):
        yield cv2.imencode(".png", np.full((40, 60, 3), color, np.uint8))[1].tobytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("classifier")
    write_classifier(made / "classifier.onnx")
    return made


@pytest.fixture
def after(folder, monkeypatch, request):
    monkeypatch.chdir(folder)
    with Client([ModelSpec("classifier", f"{SAMPLES / request.param}:Classifier")]) as client:
        yield client


def imported(name):
    spec = importlib.util.spec_from_file_location(f"sample_{name}", SAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def same(found, expected):
    assert [each["label"] for each in found] == [each["label"] for each in expected]
    np.testing.assert_allclose([each["score"] for each in found], [each["score"] for each in expected], atol=1e-6)


@pytest.mark.parametrize("after", ["flask_after.py"], indirect=True)
def test_the_service_answers_as_it_did_behind_flask(after):
    pytest.importorskip("flask", reason="pip install flask")
    before = imported("flask_before").app.test_client()
    answers = [
        (before.post("/predict", data=image).json, after.post("/v1/models/classifier:predict", image).json)
        for image in images()
    ]
    same([found for _, found in answers], [expected for expected, _ in answers])
    assert len({found["label"] for _, found in answers}) > 1
    assert before.post("/predict", data=b"text").status_code == 415
    assert after.post("/v1/models/classifier:predict", b"text").status == 415


@pytest.mark.parametrize("after", ["kserve_after.py"], indirect=True)
def test_the_service_answers_as_it_did_behind_kserve(after):
    pytest.importorskip("kserve", reason="pip install kserve")
    before = imported("kserve_before").Classifier()
    payload = {"instances": [{"b64": base64.b64encode(image).decode()} for image in images()]}
    answer = asyncio.run(before(payload))
    expected = answer[0] if isinstance(answer, tuple) else answer
    same(after.post("/v1/models/classifier:predict", payload).json["predictions"], expected["predictions"])


@pytest.mark.parametrize("after", ["kserve_after.py"], indirect=True)
def test_images_of_one_request_get_their_answers_in_order(after):
    """Holds without KServe, too."""
    one = [
        after.post("/v1/models/classifier:predict", {"instances": [{"b64": base64.b64encode(image).decode()}]})
        for image in images()
    ]
    every = {"instances": [{"b64": base64.b64encode(image).decode()} for image in images()]}
    found = after.post("/v1/models/classifier:predict", every).json["predictions"]
    same(found, [each.json["predictions"][0] for each in one])


@pytest.mark.parametrize("name", ["flask", "kserve"])
def test_the_diff_on_the_page_is_that_of_the_files(name):
    names = [f"samples/serving/{name}_{when}.py" for when in ("before", "after")]
    texts = [(ROOT / each).read_text("utf-8").splitlines() for each in names]
    expected = "\n".join(difflib.unified_diff(*texts, *names, lineterm="", n=2))
    shown = re.findall(r"```diff\n(.*?)\n```", (ROOT / PAGES[name]).read_text("utf-8"), re.DOTALL)
    assert expected in shown, f"the page should have:\n```diff\n{expected}\n```"
