"""Files of folders and tars, by their names; a tar is read in place, and what it claims is not believed."""

import io
import os
import tarfile

import pytest

from pytrtplugins.errors import FormatError, NoDataError
from pytrtplugins.utils.file_set import FileSet, tar_members


def tar(path, files, **more):
    with tarfile.open(path, more.pop("mode", "w"), **more) as opened:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            opened.addfile(info, io.BytesIO(data))
    return path


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data/labels").mkdir(parents=True)
    (tmp_path / "data/a.txt").write_bytes(b"\xef\xbb\xbfone\r\n\r\n two \n")
    (tmp_path / "data/labels/b.txt").write_text("b")
    return tmp_path / "data"


def test_a_folder_has_its_files_and_those_of_its_subfolders(folder):
    files = FileSet(folder)
    assert sorted(files) == ["a.txt", "labels/b.txt"]
    assert (len(files), "a.txt" in files, "c" in files) == (2, True, False)
    assert files.lines("a.txt") == ["one", "two"]
    assert files.read("labels/b.txt", 1) == b"b"


def test_a_tar_is_like_a_folder(tmp_path):
    files = FileSet(tar(tmp_path / "x.tar", {"./a/b.txt": b"b", "c.txt": b"see"}))
    assert {name: files.read(name, 10) for name in files} == {"a/b.txt": b"b", "c.txt": b"see"}
    assert files.state("c.txt")[0] == 3


def test_tars_of_a_folder_count_where_it_has_no_images(folder):
    tar(folder / "x.tar", {"a.txt": b"of the tar", "d.txt": b"d"})
    assert FileSet(folder).read("d.txt", 10) == b"d"
    assert FileSet(folder).lines("a.txt") == ["one", "two"]
    (folder / "images").mkdir()
    assert "d.txt" not in FileSet(folder)


def test_the_first_of_several_wins(folder, tmp_path):
    other = tar(tmp_path / "x.tar", {"a.txt": b"of the tar"})
    assert FileSet([folder, other]).lines("a.txt") == ["one", "two"]
    assert FileSet([other, folder]).lines("a.txt") == ["of the tar"]


def test_a_name_with_other_contents_in_another_part_is_not_alone(folder, tmp_path):
    other = tar(tmp_path / "x.tar", {"a.txt": b"of the tar", "labels/b.txt": b"b"})
    files = FileSet([folder, other])
    files.check_alone("labels/b.txt", 10)
    with pytest.raises(FormatError, match=r"a\.txt: other contents in .*a\.txt and in .*x\.tar"):
        files.check_alone("a.txt", 100)
    FileSet(folder).check_alone("a.txt", 1)  # nothing is read


def test_a_long_name_is_read(tmp_path):
    name = "a" * 150 + "/" + "ä" * 60
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        assert list(FileSet(tar(tmp_path / "x.tar", {name: b"1"}, format=form))) == [name]


def test_links_and_devices_of_a_tar_are_no_files(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as opened:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            info = tarfile.TarInfo(f"x{kind.decode()}")
            info.type, info.linkname = kind, "/etc/passwd"
            opened.addfile(info)
    assert list(tar_members(tmp_path / "x.tar")) == []


def test_a_path_that_does_not_exist(tmp_path):
    with pytest.raises(NoDataError, match="no such folder or tar") as raised:
        FileSet(tmp_path / "none")
    assert raised.value.path == tmp_path / "none"


def test_a_name_that_does_not_exist(folder):
    with pytest.raises(NoDataError, match="none is missing; 2 files were found") as raised:
        FileSet(folder).read("none", 10)
    assert "Do: give a folder or tars" in str(raised.value)


@pytest.mark.parametrize("mode", ["w:gz", "w:xz"])
def test_a_compressed_tar_is_refused(tmp_path, mode):
    with pytest.raises(FormatError, match="not an uncompressed tar") as raised:
        FileSet(tar(tmp_path / "x.tar", {"a": b"1"}, mode=mode))
    assert "Do: extract it" in str(raised.value)


def test_files_that_are_too_large_are_not_read(folder, tmp_path):
    with pytest.raises(FormatError, match="expected at most 3 bytes"):
        FileSet(folder).read("a.txt", 3)
    with pytest.raises(FormatError, match="expected at most 3 bytes, found 4"):
        FileSet(tar(tmp_path / "x.tar", {"a": b"1234"})).read("a", 3)


def test_a_tar_that_ends_within_a_file(tmp_path):
    path = tar(tmp_path / "x.tar", {"a": b"1" * 600, "b": b"2" * 5000})
    files = FileSet(path)
    os.truncate(path, 3000)
    assert files.read("a", 1000) == b"1" * 600
    with pytest.raises(FormatError, match="the tar ends within it"):
        files.read("b", 10_000)


def test_a_size_beyond_the_file_takes_no_memory(tmp_path):
    path = tar(tmp_path / "x.tar", {"a": b"1"})
    data = bytearray(path.read_bytes())
    data[124:136] = (1 << 40).to_bytes(12, "big")
    data[124] |= 0x80
    data[148:156] = b"        "
    data[148:156] = b"%06o\0 " % sum(data[:512])
    path.write_bytes(data)
    with pytest.raises(FormatError):
        FileSet(path).read("a", 1 << 50)


def test_text_that_is_not_utf_8(folder):
    (folder / "a.txt").write_bytes(b"\xff")
    with pytest.raises(FormatError, match=r"a\.txt is not text"):
        FileSet(folder).text("a.txt")
