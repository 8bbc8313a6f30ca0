"""What a set of shards gives is what it was made of, in any order and from any thread; damage is named."""

from __future__ import annotations

import gc
import json
import pickle
import tarfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pytrtplugins.errors import FormatError, NoDataError
from pytrtplugins.mlops.shards import Shards, make_shards
from tests.mlops.shards.photos import CLASSES, make_set, photo

PHOTOS = 60


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A set of 60 photos in several shards, which no test changes."""
    pytest.importorskip("PIL")
    folder = tmp_path_factory.mktemp("set")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pytrtplugins.mlops.shards.make.SHARD_BYTES", (1, 1 << 20))
        make_shards(make_set(folder / "data", PHOTOS), folder / "shards", size=50_000, workers=1)
    return folder / "shards"


@pytest.fixture
def copied(made, tmp_path):
    """The same, to be damaged."""
    for path in made.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def expected(number: int) -> tuple[bytes, list[list[float]]]:
    return photo(number), [[number % 2, 0.5, 0.5, 0.25, 0.125 * (1 + box)] for box in range(number % 3)]


def check(example):
    image, boxes = expected(int(example.key[1:]))
    assert example.image == image
    assert example.boxes.dtype == np.float32
    assert example.boxes.reshape(-1, 5).tolist() == boxes


def test_every_photo_comes_back_with_its_boxes(made):
    shards = Shards.open(made)
    assert (len(shards), shards.classes) == (PHOTOS, CLASSES)
    assert len(list(made.glob("*.tar"))) > 1
    examples = [shards.read(number) for number in range(len(shards))]
    for example in examples:
        check(example)
    assert len({example.key for example in examples}) == PHOTOS
    assert [shards.key(number) for number in range(PHOTOS)] == [example.key for example in examples]
    assert all((shards.boxes(number) == examples[number].boxes).all() for number in range(PHOTOS))


def test_a_photo_is_where_it_is_said_to_be(made):
    shards = Shards.open(made)
    for number in (0, 30, 59):
        path, offset, size = shards.locate(number)
        assert path.read_bytes()[offset : offset + size] == shards.read(number).image


def test_threads_read_in_any_order(made):
    shards = Shards.open(made)
    order = np.random.default_rng(0).permutation(PHOTOS).tolist()
    with ThreadPoolExecutor(4) as pool:
        for example in pool.map(shards.read, order):
            check(example)


def test_tars_of_which_too_many_would_be_open_are_opened_for_each_photo(made, monkeypatch):
    monkeypatch.setattr("pytrtplugins.mlops.shards.reader._MAX_OPEN", 1)
    shards = Shards.open(made)
    check(shards.read(0))
    check(shards.read(59))


def test_a_set_can_be_sent_to_another_process(made):
    shards = Shards.open(made)
    again = pickle.loads(pickle.dumps(shards))
    assert again.read(3).image == shards.read(3).image
    assert again.digest == shards.digest


def test_the_tars_are_plain_tars(made):
    with tarfile.open(made / "shard-00000.tar") as tar:
        names = tar.getnames()
        facts = json.loads(tar.extractfile("p2.json").read())
    assert names[:2] == ["p0.jpg", "p0.json"]
    assert facts == {
        "width": 24, "height": 16, "names": ["cat", "cat"],
        "boxes": [[0, 0.5, 0.5, 0.25, 0.125], [0, 0.5, 0.5, 0.25, 0.25]],
    }  # fmt: skip


@pytest.mark.slow  # the package imports PyTorch
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # webdataset leaves files open
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_webdataset_package_reads_them(made):
    webdataset = pytest.importorskip("webdataset", reason="webdataset is not installed. Do: pip install webdataset")
    paths = [str(path) for path in sorted(made.glob("*.tar"))]
    found = list(webdataset.WebDataset(paths, shardshuffle=False))
    gc.collect()
    shards = Shards.open(made)
    assert [each["__key__"] for each in found] == [shards.key(number) for number in range(PHOTOS)]
    assert [each["jpg"] for each in found] == [shards.read(number).image for number in range(PHOTOS)]
    assert json.loads(found[2]["json"])["boxes"] == shards.boxes(2).tolist()


@pytest.mark.parametrize("number", [-1, PHOTOS])
def test_a_photo_that_does_not_exist(made, number):
    with pytest.raises(IndexError, match="has 60"):
        Shards.open(made).read(number)


def test_a_folder_that_is_no_set(tmp_path):
    with pytest.raises(NoDataError, match="Do: pytrt shards make"):
        Shards.open(tmp_path / "nothing")
    (tmp_path / "a.tar").touch()
    with pytest.raises(NoDataError, match=r"1 tars, but no shards\.json") as raised:
        Shards.open(tmp_path)
    assert raised.value.path == tmp_path


@pytest.mark.parametrize(
    ("name", "what"),
    [("shard-00001.tar", "the shard is missing"), ("shard-00001.index.npz", "the index is missing")],
)
def test_a_file_that_is_missing(copied, name, what):
    (copied / name).unlink()
    with pytest.raises(FormatError, match=what) as raised:
        Shards.open(copied)
    assert raised.value.path == copied / name
    assert "Do: pytrt shards check" in str(raised.value)


def test_a_tar_that_was_cut(copied):
    path = copied / "shard-00000.tar"
    path.write_bytes(path.read_bytes()[:-512])
    with pytest.raises(FormatError, match=r"expected [\d,]+ bytes, found [\d,]+") as raised:
        Shards.open(copied)
    assert raised.value.path == path


def test_a_tar_that_is_cut_while_it_is_open(copied):
    shards = Shards.open(copied)
    path, offset, _ = shards.locate(5)
    with path.open("r+b") as file:
        file.truncate(offset + 3)
    check(shards.read(4))
    with pytest.raises(FormatError, match="truncated") as raised:
        shards.read(5)
    assert raised.value.path == path


def test_a_damaged_photo_is_named(copied):
    shards = Shards.open(copied)
    path, offset, size = shards.locate(5)
    with path.open("r+b") as file:
        file.seek(offset + size // 2)
        byte = file.read(1)[0]
        file.seek(offset + size // 2)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(FormatError, match="is damaged") as raised:
        shards.read(5)
    assert raised.value.key == shards.key(5)
    check(shards.read(6))


def test_an_index_of_another_shard(copied):
    (copied / "shard-00000.index.npz").write_bytes((copied / "shard-00001.index.npz").read_bytes())
    with pytest.raises(FormatError, match="of another shard"):
        Shards.open(copied)
