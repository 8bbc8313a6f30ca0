"""docs/how-to/mxnet.md and docs/how-to/repair.md can be followed as they stand, on a small network of the form of MobileFaceNet."""

import onnx

from pytrtplugins.passes import REPAIRS
from tests.mxnet.files import face
from tests.pages import Reader, read
from tests.passes.repairs.exports import old_export


def test_the_page_can_be_followed(tmp_path):
    face(size=112).write(tmp_path)
    onnx.save(old_export(face()), tmp_path / "broken.onnx")
    reader = Reader(tmp_path)
    for page in ("docs/how-to/mxnet.md", "docs/how-to/repair.md"):
        reader.follow(page, codes={"pytrt repair broken.onnx": 1})
    assert (tmp_path / "face.engine").exists()


def test_the_table_has_all_repairs_in_their_order():
    rows = [
        line.split("|")
        for line in read("docs/how-to/repair.md").splitlines()
        if line.startswith("| `") and line.count("|") == 5
    ]
    kinds = {
        name: "on request" if each.on_request else "fault" if each.fault else "leftover"
        for name, each in REPAIRS.items()
    }
    assert [(name.strip(" `"), kind.strip()) for _, name, kind, *_ in rows] == list(kinds.items())
