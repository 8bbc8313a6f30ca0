"""A cache and its sidecar are one: whoever is killed while writing them leaves the old two or the new two."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pytrtplugins.calibration import CalibrationTable, EntropyCalibrator
from pytrtplugins.calibration.sidecar import Sidecar
from pytrtplugins.errors import CalibrationTableError

ROOT = Path(__file__).parents[2]
OLD, NEW = CalibrationTable({"data": 0.5}), CalibrationTable({"data": 0.25})

# writes the pair again and again in a process of its own that is killed, at each of its steps, or after a random time
KILLED = """
import os, random, signal, sys, time
from pathlib import Path
import pytrtplugins._files as files
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
    for owner, name in ((os, "open"), (os, "fsync"), (Path, "replace"), (Path, "unlink"), (Path, "write_bytes")):
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


@pytest.mark.parametrize("first", ["pair", "cache", "nothing"])
def test_a_writer_that_is_killed_at_any_step_leaves_the_old_pair_or_the_new(tmp_path, first):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path), first],
        capture_output=True, text=True, check=True, timeout=120, cwd=ROOT,
    )  # fmt: skip
    assert int(done.stdout) > 20  # kills
    seen = set()
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


def test_whoever_reads_while_the_pair_is_replaced_has_one_of_the_two(tmp_path):
    cache = tmp_path / "net.cache"
    EntropyCalibrator(cache=cache).store_table(OLD, network="old")
    read = iter([cache.read_bytes()])  # of the old cache, before both are replaced
    EntropyCalibrator(cache=cache).store_table(NEW, network="new")
    data, sidecar = Sidecar.read(cache, lambda: next(read, None) or cache.read_bytes())
    assert (CalibrationTable.from_bytes(data), sidecar.network) == (NEW, "new")


def test_a_pair_that_does_not_belong_together_is_refused_by_engines_too(tmp_path):
    onnx = pytest.importorskip("onnx")
    from pytrtplugins.engines.calibrate import fitting_table

    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Relu", ["data"], ["y"])],
            "net",
            [onnx.helper.make_tensor_value_info("data", 1, [1])],
            [onnx.helper.make_tensor_value_info("y", 1, [1])],
        )
    )
    cache = tmp_path / "net.cache"
    EntropyCalibrator(cache=cache).store_table(OLD)
    assert fitting_table(cache, model, ["data"]) == OLD
    NEW.write(cache)
    with pytest.raises(CalibrationTableError, match="belongs to another cache"):
        fitting_table(cache, model, ["data"])


def test_a_cache_that_is_no_file_is_refused(tmp_path):
    import os

    os.mkfifo(tmp_path / "net.cache")
    with pytest.raises(CalibrationTableError, match="found a FIFO"):
        EntropyCalibrator(cache=tmp_path / "net.cache").cached_table(["data"])
    with pytest.raises(CalibrationTableError, match="found a FIFO"):
        CalibrationTable.read(tmp_path / "net.cache")
