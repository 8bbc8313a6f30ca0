"""Names, lists and labels in other encodings than UTF-8: right where the format says so, else the encoding is in the error."""

from itertools import product

import pytest

from pytrtplugins.errors import PytrtpluginsError
from pytrtplugins.mlops.shards import make_shards
from pytrtplugins.models import YoloData
from pytrtplugins.utils.file_set import FileSet
from pytrtplugins.vision.labels import read_labels
from tests.vision.labels.written import EXPECTED, WRITERS

pytest.importorskip("PIL")
ENCODINGS = {"gb2312": "GB2312", "utf-16": "UTF-16"}
FILES = {  # format, file, and what becomes Chinese in it
    "names": ("darknet", "classes.txt", "person"),
    "labels": ("darknet", "labels/c.txt", "\n"),
    "voc": ("voc", "Annotations/c.xml", "person"),
    "coco": ("coco", "annotations/instances_default.json", "person"),
    "cvat": ("cvat", "annotations.xml", "person"),
}


def rewrite(tmp_path, kind, file, old, encoding):
    data = WRITERS[kind](tmp_path / "data")
    text = (data / file).read_text().replace(old, "人员\n" if old == "\n" else "人员").replace("utf-8", encoding)
    (data / file).write_bytes(text.encode(encoding))
    return data


@pytest.mark.parametrize(("what", "encoding"), list(product(FILES, ENCODINGS)), ids="-".join)
def test_the_encoding_is_named_unless_it_can_be_read(tmp_path, what, encoding):
    kind, file, old = FILES[what]
    data = rewrite(tmp_path, kind, file, old, encoding)
    if (kind, encoding) in (("voc", "utf-16"), ("cvat", "utf-16")):  # which XML has to be read in
        annotations = read_labels(FileSet(data))
        assert (annotations.problems, sorted(annotations.classes)) == ([], ["cat", "dog", "人员"])
        assert [len(each.boxes) for each in annotations.photos] == [len(rows) for rows in EXPECTED.values()]
        return
    with pytest.raises(PytrtpluginsError) as raised:
        make_shards(data, tmp_path / "shards")
    assert file in str(raised.value)
    assert (encoding if kind == "cvat" else ENCODINGS[encoding]) in str(raised.value)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("option", ["classes", "listed"])
def test_the_encoding_of_files_that_are_given_is_named(tmp_path, option, encoding):
    data = WRITERS["darknet"](tmp_path / "data")
    (tmp_path / "names").write_bytes("猫咪\n狗\n人员\n".encode(encoding))
    with pytest.raises(PytrtpluginsError, match=f"it seems to be {ENCODINGS[encoding]}") as raised:
        make_shards(data, tmp_path / "shards", **{option: tmp_path / "names"})
    assert "Do: give a text file with one" in str(raised.value)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("file", ["classes.txt", "val.txt", "labels/a.txt"])
def test_evaluation_names_the_encoding_too(tmp_path, file, encoding):
    data = WRITERS["darknet"](tmp_path / "data")
    (data / "val.txt").write_text("images/a.jpg\n")
    (data / file).write_bytes("人员\n".encode(encoding))
    with pytest.raises(PytrtpluginsError, match=f"{file}.*it seems to be {ENCODINGS[encoding]}"):
        YoloData(data).boxes(YoloData(data).images()[0])


def test_voc_without_a_declaration_in_gb2312_is_named_for_all_files(tmp_path):
    data = WRITERS["voc"](tmp_path / "data")
    for path in (data / "Annotations").iterdir():
        path.write_bytes(path.read_text().replace("VOC", "人员").encode("gb2312"))
    annotations = read_labels(FileSet(data))
    assert (annotations.format, annotations.photos, len(annotations.problems)) == ("voc", [], 3)
    assert (
        "not well-formed (invalid token) in line 1; not UTF-8 in line 1; it seems to be GB2312"
        in annotations.problems[0].what
    )
