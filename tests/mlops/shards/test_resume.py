"""Whenever making shards is killed, the same command gives the same set, and does not write finished shards again."""

import errno
import os
import signal
import warnings
from types import SimpleNamespace

import pytest

from pytrtplugins.errors import FormatError, NoDataError, UsageError
from pytrtplugins.mlops.shards import Shards, make_shards
from pytrtplugins.mlops.shards.index import Index
from pytrtplugins.mlops.shards.make import SHARD_BYTES
from pytrtplugins.mlops.shards.manifest import Manifest
from pytrtplugins.mlops.shards.writer import ShardWriter
from pytrtplugins.utils.journal import Journal
from tests.mlops.shards.photos import files_of, make_set, photo

pytest.importorskip("PIL")
if not hasattr(os, "fork"):
    pytest.skip("processes cannot be forked here", allow_module_level=True)
PHOTOS, SHARDS = 24, 4


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr("pytrtplugins.mlops.shards.make.SHARD_BYTES", (1, SHARD_BYTES[1]))


@pytest.fixture
def data(tmp_path):
    return make_set(tmp_path / "data", PHOTOS)


def make(data, output, **options):
    return make_shards(data, output, size=20_000, workers=1, progress=False, **options)


def fail_at(monkeypatch, owner, name, call, failure):
    """Let a method fail when it is called for this time, before it does anything."""
    method, calls = getattr(owner, name), []

    def counted(*given, **more):
        calls.append(given)
        if len(calls) == call:
            failure()
        return method(*given, **more)

    monkeypatch.setattr(owner, name, counted)
    return calls


def make_and_die(data, output, owner, name, call):
    """Make shards in another process, which is killed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, for threads of the test's runner
        pid = os.fork()
    if pid == 0:
        with pytest.MonkeyPatch.context() as patch:
            fail_at(patch, owner, name, call, lambda: os.kill(os.getpid(), signal.SIGKILL))
            make(data, output)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status)


def test_the_data_make_several_shards(data, tmp_path):
    assert make(data, tmp_path / "whole").sets[0].shards == SHARDS


@pytest.mark.parametrize(
    ("owner", "name", "call", "kept"),
    [
        (ShardWriter, "add", 1, 0),
        (ShardWriter, "add", 17, 2),
        (ShardWriter, "finish", 3, 2),
        (Index, "write", 2, 1),
        (Journal, "get", 3, 2),
        (Manifest, "write", 1, SHARDS),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_after_a_kill_only_the_rest_is_written(data, tmp_path, monkeypatch, owner, name, call, kept):
    make(data, tmp_path / "whole")
    make_and_die(data, tmp_path / "shards", owner, name, call)
    with pytest.raises(NoDataError, match="Do: pytrt shards make"):
        Shards.open(tmp_path / "shards")
    added = fail_at(monkeypatch, ShardWriter, "add", 0, None)
    made = make(data, tmp_path / "shards")
    assert (made.sets[0].kept, made.sets[0].shards) == (kept, SHARDS)
    assert len(added) == sum(len(index) for index in Shards.open(tmp_path / "shards")._indexes[kept:])
    assert files_of(tmp_path / "shards") == files_of(tmp_path / "whole")


def test_a_photo_or_a_label_that_changed_since_is_written_anew(data, tmp_path):
    make_and_die(data, tmp_path / "shards", Manifest, "write", 1)
    (data / "images/p0.jpg").write_bytes(photo(99))
    (data / "labels/p9.txt").write_text("1 .5 .5 .25 .25\n")
    made = make(data, tmp_path / "shards")
    assert made.sets[0].kept == SHARDS - 2
    shards = Shards.open(tmp_path / "shards")
    assert shards.read(0).image == photo(99)
    assert shards.boxes(len(shards) - 1).tolist() == [[1, 0.5, 0.5, 0.25, 0.25]]


def test_a_finished_shard_that_was_lost_since_is_written_anew(data, tmp_path):
    make(data, tmp_path / "whole")
    make_and_die(data, tmp_path / "shards", Manifest, "write", 1)
    (tmp_path / "shards/shard-00001.tar").write_bytes(b"")
    (tmp_path / "shards/shard-00002.index.npz").unlink()
    assert make(data, tmp_path / "shards").sets[0].kept == SHARDS - 2
    assert files_of(tmp_path / "shards") == files_of(tmp_path / "whole")


def test_other_options_begin_anew_and_leave_nothing_behind(data, tmp_path):
    make_and_die(data, tmp_path / "shards", Manifest, "write", 1)
    made = make_shards(data, tmp_path / "shards", longest_side=16)
    assert (made.sets[0].kept, made.sets[0].shards) == (0, 1)
    assert set(files_of(tmp_path / "shards")) == {"shard-00000.tar", "shard-00000.index.npz", "shards.json"}


def test_a_disk_that_fills_leaves_what_was_finished(data, tmp_path, monkeypatch):
    def full():
        raise OSError(errno.ENOSPC, "No space left on device", "shard")

    with monkeypatch.context() as patch:
        fail_at(patch, ShardWriter, "add", 17, full)
        with pytest.raises(UsageError, match="Do: make room, and run the same command again"):
            make(data, tmp_path / "shards")
    assert not [name for name in files_of(tmp_path / "shards") if ".part" in name]
    assert make(data, tmp_path / "shards").sets[0].kept in (2, 3)  # the one behind may end before it is called off


def test_a_disk_that_is_too_small_is_refused_at_once(data, tmp_path, monkeypatch):
    def make_with(free):
        monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=free))
        return make(data, tmp_path / "shards")

    with pytest.raises(UsageError, match="the disk has 1,000 left") as raised:
        make_with(1000)
    assert "Do: give a folder on another disk" in str(raised.value)
    with pytest.raises(UsageError):
        make_with(raised.value.facts["needed"] - 1)
    assert make_with(raised.value.facts["needed"])


def test_ctrl_c_keeps_what_was_finished(data, tmp_path, monkeypatch):
    def interrupted(futures):
        futures[1].result()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pytrtplugins.mlops.shards.make.as_completed", interrupted)
        with pytest.raises(KeyboardInterrupt):
            make(data, tmp_path / "shards")
    assert not [name for name in files_of(tmp_path / "shards") if ".part" in name]
    assert make(data, tmp_path / "shards").sets[0].kept >= 2


def test_two_processes_do_not_write_one_set(data, tmp_path, monkeypatch):
    def second():
        with pytest.raises(UsageError, match="another process writes this set"):
            make(data, tmp_path / "shards")

    fail_at(monkeypatch, Journal, "get", 1, second)
    assert make(data, tmp_path / "shards").sets[0].photos == PHOTOS


def test_a_photo_that_is_refused_leaves_the_other_shards(data, tmp_path):
    (data / "images/p0.jpg").write_bytes(b"no photo")
    with pytest.raises(FormatError, match="Do: correct them, and run the same command again"):
        make(data, tmp_path / "shards")
    assert make(data, tmp_path / "shards", skip_bad=True).sets[0].kept == SHARDS - 1


def test_a_shard_without_its_bad_photos_is_not_taken_where_they_are_refused(data, tmp_path, monkeypatch):
    (data / "images/p0.jpg").write_bytes(b"no photo")
    with monkeypatch.context() as patch:
        fail_at(patch, Manifest, "write", 1, lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            make(data, tmp_path / "shards", skip_bad=True)
    with pytest.raises(FormatError, match=r"images/p0\.jpg"):
        make(data, tmp_path / "shards")
