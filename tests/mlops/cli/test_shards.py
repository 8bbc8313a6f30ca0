"""``pytrt shards``: its options, what it prints, its JSON and its exit codes."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("onnx")
pytest.importorskip("typer")
from pytrtplugins.errors import UsageError
from pytrtplugins.mlops.cli import shards
from pytrtplugins.mlops.shards import Shards
from pytrtplugins.mlops.shards.make import Made, MadeSet
from tests.mlops.shards.photos import make_set, photo

MAKE = ("shards", "make", "data", "-o", "shards")


@pytest.fixture
def data(tmp_path):
    return make_set(tmp_path / "data", 12)


def test_shards_are_made_and_checked(data, printed):
    out = printed(*MAKE, "--shard-size", "1MiB", "--threads", 1)
    assert out.splitlines()[0] == "labels: darknet, 2 classes"
    assert f"digest {Shards.open('shards').digest[:8]}" in out
    out = printed("shards", "check", "shards")
    assert "12 photos, 12 boxes, 1 shards" in out
    assert "4 photos without a box" in out
    assert out.splitlines()[-1] == "everything agrees with its checksums"


def test_results_as_json(data, printed):
    made = json.loads(printed(*MAKE, "--hold-back", "0.4", "--list", "train.txt", "--json"))["result"]
    assert [each["folder"] for each in made["sets"]] == ["shards/train", "shards/held-back"]
    assert sum(each["photos"] for each in made["sets"]) == 6
    found = json.loads(printed("shards", "check", "shards/train", "--json", "--full"))
    assert found["ok"] is True
    assert found["result"]["digest"] == made["sets"][0]["digest"]


def test_damage_ends_with_code_1_and_repair_with_0(data, tmp_path, pytrt, printed):
    printed(*MAKE)
    (tmp_path / "shards/shard-00000.index.npz").unlink()
    code, out, _ = pytrt("shards", "check", "shards")
    assert (code, "1 problems:\n  shard-00000.index.npz: the index is missing" in out) == (1, True)
    code, _, err = pytrt("shards", "check", "shards", "-q")
    assert (code, err) == (1, "shards: 1 problems\n")
    assert "made anew: shard-00000.index.npz" in printed("shards", "check", "shards", "--repair")
    printed("shards", "check", "shards")


def test_bad_photos_are_listed(data, printed, refused):
    (data / "images/p3.jpg").write_bytes(b"no photo")
    said = refused(*MAKE)
    assert "images/p3.jpg: " in said
    assert "Do: correct them" in said
    assert "1 photos or labels skipped:\n  images/p3.jpg: " in printed(*MAKE, "--skip-bad")


def test_a_size_of_every_unit_is_worth_what_it_says():
    worth = {"": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "KIB": 1024, "MIB": 1024**2, "GIB": 1024**3}
    assert set(worth) == set(shards._UNITS)
    for unit, size in worth.items():
        count = -(-(3 << 20) // size)
        assert shards._bytes(f"{count}{unit}") == shards._bytes(f"{count} {unit.lower()}") == count * size


def test_the_smallest_and_the_largest_size_of_a_shard_are_taken():
    assert (shards._bytes("1MiB"), shards._bytes("64GiB")) == (1_048_576, 68_719_476_736)
    for size in ("1048575", "68719476737"):
        with pytest.raises(UsageError, match="from 1MiB to 64GiB"):
            shards._bytes(size)


def test_sizes_of_sets_are_printed_in_millions_of_bytes(capsys):
    made = MadeSet("set", 1234, 5678, 2, 0, 12_345_678, "ab" * 32)
    shards._print_made_shards(Made("voc", ("cat",), (made,), {}, ()), upright=True)
    assert "set: 1,234 photos, 5,678 boxes, 2 shards, 12.3 MB, digest abababab" in capsys.readouterr().out
    checked = {"folder": "set", "photos": 1, "boxes": 2, "shards": 3, "bytes": 1_950_000, "digest": "cd" * 32}
    nothing = dict.fromkeys(("unlabelled", "identical", "turned"), 0) | {"classes": (), "problems": (), "repaired": ()}
    shards._print_checked(SimpleNamespace(**checked, **nothing))
    assert "set: 1 photos, 2 boxes, 3 shards, 1.9 MB, digest cdcdcdcd" in capsys.readouterr().out


@pytest.mark.parametrize("size", ["0", "12", "256TB", "lots", "-5MB", "1e9", "100KB"])
def test_a_size_that_is_none_is_refused(data, refused, size):
    assert "--shard-size" in refused(*MAKE, f"--shard-size={size}")
    assert not Path("shards").exists()


def test_photos_are_made_smaller(data, printed):
    printed(*MAKE, "--longest-side", "16")
    from pytrtplugins.vision import decode_image

    assert decode_image(Shards.open("shards").read(0).image).shape == (11, 16, 3)


def test_photos_that_exif_turns_need_the_option_where_labels_state_no_size(tmp_path, printed, refused):
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112] = 6
    (make_set(tmp_path / "data", 2) / "images/p1.jpg").write_bytes(photo(1, exif=exif))
    problem = refused(*MAKE)
    assert "images/p1.jpg: EXIF (orientation 6) turns it" in problem
    assert "give --exif shown or --exif stored" in problem
    upright = "--longest-side of `pytrt shards make` stores them upright"
    for options, hint in (
        (("--exif", "shown"), True),
        (("--exif", "shown", "--longest-side", "64"), False),
        (("--exif", "stored", "--longest-side", "64"), False),
        (("--exif", "stored"), True),
    ):
        out = printed(*MAKE, "--force", *options)
        assert "1 photos that EXIF says are not upright" in out
        assert (upright in out) == hint
    # a quarter turn: the box's sides change places
    assert Shards.open("shards").boxes(1).tolist() == [[1, 0.5, 0.5, 0.125, 0.25]]
