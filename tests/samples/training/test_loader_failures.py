"""Loaders that fail: what they say, and that their threads and processes end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest

from pytrtplugins.errors import ExecutionError, FormatError, ImageError
from tests.samples.needs_torch import SAMPLES
from tests.samples.training.loaders import (
    KINDS,
    LIMIT,
    assert_equal,
    fail,
    make,
)
from tests.samples.training.photo_set import PhotoSet
from training import photos
from training.loader import Options
from training.optional import stream
from training.sampler import StepSampler

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


@pytest.mark.parametrize("kind", KINDS)
def test_a_photo_that_does_not_decode_is_named(kind: str) -> None:
    number = int(StepSampler(11, 4, seed=1).indices(1)[2])
    data = PhotoSet(11, bad=(number,))
    error, given = fail(kind, data)
    assert isinstance(error, ImageError)
    assert re.search(rf"photo{number} does not decode \(.* of set-00000\.tar\)", str(error))
    assert str(error).endswith("Do: take it out of the set, or give --skip-bad")
    assert error.key == f"photo{number}"
    assert given == ([] if kind == "resident" else [0])  # batches before it are given first


def test_skipped_photos_are_replaced_alike_by_every_kind() -> None:
    data, good = PhotoSet(11, bad=(2, 3, 7)), PhotoSet(11)
    sampler = StepSampler(11, 4, seed=1)
    found = {}
    for kind in KINDS:
        with make(kind, data, skip_bad=True) as loader:
            found[kind] = list(loader)
            assert sorted(loader.skipped) == [2, 3, 7]
    for step in range(6):
        for row, number in enumerate(sampler.indices(step)):
            tries = 0
            while number in (2, 3, 7):
                tries += 1
                number = sampler.after(step, row, tries)
            assert found["resident"][step].keys[row] == good.read(number).key
    for kind in ("spdl-cpu", "dataloader", "spdl-gpu"):
        for a, b in zip(found["resident"], found[kind], strict=True):
            assert_equal(a, b, pixels=kind != "spdl-gpu")


@pytest.mark.parametrize("kind", KINDS)
def test_a_set_without_a_single_photo_is_told(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(photos, "MOST_TRIES", 5)
    error, given = fail(kind, PhotoSet(8, bad=tuple(range(8))), skip_bad=True)
    assert "5 photos, one behind the other, do not decode. The last: photo" in str(error)
    assert not given


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_the_set_is_raised_at_its_step(kind: str) -> None:
    """A shard that is truncated, say. ``skip_bad`` does not hide it."""

    class Truncated(PhotoSet):
        def read(self, number: int):
            if number == missing:
                raise FormatError("set-00001.tar: the tar is truncated.\nDo: pytrt shards check", path="set-00001.tar")
            return super().read(number)

    missing = int(StepSampler(11, 4, seed=1).indices(2)[0])
    error, given = fail(kind, Truncated(11), skip_bad=True)
    assert isinstance(error, FormatError)
    assert error.path == "set-00001.tar"
    assert given == ([] if kind == "resident" else [0, 1])


@pytest.mark.parametrize("kind", ["spdl-cpu", "spdl-gpu"])
def test_an_error_while_a_batch_is_copied_is_raised(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(stream.Copies, "send", fail)
    with make(kind, PhotoSet(8)) as loader, pytest.raises(RuntimeError, match="out of memory"):
        loader.next()


@pytest.mark.parametrize("taken", [0, 1])
@pytest.mark.parametrize("kind", ["spdl-cpu", "dataloader"])
def test_a_loader_that_is_closed_early_ends_its_threads(kind: str, taken: int) -> None:
    loader = make(kind, PhotoSet(8), stop=1000)
    for _ in range(taken):
        loader.next()
    loader.close()
    loader.close()
    with pytest.raises(StopIteration):
        loader.next()


def test_an_interrupt_while_waiting_closes_the_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = make("spdl-cpu", PhotoSet(8), stop=1000)

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(loader._pipeline, "get_item", interrupted)
    with pytest.raises(KeyboardInterrupt):
        loader.next()
    assert loader.closed.is_set()


def test_a_pipeline_that_ends_too_early_is_an_error_and_no_hang() -> None:
    loader = make("spdl-cpu", PhotoSet(8), stop=3)
    loader.stop = 4  # more than its stages were given
    for _ in range(3):
        loader.next()
    with pytest.raises(ExecutionError, match="before step 3"):
        loader.next()


@pytest.mark.slow  # each process imports torch
def test_worker_processes_give_the_same_batches_and_errors() -> None:
    data = PhotoSet(12, bad=(int(StepSampler(12, 4, seed=1).indices(2)[0]),))
    with make("spdl-cpu", data) as expected, make("dataloader", data, options=Options(workers=2)) as loader:
        for _ in range(2):
            assert_equal(expected.next(), loader.next())
        for each in (expected, loader):
            with pytest.raises(ImageError, match="does not decode") as caught:
                each.next()
            assert caught.value.key in str(caught.value)
        assert [stage.items for stage in loader.clock.lap().stages] == [8, 8, 8]


@pytest.mark.slow  # each process imports torch
def test_worker_processes_that_are_not_needed_any_more_end_quietly(capfd: pytest.CaptureFixture) -> None:
    """While they hand a batch over, too: one that aborts would be an error in this process."""
    for _ in range(3):
        with make("dataloader", PhotoSet(64), batch=16, options=Options(workers=2), size=352, stop=10**6) as loader:
            for _ in range(3):
                loader.next()
    assert "terminate" not in capfd.readouterr().err


_RUN = """
import sys; sys.path[:0] = [{samples!r}, {root!r}]
import torch
from tests.samples.training.photo_set import PhotoSet
from training.loader import make_loader
from training.sampler import StepSampler
loader = make_loader("spdl-cpu", PhotoSet(8), StepSampler(8, 4, seed=1), torch.device("cpu"), size=64, stop=10**6)
loader.next()
print("running", flush=True)
{end}
"""


@pytest.mark.slow  # a process that imports torch
@pytest.mark.parametrize(
    ("end", "interrupted", "word"),
    [
        ("while True: loader.next()", True, "KeyboardInterrupt"),
        (
            "import time\nwhile True: time.sleep(0.1)",
            True,
            "KeyboardInterrupt",
        ),  # a signal may come just before it sleeps
        ("raise SystemError('unrelated')", False, "unrelated"),
    ],
)
def test_a_process_ends_with_its_main_thread(end: str, interrupted: bool, word: str) -> None:
    """At Ctrl-C in the loader or elsewhere, and at an error of the step; nobody closes the loader."""
    pytest.importorskip("spdl.pipeline", reason='this loader needs spdl-core (pip install "pytrtplugins[train]")')
    code = _RUN.format(samples=str(SAMPLES), root=str(SAMPLES.parent), end=end)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "running\n"
    if interrupted:
        os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode
    assert errors.strip().splitlines()[-1].startswith((word, f"SystemError: {word}"))
