"""What a model says of itself as a detector: written, read, kept in engine files, taken where the user says nothing."""

import json

import numpy as np
import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import ModelError, UsageError
from pytrtplugins.models import Description, Yolov2, describe, read_description
from tests.onnx_parts import parsed

from .darknet_engine import FunctionEngine

ANCHORS, HEAD_DIMS = (1.0, 1.0, 3.0, 2.0), (1, 14, 2, 3)
ALL = {"names": ["cat", "dog"], "mode": "stretch", "score_threshold": 0.25, "iou_threshold": 0.6}


def relu():
    return parsed("(float[1,2] x) => (float[1,2] y) { y = Relu (x) }")


def detector(said=None, models_batch=1, **options):
    dims = (models_batch, 3, 64, 96)
    engine = FunctionEngine(
        lambda data: np.zeros((len(data), *HEAD_DIMS[1:]), np.float32), dims, HEAD_DIMS, anchors=ANCHORS, classes=2
    )
    if said:
        describe(engine.model_without_weights, **said)
    return Yolov2(engine, **options)


def test_what_is_written_is_read_again_and_the_rest_stays(tmp_path):
    model = relu()
    assert read_description(model) == Description()
    (tmp_path / "a.names").write_text("cat\r\ndog \n\n")
    assert describe(model, names=tmp_path / "a.names", mode="stretch").names == ("cat", "dog")
    assert describe(model, score_threshold=0.25, iou_threshold=0.6) == Description(("cat", "dog"), "stretch", 0.25, 0.6)
    assert len(model.metadata_props) == 1


def test_nothing_said_leaves_the_model_as_it_is():
    model = relu()
    describe(model)
    assert model == relu()


@pytest.mark.parametrize("engine", ["reference", "onnxruntime", "cpu"])
def test_engine_files_keep_it(tmp_path, engine):
    pytest.importorskip({"reference": "onnx", "cpu": "openvino"}.get(engine, engine))
    model = relu()
    describe(model, **ALL)
    ptp.build(model, engine=engine).save(tmp_path / "a.engine")
    found = read_description(ptp.load_engine(tmp_path / "a.engine").model_without_weights)
    assert found == Description(("cat", "dog"), "stretch", 0.25, 0.6)


def test_a_detector_takes_what_its_model_says_unless_told_otherwise():
    found = detector(ALL)
    assert (found.names, found.context.mode) == (("cat", "dog"), "stretch")
    assert (found.score_threshold, found.iou_threshold) == (0.25, 0.6)
    told = detector(ALL, names=["a", "b"], mode="letterbox")
    assert (told.names, told.context.mode) == (("a", "b"), "letterbox")
    plain = detector()
    assert (plain.names, plain.context.mode) == (("class 0", "class 1"), "letterbox")
    assert (plain.score_threshold, plain.iou_threshold) == (0.5, 0.45)


@pytest.mark.parametrize(
    "wrong", [{"mode": "sideways"}, {"score_threshold": 2}, {"iou_threshold": -1}, {"names": "none.names"}]
)
def test_wrong_values_are_refused(wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError):
        describe(relu(), **wrong)


@pytest.mark.parametrize(
    "text",
    ["[]", "{", '{"names": "cat"}', '{"names": [1]}', '{"names": ["cat", 1]}', '{"mode": "sideways"}', '{"colour": 1}',
     '{"score_threshold": 2}', '{"score_threshold": 0, "iou_threshold": 2}', '{"iou_threshold": "a"}',
     '{"score_threshold": true}'],
)  # fmt: skip
def test_damaged_metadata_are_a_models_error(text):
    model = relu()
    model.metadata_props.add(key="pytrtplugins.detector", value=text)
    with pytest.raises(ModelError, match=r"pytrtplugins\.detector"):
        read_description(model)


@pytest.mark.parametrize("share", [0, 0.0, 0.5, 1, 1.0])
def test_thresholds_are_from_0_to_1(share):
    model = relu()
    said = {"score_threshold": share, "iou_threshold": share}
    model.metadata_props.add(key="pytrtplugins.detector", value=json.dumps(said))
    assert read_description(model) == Description(**said)


def test_it_is_plain_json_in_the_models_metadata():
    model = relu()
    describe(model, **ALL)
    (entry,) = onnx.ModelProto.FromString(model.SerializeToString()).metadata_props
    assert (entry.key, json.loads(entry.value)) == ("pytrtplugins.detector", ALL)


@pytest.mark.parametrize(
    ("model", "asked", "found"), [(1, None, 1), (4, None, 4), (4, 3, 3), ("N", None, 1), ("N", 5, 5)]
)
def test_a_batch_may_be_asked_for(model, asked, found):
    detecting = detector(models_batch=model, batch=asked)
    images = [np.full((8, 8, 3), 90, np.uint8)] * (2 * found)
    assert len(detecting(images)) == 2 * found
    assert len(detecting.engine.batches) == 2


def test_a_batch_larger_than_the_models_is_refused():
    with pytest.raises(UsageError, match=r"the model's is 2, found 3\.\nDo: ") as caught:
        detector(models_batch=2, batch=3)
    assert caught.value.batch == 3
