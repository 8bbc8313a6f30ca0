"""Models whose data lie in other files: none is read but regular files beside the model, whose places fit."""

import os

import numpy as np
import onnx
import pytest
from onnx import helper

import pytrtplugins as ptp
from pytrtplugins import passes
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.cli.shared.loading import open_model
from pytrtplugins.engines.base.engine import BuildOptions
from pytrtplugins.engines.base.engine_file import read_engine_file, write_engine_file
from pytrtplugins.engines.calibrate import calibrate
from pytrtplugins.engines.openvino import CpuEngine
from pytrtplugins.errors import EngineFileError, ModelError
from pytrtplugins.model.decompose import infer_shapes
from pytrtplugins.plugin.onnx_node import node_attributes
from pytrtplugins.validation import load_external_data, validated
from tests.onnx_parts import (
    DIMS,
    IMAGE,
    RELU,
    add,
    body,
    branches,
    call,
    external,
    function,
    model,
    node,
    shape,
)

SECRET = external()
EXTERNAL = {
    "an initializer": add(SECRET),
    "an attribute": model(node("Constant", "", "w", value=SECRET), node("Add", "x w", "y")),
    "a body": branches(body(node("Identity", "w", "b"), weights=[SECRET])),
    "an attribute of a body": branches(body(node("Constant", "", "b", value=SECRET))),
    "a function": model(
        call("F", "x", "y"), functions=[function("F", node("Constant", "", "w", value=SECRET), node("Add", "a w", "b"))]
    ),
    "an attribute with a list": model(helper.make_node("Ours", ["x"], ["y"], domain="acme", values=[SECRET])),
}
EXTERNAL["a sparse initializer"] = model(node("Add", "x w", "y"))
EXTERNAL["a sparse initializer"].graph.sparse_initializer.add(
    values=external(dims=[2]), indices=shape("i", 0, 1), dims=DIMS
)


@pytest.fixture
def secret(tmp_path, monkeypatch):
    """A folder with a file that no model may read, as the working directory."""
    (tmp_path / "secret").write_bytes(np.full(DIMS, 7, np.float32).tobytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


DOORS = {
    "build": lambda m: ptp.build(m, engine="onnxruntime"),
    "load_onnx": ptp.load_onnx,
    "prepare": passes.prepare,
    "load_model": passes.load_model,
    "to_ir": passes.to_ir,
    "infer_shapes": infer_shapes,
    "an engine": lambda m: CpuEngine(m, BuildOptions()),
    "calibrate": lambda m: calibrate(m, MinMaxCalibrator([{"x": IMAGE}])),
}


@pytest.mark.parametrize("name", EXTERNAL)
@pytest.mark.parametrize("door", DOORS)
def test_a_model_handed_over_with_data_in_other_files_is_refused_at_every_door(secret, name, door):
    with pytest.raises(ModelError, match=r"data lie in another file \('secret'\)") as caught:
        DOORS[door](EXTERNAL[name])
    assert "Do: pytrtplugins.load_onnx(PATH)" in str(caught.value)
    assert caught.value.location == "secret"


def test_a_node_with_data_in_another_file_is_refused(secret):
    with pytest.raises(ModelError, match="data lie in another file"):
        node_attributes(EXTERNAL["an attribute"].graph.node[0])


@pytest.mark.parametrize("name", EXTERNAL)
def test_an_engine_file_with_data_in_other_files_is_refused(secret, name):
    ptp.build(model(RELU), engine="cpu").save("good.engine")
    facts = {k: v for k, v in read_engine_file("good.engine").metadata.items() if k not in ("format", "model_sha256")}
    write_engine_file("bad.engine", facts, EXTERNAL[name].SerializeToString())
    with pytest.raises(EngineFileError, match=r"data lie in another file \('secret'\)"):
        ptp.load_engine("bad.engine")


@pytest.mark.parametrize("name", [name for name in EXTERNAL if "list" not in name])
def test_a_file_brings_the_data_beside_it(secret, name):
    onnx.save(EXTERNAL[name], "model.onnx")
    if "sparse" in name:
        (secret / "secret").write_bytes(np.full(2, 7, np.float32).tobytes())
    loaded = ptp.load_onnx("model.onnx").model
    assert np.full(2, 7, np.float32).tobytes() in loaded.SerializeToString()
    assert (
        open_model(secret / "model.onnx").SerializeToString() == ptp.passes.load_model("model.onnx").SerializeToString()
    )
    validated(loaded)


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("/etc/hostname", "expected the name of a file within"),
        ("../above", "expected the name of a file within"),
        ("folder/../../above", "expected the name of a file within"),
        ("", "expected the name of a file within"),
        (".", "expected the name of a file within"),
        ("link", "it is a symbolic link, or behind one"),
        ("inner", "it is a symbolic link, or behind one"),
        ("linked/data", "it is a symbolic link, or behind one"),
        ("pipe", "not a regular file"),
        ("folder", "not a regular file"),
        ("hard", "hard links"),
        ("missing", "No such file"),
        ("short", "the file has 3 bytes; expected 768 from byte 0 on"),
    ],
)
def test_only_regular_files_within_the_folder_are_read(tmp_path, location, problem):
    folder = tmp_path / "model"
    (folder / "folder").mkdir(parents=True)
    for path in (tmp_path / "above", folder / "data", folder / "folder" / "data"):
        path.write_bytes(bytes(768))
    (folder / "short").write_bytes(b"abc")
    (folder / "link").symlink_to(tmp_path / "above")
    (folder / "inner").symlink_to("data")
    (folder / "linked").symlink_to("folder")
    (folder / "hard").hardlink_to(tmp_path / "above")
    os.mkfifo(folder / "pipe")
    onnx.save(add(external(location=location, length=768)), folder / "model.onnx")
    with pytest.raises(ModelError, match=rf"model\.onnx: its weights lie in other files[\s\S]*{problem}"):
        ptp.load_onnx(folder / "model.onnx")


@pytest.mark.parametrize(
    ("places", "problem"),
    [
        ({"offset": 4}, r"from byte 4 on the file has 1,532 bytes; expected 768"),
        ({"offset": 1000, "length": 768}, "the file has 1,536 bytes; expected 768 from byte 1,000 on"),
        ({"offset": -4}, "-4 is not a number of bytes"),
        ({"offset": -1, "length": 768}, "-1 is not a number of bytes"),
        ({"length": -2}, "-2 is not a number of bytes"),
        ({"offset": 769, "length": 768}, "the file has 1,536 bytes; expected 768 from byte 769 on"),
        ({"offset": 768, "length": 767}, "it says 767 bytes where its type and dims need 768"),
        ({"offset": 2**70, "length": 768}, "the file has 1,536 bytes"),
        ({"length": 2**40}, "it says 1,099,511,627,776 bytes where its type and dims need 768"),
        ({"length": "many"}, "'many' is not a number of bytes"),
    ],
)
def test_places_are_held_against_the_size_of_the_file(tmp_path, places, problem):
    (tmp_path / "data").write_bytes(bytes(1536))
    onnx.save(add(external(location="data", **places)), tmp_path / "model.onnx")
    with pytest.raises(ModelError, match=problem):
        ptp.load_onnx(tmp_path / "model.onnx")


def test_a_place_that_is_claimed_a_thousand_times_is_refused(tmp_path):
    (tmp_path / "data").write_bytes(bytes(768))
    tensors = [external(f"w{index}", "data", length=768) for index in range(1000)]
    onnx.save(model(RELU, weights=tensors), tmp_path / "model.onnx")
    with pytest.raises(ModelError, match=r"claim 750 KiB of data files of 768 bytes; the limit is 4 times"):
        ptp.load_onnx(tmp_path / "model.onnx")
    for count in (2, 4):  # tied weights
        onnx.save(model(RELU, weights=tensors[:count]), tmp_path / "model.onnx")
        assert len(ptp.load_onnx(tmp_path / "model.onnx").model.graph.initializer) == count
    onnx.save(model(RELU, weights=tensors[:5]), tmp_path / "model.onnx")
    with pytest.raises(ModelError, match="the limit is 4 times"):
        ptp.load_onnx(tmp_path / "model.onnx")


@pytest.mark.parametrize(
    "places", [{"offset": 768}, {"offset": 768, "length": 768}, {"length": 768}, {"offset": 0, "length": 768}]
)
def test_places_within_the_file_are_read(tmp_path, places):
    (tmp_path / "data").write_bytes(np.repeat(np.float32([1, 2]), 192).tobytes())
    onnx.save(add(external(location="data", **places)), tmp_path / "model.onnx")
    (weight,) = ptp.load_onnx(tmp_path / "model.onnx").model.graph.initializer
    assert set(np.frombuffer(weight.raw_data, np.float32)) == {2.0 if places.get("offset") else 1.0}


def test_texts_do_not_lie_in_other_files(tmp_path):
    (tmp_path / "data").write_bytes(bytes(768))
    onnx.save(add(external(location="data", kind=onnx.TensorProto.STRING)), tmp_path / "model.onnx")
    with pytest.raises(ModelError, match="text cannot be stored in another file"):
        ptp.load_onnx(tmp_path / "model.onnx")


def test_data_that_are_exchanged_while_they_are_read_are_not_followed(tmp_path, monkeypatch):
    """Between the check and the reading a link takes the place of the file: what was opened is read."""
    (tmp_path / "data").write_bytes(np.full(DIMS, 1, np.float32).tobytes())
    (tmp_path / "other").write_bytes(np.full(DIMS, 9, np.float32).tobytes())
    found = add(external(location="data", length=768))
    original = os.fstat

    def exchange(handle):
        (tmp_path / "data").unlink(missing_ok=True)
        (tmp_path / "data").symlink_to("other")
        return original(handle)

    class Facts:
        def __init__(self, facts):
            self.st_mode, self.st_nlink, self.st_size = facts.st_mode, 1, facts.st_size

    monkeypatch.setattr("pytrtplugins.validation.external.os.fstat", lambda handle: Facts(exchange(handle)))
    assert load_external_data(found, tmp_path / "model.onnx")
    monkeypatch.setattr("pytrtplugins.validation.external.os.fstat", original)
    assert np.frombuffer(found.graph.initializer[0].raw_data, np.float32)[0] == 1
