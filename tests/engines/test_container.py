"""Engine files: whole, checked, never larger than they look."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pytrtplugins as ptp
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines import int8
from pytrtplugins.engines.container import read_engine_file, write_engine_file
from pytrtplugins.errors import EngineFileError, RegistryError
from pytrtplugins.layers import Reorg
from tests.damage import damaged
from tests.engines.networks import Affine, conv_net, photo


@pytest.fixture(scope="module")
def engine_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("engine") / "net.engine"
    ptp.build(conv_net(Affine(3.0)), engine="cpu", threads=1).save(path)
    return path


def contents(path):
    file = read_engine_file(path)
    return file.metadata, file.model().SerializeToString(deterministic=True), file.payload()


def test_a_saved_engine_gives_the_same_numbers(engine_name, tmp_path):
    engine = ptp.build(conv_net(Affine(3.0)), engine=engine_name)
    path = tmp_path / "net.engine"
    engine.save(path)
    again = type(engine).load(path)
    assert (again.name, again.options, again.inputs, again.outputs) == (
        engine.name,
        engine.options,
        engine.inputs,
        engine.outputs,
    )
    with engine.create_context() as one, again.create_context() as other:
        np.testing.assert_array_equal(one.run({"data": photo()})["y"], other.run({"data": photo()})["y"])


def test_the_same_engine_gives_the_same_bytes(engine_file, tmp_path):
    ptp.build(conv_net(Affine(3.0)), engine="cpu", threads=1).save(tmp_path / "again.engine")
    assert (tmp_path / "again.engine").read_bytes() == engine_file.read_bytes()


@given(st.data())
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_is_refused_and_nothing_else_is_raised(engine_file, tmp_path, data):
    path = tmp_path / "damaged.engine"
    path.write_bytes(damaged(data, engine_file.read_bytes()))
    try:
        found = contents(path)
    except EngineFileError as error:
        assert "Do: pytrt build" in str(error)  # noqa: PT017
    else:  # a byte that zip itself does not care about, such as a time stamp
        assert found == contents(engine_file)


def rewritten(source, target, change, compression=zipfile.ZIP_STORED):
    metadata, model, _ = contents(source)
    with zipfile.ZipFile(target, "w", compression) as archive:
        archive.writestr("metadata.json", json.dumps({**metadata, **change}))
        archive.writestr("model.onnx", model)
    return target


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"model_sha256": "0"},
        {"engine": "gpu"},
        {"options": {"precision": 3}},
        {"options": {"x": 1}},
        {"options": {"threads": 0}},
        {"options": {"threads": 10**30}},
        {"engine": "auto"},
        {"engine": ["cpu"]},
        {"requirements": None},
        {"requirements": [1]},
    ],
)
def test_metadata_that_does_not_fit_is_refused(engine_file, tmp_path, change):
    with pytest.raises(EngineFileError, match="Do: pytrt build"):
        ptp.load_engine(rewritten(engine_file, tmp_path / "x.engine", change))


@pytest.mark.parametrize("damage", ["empty", "unknown operator", "missing tensor"])
def test_a_model_that_does_not_build_is_refused(engine_file, tmp_path, damage):
    metadata, data, _ = contents(engine_file)
    model = onnx.ModelProto.FromString(data)
    if damage == "empty":
        model = onnx.ModelProto()
    elif damage == "unknown operator":
        model.graph.node[0].op_type = "Convolute"
    else:
        model.graph.node[0].input[1] = "nowhere"
    facts = {name: value for name, value in metadata.items() if name not in ("format", "model_sha256")}
    write_engine_file(tmp_path / "x.engine", facts, model.SerializeToString())
    words = "nowhere" if damage == "missing tensor" else ""  # the reason, and not only the next command
    with pytest.raises(EngineFileError, match=rf"x\.engine: [^\n]*{words}[\s\S]*\nDo: pytrt build"):
        ptp.load_engine(tmp_path / "x.engine")


def test_an_engine_file_with_an_unknown_plugin_names_it(engine_file, tmp_path):
    metadata, data, _ = contents(engine_file)
    model = onnx.ModelProto.FromString(data)
    model.graph.node[2].op_type = "Afine"
    facts = {name: value for name, value in metadata.items() if name not in ("format", "model_sha256")}
    write_engine_file(tmp_path / "x.engine", facts, model.SerializeToString())
    with pytest.raises(RegistryError, match=r"Near: test\.engines::Affine"):
        ptp.load_engine(tmp_path / "x.engine")


def test_a_compressed_entry_is_refused_unread(engine_file, tmp_path):
    with pytest.raises(EngineFileError, match="compressed"):
        ptp.load_engine(rewritten(engine_file, tmp_path / "x.engine", {}, zipfile.ZIP_DEFLATED))


def test_a_missing_file_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        ptp.load_engine(tmp_path / "none.engine")


def test_weights_for_another_cpu_are_refused(engine_file, tmp_path, monkeypatch):
    monkeypatch.setattr(int8, "exact_int8", lambda: True)
    calibrator = MinMaxCalibrator([{"data": photo()}])
    path = tmp_path / "vnni.engine"
    ptp.build(conv_net(Reorg(2), Reorg(2, reverse=True)), engine="cpu", precision="int8", calibration=calibrator).save(
        path
    )
    monkeypatch.setattr(int8, "exact_int8", lambda: False)
    with pytest.raises(EngineFileError, match=r"int8 weights up to 127[\s\S]*VNNI"):
        ptp.load_engine(path)
