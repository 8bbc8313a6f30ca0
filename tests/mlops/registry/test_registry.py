"""What the registry keeps, gives back and refuses."""

import errno
import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytrtplugins.calibration import CalibrationTable
from pytrtplugins.calibration.sidecar import Sidecar
from pytrtplugins.engines.base.engine_file import read_engine_file
from pytrtplugins.errors import EngineFileError, FormatError, ModelRegistryError, UsageError
from pytrtplugins.mlops.registry import ModelRegistry, default_folder, facts
from pytrtplugins.mlops.registry.card import size_text
from pytrtplugins.mlops.shards.manifest import Manifest
from pytrtplugins.utils.files import sha256_hex


def test_a_version_has_what_it_was_made_of(registry, engine_file, tmp_path):
    cache, network = tmp_path / "scale.cache", tmp_path / "scale.onnx"
    table = CalibrationTable({"x": 1 / 127}, version="8.6.1")
    sidecar = Sidecar("1" * 64, "2" * 64, "MinMaxCalibration", 1, sha256_hex(table.to_bytes()), "test")
    sidecar.write(cache, lambda: table.write(cache))
    network.write_bytes(b"network")
    (tmp_path / "precision.yaml").write_text("precision: int8\n")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/1.jpg").write_bytes(b"a photo")
    path = engine_file(precision="int8")
    made = registry.add(
        path,
        name="scale",
        network=network,
        cache=cache,
        precision_file=tmp_path / "precision.yaml",
        figures={"map50": 0.5},
        data={"evaluation": tmp_path / "photos", "shards": "3" * 64},
        licence="MIT",
        run="run 7",
        note="a note",
    )
    assert (made.version, made.engine, made.precision, made.licence, made.run) == (
        1,
        "reference",
        "int8",
        "MIT",
        "run 7",
    )
    assert made.digest == sha256_hex(path)
    assert made.networks == {
        "calibrated": "1" * 64,
        "source": sha256_hex(network),
        "built": read_engine_file(path).metadata["model_sha256"],
    }
    expected = sha256_hex(b"1.jpg\0%s\n" % sha256_hex(b"a photo").encode())
    assert made.data == {"calibration": "2" * 64, "evaluation": expected, "shards": "3" * 64}
    assert {role: registry.file(made, role).read_bytes() for role in made.files} == {
        "engine": path.read_bytes(),
        "calibration": cache.read_bytes(),
        "precision": b"precision: int8\n",
    }
    assert ModelRegistry(registry.folder.path).get("scale") == made


def test_the_machine_that_adds_is_written_down():
    hardware, packages = facts.environment()
    assert hardware.keys() == {"processor", "GPU", "system"}
    assert {"pytrtplugins", "Python", "numpy"} <= packages.keys()


def test_the_packages_that_engines_use_are_written_down(monkeypatch):
    monkeypatch.setattr(facts, "installed_version", lambda name: f"{name} 1")
    libraries = ("onnx", "onnx-ir", "onnxruntime", "openvino", "cupy-cuda12x", "cupy-cuda13x", "tensorrt")
    names = {"numpy", *libraries, "nvidia-cudnn-frontend"}
    _, packages = facts.environment()
    assert {name: packages.get(name) for name in names} == {name: f"{name} 1" for name in names}


def test_versions_count_from_one_and_follow_each_other(filled):
    assert [(each.version, each.parent) for each in filled.versions("scale")] == [(1, None), (2, 1), (3, 2)]
    assert filled.names() == ("scale",)


def test_the_same_is_not_added_twice(filled, engine_file):
    again = filled.add(engine_file("another", b"model 2"), name="scale", run="a later run")
    assert (again.version, again.run) == (2, "")
    other = filled.add(engine_file("another", b"model 2"), name="scale", figures={"map50": 0.5})
    assert other.version == 4
    assert len(list(filled.folder.objects.glob("*/*"))) == 3


def test_a_version_is_found_by_number_by_stage_and_by_digest(filled):
    filled.promote("scale", 1)
    filled.promote("scale", 2, to="staging")
    assert filled.get("scale", stage="production").version == 1
    assert [filled.find(text).version for text in ("scale", "scale:1", "scale@staging")] == [3, 1, 2]
    (found,) = filled.with_digest(filled.get("scale", 2).digest[:10])
    assert found.version == 2


def test_a_rollback_returns_to_what_was_served_before(filled):
    for number in (1, 2, 3):
        filled.promote("scale", number, why=f"try {number}", who="me")
    assert filled.rollback("scale", why="worse").version == 2
    assert filled.get("scale", stage="production").version == 2
    assert [(each.who, each.why) for each in filled.history("scale").changes[:3]] == [
        ("me", f"try {n}") for n in (1, 2, 3)
    ]
    filled.rollback("scale")
    with pytest.raises(ModelRegistryError, match=r"no version was in production before.*\n.*Do: pytrt models promote"):
        filled.rollback("scale")


def test_to_promote_what_is_there_changes_nothing(filled):
    first = filled.promote("scale", 1)
    assert filled.promote("scale", 1) == first
    assert len(filled.history("scale").changes) == 1


def test_a_removed_version_takes_its_files_along_and_its_number(filled, engine_file):
    shared = filled.add(engine_file("scale1", b"model 1"), name="other").files["engine"]
    filled.remove("scale", 1)
    filled.remove("scale", 3)
    assert [each.version for each in filled.versions("scale")] == [2]
    assert {path.name for path in filled.folder.objects.glob("*/*")} == {
        shared.sha256,
        filled.get("scale").digest,
    }
    assert filled.add(engine_file("new", b"model 3"), name="scale").version == 4
    with pytest.raises(ModelRegistryError, match="existed, and was removed"):
        filled.add(engine_file("new", b"model 5"), name="scale", version=3)


@pytest.mark.parametrize(
    ("call", "words", "do"),
    [
        (lambda found: found.get("nothing"), "no model 'nothing'; it has: scale", "pytrt models list"),
        (lambda found: found.get("scale", 9), "has no version 9; it has 1, 2, 3", "pytrt models list scale"),
        (lambda found: found.get("scale", stage="production"), "no version is in production", "promote scale:3"),
        (lambda found: found.promote("scale", 9), "has no version 9", "pytrt models list scale"),
        (lambda found: found.remove("scale", 9), "has no version 9", "pytrt models list scale"),
        (lambda found: found.with_digest("0" * 64), "no version has the digest", "pytrt models list"),
        (lambda found: found.file(found.get("scale"), "calibration"), "no file 'calibration'", ""),
    ],
)
def test_what_is_not_there_is_an_error_with_what_is(filled, call, words, do):
    with pytest.raises(ModelRegistryError) as caught:
        call(filled)
    assert words in str(caught.value)
    assert do in str(caught.value)


def test_a_version_that_exists_is_not_overwritten(filled, engine_file):
    with pytest.raises(
        ModelRegistryError, match=r"scale:2 exists.*\nDo: leave --version out, and it becomes scale:4"
    ) as caught:
        filled.add(engine_file("x", b"other"), name="scale", version=2)
    assert caught.value.version == 2


def test_a_version_in_a_stage_is_not_removed(filled):
    filled.promote("scale", 2)
    with pytest.raises(ModelRegistryError, match="version 2 is in production"):
        filled.remove("scale", 2)
    assert filled.file(filled.get("scale", 2)).exists()


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".x", "x" * 65, "a:b", "a b", "ä"])
def test_a_name_that_could_be_a_path_is_refused(registry, engine_file, name):
    with pytest.raises(UsageError, match="a model's name has"):
        registry.add(engine_file(), name=name)
    assert not registry.folder.path.exists()


@pytest.mark.parametrize("text", ["scale:0", "scale:x", "scale@best", "scale:1:2", "scale:٣"])
def test_a_word_that_names_no_version_is_refused(filled, text):
    with pytest.raises(UsageError):
        filled.find(text)


def test_a_damaged_engine_file_is_not_added(registry, engine_file):
    path = engine_file()
    path.write_bytes(path.read_bytes().replace(b"model", b"mudel", 2))
    with pytest.raises(EngineFileError):
        registry.add(path, name="scale")
    assert not registry.folder.path.exists()


def test_a_file_whose_contents_changed_is_not_served_and_added_again_it_is_whole(filled, engine_file):
    version = filled.get("scale", 2)
    path = filled.file(version)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    for use in (lambda: filled.file(version), lambda: filled.promote("scale", 2)):
        with pytest.raises(ModelRegistryError, match="damaged: its contents have the SHA-256") as caught:
            use()
        assert (caught.value.path, caught.value.expected) == (path, version.digest)
        assert "Do: add the file scale2.engine again" in str(caught.value)
    assert filled.history("scale").changes == ()
    assert filled.add(engine_file("scale2", b"model 2"), name="scale").version == 2
    assert filled.file(version) == path


def test_a_registry_of_a_newer_format_says_so(filled):
    mark = filled.folder.path / "registry.json"
    mark.write_text('{"format": 2}')
    with pytest.raises(
        ModelRegistryError, match=r"format 2, this package knows format 1.*\nDo: pip install --upgrade"
    ) as caught:
        filled.get("scale")
    assert caught.value.path == str(mark)


def test_a_folder_with_other_files_does_not_become_a_registry(registry, engine_file):
    registry.folder.path.mkdir()
    (registry.folder.path / "thesis.tex").touch()
    with pytest.raises(ModelRegistryError, match="has other files"):
        registry.add(engine_file(), name="scale")


@pytest.mark.parametrize(
    ("code", "words"), [(errno.ENOSPC, "the disk is full"), (errno.EACCES, "no permission"), (errno.EROFS, "read-only")]
)
def test_what_the_file_system_refuses_is_said_and_leaves_the_registry_whole(
    filled, engine_file, monkeypatch, code, words
):
    def refuse(*_, **__):
        raise OSError(code, os.strerror(code), "somewhere")

    path = engine_file("new", b"new")
    with monkeypatch.context() as patch:
        patch.setattr("pytrtplugins.mlops.registry.folder.atomic_file", refuse)
        with pytest.raises(
            ModelRegistryError, match=f"somewhere: {words}|somewhere: the file system is {words}"
        ) as caught:
            filled.add(path, name="scale")
    assert "\nDo: " in str(caught.value)
    assert not filled.check().problems
    assert len(filled.versions("scale")) == 3


def test_the_registry_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.delenv("PYTRT_MODEL_REGISTRY", raising=False)
    assert default_folder() == Path(".pytrt/models")
    monkeypatch.setenv("PYTRT_MODEL_REGISTRY", str(tmp_path))
    assert ModelRegistry().folder.path == tmp_path


def test_versions_that_are_added_at_a_time_get_numbers_of_their_own(registry, engine_file):
    paths = [engine_file(f"scale{number}", b"model %d" % number) for number in range(6)]
    with ThreadPoolExecutor(6) as threads:
        made = list(threads.map(lambda path: registry.add(path, name="scale").version, paths))
    assert sorted(made) == [1, 2, 3, 4, 5, 6]
    assert not registry.check().problems


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("processes", [2, 8])
def test_processes_that_change_a_registry_at_a_time_lose_nothing(registry, engine_file, processes):
    paths = [engine_file(f"scale{number}", b"model %d" % number) for number in range(8)]
    children = []
    for part in (paths[start::processes] for start in range(processes)):
        child = os.fork()
        if not child:
            try:
                for path in part:
                    registry.promote("scale", registry.add(path, name="scale").version)
                os._exit(0)
            except BaseException:
                os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * processes
    assert [each.version for each in registry.versions("scale")] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert sorted(each.version for each in registry.history("scale").changes) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert not registry.check().problems


def test_shards_have_the_digest_that_trainings_know_them_by(tmp_path):
    manifest = Manifest(("cat",), ())
    manifest.write(tmp_path)
    assert facts.data_digest(tmp_path) == manifest.digest
    (tmp_path / "shards.json").write_text("{}")
    with pytest.raises(FormatError):
        facts.data_digest(tmp_path)


def test_figures_are_the_numbers_of_a_result(tmp_path):
    path = tmp_path / "figures.json"
    classes = [{"name": "dog", "ap50": 0.7, "precision_at_50": [1, 0]}, {"name": "cat", "ap50": None}]
    path.write_text(
        json.dumps(
            {"command": "pytrt evaluate", "result": {"engine": "cpu", "figures": {"map50": 0.6, "classes": classes}}}
        )
    )
    assert facts.read_figures(path, "cpu", "int8") == {"map50": 0.6, "classes.dog.ap50": 0.7}


def test_figures_of_a_table_are_those_of_the_engine_and_precision(tmp_path):
    path = tmp_path / "table.json"
    rows = [
        {"variant": {"engine": "cpu", "precision": each}, "latency": {"1": {"p50_ms": ms}}, "figures": {"map50": 0.6}}
        for each, ms in (("fp32", 9), ("int8", 4))
    ]
    path.write_text(json.dumps({"rows": rows}))
    assert facts.read_figures(path, "cpu", "int8") == {"latency.1.p50_ms": 4, "map50": 0.6}
    with pytest.raises(ModelRegistryError, match="no row for engine cpu in fp16; it has cpu fp32, cpu int8"):
        facts.read_figures(path, "cpu", "fp16")


@pytest.mark.parametrize("text", ["[]", "{}", '{"a": "b"}', "{", '{"a": NaN}'])
def test_a_file_without_figures_is_refused(tmp_path, text):
    path = tmp_path / "figures.json"
    path.write_text(text)
    with pytest.raises(ModelRegistryError) as caught:
        facts.read_figures(path, "cpu", "int8")
    assert str(path) in str(caught.value)


def test_files_lie_where_they_lay(registry, engine_file):
    """Registries stay on disks and are shared between versions of this package: none finds files that lie elsewhere."""
    path = engine_file()
    version = registry.add(path, name="scale")
    registry.promote("scale", 1)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    found = {str(each.relative_to(registry.folder.path)) for each in registry.folder.files()}
    expected = {
        "registry.json",
        ".lock",
        f"objects/{digest[:2]}/{digest}",
        "models/scale/1.json",
        "models/scale/history.json",
    }
    assert (found, version.digest) == (expected, digest)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1_048_575, "1,048,575 bytes"),
        (1_048_576, "1.0 MiB"),
        (1_572_864, "1.5 MiB"),
        (1 << 30, "1024.0 MiB"),
    ],
)
def test_sizes_are_told_in_bytes_up_to_a_mebibyte(size, text):
    assert size_text(size) == text
