"""Folders of every format in which a file is a link, a FIFO, a socket or a device: it is refused by name, and nothing outside changes."""

import json
import shutil
import sys
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("Windows has no FIFOs", allow_module_level=True)

from pytrtplugins.cuda import cache
from pytrtplugins.engines.base.engine_file import write_engine_file
from pytrtplugins.engines.cuda.conv.cache import Choice, TacticCache
from pytrtplugins.errors import FormatError
from pytrtplugins.mlops.pipeline import Pipeline, RunRecord, Step
from pytrtplugins.mlops.pipeline.record import run_ids, run_path
from pytrtplugins.mlops.pipeline.run import run_pipeline
from pytrtplugins.mlops.pipeline.states import step_states
from pytrtplugins.mlops.registry import ModelRegistry, facts
from pytrtplugins.mlops.registry.facts import data_digest
from pytrtplugins.mlops.shards import Shards, check_shards, make_shards
from pytrtplugins.utils.fetch import fetch
from pytrtplugins.utils.journal import Journal
from tests.hostile_folders import KINDS, assert_refused, put, snapshot
from tests.mlops.pipeline.plain_store import PlainStore

kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def outside(tmp_path):
    return tmp_path / "outside"


# --- sets of shards ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made_set(tmp_path_factory):
    pytest.importorskip("PIL")
    from tests.mlops.shards.photos import make_set

    folder = tmp_path_factory.mktemp("set")
    make_shards(make_set(folder / "data", 2), folder / "shards", progress=False)
    return folder


def remake(folder, data, **options):
    return make_shards(data, folder, force=True, workers=1, progress=False, **options)


SHARD_FILES = ("shards.json", "shard-00000.tar", "shard-00000.index.npz")
SHARD_COMMANDS = {
    "open": (lambda folder, data: Shards.open(folder), SHARD_FILES),
    "repair": (lambda folder, data: checked(folder, repair=True), SHARD_FILES),
    "check": (lambda folder, data: checked(folder), SHARD_FILES),
    "register": (lambda folder, data: data_digest(folder), ("shards.json",)),
    "make": (remake, ("shard-00000.tar", "shard-00000.index.npz")),
}


def checked(folder, **options):
    """Raise what a check finds, as the command does."""
    found = check_shards(folder, workers=1, progress=False, **options)
    if not found.ok:
        raise FormatError(" ".join(f"{folder / each.file}: {each.what}" for each in found.problems))


@kinds
@pytest.mark.parametrize(
    ("command", "name"), [(command, name) for command, (_, names) in SHARD_COMMANDS.items() for name in names]
)
def test_a_set_of_shards(made_set, tmp_path, outside, kind, command, name):
    folder = tmp_path / "shards"
    shutil.copytree(made_set / "shards", folder)
    put(kind, folder / name, outside)
    assert_refused(lambda: SHARD_COMMANDS[command][0](folder, made_set / "data"), folder / name, outside)


@kinds
def test_a_set_that_is_made_anew_replaces_what_is_called_its_list(made_set, tmp_path, outside, kind):
    folder = tmp_path / "shards"
    shutil.copytree(made_set / "shards", folder)
    put(kind, folder / "shards.json", outside)
    before = snapshot(outside)
    remake(folder, made_set / "data")
    assert check_shards(folder, progress=False).ok
    assert snapshot(outside) == before


@kinds
@pytest.mark.parametrize("name", ["train", "held-back"])
def test_the_folders_of_two_sets(made_set, tmp_path, outside, kind, name):
    folder = tmp_path / "shards"
    put(kind, folder / name, outside)
    assert_refused(lambda: remake(folder, made_set / "data", hold_back=0.5), folder / name, outside)


@kinds
def test_results_of_an_interrupted_command(tmp_path, outside, kind):
    path = tmp_path / "work" / "results.json"
    put(kind, path, outside)
    assert_refused(lambda: Journal(path, {}).get("a", lambda: 1), path, outside)


# --- registries of models ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made_registry(tmp_path_factory):
    folder = tmp_path_factory.mktemp("registry")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "environment", lambda: ({"processor": "a CPU"}, {"numpy": "2.0"}))
        for number in (1, 2):
            write_engine_file(
                folder / f"{number}.engine", {"engine": "reference", "built_with": "NumPy"}, b"%d" % number
            )
        registry = ModelRegistry(folder / "registry")
        registry.add(folder / "1.engine", name="net")
    registry.promote("net", 1)
    (digest,) = (path.name for path in registry.folder.objects.glob("*/*"))
    return folder, digest


OBJECT, SHELF = "objects/{digest}", "objects/{shelf}"
READ = ("registry.json", "models", "models/net", "models/net/1.json", "models/net/history.json")
EVERYTHING = (*READ, "objects", SHELF, OBJECT)
REGISTRY_COMMANDS = {
    "list": (lambda registry, engine: [registry.versions(name) for name in registry.names()], READ),
    "file": (lambda registry, engine: registry.file(registry.get("net")), EVERYTHING),
    "history": (lambda registry, engine: registry.history("net"), [each for each in READ if "1.json" not in each] + ["models/net/1.json"]),
    "check": (lambda registry, engine: whole(registry), (*EVERYTHING, ".lock")),
    "repair": (lambda registry, engine: whole(registry, True), (*EVERYTHING, ".lock")),
    "add": (lambda registry, engine: registry.add(engine, name="net"), (*READ, "objects", ".lock")),
    "promote": (lambda registry, engine: registry.promote("net", 1, to="staging"), (*EVERYTHING, ".lock")),
    "remove": (lambda registry, engine: registry.remove("net", 1), (*READ, ".lock")),
}  # fmt: skip


def whole(registry, repair=False):
    """Raise what a check finds, as the command does."""
    found = registry.check(repair=repair)
    if found.problems or not found.versions:
        raise FormatError(" ".join(f"{each.path}: {each.text}" for each in found.problems))


@kinds
@pytest.mark.parametrize(
    ("command", "name"), [(command, name) for command, (_, names) in REGISTRY_COMMANDS.items() for name in names]
)
def test_a_registry_of_models(made_registry, tmp_path, outside, monkeypatch, kind, command, name):
    monkeypatch.setattr(facts, "environment", lambda: ({"processor": "a CPU"}, {"numpy": "2.0"}))
    template, digest = made_registry
    folder = tmp_path / "registry"
    shutil.copytree(template / "registry", folder)
    place = folder / name.format(digest=f"{digest[:2]}/{digest}", shelf=digest[:2])
    put(kind, place, outside)
    registry = ModelRegistry(folder)
    assert_refused(lambda: REGISTRY_COMMANDS[command][0](registry, template / "2.engine"), place, outside)


@kinds
def test_what_no_version_needs_is_removed_and_not_what_it_leads_to(made_registry, tmp_path, outside, kind):
    folder = tmp_path / "registry"
    shutil.copytree(made_registry[0] / "registry", folder)
    put(kind, folder / "objects" / "00" / ("0" * 64), outside)
    before = snapshot(outside)
    found = ModelRegistry(folder).check(repair=True)
    assert [each.path for each in found.removed] == [str(folder / "objects" / "00" / ("0" * 64))]
    assert snapshot(outside) == before
    assert not (folder / "objects" / "00" / ("0" * 64)).is_symlink()


# --- runs of pipelines -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made_run(tmp_path_factory):
    base = tmp_path_factory.mktemp("pipeline")
    (base / "in.txt").write_text("1\n")
    run_pipeline(pipeline_in(base), store=PlainStore.opened)
    return base


def pipeline_in(base):
    step = Step(
        "step", command=("sh", "-c", "echo '{\"loss\": 1}' > out.json"), inputs=("in.txt",), metrics=("out.json",)
    )
    return Pipeline("demo", (step,), folder=base)


def page_of(base):
    from pytrtplugins.mlops.pipeline import write_report

    place = base / ".pytrt/pipelines/demo"
    write_report(RunRecord.load(run_path(place, run_ids(place)[-1]), within=place), place, base / "page.html")


LISTED = ("runs", "runs/{run}.json")
SCANNED = (
    *LISTED, ".", "lock", "plan.json", "params.json", "published.json", "attempts", "attempts/step.json", "files", "files/out.json",
    "work", "logs", "logs/{run}", "logs/{run}/step.log", ".dvc", ".dvc/config", "dvc.yaml", "dvc.lock",
)  # fmt: skip
RUN_COMMANDS = {
    "run": (lambda base: run_pipeline(pipeline_in(base), store=PlainStore.opened, force=True), SCANNED),
    "show": (lambda base: step_states(pipeline_in(base), store=PlainStore.opened), SCANNED),
    "report": (page_of, LISTED),
}


@kinds
@pytest.mark.parametrize(
    ("command", "name"), [(command, name) for command, (_, names) in RUN_COMMANDS.items() for name in names]
)
def test_the_folder_of_a_pipeline(made_run, tmp_path, outside, kind, command, name):
    base = tmp_path / "pipeline"
    shutil.copytree(made_run, base)
    place = base / ".pytrt/pipelines/demo"
    place = place / name.format(run=run_ids(place)[0])
    put(kind, place, outside)
    assert_refused(lambda: RUN_COMMANDS[command][0](base), place, outside)


@pytest.mark.parametrize(
    "made", ["ln -s in.txt out.json", "mkfifo out.json", "mkdir out.json; ln -s in.txt out.json/x"]
)
def test_an_output_that_is_no_file_is_refused_and_the_input_stays(tmp_path, made):
    (tmp_path / "in.txt").write_text("1\n")
    step = Step("step", command=("sh", "-c", made), inputs=("in.txt",), outputs=("out.json",))
    (record,) = run_pipeline(Pipeline("demo", (step,), folder=tmp_path), store=PlainStore.opened).steps
    what = "a FIFO in its outputs: out.json" if "fifo" in made else "a link in its outputs: out.json"
    assert (record.state, what in record.message) == ("failed", True)
    assert (tmp_path / "in.txt").read_text() == "1\n"


# --- caches ------------------------------------------------------------------------------------------------------------


@kinds
def test_the_cache_of_kernels(tmp_path, outside, monkeypatch, kind):
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path / "kernels")
    (tmp_path / "kernels").mkdir()
    assert cache.cached_bytes(["a"], ".so", lambda: b"code") == b"code"
    (place,) = (tmp_path / "kernels").iterdir()
    put(kind, place, outside)
    assert_refused(lambda: cache.cached_bytes(["a"], ".so", lambda: b"code"), place, outside)


@kinds
def test_the_table_of_tactics_counts_as_empty_and_is_not_written(tmp_path, outside, caplog, kind):
    place = TacticCache({"device": "x"}, tmp_path / "tactics").path
    put(kind, place, outside)
    before = snapshot(outside)
    table = TacticCache({"device": "x"}, tmp_path / "tactics")
    table.put({"a": Choice("b", "c")})
    assert str(place) in caplog.text
    assert snapshot(outside) == before


@kinds
def test_the_part_of_a_download(tmp_path, outside, kind):
    (tmp_path / "source").write_bytes(b"data")
    place = tmp_path / "models" / "net.onnx.part"
    put(kind, place, outside)
    url = (tmp_path / "source").as_uri()
    assert_refused(lambda: fetch(url, place.with_suffix(""), max_bytes=100, progress=False), place, outside)


# --- files that are exchanged while they are read ----------------------------------------------------------------------


def test_a_lock_that_has_another_name_is_not_written(made_run, tmp_path, outside):
    base = tmp_path / "pipeline"
    shutil.copytree(made_run, base)
    lock = base / ".pytrt/pipelines/demo/lock"
    lock.unlink()
    outside.write_bytes(json.dumps({"long": "x" * 100}).encode())
    lock.hardlink_to(outside)
    with pytest.raises(Exception, match="expected a file with one name, found a hard link"):
        run_pipeline(pipeline_in(base), store=PlainStore.opened)
    assert Path(outside).read_bytes() == json.dumps({"long": "x" * 100}).encode()
