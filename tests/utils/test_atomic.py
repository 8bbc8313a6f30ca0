"""What is written is there as a whole or not at all, and never behind somebody's link."""

import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time

import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.utils import atomic


@contextlib.contextmanager
def begun(path):
    """Begin to write in a process of its own, and kill it."""
    code = (
        "import sys, os, signal, time; from pytrtplugins.utils import atomic, files\n"
        "with atomic.atomic_path(sys.argv[1]) as temporary:\n"
        "    temporary.write_text('half'); print('ready', flush=True); time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout.readline() == "ready\n"
        yield process
        process.send_signal(signal.SIGKILL)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "table.cache"
    path.write_text("old")
    with pytest.raises(FileNotFoundError), atomic.atomic_path(path) as temporary:  # noqa: PT012
        temporary.write_text("half")
        (tmp_path / "missing").read_text()
    assert path.read_text() == "old"
    atomic.write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["table.cache"]


def test_a_written_file_has_the_usual_permissions(tmp_path):
    plain, ours = tmp_path / "plain", tmp_path / "ours"
    plain.write_text("")
    atomic.write_atomic(ours, b"")
    assert stat.S_IMODE(ours.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_a_file_keeps_its_permissions_and_its_owner(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")
    path.chmod(0o640)
    with contextlib.suppress(PermissionError):
        os.chown(path, 12345, 54321)
    before = path.stat()
    atomic.write_atomic(path, b"new")
    after = path.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert after.st_ino != before.st_ino


@pytest.mark.parametrize(("name", "suffix"), [("net.onnx", ".onnx"), ("x." + "y" * 15, "." + "y" * 15)])
def test_the_temporary_file_has_the_suffix_and_lies_beside_the_target(tmp_path, name, suffix):
    with atomic.atomic_path(tmp_path / name) as temporary:
        assert (temporary.suffix, temporary.parent) == (suffix, tmp_path)


@pytest.mark.parametrize("name", ["x" * 250, "ж" * 120 + ".onnx", "x." + "y" * 200, "a\nb", "["])
def test_any_name_can_be_written(tmp_path, name):
    atomic.write_atomic(tmp_path / name, b"1")
    atomic.write_atomic(tmp_path / name, b"2")
    assert names(tmp_path) == [name]


def test_a_link_stays_and_the_file_behind_it_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "a.engine", tmp_path / "latest.engine"
    target.write_text("old")
    link.symlink_to(target)
    atomic.write_atomic(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert names(tmp_path / "real") == ["a.engine"]


def test_a_link_to_nothing_gets_its_target(tmp_path):
    link = tmp_path / "link"
    link.symlink_to("new")
    atomic.write_atomic(link, b"1")
    assert link.is_symlink()
    assert (tmp_path / "new").read_bytes() == b"1"


def test_a_link_in_a_circle_is_an_error_of_the_system(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        atomic.write_atomic(tmp_path / "a", b"")
    assert names(tmp_path) == ["a", "b"]


def test_a_device_is_written_in_place(device):
    path = device("null")
    before = path.stat()
    atomic.write_atomic(path, b"x" * 10**6)
    after = path.stat()
    assert stat.S_ISCHR(after.st_mode)
    assert (after.st_ino, after.st_rdev) == (before.st_ino, before.st_rdev)
    assert names(path.parent) == ["null"]


def test_a_full_device_is_an_error(device):
    path = device("full")
    with pytest.raises(OSError, match="No space left"):
        atomic.write_atomic(path, b"x")
    assert stat.S_ISCHR(path.stat().st_mode)


def test_what_a_fifo_gets_is_what_its_reader_reads(fifo):
    data, found = bytes(range(256)) * 4096, []
    reader = threading.Thread(target=lambda: found.append(fifo.read_bytes()))
    reader.start()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:  # until the reader has opened it
        try:
            atomic.write_atomic(fifo, data)
            break
        except UsageError:
            time.sleep(0.01)
    reader.join(30)
    assert found == [data]
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_a_fifo_that_nobody_reads_is_refused_at_once(fifo):
    with pytest.raises(UsageError, match="nobody reads this FIFO"):
        atomic.write_atomic(fifo, b"1")
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_a_folder_a_socket_and_a_disk_are_refused(tmp_path, device):
    with pytest.raises(UsageError, match="found a folder") as caught:
        atomic.write_atomic(tmp_path, b"")
    assert caught.value.path == tmp_path
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        with pytest.raises(UsageError, match="found a socket"):
            atomic.write_atomic(tmp_path / "socket", b"")
    disk = device("disk", stat.S_IFBLK)
    with pytest.raises(UsageError, match="found a block device"):
        atomic.write_atomic(disk, b"")
    assert stat.S_ISBLK(disk.stat().st_mode)


def test_what_a_killed_writer_leaves_is_removed_by_the_next(tmp_path):
    path = tmp_path / "net.engine"
    path.write_text("old")
    with begun(path):
        assert len(names(tmp_path)) == 2
    assert path.read_text() == "old"
    assert len(names(tmp_path)) == 2
    atomic.write_atomic(path, b"new")
    assert names(tmp_path) == ["net.engine"]


def test_a_living_writer_is_not_disturbed(tmp_path):
    path = tmp_path / "net.engine"
    with begun(path):
        before = names(tmp_path)
        with atomic.atomic_path(path) as temporary:
            atomic.write_atomic(path, b"new")  # of this process, too
            temporary.write_text("newest")
        assert names(tmp_path) == sorted([*before, "net.engine"])
    assert path.read_text() == "newest"


def test_files_of_other_targets_stay(tmp_path):
    others = [
        ".net.engine.x",
        ".net.engine.123-abcdabcd.part",
        f".other.{2**22 + 1}-abcdabcd.part.engine",
        ".net.engine.backup",
    ]
    for name in others:
        (tmp_path / name).write_text("")
    (tmp_path / f".net.engine.{2**22 + 1}-abcdabcd.part.engine").mkdir()
    atomic.write_atomic(tmp_path / "net.engine", b"")
    assert len(names(tmp_path)) == len(others) + 2


def test_a_number_that_another_process_has_now_protects_for_an_hour(tmp_path):
    left = tmp_path / f".net.engine.{os.getppid()}-abcdabcd.part.engine"
    left.write_text("half")
    atomic.write_atomic(tmp_path / "net.engine", b"")
    assert left.exists()
    os.utime(left, (time.time() - 7200,) * 2)
    atomic.write_atomic(tmp_path / "net.engine", b"")
    assert not left.exists()


def test_one_of_many_results_does_not_wait_for_the_disk_and_looks_through_no_folder(tmp_path, monkeypatch):
    path = tmp_path / "labels.txt"
    path.write_text("old")
    path.chmod(0o640)
    for name in ("fsync", "scandir"):
        monkeypatch.setattr(atomic.os, name, lambda *_: pytest.fail("it takes longer than to write the file"))
    atomic.write_atomic(path, b"new", durable=False)
    monkeypatch.undo()
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert names(tmp_path) == ["labels.txt"]


def test_what_killed_writers_of_any_target_left_can_be_removed(tmp_path):
    kept = [".a.txt.123-abcdabcd", ".a.txt.part", "a.txt", f"b.{2**22 + 1}-abcdabcd.part"]
    for name in [*kept, f".a.txt.{2**22 + 1}-abcdabcd.part.txt", f".b.{2**22 + 1}-0123abcd.part"]:
        (tmp_path / name).write_text("")
    with atomic.atomic_path(tmp_path / "c.engine") as living:
        living.touch()
        atomic.remove_abandoned(tmp_path)
        assert living.exists()
    assert names(tmp_path) == sorted([*kept, "c.engine"])


@pytest.mark.parametrize("kind", ["existing file", "dangling", "relative", "folder"])
def test_nothing_is_written_through_a_link_where_that_is_asked_for(tmp_path, kind):
    outside, folder = tmp_path / "private" / "file", tmp_path / "set"
    outside.parent.mkdir()
    folder.mkdir()
    if kind != "dangling":
        outside.write_bytes(b"precious")
    link = folder / "index"
    link.symlink_to({"relative": "../private/file", "folder": outside.parent}.get(kind, outside))
    with pytest.raises(UsageError, match=r"found a link, and could name any file\.\nDo: "):
        atomic.write_atomic(link, b"new", within=folder)
    assert link.is_symlink()
    assert sorted(path.name for path in outside.parent.iterdir()) == ([] if kind == "dangling" else ["file"])
    assert kind == "dangling" or outside.read_bytes() == b"precious"


def test_a_fifo_in_the_place_is_refused_at_once_where_links_are(tmp_path):
    os.mkfifo(tmp_path / "index")
    with pytest.raises(UsageError, match="found a FIFO"):
        atomic.write_atomic(tmp_path / "index", b"new", within=tmp_path)


@pytest.mark.parametrize("within", [True, False])
def test_a_folder_that_takes_the_name_while_the_file_is_written_stays(tmp_path, within):
    options = {"within": tmp_path} if within else {}

    def write():
        with atomic.atomic_path(tmp_path / "index", **options) as temporary:
            temporary.write_bytes(b"new")
            (tmp_path / "index" / "in").mkdir(parents=True)

    with pytest.raises(UsageError, match=r"index: expected a file to write, found a folder\.\nDo: .*; rm -r "):
        write()
    assert [path.name for path in tmp_path.rglob("*")] == ["index", "in"]


def test_a_regular_file_is_replaced_in_a_folder_that_is_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "named").symlink_to("real")
    for data in (b"one", b"two"):
        atomic.write_atomic(tmp_path / "named" / "index", data, within=tmp_path / "named")
        assert (tmp_path / "real" / "index").read_bytes() == data
    assert [path.name for path in (tmp_path / "real").iterdir()] == ["index"]
