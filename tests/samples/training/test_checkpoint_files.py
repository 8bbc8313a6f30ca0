"""The index of a checkpoint and its files of tensors, where somebody else wrote them: one line, and nothing is run."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from pytrtplugins.errors import FormatError
from pytrtplugins.utils.files import sha256_hex
from tests.samples.needs_torch import WITHOUT_RANKS, torch
from tests.samples.training.test_saved_tensors import Runs, Takes, with_pickle
from training.checkpoint import Checkpoints
from training.ranks import Ranks

TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor(7, dtype=torch.int64)}
pytestmark = WITHOUT_RANKS


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    """One checkpoint, of step 1."""
    place = Checkpoints(tmp_path, Ranks(0, 1, torch.device("cpu"), False))
    place.save(1, TENSORS, {})
    assert place.wait()
    return place


def load(checkpoints: Checkpoints) -> dict[str, Any]:
    """Digests and sizes fit again: whoever changes the files changes these, too."""
    folder = checkpoints.folder / "step-000000001"
    facts = json.loads((folder / "facts.json").read_text())
    facts["files"] = {
        path.name: [path.stat().st_size, sha256_hex(path)] for path in folder.iterdir() if path.name != "facts.json"
    }
    (folder / "facts.json").write_text(json.dumps(facts))
    path, _ = checkpoints.newest()
    tensors = {name: torch.zeros_like(tensor) for name, tensor in TENSORS.items()}
    checkpoints.load(path, tensors)
    return tensors


def refused(checkpoints: Checkpoints) -> str:
    with pytest.raises(FormatError) as caught:
        load(checkpoints)
    line, do = str(caught.value).split("\n")
    assert line.startswith(f"{checkpoints.folder}/step-000000001: does not fit this network: ")
    assert do == "Do: give the options of the run that wrote it, or another --output"
    return line


def test_the_index_is_json_and_names_each_tensor(checkpoints):
    index = json.loads((checkpoints.folder / "step-000000001/index.json").read_text())
    assert {name: (kind, size, [chunk[:3] for chunk in chunks]) for name, (kind, size, chunks) in index.items()} == {
        "a": ("torch.float32", [2, 3], [[[0, 0], [2, 3], "__0_0.distcp"]]),
        "b": ("torch.int64", [], [[[], [], "__0_0.distcp"]]),
    }
    assert {name: tensor.tolist() for name, tensor in load(checkpoints).items()} == {
        "a": [[0, 1, 2], [3, 4, 5]],
        "b": 7,
    }


CHUNK = [[0, 0], [2, 3], "__0_0.distcp", 0, 1000]


@pytest.mark.parametrize(
    ("a", "why"),
    [
        (None, "not the index of a checkpoint"),
        ([], "not the index of a checkpoint"),
        (["torch.float32", [2, 3], [CHUNK[:4]]], "not the index of a checkpoint"),
        (["torch.float99", [2, 3], [CHUNK]], "not the index of a checkpoint"),
        (["torch.load", [2, 3], [CHUNK]], "not the index of a checkpoint"),
        (["torch.float32", [2, -3], [CHUNK]], "expected whole numbers"),
        (["torch.float32", [2, True], [CHUNK]], "expected whole numbers"),
        (["torch.float32", [2, 1 << 60], [CHUNK]], "expected whole numbers"),
        (["torch.float32", [2, 1 << 40], [CHUNK]], "the parts of a are not the whole tensor"),
        (["torch.float32", [2, 3], []], "the parts of a are not the whole tensor"),
        (["torch.float32", [3, 3], [[[0, 0], [3, 3], "__0_0.distcp", 0, 1000]]], "Size mismatch"),
        (["torch.float32", [2, 3], [[[0, 0], [2, 3], "../x", 0, 9]]], "it names a file outside: '../x'"),
        (["torch.float32", [2, 3], [[[0, 0], [2, 3], 7, 0, 9]]], "not the index of a checkpoint"),
        (["torch.float32", [2, 3], [[[0, 0], [2, 3], "none", 0, 9]]], "No such file"),
        (
            ["torch.float32", [2, 3], [[[0, 0], [2, 3], "__0_0.distcp", 0, 1 << 40]]],
            "it has no 1,099,511,627,776 bytes",
        ),
        (["torch.float32", [2, 3], [[[0, 0], [2, 3], "__0_0.distcp", -1, 9]]], "expected whole numbers"),
        (["torch.float32", [2, 3], [[[0, 0], [2, 3], "__0_0.distcp", 7, 99]]], "not a file of tensors"),
    ],
)
def test_an_index_that_is_none_is_refused(checkpoints, a, why):
    path = checkpoints.folder / "step-000000001/index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"a": a}))
    assert why in refused(checkpoints)


@pytest.mark.parametrize("text", ["", "[]", "{", "3", '{"a": 1, "a": 2}', "[" * 100_000])
def test_an_index_of_other_text_is_refused(checkpoints, text):
    (checkpoints.folder / "step-000000001/index.json").write_text(text)
    refused(checkpoints)


def test_tensors_that_would_run_code_or_take_memory_are_refused(checkpoints, capsys):
    folder = checkpoints.folder / "step-000000001"
    for hostile in (Runs(), Takes()):
        data = with_pickle(pickle.dumps(hostile, 2))
        (folder / "__0_0.distcp").write_bytes(data)
        path = folder / "index.json"
        chunk = [[0, 0], [2, 3], "__0_0.distcp", 0, len(data)]
        path.write_text(json.dumps(json.loads(path.read_text()) | {"a": ["torch.float32", [2, 3], [chunk]]}))
        assert "which is no tensor" in refused(checkpoints)
    assert capsys.readouterr().out == ""
