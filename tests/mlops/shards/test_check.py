"""A check counts what a set holds, finds every damage, and makes indexes anew."""

import io
import json
import tarfile

import numpy as np
import pytest

from pytrtplugins.errors import FormatError, UsageError
from pytrtplugins.mlops.shards import Shards, check_shards, make_shards
from pytrtplugins.mlops.shards.manifest import Manifest
from pytrtplugins.utils.files import sha256_hex
from tests.mlops.shards.photos import files_of, make_set, photo

pytest.importorskip("PIL")


@pytest.fixture
def shards(tmp_path):
    make_shards(make_set(tmp_path / "data", 12), tmp_path / "shards")
    return tmp_path / "shards"


def problems(folder, **options):
    return [str(each) for each in check_shards(folder, **options).problems]


def rewrite(folder, change):
    """Change the files of the tar, and let the manifest have the new checksum."""
    path = folder / "shard-00000.tar"
    with tarfile.open(path) as tar:
        files = {member.name: tar.extractfile(member).read() for member in tar}
    change(files)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    facts = json.loads((folder / "shards.json").read_text())
    facts["shards"][0].update(bytes=path.stat().st_size, sha256=sha256_hex(path))
    (folder / "shards.json").write_text(json.dumps(facts))


def test_what_a_set_holds_is_counted(shards):
    found = check_shards(shards, decode=True)
    assert found.ok
    assert (found.photos, found.boxes, found.shards, found.unlabelled, found.identical) == (12, 12, 1, 4, 0)
    counts = {i: [(n % 2, n % 3) for n in range(12) if n % 2 == i and n % 3] for i in (0, 1)}
    assert [(each.name, each.boxes, each.photos) for each in found.classes] == [
        (name, sum(boxes for _, boxes in counts[i]), len(counts[i])) for i, name in enumerate(("cat", "dog"))
    ]
    assert found.digest == Shards.open(shards).digest


def test_photos_that_are_copies_or_turned_are_counted(tmp_path):
    from PIL import Image

    data, exif = make_set(tmp_path / "data", 4), Image.Exif()
    exif[0x0112] = 6
    (data / "images/p1.jpg").write_bytes(photo(0))
    (data / "images/p2.jpg").write_bytes(photo(2, exif=exif))
    made = make_shards(data, tmp_path / "shards", exif="shown")
    assert made.changed["photos that EXIF says are not upright"] == 1
    found = check_shards(tmp_path / "shards")
    assert (found.identical, found.turned, found.ok) == (1, 1, True)


def test_a_flipped_bit_anywhere_in_a_tar_is_found(shards):
    whole = (shards / "shard-00000.tar").read_bytes()
    for place in np.random.default_rng(0).integers(0, len(whole), 10):
        data = bytearray(whole)
        data[place] ^= 4
        (shards / "shard-00000.tar").write_bytes(data)
        assert any("expected SHA-256" in each for each in problems(shards))


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda path: path.unlink(), "the shard is missing: copy it again"),
        (lambda path: path.write_bytes(path.read_bytes()[:-700]), "bytes, found"),
        (lambda path: path.write_bytes(path.read_bytes() + bytes(512)), "bytes, found"),
        (lambda path: path.write_bytes(b"x" * path.stat().st_size), "not an uncompressed tar"),
    ],
)
def test_a_damaged_tar_is_named_and_not_repaired(shards, damage, what):
    damage(shards / "shard-00000.tar")
    before = files_of(shards)
    found = problems(shards, repair=True)
    assert any(each.startswith("shard-00000.tar: ") and what in each for each in found), found
    assert files_of(shards) == before


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda path: path.unlink(), "the index is missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "not a .npz file"),
        (lambda path: path.write_bytes(b""), "not a .npz file"),
    ],
)
def test_an_index_is_made_anew_from_its_tar(shards, damage, what):
    whole = files_of(shards)
    damage(shards / "shard-00000.index.npz")
    (said,) = problems(shards)
    assert said.startswith("shard-00000.index.npz: ")
    assert what in said
    found = check_shards(shards, repair=True)
    assert (found.ok, found.repaired) == (True, ("shard-00000.index.npz",))
    assert files_of(shards) == whole


def test_an_index_that_differs_from_its_tar_is_found(shards):
    path = shards / "shard-00000.index.npz"
    with np.load(path) as held:
        arrays = dict(held)
    arrays["boxes"] = arrays["boxes"].copy()
    arrays["boxes"][0, 1] += 0.01
    np.savez(path, **arrays)
    assert problems(shards) == [
        "shard-00000.index.npz: the index differs from the tar: --repair makes it from the tar, where that is whole"
    ]
    assert check_shards(shards, repair=True).ok


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda files: files.update({"p3.jpg": b"no photo"}), "p3.jpg: not an image that can be read"),
        (lambda files: files.update({"p3.jpg": photo(3, kind="PNG")}), "p3.jpg: its suffix is that of another format than PNG"),
        (lambda files: files.update({"p4.json": b"["}), "p4.json: not JSON"),
        (lambda files: files.update({"p4.json": b"{}"}), "p4.json: expected boxes"),
        (lambda files: files.update({"p4.json": b'{"boxes": [[0, 0.9, 0.5, 0.3, 0.1]], "names": ["cat"]}'}), "outside the photo"),
        (lambda files: files.update({"p4.json": b'{"boxes": [[0, 0.5, 0.5, 0, 0.1]], "names": ["cat"]}'}), "without an area"),
        (lambda files: files.update({"p4.json": b'{"boxes": [[0, 0.5, 0.5, 0.1, 0.1]], "names": ["dog"]}'}), "is not one of the set"),
        (lambda files: files.update({"p4.json": b'{"boxes": [[9, 0.5, 0.5, 0.1, 0.1]], "names": ["cat"]}'}), "is not one of the set"),
        (lambda files: files.update({"p4.json": b'{"boxes": [[0, 0.5, 0.5, 0.1]], "names": ["cat"]}'}), "lists of 5 numbers"),
        (lambda files: files.pop("p5.json"), "'p5' has no labels beside it"),
        (lambda files: files.pop("p5.jpg"), "'p5.json' does not belong to a photo before it"),
        (lambda files: files.update({"../evil.txt": b"x"}), "does not belong to a photo"),
    ],
)  # fmt: skip
def test_what_is_wrong_within_a_tar_is_named(shards, change, what):
    rewrite(shards, change)
    found = problems(shards)
    assert any(what in each for each in found), found


def test_a_photo_that_is_cut_is_found_when_it_is_decoded(shards):
    rewrite(shards, lambda files: files.update({"p3.jpg": photo(3)[:-60]}))
    assert any("p3.jpg: " in each and "truncated" in each for each in problems(shards, decode=True))


def test_a_tar_that_the_manifest_does_not_name_is_found(shards):
    (shards / "more.tar").touch()
    assert problems(shards) == ["more.tar: a tar that the manifest does not name"]


def test_a_manifest_is_read_back(shards):
    manifest = Manifest.read(shards)
    before = (shards / "shards.json").read_bytes()
    manifest.write(shards)
    assert (shards / "shards.json").read_bytes() == before


@pytest.mark.parametrize("name", ["shard-00000.index.npz", "shards.json"])
def test_a_repair_writes_nothing_through_a_link(shards, tmp_path, name):
    outside = tmp_path / "private"
    outside.write_bytes(b"precious")
    (shards / name).unlink()
    (shards / name).symlink_to(outside)
    with pytest.raises((FormatError, UsageError)):
        check_shards(shards, repair=True)
    assert outside.read_bytes() == b"precious"
