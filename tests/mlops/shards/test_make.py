"""Shards are the same for the same photos and labels, and go on where making them was interrupted."""

import threading
from contextlib import suppress
from types import SimpleNamespace

import pytest

from pytrtplugins.errors import FormatError, NoDataError, UsageError
from pytrtplugins.mlops.shards import Shards, make, make_shards
from tests.mlops.shards.photos import CLASSES, files_of, make_set, photo

pytest.importorskip("PIL")


def keys(folder):
    shards = Shards.open(folder)
    return [shards.key(number) for number in range(len(shards))]


def test_the_same_data_gives_the_same_bytes_whatever_the_threads(tmp_path, monkeypatch):
    monkeypatch.setattr("pytrtplugins.mlops.shards.make.SHARD_BYTES", (1, 1 << 20))
    data = make_set(tmp_path / "data", 60)
    made = [make_shards(data, tmp_path / str(n), size=50_000, workers=n) for n in (1, 2)]
    assert made[0].sets[0].shards > 2
    assert files_of(tmp_path / "1") == files_of(tmp_path / "2")
    assert made[0].sets[0].digest == made[1].sets[0].digest == Shards.open(tmp_path / "1").digest
    assert made[0].classes == CLASSES
    assert (made[0].sets[0].photos, made[0].sets[0].boxes) == (60, sum(i % 3 for i in range(60)))


def test_shards_that_are_finished_together_are_noted_one_after_the_other(monkeypatch):
    finished, noting, together = threading.Barrier(2), threading.Barrier(2), []
    monkeypatch.setattr(make, "write_shard", lambda *given: finished.wait(30))

    def get(key, measure):
        with suppress(threading.BrokenBarrierError):
            noting.wait(0.2)
            together.append(key)

    shards = [SimpleNamespace(file=name, digest="", photos=()) for name in "ab"]
    make._write_shards(None, shards, SimpleNamespace(get=get), 2, False)
    assert together == []


def test_a_list_chooses_photos(tmp_path):
    data = make_set(tmp_path / "data", 7)
    make_shards(data, tmp_path / "a", listed="train.txt")
    assert keys(tmp_path / "a") == ["p0", "p2", "p4", "p6"]
    (tmp_path / "stems.txt").write_text("p1\np3\n")
    make_shards(data, tmp_path / "b", listed=tmp_path / "stems.txt")
    assert keys(tmp_path / "b") == ["p1", "p3"]


@pytest.mark.parametrize("folder", ["", "ImageSets/Main/"])
@pytest.mark.parametrize("name", ["val", "valid", "validation", "test"])
def test_photos_that_a_list_keeps_for_measurements_are_not_mixed_with_the_others(tmp_path, folder, name):
    """They would be trained on; which photos to take is asked."""
    data = make_set(tmp_path / "data", 6)
    place = data / folder / f"{name}.txt"
    place.parent.mkdir(parents=True, exist_ok=True)
    (data / "train.txt").rename(place.with_name("train.txt"))
    place.write_text("images/p1.jpg\np3\n")
    for hold_back in (0.0, 0.5):
        with pytest.raises(UsageError) as caught:
            make_shards(data, tmp_path / "s", hold_back=hold_back)
        assert f"{folder}{name}.txt names 2 of the 6 photos" in str(caught.value)
        assert f"\nDo: add --list {folder}train.txt for " in str(caught.value)
        assert str(caught.value).endswith("or --list all for every photo")
    assert not (tmp_path / "s").exists()
    for listed, expected in ((f"{folder}train.txt", [0, 2, 4]), (f"{folder}{name}.txt", [1, 3]), ("all", range(6))):
        make_shards(data, tmp_path / "s", listed=listed, force=True)
        assert keys(tmp_path / "s") == [f"p{number}" for number in expected]
    place.with_name("train.txt").unlink()
    with pytest.raises(UsageError, match=rf"Do: add --list {folder}{name}\.txt for "):
        make_shards(data, tmp_path / "s")


def test_lists_that_keep_no_photo_from_the_others_ask_nothing(tmp_path):
    """One of all photos, one of none of them, and labels of a photo of this name."""
    data = make_set(tmp_path / "data", 4)
    (data / "val.txt").write_text("".join(f"p{i}\n" for i in range(4)) + "valid.jpg\n")
    (data / "test.txt").write_text("elsewhere/q9.jpg\n")
    (data / "valid.jpg").write_bytes(photo(9))
    (data / "valid.txt").write_text("1 0.5 0.5 0.25 0.25\n")
    make_shards(data, tmp_path / "s")
    assert keys(tmp_path / "s") == ["images/p0", "images/p1", "images/p2", "images/p3", "valid"]


def test_a_listed_photo_that_does_not_exist_is_refused(tmp_path):
    data = make_set(tmp_path / "data", 3)
    with pytest.raises(FormatError, match=r"images/p9.jpg: the list names it"):
        make_shards(data, tmp_path / "a", listed=["images/p1.jpg", "images/p9.jpg"])
    assert not (tmp_path / "a").exists()


def test_a_part_is_held_back_which_stays_the_same_when_photos_come(tmp_path):
    for count in (40, 60):
        make_shards(make_set(tmp_path / f"{count}", count), tmp_path / f"s{count}", hold_back=0.3)
    parts = {count: [set(keys(tmp_path / f"s{count}" / part)) for part in ("train", "held-back")] for count in (40, 60)}
    for train, held in parts.values():
        assert not train & held
    assert parts[40][0] <= parts[60][0]
    assert parts[40][1] <= parts[60][1]
    assert 4 <= len(parts[40][1]) <= 20


def test_photos_that_cannot_be_used_are_all_named(tmp_path):
    data = make_set(tmp_path / "data", 6)
    (data / "images/p1.jpg").write_bytes(photo(1)[:-40])
    (data / "images/p2.jpg").write_bytes(b"no photo")
    (data / "labels/p3.txt").write_text("7 .5 .5 .1 .1\n")
    with pytest.raises(FormatError, match=r"labels/p3\.txt: line 1: unknown class 7") as raised:
        make_shards(data, tmp_path / "a")
    assert "Do: correct them" in str(raised.value)
    (data / "labels/p3.txt").write_text("1 .5 .5 .1 .1\n")
    with pytest.raises(FormatError, match=r"2 photos or labels cannot be used") as raised:
        make_shards(data, tmp_path / "a")
    assert [problem.file for problem in raised.value.problems] == ["images/p1.jpg", "images/p2.jpg"]
    with pytest.raises(NoDataError):
        Shards.open(tmp_path / "a")
    made = make_shards(data, tmp_path / "a", skip_bad=True)
    assert [problem.file for problem in made.skipped] == ["images/p1.jpg", "images/p2.jpg"]
    assert keys(tmp_path / "a") == ["p0", "p3", "p4", "p5"]


def test_boxes_are_cut_at_the_edge_and_counted(tmp_path):
    data = make_set(tmp_path / "data", 1)
    (data / "labels/p0.txt").write_text("0 .9 .5 .4 .5\n1 .5 .5 1.0004 1\n1 1.5 .5 .2 .2\n0 .5 .5 0 .1\n")
    made = make_shards(data, tmp_path / "a")
    assert made.changed["boxes cut at the photo's edge"] == 1
    assert made.changed["boxes without an area in the photo, left out"] == 2
    assert Shards.open(tmp_path / "a").boxes(0).ravel().tolist() == pytest.approx(
        [0, 0.85, 0.5, 0.3, 0.5, 1, 0.5, 0.5, 1, 1]
    )
    with pytest.raises(FormatError, match="1 boxes cut") as raised:
        make_shards(data, tmp_path / "b", strict=True)
    assert "Do: correct the labels" in str(raised.value)


def test_two_photos_of_one_key_are_refused(tmp_path):
    data = make_set(tmp_path / "data", 2)
    (data / "images/p1.png").write_bytes(photo(1, kind="PNG"))
    with pytest.raises(FormatError, match=r"the key 'p1' is also that of images/p1\.jpg"):
        make_shards(data, tmp_path / "a")


def test_a_finished_set_is_not_replaced_unasked(tmp_path):
    data = make_set(tmp_path / "data", 2)
    make_shards(data, tmp_path / "a")
    before = files_of(tmp_path / "a")
    with pytest.raises(UsageError, match="Do: give another folder"):
        make_shards(data, tmp_path / "a")
    assert files_of(tmp_path / "a") == before
    make_shards(make_set(tmp_path / "more", 3), tmp_path / "a", force=True)
    assert keys(tmp_path / "a") == ["p0", "p1", "p2"]
