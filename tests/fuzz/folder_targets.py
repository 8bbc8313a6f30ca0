"""Targets for whole folders: the private folder of a pipeline, and hostile folders of every format, which change while they are read."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from pytrtplugins.engines.base.engine_file import write_engine_file
from pytrtplugins.errors import FormatError
from pytrtplugins.mlops.pipeline import Pipeline, RunRecord, Step, write_report
from pytrtplugins.mlops.pipeline.folder import PipelineFolder
from pytrtplugins.mlops.pipeline.record import run_ids, run_path
from pytrtplugins.mlops.pipeline.run import run_pipeline
from pytrtplugins.mlops.pipeline.states import step_states
from pytrtplugins.mlops.registry import ModelRegistry, facts
from pytrtplugins.mlops.shards import Shards, check_shards
from tests.fuzz.files import folder
from tests.fuzz.registry import target
from tests.fuzz.shard_targets import sound
from tests.mlops.pipeline.plain_store import PlainStore

__all__ = ["folders"]

_LONGEST = 64  # changes of one input
_SECRET = b"of somebody else"


# --- templates -----------------------------------------------------------------------------------------------------


def pipeline_in(base: Path) -> Pipeline:
    """A pipeline of one step."""
    command = ("sh", "-c", "echo '{\"loss\": 1}' > out.json")
    return Pipeline("demo", (Step("step", command=command, inputs=("in.txt",), metrics=("out.json",)),), folder=base)


def _make_set(place: Path) -> None:
    place.mkdir()
    for name, data in sound().items():
        (place / name).write_bytes(data)


# to look at the machine takes long
_KNOWN_MACHINE = ({"processor": "a CPU"}, {"numpy": "2.0"})
_with_a_known_machine = mock.patch.object(facts, "environment", new=mock.Mock(return_value=_KNOWN_MACHINE))


@_with_a_known_machine
def _make_registry(place: Path) -> None:
    path = folder() / "net.engine"
    write_engine_file(path, {"engine": "reference", "built_with": "NumPy"}, b"model")
    registry = ModelRegistry(place)
    registry.add(path, name="net")
    registry.promote("net", 1)


def _make_run(place: Path) -> None:
    place.mkdir()
    (place / "in.txt").write_text("1\n")
    run_pipeline(pipeline_in(place), store=PlainStore.opened)


@functools.cache
def template(kind: str) -> Path:
    """A sound folder of a format, which is copied."""
    place = folder() / f"template-{kind}"
    {"set": _make_set, "registry": _make_registry, "run": _make_run}[kind](place)
    return place


# --- commands ------------------------------------------------------------------------------------------------------


def _use_set(place: Path) -> object:
    found = check_shards(place, repair=True, workers=1, progress=False)
    shards = Shards.open(place)
    photos = [shards.read(number) for number in range(len(shards))]
    if not found.ok:
        raise FormatError(str(found.problems[0])[:300])
    return photos


@_with_a_known_machine
def _use_registry(place: Path) -> object:
    registry = ModelRegistry(place)
    names = [[str(version) for version in registry.versions(name)] for name in registry.names()]
    registry.promote("net", 1, to="staging")
    registry.add(folder() / "net.engine", name="net")
    found = registry.check(repair=True)
    if found.problems:
        raise FormatError(found.problems[0].text[:300])
    return names, registry.file(registry.get("net"))


def _use_run(place: Path) -> object:
    pipeline = pipeline_in(place)
    PipelineFolder.of(pipeline).read_step("step")
    page = _report(place)
    return step_states(pipeline, store=PlainStore.opened), page


def _report(base: Path) -> object:
    place = base / ".pytrt/pipelines/demo"
    for run in run_ids(place)[-1:]:
        write_report(RunRecord.load(run_path(place, run), within=place), place, folder() / "page.html")
    return place


USES: dict[str, Callable[[Path], object]] = {"set": _use_set, "registry": _use_registry, "run": _use_run}


# --- hostile folders -----------------------------------------------------------------------------------------------


def _places(root: Path) -> list[Path]:
    """What may change: not temporary files, nor the file of the tests' own store."""
    return sorted(path for path in root.rglob("*") if ".part" not in path.name and path.name != "plain.json")


def _change(root: Path, places: list[Path], outside: Path, number: int, kind: int) -> None:
    """Put something hostile into the place of a file or a folder; or a file with other bytes."""
    place = places[number % len(places)]
    if not Path(os.path.realpath(place.parent)).is_relative_to(
        os.path.realpath(root)
    ):  # behind a link that was made before
        return
    with contextlib.suppress(OSError):
        if kind % 8 == 6:  # bytes change
            handle = os.open(place, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK)  # it may be a FIFO
            os.write(handle, bytes([number]) * kind)
            os.close(handle)
            return
        if kind % 8 == 7:  # it goes, and comes back
            place.rename(place.with_name("moved"))
            place.with_name("moved").rename(place)
            return
        if place.is_dir() and not place.is_symlink():
            shutil.move(place, outside / f"moved-{number}")
        else:
            place.unlink(missing_ok=True)
        hostile: list[Callable[[], object]] = [
            lambda: place.symlink_to(outside / "file"),
            lambda: place.symlink_to(outside),
            lambda: place.symlink_to(outside / "nothing"),
            lambda: os.mkfifo(place),
            place.mkdir,
            lambda: place.symlink_to(place),
        ]
        hostile[kind % 8]()


@contextlib.contextmanager
def _changing(changes: Callable[[], None]) -> Iterator[None]:
    """Change a folder in another thread while the block runs."""
    thread = threading.Thread(target=changes)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@target
def hostile_folder(data: bytes) -> object:
    """A set, a registry or the folder of a pipeline: by the first byte, with changes of two bytes each.

    The second byte says how many are made before it is used; the others are made meanwhile, by a thread. Whatever happens, a file outside
    stays what it was, and none is made there.
    """
    kind = ("set", "registry", "run")[data[0] % 3 if data else 0]
    root, outside = folder() / "hostile", folder() / "outside"
    for place in (root, outside):
        shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(template(kind), root)
    outside.mkdir()
    (outside / "file").write_bytes(_SECRET)
    changes = [(data[at], data[at + 1]) for at in range(2, min(len(data), 2 * _LONGEST) - 1, 2)]
    before = changes[: data[1] % (len(changes) + 1)] if len(data) > 1 else []
    places = _places(root / ".pytrt" if kind == "run" else root)

    def change(several: list[tuple[int, int]]) -> None:
        for number, how in several:
            _change(root, places, outside, number, how)

    change(before)
    try:
        with _changing(lambda: change(changes[len(before) :])):
            found = USES[kind](root)
    except OSError as error:
        if error.errno not in (
            errno.ENOENT,
            errno.ENOTDIR,
            errno.ELOOP,
        ):  # what went meanwhile, or the folder that is named itself
            raise
        raise FormatError(str(error)[:200]) from error
    finally:
        assert (outside / "file").read_bytes() == _SECRET
        made = {path.name for path in outside.iterdir()} - {"file"}
        assert all(name.startswith("moved-") for name in made), made
    return found


# --- files of a pipeline's folder ----------------------------------------------------------------------------------


RUN_FILES = (
    "plan.json",
    "params.json",
    "published.json",
    "attempts/step.json",
    "lock",
    "logs/{run}/step.log",
    "runs/{run}.json",
)


@target
def run_folder(data: bytes) -> object:
    """A file of a pipeline's folder: which one, the first byte says."""
    root = folder() / "run"
    if not root.is_dir():
        shutil.copytree(template("run"), root)
    place = root / ".pytrt/pipelines/demo"
    sound_place = template("run") / ".pytrt/pipelines/demo"
    (run,) = run_ids(sound_place)
    names = [name.format(run=run) for name in RUN_FILES]
    for name in names:
        shutil.copyfile(sound_place / name, place / name)
    (place / names[data[0] % len(names) if data else 0]).write_bytes(data[1:])
    return _use_run(root)


def folders() -> Iterator[tuple[str, bytes | str]]:
    """Seeds for these targets."""
    for number, kind in enumerate(("set", "registry", "run")):
        yield f"hostile_folder/{kind}", bytes([number, 0])
        yield f"hostile_folder/{kind}-links", bytes([number, 2, 0, 0, 1, 1, 2, 2, 3, 1])
        yield f"hostile_folder/{kind}-fifo", bytes([number, 1, 1, 3, 2, 3])
        yield (
            f"hostile_folder/{kind}-meanwhile",
            bytes([number, 0, *(byte for each in range(20) for byte in (each, each))]),
        )
    sound_place = template("run") / ".pytrt/pipelines/demo"
    (run,) = run_ids(sound_place)
    for number, name in enumerate(RUN_FILES):
        path: Any = sound_place / name.format(run=run)
        yield f"run_folder/{Path(name).stem.format(run='record')}-{number}", bytes([number]) + path.read_bytes()
    yield "run_folder/list", bytes([2]) + json.dumps({"out.json": [[["x", 1, 2, 3]]], "other": 3}).encode()
