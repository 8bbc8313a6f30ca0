"""docs/how-to/shards.md and docs/reference/shards_format.md can be followed as they stand, on a small set of VOC's layout."""

import gc
import json

import numpy as np
import pytest

from pytrtplugins.mlops.shards import FORMATS, Shards
from pytrtplugins.mlops.shards.make import _MAX_LIST_BYTES
from pytrtplugins.mlops.shards.writer import label_text
from pytrtplugins.utils import data_yaml
from pytrtplugins.utils.data_yaml import DataYaml
from pytrtplugins.utils.file_set import MAX_TEXT_BYTES
from pytrtplugins.utils.text_formats import MAX_DEPTH, MAX_YAML_BYTES
from pytrtplugins.utils.xml_text import MAX_DEPTH as XML_DEPTH
from pytrtplugins.utils.xml_text import MAX_ELEMENTS
from pytrtplugins.vision.image import MAX_FILE_BYTES
from pytrtplugins.vision.labels import coco, cvat, parts, voc
from tests.pages import Reader, read, texts
from tests.vision.labels.written import BOXES, photos, voc_xml

pytest.importorskip("typer")
pytest.importorskip("PIL")


@pytest.fixture
def folder(tmp_path):
    photos(tmp_path / "voc", "JPEGImages")
    photo = (tmp_path / "voc/JPEGImages/a.jpg").read_bytes()
    (tmp_path / "voc/JPEGImages/d.jpg").write_bytes(photo)
    (tmp_path / "voc/Annotations").mkdir()
    for name, boxes in {**BOXES, "d": BOXES["a"]}.items():
        (tmp_path / f"voc/Annotations/{name}.xml").write_text(voc_xml(name, boxes))
    return tmp_path


def test_the_page_can_be_followed(folder):
    Reader(folder).follow("docs/how-to/shards.md", without=("rm ", "pytrt shards check shards/ --repair"))
    (folder / "shards/shard-00000.index.npz").unlink()
    Reader(folder).shell("pytrt shards check shards/ --repair")
    assert len(Shards.open(folder / "shards")) == 4


def test_the_page_has_every_format():
    assert all(f"| `{name}` |" in read("docs/how-to/shards.md") for name in FORMATS)


def test_the_json_of_the_page_has_the_keys_of_a_shard():
    (shown,) = texts("docs/reference/shards_format.md", "json")
    facts = json.loads(shown)
    made = label_text((facts["width"], facts["height"]), np.array(facts["boxes"], np.float32), ["cat", *facts["names"]])
    assert json.loads(made) == facts


def test_the_data_yaml_of_the_page_is_read():
    pytest.importorskip("yaml")
    (shown,) = texts("docs/how-to/shards.md", "yaml")
    found = DataYaml.parse(shown.encode(), "data.yaml")
    assert (found.root, found.classes) == ("coco8", ("person", "dog"))
    assert found.parts == {"train": ("images/train",), "val": ("val.txt",), "test": ("images/test", "more/test.txt")}


def test_the_page_has_the_limits_of_what_is_read():
    page = read("docs/how-to/shards.md", "docs/reference/shards_format.md")
    for limit, text in (
        (MAX_FILE_BYTES, "512 MiB"), (coco._MAX_BYTES, "1 GiB"), (cvat._MAX_BYTES, "1 GiB"), (voc._MAX_BYTES, "4 MiB"),
        (MAX_TEXT_BYTES, "16 MiB"), (_MAX_LIST_BYTES, "256 MiB"), (parts._MAX_LIST_BYTES, "256 MiB"), (MAX_YAML_BYTES, "4 MiB"),
    ):  # fmt: skip
        count, unit = text.split()
        assert limit == int(count) << {"MiB": 20, "GiB": 30}[unit]
        assert text in page
    for most in (MAX_ELEMENTS, coco._MAX_SIDE, data_yaml._MOST_CLASSES, data_yaml._MOST_ENTRIES):
        assert f"{most:,}" in page
    assert (MAX_DEPTH, XML_DEPTH) == (64, 64)


@pytest.mark.slow  # webdataset imports PyTorch
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # webdataset leaves files open
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_program_for_webdataset_reads_the_shards(folder, monkeypatch, capsys):
    pytest.importorskip("webdataset", reason="webdataset is not installed. Do: pip install webdataset")
    Reader(folder).shell("pytrt shards make voc/ -o shards/")
    monkeypatch.chdir(folder)
    (program,) = texts("docs/how-to/shards.md", "py")
    exec(program, {})
    gc.collect()
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["a", "b", "c", "d"]
