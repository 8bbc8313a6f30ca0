"""Only regular files of limited size are read."""

import os
import socket

import pytest

from pytrtplugins.errors import CfgError, FormatError
from pytrtplugins.utils import files


def test_a_regular_file_is_read(tmp_path):
    (tmp_path / "x").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("x")
    assert files.read_regular(tmp_path / "link", 3) == b"abc"


def test_a_larger_file_is_refused_before_it_is_read(tmp_path):
    with open(tmp_path / "x", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CfgError, match=r"expected at most 3 bytes, found 1,099,511,627,776") as caught:
        files.read_regular(tmp_path / "x", 3, error=CfgError)
    assert caught.value.path == tmp_path / "x"


def test_a_file_that_does_not_tell_its_size_has_the_same_limit():
    if not os.path.exists("/proc/self/maps"):
        pytest.skip("no /proc")
    with pytest.raises(FormatError, match=r"expected at most 3 bytes, found 4"):
        files.read_regular("/proc/self/maps", 3)
    assert files.read_regular("/proc/self/maps", 1 << 24).endswith(b"\n")


def test_a_fifo_a_device_and_a_socket_are_refused_without_waiting(fifo, device, tmp_path):
    with pytest.raises(CfgError, match="expected a regular file, found a FIFO"):
        files.read_regular(fifo, 3, error=CfgError)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        with pytest.raises(FormatError, match="found a socket"):
            files.read_regular(tmp_path / "socket", 3)
    with pytest.raises(FormatError, match="found a FIFO"):
        files.sha256_hex(fifo)
    with pytest.raises(FormatError, match="found a character device"):
        files.read_regular(device("zero"), 3)


def test_a_folder_and_a_missing_file_are_errors_of_the_system(tmp_path):
    with pytest.raises(IsADirectoryError):
        files.read_regular(tmp_path, 3)
    with pytest.raises(FileNotFoundError):
        files.read_regular(tmp_path / "x", 3)


def test_the_digest_of_a_file_is_that_of_its_bytes(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"abc" * 10**6)
    assert files.sha256_hex(path) == files.sha256_hex(b"abc" * 10**6)


def test_files_are_found_by_their_endings_in_a_folder_and_below(tmp_path):
    for name in ("b.png", "a.JPG", "notes.txt", "none", "in/c.png", "in/deep/d.jpg", "folder.png/e.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found, others = files.files_below(tmp_path, (".png", ".jpg"))
    assert [path.relative_to(tmp_path).as_posix() for path in found] == ["a.JPG", "b.png", "in/c.png", "in/deep/d.jpg"]
    assert others == 3
    assert files.files_below(tmp_path / "in", (".txt",)) == ([], 2)
