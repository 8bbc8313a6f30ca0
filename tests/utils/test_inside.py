"""Files of a folder that somebody else changes while they are opened: nothing is reached through a link."""

import os
import sys

import pytest

from pytrtplugins.errors import FormatError, UsageError
from pytrtplugins.utils import inside
from pytrtplugins.utils.atomic import write_atomic
from pytrtplugins.utils.files import read_regular
from pytrtplugins.utils.inside import check_inside, list_inside, open_inside

if sys.platform == "win32":
    pytest.skip("Windows opens no files relative to folders", allow_module_level=True)


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "set"
    (place / "in").mkdir(parents=True)
    (place / "in" / "file").write_bytes(b"ours")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(b"precious")
    return place


def link_instead(path, target):
    path.rename(path.with_name("moved"))
    path.symlink_to(target)


def after(monkeypatch, name, change):
    """Change something once, directly after a call of the system."""
    real = getattr(os, name)

    def called(*arguments, **options):
        result = real(*arguments, **options)
        if not changed:
            changed.append(True)
            change()
        return result

    changed = []
    monkeypatch.setattr(inside.os, name, called)


def test_a_file_that_is_made_may_be_read_and_written_but_for_the_umask(folder):
    before = os.umask(0)
    try:
        os.close(inside.open_below(folder, ["in", "made"], os.O_CREAT | os.O_WRONLY))
    finally:
        os.umask(before)
    assert (folder / "in" / "made").stat().st_mode & 0o777 == 0o666


def test_a_file_that_becomes_a_link_after_it_was_looked_at_is_refused(folder, tmp_path, monkeypatch):
    path = folder / "in" / "file"
    with monkeypatch.context() as patch:
        after(patch, "fstat", lambda: None)
        real = inside._check_status

        def check(*arguments):
            real(*arguments)
            if not path.is_symlink():
                link_instead(path, tmp_path / "outside" / "file")

        patch.setattr(inside, "_check_status", check)
        with pytest.raises(FormatError, match="expected a regular file, found a link"):
            read_regular(path, 100, within=folder)


def test_a_folder_that_becomes_a_link_after_it_was_opened_stays_the_old_one(folder, tmp_path, monkeypatch):
    path = folder / "in" / "file"
    with monkeypatch.context() as patch:
        after(patch, "stat", lambda: link_instead(folder / "in", tmp_path / "outside"))
        handle = open_inside(path, os.O_RDONLY, within=folder)
    with os.fdopen(handle, "rb") as file:
        assert file.read() == b"ours"
    assert (folder / "in").is_symlink()


def test_what_is_written_goes_to_the_folder_that_was_opened(folder, tmp_path, monkeypatch):
    real = os.replace

    def replace(*arguments, **options):
        if not (folder / "in").is_symlink():
            link_instead(folder / "in", tmp_path / "outside")
        real(*arguments, **options)

    monkeypatch.setattr(os, "replace", replace)
    write_atomic(folder / "in" / "file", b"new", within=folder)
    assert (tmp_path / "outside" / "file").read_bytes() == b"precious"
    assert (folder / "moved" / "file").read_bytes() == b"new"
    assert os.listdir(tmp_path / "outside") == ["file"]


def test_missing_folders_are_made_and_a_link_on_the_way_is_not_followed(folder, tmp_path):
    write_atomic(folder / "a" / "b" / "file", b"new", within=folder)
    assert (folder / "a" / "b" / "file").read_bytes() == b"new"
    (folder / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(UsageError, match="expected a folder, found a link, which could name any folder"):
        write_atomic(folder / "link" / "new" / "file", b"new", within=folder)
    assert os.listdir(tmp_path / "outside") == ["file"]


@pytest.mark.parametrize("name", ["../outside/file", "in/../../outside/file", "."])
def test_a_path_that_leaves_the_folder_is_a_mistake_of_the_caller(folder, name):
    with pytest.raises(ValueError, match="no file in"):
        open_inside(folder / name, os.O_RDONLY, within=folder)


def test_names_are_listed_in_order_with_their_kind(folder):
    (folder / "b").touch()
    assert list_inside(folder, within=folder) == {"b": False, "in": True}
    check_inside(folder)
    os.mkfifo(folder / "in" / "pipe")
    with pytest.raises(FormatError, match="pipe: expected a regular file, found a FIFO"):
        check_inside(folder)
    check_inside(folder, skip=("in",))


def test_the_errors_of_the_system_have_whole_paths(folder):
    with pytest.raises(FileNotFoundError) as caught:
        open_inside(folder / "in" / "none", os.O_RDONLY, within=folder)
    assert caught.value.filename == str(folder / "in" / "none")
