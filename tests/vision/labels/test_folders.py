"""Classes of whole photos, by the folders that they lie in."""

import pytest

from pytrtplugins.errors import FormatError, NoDataError, UsageError
from pytrtplugins.mlops.shards import PhotoSet, Shards, make_shards
from tests.mlops.shards.photos import photo

pytest.importorskip("PIL")


def write(folder, *names):
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(photo(number))
    return folder


@pytest.fixture
def animals(tmp_path):
    return write(tmp_path / "animals", "dog/1.jpg", "cat/1.jpg", "cat/2.jpg", "more/cat/3.jpg")


def test_a_photo_has_the_class_of_its_folder_as_a_box_around_all_of_it(animals, tmp_path):
    result = make_shards(animals, tmp_path / "shards", labels="folders")
    assert (result.labels, result.classes) == ("folders", ("cat", "dog"))
    shards = Shards.open(tmp_path / "shards")
    boxes = {shards.key(number): shards.boxes(number).tolist() for number in range(len(shards))}
    assert boxes == {
        "cat/1": [[0, 0.5, 0.5, 1, 1]],
        "cat/2": [[0, 0.5, 0.5, 1, 1]],
        "dog/1": [[1, 0.5, 0.5, 1, 1]],
        "more/cat/3": [[0, 0.5, 0.5, 1, 1]],
    }


def test_it_has_to_be_asked_for(animals):
    with pytest.raises(NoDataError, match="Known formats: voc, coco, darknet, cvat, folders"):
        PhotoSet.open(animals)


def test_classes_that_are_given_choose_the_numbers(animals):
    photos = PhotoSet.open(animals, labels="folders", classes=["dog", "bird", "cat"])
    assert [int(photos.boxes(number)[0, 0]) for number in range(len(photos))] == [2, 2, 0, 2]


def test_a_class_that_is_not_given_is_refused_or_left_out(animals, tmp_path):
    with pytest.raises(FormatError, match=r"dog/1\.jpg: unknown class 'dog'"):
        make_shards(animals, tmp_path / "shards", labels="folders", classes=["cat"])
    result = make_shards(animals, tmp_path / "shards", labels="folders", classes=["cat"], drop_others=True)
    assert result.sets[0].photos == 3
    assert result.changed["boxes of other classes, left out"] == 1


def test_a_photo_in_no_folder_has_no_class(animals, tmp_path):
    write(animals, "stray.jpg")
    with pytest.raises(FormatError, match=r"stray\.jpg: it lies in no folder that names its class"):
        make_shards(animals, tmp_path / "shards", labels="folders")


def test_parts_of_a_set_are_not_mixed(tmp_path):
    data = write(tmp_path / "data", "train/dog/1.jpg", "train/cat/1.jpg", "val/dog/2.jpg")
    with pytest.raises(UsageError, match=r"2 of train \(train/cat/1\.jpg\), 1 of val.*\n.*data/train$"):
        make_shards(data, tmp_path / "shards", labels="folders")
    assert make_shards(data / "train", tmp_path / "shards", labels="folders").sets[0].photos == 2
    assert len(PhotoSet.open(data, labels="folders", listed=["val/dog/2.jpg"])) == 1


def test_a_class_may_be_called_like_a_part(tmp_path):
    data = write(tmp_path / "data", "test/1.jpg", "train/2.jpg")
    assert PhotoSet.open(data, labels="folders").classes == ("test", "train")
