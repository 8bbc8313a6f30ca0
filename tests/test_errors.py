"""The exception tree, optional imports and whole files."""

from __future__ import annotations

import os
import stat
import sys

import pytest

from pytrtplugins import _files, errors
from pytrtplugins._optional import require


@pytest.mark.parametrize("name", errors.__all__)
def test_every_exception_descends_from_the_root_and_stands_in_the_drawn_tree(name):
    assert issubclass(getattr(errors, name), errors.PytrtpluginsError)
    assert name in errors.__doc__


@pytest.mark.parametrize(
    ("name", "builtin"),
    [("DimsError", ValueError), ("RegistryError", LookupError), ("MissingExtraError", ImportError), ("BuildError", RuntimeError),
     ("ConformanceError", AssertionError), ("CopyError", TypeError), ("CfgError", ValueError), ("CalibrationTableError", ValueError)],
)  # fmt: skip
def test_an_exception_is_also_the_builtin_that_a_caller_expects(name, builtin):
    assert issubclass(getattr(errors, name), builtin)


def test_the_facts_of_a_message_are_attributes():
    error = errors.CfgError("bad", path="a.cfg", line=7)
    assert (error.path, error.line, str(error)) == ("a.cfg", 7, "bad")
    with pytest.raises(AttributeError, match="no attribute 'column'"):
        _ = error.column


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(errors.MissingExtraError, match=r'Do: pip install "pytrtplugins\[vision\]"') as caught:
        require("cv2", extra="vision", package="opencv-python-headless", feature="reading photos")
    assert (caught.value.package, caught.value.extra) == ("opencv-python-headless", "vision")
    assert isinstance(caught.value.__cause__, ImportError)


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "table.cache"
    path.write_text("old")
    with pytest.raises(FileNotFoundError), _files.atomic_path(path) as temporary:  # noqa: PT012
        temporary.write_text("half")
        (tmp_path / "missing").read_text()
    assert path.read_text() == "old"
    _files.write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["table.cache"]


def test_a_written_file_has_the_usual_permissions(tmp_path):
    plain, ours = tmp_path / "plain", tmp_path / "ours"
    plain.write_text("")
    _files.write_atomic(ours, b"")
    assert stat.S_IMODE(ours.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_the_digest_of_a_file_is_that_of_its_bytes(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"abc" * 10**6)
    assert _files.sha256_hex(path) == _files.sha256_hex(b"abc" * 10**6)
