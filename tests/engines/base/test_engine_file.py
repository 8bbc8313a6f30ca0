"""Engine files: whole, checked, never larger than they look."""

import dataclasses
import json
import os
import struct
import zipfile

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pytrtplugins as ptp
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines.base.engine_file import read_engine_file, write_engine_file
from pytrtplugins.engines.host import int8
from pytrtplugins.errors import EngineFileError, RegistryError
from pytrtplugins.layers import Reorg
from tests.damage import damaged
from tests.engines.model_parts import parsed
from tests.engines.networks import Affine, conv_net, image, run


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
    for fact in ("name", "options", "inputs", "outputs"):
        assert getattr(again, fact) == getattr(engine, fact)
    np.testing.assert_array_equal(run(engine)["y"], run(again)["y"])


def test_the_same_engine_gives_the_same_bytes(engine_file, tmp_path):
    ptp.build(conv_net(Affine(3.0)), engine="cpu", threads=1).save(tmp_path / "again.engine")
    assert (tmp_path / "again.engine").read_bytes() == engine_file.read_bytes()


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
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


def with_model(source, target, change):
    """Write the engine file again with a changed model."""
    metadata, data, _ = contents(source)
    model = onnx.ModelProto.FromString(data)
    change(model)
    facts = {name: value for name, value in metadata.items() if name not in ("format", "model_sha256")}
    write_engine_file(target, facts, model.SerializeToString())
    return target


def read_nowhere(model):
    model.graph.node[0].input[1] = "nowhere"


DAMAGES = {  # with the reason that is told, and not only the next command
    "empty": (onnx.ModelProto.Clear, ""),
    "unknown operator": (lambda model: setattr(model.graph.node[0], "op_type", "Convolute"), ""),
    "missing tensor": (read_nowhere, "nowhere"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_model_that_does_not_build_is_refused(engine_file, tmp_path, damage):
    change, words = DAMAGES[damage]
    path = with_model(engine_file, tmp_path / "x.engine", change)
    with pytest.raises(EngineFileError, match=rf"x\.engine: [^\n]*{words}[\s\S]*\nDo: pytrt build"):
        ptp.load_engine(path)


def test_an_engine_file_with_an_unknown_plugin_names_it(engine_file, tmp_path):
    path = with_model(
        engine_file, tmp_path / "x.engine", lambda model: setattr(model.graph.node[2], "op_type", "Afine")
    )
    with pytest.raises(RegistryError, match=r"Near: test\.engines::Affine"):
        ptp.load_engine(path)


def test_a_compressed_entry_is_refused_unread(engine_file, tmp_path):
    with pytest.raises(EngineFileError, match="an entry is compressed"):
        ptp.load_engine(rewritten(engine_file, tmp_path / "x.engine", {}, zipfile.ZIP_DEFLATED))


def test_a_missing_file_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        ptp.load_engine(tmp_path / "none.engine")


def test_weights_for_another_cpu_are_refused(engine_file, tmp_path, monkeypatch):
    monkeypatch.setattr(int8, "exact_int8", lambda: True)
    calibrator = MinMaxCalibrator([{"data": image()}])
    path = tmp_path / "vnni.engine"
    ptp.build(conv_net(Reorg(2), Reorg(2, reverse=True)), engine="cpu", precision="int8", calibration=calibrator).save(
        path
    )
    monkeypatch.setattr(int8, "exact_int8", lambda: False)
    with pytest.raises(EngineFileError, match=r"int8 weights up to 127[\s\S]*VNNI"):
        ptp.load_engine(path)


def tiny():
    return parsed("(float[1] x) => (float[1] y) { y = Relu (x) }").SerializeToString()


@pytest.fixture
def small_file(tmp_path):
    path = tmp_path / "small.engine"
    write_engine_file(path, {"engine": "cpu"}, tiny(), b"a plan")
    return path


def test_entries_are_stored_in_order_and_carry_no_time(small_file):
    with zipfile.ZipFile(small_file) as archive:
        entries = archive.infolist()
        text = archive.read("metadata.json").decode()
    assert [entry.filename for entry in entries] == ["metadata.json", "model.onnx", "engine.plan"]
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert {entry.compress_type for entry in entries} == {zipfile.ZIP_STORED}
    keys = ["engine", "engine_sha256", "format", "model_sha256"]
    assert list(json.loads(text)) == keys
    assert text.splitlines()[1] == '  "engine": "cpu",'
    assert json.loads(text)["format"] == 1


def test_what_was_written_is_read(small_file):
    file = read_engine_file(small_file)
    assert file.payload() == b"a plan"
    assert file.model().graph.node[0].op_type == "Relu"
    assert file.metadata["engine"] == "cpu"
    write_engine_file(small_file, {}, tiny())
    assert read_engine_file(small_file).payload() == b""
    with pytest.raises(dataclasses.FrozenInstanceError):
        file.metadata = {}


def test_a_model_that_is_no_onnx_is_refused(tmp_path):
    write_engine_file(tmp_path / "x.engine", {}, b"\xff\xff\xff")
    with pytest.raises(EngineFileError, match=r"x\.engine: .*: model\.onnx is not an ONNX model \(") as caught:
        read_engine_file(tmp_path / "x.engine").model()
    assert caught.value.path == tmp_path / "x.engine"


def test_a_model_that_is_broken_is_refused_with_the_first_line_of_the_reason(tmp_path):
    write_engine_file(tmp_path / "x.engine", {}, parsed("() => () { y = Relu (nothing) }").SerializeToString())
    with pytest.raises(EngineFileError, match="reads 'nothing'") as caught:
        read_engine_file(tmp_path / "x.engine").model()
    said, _, advice = str(caught.value).partition("\n")
    assert "not a usable engine file: model.onnx: " in said
    assert str(caught.value.__cause__).partition("\n")[0] in said
    assert "\n" in str(caught.value.__cause__)
    assert advice.startswith("Do: pytrt build")


def test_metadata_may_have_16_mebibytes(tmp_path):
    def sized(count):
        path = tmp_path / "large.engine"
        write_engine_file(path, {"note": ""}, b"")
        with zipfile.ZipFile(path) as archive:
            missing = count - archive.getinfo("metadata.json").file_size
        write_engine_file(path, {"note": "x" * missing}, b"")
        return path

    assert len(read_engine_file(sized(16 * 1024**2)).metadata["note"]) > 16_000_000
    with pytest.raises(EngineFileError, match=r"metadata\.json has 16,777,217 bytes, expected at most 16,777,216"):
        read_engine_file(sized(16 * 1024**2 + 1))


@pytest.mark.parametrize("damage", ["signature", "name", "extra"])
def test_a_local_header_that_contradicts_the_archive_is_refused(small_file, damage):
    data = bytearray(small_file.read_bytes())
    with zipfile.ZipFile(small_file) as archive:
        start = archive.getinfo("model.onnx").header_offset
    if damage == "signature":
        data[start] ^= 1
    elif damage == "name":
        data[start + 30] ^= 1
    else:  # so much behind the name that the file ends before the model does
        struct.pack_into("<H", data, start + 28, 65535)
    small_file.write_bytes(data)
    with pytest.raises(EngineFileError, match=r"model\.onnx is not where the archive says"):
        read_engine_file(small_file).model()


def test_a_changed_byte_of_an_entry_is_found_by_its_digest(small_file):
    data = small_file.read_bytes()
    small_file.write_bytes(data.replace(b"a plan", b"a plum"))
    file = read_engine_file(small_file)
    assert file.model().graph.name == "main_graph"
    with pytest.raises(EngineFileError, match=r"the digest of engine\.plan is not the one in the metadata"):
        file.payload()


@pytest.mark.parametrize("change", ["replaced", "rewritten", "touched"])
def test_a_file_that_changes_after_it_was_opened_is_refused(small_file, change):
    file = read_engine_file(small_file)
    whole, status = small_file.read_bytes(), small_file.stat()
    if change == "replaced":
        other = small_file.with_name("other")
        other.write_bytes(whole)
        other.replace(small_file)
    elif change == "rewritten":
        small_file.write_bytes(b"\0" + whole)
    os.utime(small_file, ns=(status.st_atime_ns, status.st_mtime_ns + (change == "touched")))
    with pytest.raises(EngineFileError, match=r"another file has taken its place[^\n]*\nDo: load it again") as caught:
        file.model()
    assert caught.value.path == small_file


def archive(path, entries):
    with zipfile.ZipFile(path, "w") as file:
        for name, data in entries.items():
            file.writestr(name, data)
    return path


@pytest.mark.parametrize(
    "names",
    [
        ["metadata.json"],
        ["model.onnx", "metadata.json"],
        ["metadata.json", "model.onnx", "other"],
        ["metadata.json", "model.onnx", "engine.plan", "other"],
    ],
)
def test_other_entries_are_refused_with_their_names(tmp_path, names):
    path = archive(tmp_path / "x.engine", dict.fromkeys(names, b"{}"))
    words = r"expected the entries metadata\.json and model\.onnx, found \['"
    with pytest.raises(EngineFileError, match=words) as caught:
        read_engine_file(path)
    assert all(repr(name) in str(caught.value) for name in names)


def test_200_characters_of_other_names_are_shown(tmp_path):
    path = archive(tmp_path / "x.engine", {"x" * 300: b""})
    with pytest.raises(EngineFileError, match=r"found (\['.{194} \.\.\.)\.\nDo: "):
        read_engine_file(path)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[3]", r"format version \[3\], expected 1"),
        ("{}", "format version None, expected 1"),
        ('{"format": 2}', "format version 2, expected 1"),
        ("nothing", "metadata.json"),
    ],
)
def test_metadata_of_another_form_are_refused(tmp_path, text, found):
    path = archive(tmp_path / "x.engine", {"metadata.json": text, "model.onnx": b""})
    with pytest.raises(EngineFileError, match=rf"x\.engine: not a usable engine file: [^\n]*{found}"):
        read_engine_file(path)


def test_a_file_that_is_no_archive_is_refused_with_the_reason(tmp_path):
    path = tmp_path / "x.engine"
    path.write_bytes(b"no archive at all, but longer than the end of one")
    with pytest.raises(EngineFileError, match=r"engine file: File is not a zip file\.\nDo: pytrt build") as caught:
        read_engine_file(path)
    assert caught.value.path == path


@pytest.mark.parametrize("field", ["compressed", "plain"])
def test_an_entry_that_claims_more_than_the_file_has_is_refused(small_file, field):
    data = bytearray(small_file.read_bytes())
    entry = data.index(b"PK\1\2")  # of the central directory: sizes at 20 and 24
    struct.pack_into("<I", data, entry + (20 if field == "compressed" else 24), len(data) + 1)
    small_file.write_bytes(data)
    with pytest.raises(EngineFileError, match="claims to be larger than the file"):
        read_engine_file(small_file)


@pytest.mark.parametrize("length", [200, 60_000, 65_535])
def test_a_damaged_name_inside_gives_short_lines(small_file, length):
    data = bytearray(small_file.read_bytes())
    data[26:28] = length.to_bytes(2, "little")  # of the first name, in front of its entry
    data += bytes(range(128, 256)) * 1000
    small_file.write_bytes(data)
    with pytest.raises(EngineFileError) as caught:
        read_engine_file(small_file).check()
    assert max(map(len, str(caught.value).split("\n"))) < 300 + len(str(small_file))
