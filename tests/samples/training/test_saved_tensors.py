"""Files of torch.save that are cut, junk or hostile: one line, nothing run, and no memory taken."""

from __future__ import annotations

import contextlib
import io
import pickle
import pickletools
import random
import zipfile
from pathlib import Path

import pytest

from pytrtplugins.errors import FormatError
from tests.samples.needs_torch import torch
from training import saved_tensors
from training.saved_tensors import load_saved

CONTENT = {
    "half": torch.arange(6.0).half().view(2, 3),
    "double": torch.ones(2, dtype=torch.float64),
    "none": torch.zeros(0, 3),
    "strided": torch.arange(8.0).view(2, 4).t(),
    "channels last": torch.arange(24.0).view(1, 2, 3, 4).contiguous(memory_format=torch.channels_last),
    "whole": torch.tensor(3),
    "words": ["a", {"b": [1, 2.5, None, True]}],
}


def saved(content: object = None) -> bytes:
    file = io.BytesIO()
    torch.save(CONTENT if content is None else content, file)
    return file.getvalue()


def with_pickle(data: bytes, *, compression: int = zipfile.ZIP_STORED, more: int = 0) -> bytes:
    """A file whose description of tensors is this pickle."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("archive/data.pkl", data)
        archive.writestr("archive/version", "3\n")
        for number in range(more):
            archive.writestr(f"archive/data/{number}", bytes(1 << 20))
    return file.getvalue()


def refused(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(FormatError) as caught:
        load_saved(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: not a file of tensors, or damaged: ")
    assert "\n" not in text
    return text


def test_a_description_may_be_as_long_as_the_limit(tmp_path, monkeypatch):
    path = tmp_path / "x.pt"
    path.write_bytes(saved())
    with zipfile.ZipFile(path) as archive:
        length = next(entry.file_size for entry in archive.infolist() if entry.filename.endswith("data.pkl"))
    monkeypatch.setattr(saved_tensors, "_MAX_PICKLE", length)
    assert load_saved(path)["words"] == CONTENT["words"]
    monkeypatch.setattr(saved_tensors, "_MAX_PICKLE", length - 1)
    assert "it has no description of its tensors, or a too long one" in refused(path, path.read_bytes())


def test_what_torch_saves_is_read(tmp_path):
    path = tmp_path / "x.pt"
    path.write_bytes(saved())
    content = load_saved(path)
    assert content.keys() == CONTENT.keys()
    for name, tensor in CONTENT.items():
        if torch.is_tensor(tensor):
            assert torch.equal(content[name], tensor)
            assert content[name].dtype == tensor.dtype
        else:
            assert content[name] == tensor


class Runs:
    def __reduce__(self):
        return print, ("code was run",)


class Takes:
    """Memory of any size from a file of a hundred bytes; torch.load allows it."""

    def __reduce__(self):
        return bytearray, (1 << 45,)


class Wide:
    """A tensor of a type that torch.load would make."""

    def __reduce__(self):
        return torch._utils._rebuild_meta_tensor_no_storage, (torch.float32, (1 << 40,), (1,), False)


@pytest.mark.parametrize("hostile", [Runs(), Takes(), Wide(), {"state": [Takes()]}, torch.nn.Linear(2, 2)])
@pytest.mark.parametrize("protocol", [2, 4])
def test_other_objects_than_tensors_are_refused_before_they_are_made(tmp_path, capsys, hostile, protocol):
    text = refused(tmp_path / "x.pt", with_pickle(pickle.dumps(hostile, protocol)))
    assert "which is no tensor" in text or "which no tensor needs" in text
    assert capsys.readouterr().out == ""


def test_parts_that_are_larger_than_the_file_are_refused(tmp_path):
    path, plain = tmp_path / "x.pt", pickle.dumps({}, 2)
    assert "compressed" in refused(path, with_pickle(plain, compression=zipfile.ZIP_DEFLATED, more=1))
    assert "no description of its tensors" in refused(path, with_pickle(plain + bytes(saved_tensors._MAX_PICKLE)))
    whole = with_pickle(plain, more=1)
    overlapped = bytearray(whole)
    size = (1 << 20).to_bytes(4, "little")
    entry = whole.rindex(b"PK\x01\x02")
    assert whole[entry + 20 : entry + 24] == size
    for place in (entry + 20, entry + 24):
        overlapped[place : place + 4] = (1 << 30).to_bytes(4, "little")
    assert "larger than the file" in refused(path, bytes(overlapped))


def test_a_tensor_of_more_numbers_than_its_storage_is_refused(tmp_path):
    """A file of a few bytes that says it had a tensor of a terabyte."""
    whole = saved({"x": torch.arange(2.0)})
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        entries = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    name = next(name for name in entries if name.endswith("data.pkl"))
    operations = [(op.name, arg, place) for op, arg, place in pickletools.genops(entries[name])]
    assert [arg for op, arg, _ in operations if op.startswith("BININT")].count(2) == 2  # of the storage and the tensor
    entries[name] = entries[name].replace(b"K\x02", b"J" + (1 << 30).to_bytes(4, "little"))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for each, data in entries.items():
            archive.writestr(each, data)
    refused(tmp_path / "x.pt", file.getvalue())


def test_junk_and_cut_files_are_refused(tmp_path):
    path, whole = tmp_path / "x.pt", saved()
    for data in (b"", b"\0", b"PK\3\4", b"not a model\n" * 50, pickle.dumps({"state": 1}), b"\x89PNG" + bytes(99)):
        refused(path, data)
    for length in range(0, len(whole), 97):
        refused(path, whole[:length])


def test_changed_bytes_end_in_an_error_of_this_package_or_in_tensors(tmp_path):
    path, whole, chance = tmp_path / "x.pt", saved(), random.Random(0)
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data)
        with contextlib.suppress(FormatError):
            load_saved(path)


def test_what_is_no_regular_file_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_saved(tmp_path / "none.pt")
    with pytest.raises(IsADirectoryError):
        load_saved(tmp_path)
