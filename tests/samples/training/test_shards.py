"""Loaders on real shards: the same photos, and what they say of shards that are missing, truncated or damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.samples.needs_torch import torch

pytest.importorskip("spdl.pipeline", reason='these loaders need spdl-core (pip install "pytrtplugins[train]")')

from pytrtplugins.errors import FormatError, ImageError
from pytrtplugins.mlops.shards import Shards, make, make_shards
from tests.samples.training.photo_set import PhotoSet
from training.loader import make_loader
from training.sampler import StepSampler

CPU = torch.device("cpu")
COUNT = 12


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A set of a few shards, which are smaller than those of users may be."""
    monkeypatch.setattr(make, "SHARD_BYTES", (1, 1 << 30))
    source = tmp_path / "source"
    (source / "images").mkdir(parents=True)
    (source / "labels").mkdir()
    (source / "classes.txt").write_text("a\nb\n")
    for number, record in enumerate(PhotoSet(COUNT).records):
        (source / f"images/{record.key}.jpg").write_bytes(record.image)
        (source / f"labels/{record.key}.txt").write_text("".join("1 0.5 0.5 0.25 0.5\n" for _ in range(number % 4)))
    make_shards(source, tmp_path / "shards", size=16_384, workers=1, progress=False)
    assert len(list((tmp_path / "shards").glob("*.tar"))) > 1
    return tmp_path / "shards"


def load(data: Shards, kind: str = "spdl-cpu", **more):
    return make_loader(kind, data, StepSampler(len(data), 4, seed=1), CPU, size=64, stop=3, **more)


@pytest.mark.parametrize("kind", ["spdl-cpu", "resident", "dataloader"])
def test_batches_have_the_photos_and_boxes_of_the_shards(folder: Path, kind: str) -> None:
    data, seen = Shards.open(folder), []
    with load(data, kind) as loader:
        for batch in loader:
            seen += batch.keys
            for row, number in enumerate(StepSampler(COUNT, 4, seed=1).indices(batch.step)):
                example = data.read(int(number))
                assert batch.keys[row] == example.key
                assert torch.equal(batch.boxes[row][batch.valid[row]], torch.tensor(example.boxes))
    assert sorted(seen) == sorted(data.read(number).key for number in range(COUNT))


def test_a_truncated_shard_stops_the_run_with_its_name(folder: Path) -> None:
    data = Shards.open(folder)
    path, offset, _ = data.locate(COUNT - 1)
    with path.open("r+b") as file:
        file.truncate(offset)
    with load(data, skip_bad=True) as loader, pytest.raises(FormatError, match="the tar is truncated") as caught:
        list(loader)
    assert caught.value.path == path
    assert "Do: " in str(caught.value)


def test_a_damaged_photo_stops_the_run_with_its_name(folder: Path) -> None:
    """Its checksum tells, so nothing is trained on it, whether it decodes or not."""
    data = Shards.open(folder)
    path, offset, size = data.locate(5)
    with path.open("r+b") as file:
        file.seek(offset + size // 2)
        file.write(b"\0\1\2\3\4\5\6\7")
    with load(data, skip_bad=True) as loader, pytest.raises(FormatError, match="is damaged") as caught:
        list(loader)
    assert caught.value.key == data.key(5)


def test_a_missing_shard_is_told_when_the_set_is_opened(folder: Path) -> None:
    path = Shards.open(folder).locate(0)[0]
    path.unlink()
    with pytest.raises(FormatError, match="missing") as caught:
        Shards.open(folder)
    assert caught.value.path == path


def test_a_photo_that_does_not_decode_is_told_with_its_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with the head of a JPEG and nothing else gets into shards, whose maker reads heads."""
    data = Shards.open(folder)
    read, key = Shards.read, data.key(7)
    path, offset, _ = data.locate(7)

    def cut(shards: Shards, number: int):
        example = read(shards, number)
        return type(example)(example.key, example.image[:200], example.boxes) if number == 7 else example

    monkeypatch.setattr(Shards, "read", cut)
    with load(data) as loader, pytest.raises(ImageError, match=f"{key} does not decode") as caught:
        list(loader)
    assert caught.value.path == path
    assert f"at {offset:,} of {path}" in str(caught.value)
