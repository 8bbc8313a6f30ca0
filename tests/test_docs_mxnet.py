"""docs/mxnet.md can be followed as it stands, on a small network of the form of MobileFaceNet."""

from __future__ import annotations

from tests.mxnet.files import face
from tests.pages import Reader


def test_the_page_can_be_followed(tmp_path):
    face(size=112).write(tmp_path)
    Reader(tmp_path).follow("docs/mxnet.md")
    assert (tmp_path / "face.engine").exists()
