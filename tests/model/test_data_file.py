"""A model with its weights beside it is one unit: readers find the old one or the new one, whenever its writer is killed."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import UsageError
from pytrtplugins.model import read_onnx, write_onnx
from pytrtplugins.model.data_file import write_apart
from tests.model.networks import network, node


def net(seed=0):
    weights = np.random.default_rng(seed).standard_normal((32, 4, 3, 3)).astype(np.float32)
    return network([node("Conv", "x k", "y")], k=weights)


def names(folder):
    return sorted(item.name for item in folder.iterdir())


def age(folder, seconds=100.0):
    for item in folder.iterdir():
        os.utime(item, (time.time() - seconds,) * 2)


@pytest.mark.parametrize("kind", ["graph", "darknet"])
def test_a_writer_that_is_killed_leaves_the_old_model_or_the_new_one(tmp_path, kind):
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "tests.model.killed_writer", kind, str(tmp_path)],
        cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["lines"] > 50
    assert found["old"] > 30
    assert found["new"] > 5
    assert found.pop("cases") > 5
    assert found == {"lines": found["lines"], "old": found["old"], "new": found["new"], "left behind": 0}
    assert found["old"] + found["new"] == found["lines"] + 1


def test_the_same_weights_get_the_same_name_and_others_another(tmp_path):
    first = write_onnx(net(), tmp_path / "a.onnx", external_data=True)[1].name
    assert write_onnx(net(), tmp_path / "a.onnx", external_data=True)[1].name == first
    second = write_onnx(net(1), tmp_path / "a.onnx", external_data=True)[1].name
    assert second != first
    assert names(tmp_path) == ["a.onnx", second]


def test_data_that_a_model_no_longer_needs_go_with_it_also_where_the_new_one_has_none_beside_it(tmp_path):
    write_onnx(net(), tmp_path / "a.onnx", external_data=True)
    write_onnx(net(), tmp_path / "a.onnx", external_data=False)
    assert names(tmp_path) == ["a.onnx"]


def test_data_that_another_model_names_stay(tmp_path):
    _, data = write_onnx(net(), tmp_path / "a.onnx", external_data=True)
    (tmp_path / "copy.onnx").write_bytes((tmp_path / "a.onnx").read_bytes())
    age(tmp_path)
    write_onnx(net(1), tmp_path / "a.onnx", external_data=True)
    assert data.is_file()
    assert read_onnx(tmp_path / "copy.onnx")[0].graph.initializer[0].raw_data == net().graph.initializer[0].raw_data


def test_what_others_wrote_stays(tmp_path):
    foreign = ["a.onnx.data", "a.onnx_data", "a.onnx.0123456789abcdef.data.txt", "b.onnx.0123456789abcdef.data",
               "a.onnx.0123456789ABCDEF.data", "weights.bin"]  # fmt: skip
    for name in foreign:
        (tmp_path / name).write_bytes(b"foreign")
    age(tmp_path)
    write_onnx(net(), tmp_path / "a.onnx", external_data=True)
    assert set(foreign) < set(names(tmp_path))


def test_data_without_a_model_are_removed_when_they_are_old_and_stay_while_a_writer_may_be_at_work(tmp_path):
    orphan = tmp_path / "a.onnx.0123456789abcdef.data"
    orphan.write_bytes(b"of a killed writer")
    write_onnx(net(), tmp_path / "a.onnx", external_data=True)
    assert orphan.is_file()
    age(tmp_path)
    write_onnx(net(), tmp_path / "a.onnx", external_data=True)
    assert not orphan.exists()


def test_a_link_to_a_model_is_written_and_read_where_it_leads(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    write_onnx(net(), tmp_path / "there" / "a.onnx", external_data=True)
    link = tmp_path / "here" / "link.onnx"
    link.symlink_to(tmp_path / "there" / "a.onnx")
    written = write_onnx(net(1), link, external_data=True)
    assert written[1].parent == tmp_path / "there"
    assert link.is_symlink()
    assert len(names(tmp_path / "there")) == 2
    for path in (link, tmp_path / "there" / "a.onnx"):
        loaded = ptp.load_onnx(path).model
        assert loaded.graph.initializer[0].raw_data == net(1).graph.initializer[0].raw_data


def test_a_device_has_nothing_beside_it(tmp_path):
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(UsageError, match="expected a file, beside which the weights can lie"):
        write_onnx(net(), tmp_path / "pipe.onnx", external_data=True)
    assert names(tmp_path) == ["pipe.onnx"]


@pytest.mark.parametrize(
    ("suffix", "is_model"),
    [
        *((suffix, True) for suffix in (".onnx", ".pb", ".textproto", ".prototxt", ".onnxtxt", ".json", ".ort")),
        (".txt", False),
    ],
)
def test_data_that_another_model_names_in_any_format_of_onnx_stay(tmp_path, suffix, is_model):
    def write(content):
        return write_apart(
            tmp_path / "m.onnx", lambda file: file.write(content), lambda path, name: path.write_text(name)
        )

    _, first = write(b"1")
    (tmp_path / f"other{suffix}").write_text(f"location {first.name}")
    _, second = write(b"2")
    assert (first.exists(), second.exists()) == (is_model, True)
