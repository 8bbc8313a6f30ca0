"""docs/how-to/detect.md and docs/how-to/detect_sources.md, followed as they stand."""

import functools
import json

import pytest

from pytrtplugins.cli.shared import loading
from pytrtplugins.vision import Sources
from tests.pages import ROOT, Reader

OTHERS = (
    "pip",
    "find",
    "pytrt build samples/models/yolov2-animals.cfg --batch",
    "pytrt run animals.engine --camera",
    "pytrt run animals.engine rtsp",
    "pytrt run animals.engine film.mp4 --track",
    "pytrt build samples/models/yolov2-animals.cfg --engine cuda",
    "pytrt run animals32.engine images/ --decode gpu",
)
"""What needs a network, a camera, another library or time; tests/test_docs_commands.py looks at these lines."""


def test_the_page_is_true(tmp_path, monkeypatch):
    pytest.importorskip("skimage")
    monkeypatch.setattr(loading, "load_engine", functools.cache(loading.load_engine))
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    reader = Reader(tmp_path)
    for page in ("docs/how-to/detect.md", "docs/how-to/detect_sources.md"):
        reader.follow(page, without=OTHERS)
    assert {path.name for path in (tmp_path / "found").iterdir()} == {"cat.jpg", "person.jpg", "film.mp4"}
    assert len(json.loads((tmp_path / "coco.json").read_text())) == 4
    assert Sources([tmp_path / "drawn" / "film.mp4"]).count() == 2
    names = ["cat.txt", "film-000000.txt", "film-000001.txt", "person.txt"]
    assert sorted(path.name for path in (tmp_path / "labels").iterdir()) == names
