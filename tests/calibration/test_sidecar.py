"""A cache and its sidecar are one: whoever is killed while writing them leaves the old two or the new two."""

import hashlib
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from pytrtplugins.calibration import CalibrationTable, EntropyCalibrator
from pytrtplugins.calibration.sidecar import Sidecar
from pytrtplugins.engines.calibrate import fitting_table
from pytrtplugins.errors import CalibrationTableError
from tests.onnx_parts import parsed

ROOT = Path(__file__).parents[2]
OLD, NEW = CalibrationTable({"data": 0.5}), CalibrationTable({"data": 0.25})

# writes the pair again and again in a process of its own that is killed, at each of its steps, or after a random time
KILLED = """
import os, random, signal, sys, time
from pathlib import Path
import pytrtplugins.utils.files as files
from pytrtplugins.calibration import CalibrationTable, EntropyCalibrator

def store(folder, scale, network):
    EntropyCalibrator(cache=folder / "net.cache").store_table(CalibrationTable({"data": scale}), network=network)

def kill_at(step):
    count = 0
    def counted(function):
        def call(*args, **kwargs):
            nonlocal count
            for when in ("before", "after"):
                if when == "after":
                    result = function(*args, **kwargs)
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                count += 1
            return result
        return call
    for owner, name in ((os, "open"), (os, "fsync"), (os, "replace"), (os, "unlink"), (Path, "write_bytes")):
        setattr(owner, name, counted(getattr(owner, name)))

def run(child):
    pid = os.fork()
    if not pid:
        child()
        os._exit(0)
    return os.waitpid(pid, 0)[1]

base, first = Path(sys.argv[1]), sys.argv[2]
for step in range(1000):
    folder = base / f"step-{step}"
    folder.mkdir()
    if first == "nothing":
        pass
    elif first == "cache":
        CalibrationTable({"data": 0.5}).write(folder / "net.cache")
    else:
        store(folder, 0.5, "old")
    if run(lambda: (kill_at(step), store(folder, 0.25, "new"))) == 0:
        break
chance = random.Random(0)
for number in range(20 * (first == "pair")):
    folder = base / f"random-{number}"
    folder.mkdir()
    store(folder, 0.5, "old")
    pid = os.fork()
    if not pid:
        while True:
            store(folder, 0.25, "new")
            store(folder, 0.5, "old")
    time.sleep(chance.uniform(0, 0.03))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
print(step)
"""


@pytest.mark.parametrize("first", ["pair", pytest.param("cache", marks=pytest.mark.slow), "nothing"])
def test_a_writer_that_is_killed_at_any_step_leaves_the_old_pair_or_the_new(tmp_path, first):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path), first],
        capture_output=True, text=True, check=True, timeout=120, cwd=ROOT,
    )  # fmt: skip
    assert int(done.stdout) > 20  # kills
    seen = set[Any]()
    for folder in tmp_path.iterdir():
        cache = folder / "net.cache"
        try:
            data, sidecar = Sidecar.read(cache, cache.read_bytes)
        except FileNotFoundError:
            seen.add(None)
        else:
            seen.add((CalibrationTable.from_bytes(data)["data"], sidecar and sidecar.network))
        EntropyCalibrator(cache=cache).store_table(NEW, network="new")
        assert sorted(path.name for path in folder.iterdir()) == ["net.cache", "net.cache.json"]
        assert "earlier" not in json.loads(Sidecar.path_of(cache).read_text())
    old = {"pair": (0.5, "old"), "cache": (0.5, None), "nothing": None}[first]
    assert seen == {old, (0.25, "new")}


@pytest.fixture
def cache(tmp_path):
    """A cache that is not there yet."""
    return tmp_path / "net.cache"


@pytest.fixture
def pair(cache):
    """A cache with its sidecar."""
    EntropyCalibrator(cache=cache).store_table(OLD, network="old")
    return cache


def test_whoever_reads_while_the_pair_is_replaced_has_one_of_the_two(pair):
    read = iter([pair.read_bytes()])  # of the old cache, before both are replaced
    EntropyCalibrator(cache=pair).store_table(NEW, network="new")
    data, sidecar = Sidecar.read(pair, lambda: next(read, None) or pair.read_bytes())
    assert (CalibrationTable.from_bytes(data), sidecar.network) == (NEW, "new")


def test_a_pair_that_does_not_belong_together_is_refused_by_engines_too(cache):
    model = parsed("(float[1] data) => (float[1] y) { y = Relu (data) }")
    EntropyCalibrator(cache=cache).store_table(OLD)
    assert fitting_table(cache, model, ["data"]) == OLD
    NEW.write(cache)
    with pytest.raises(CalibrationTableError, match="belongs to another cache"):
        fitting_table(cache, model, ["data"])


def test_a_damaged_file_beside_the_cache_does_not_keep_a_new_pair_from_being_written(cache):
    OLD.write(cache)
    for text in ("no JSON", "{}", "[]"):
        Sidecar.path_of(cache).write_text(text)
        EntropyCalibrator(cache=cache).store_table(NEW, network="new")
        data, sidecar = Sidecar.read(cache, cache.read_bytes)
        assert (data, sidecar.network) == (NEW.to_bytes(), "new")


def test_the_file_beside_the_cache_is_json_of_these_values(pair):
    facts = json.loads(Sidecar.path_of(pair).read_text())
    assert facts["format"] == "pytrtplugins calibration 1"
    assert facts["table"] == hashlib.sha256(OLD.to_bytes()).hexdigest()
    assert (facts["tensors"], facts["data"], facts["network"]) == (1, "", "old")


@pytest.mark.parametrize("name", ["network", "data", "algorithm", "tensors", "table", "created_by"])
def test_a_value_of_another_type_in_the_file_is_named(pair, name):
    path = Sidecar.path_of(pair)
    path.write_text(json.dumps({**json.loads(path.read_text()), name: 1.5}))
    with pytest.raises(CalibrationTableError, match=rf"expected '{name}': (str|int), found 1\.5\.\nDo: rm ") as caught:
        Sidecar.read(pair, pair.read_bytes)
    assert caught.value.path == path


def test_a_file_of_more_than_a_mebibyte_beside_the_cache_is_refused(pair):
    path = Sidecar.path_of(pair)
    text = path.read_bytes()
    path.write_bytes(text + b" " * (1024**2 - len(text)))
    assert Sidecar.read(pair, pair.read_bytes)[1] is not None
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(CalibrationTableError, match="1,048,576"):
        Sidecar.read(pair, pair.read_bytes)


def test_a_pair_that_keeps_changing_is_read_three_times(pair):
    for others, found in ((2, True), (3, False)):
        given = iter([b"another cache"] * others + [OLD.to_bytes()])
        if found:
            assert Sidecar.read(pair, lambda given=given: next(given))[0] == OLD.to_bytes()
        else:
            with pytest.raises(CalibrationTableError, match="belongs to another cache"):
                Sidecar.read(pair, lambda given=given: next(given))


@pytest.mark.parametrize(
    "read", [lambda cache: EntropyCalibrator(cache=cache).cached_table(["data"]), CalibrationTable.read]
)
def test_a_cache_that_is_no_file_is_refused(cache, read):
    os.mkfifo(cache)
    with pytest.raises(CalibrationTableError, match="found a FIFO"):
        read(cache)
