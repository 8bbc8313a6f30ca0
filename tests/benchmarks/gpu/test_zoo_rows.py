"""The rows of small networks without a GPU: what is timed is a stub, what is computed is not."""

import json
import subprocess
import sys

import pytest

from tests.nested_pytest import nested_environment

pytest.importorskip("torch")

CONFTEST = """
import numpy as np, pytest, torch
from torch import nn
from benchmarks.gpu import zoo
from benchmarks.gpu.conftest import pytest_benchmark_update_json, pytest_collection_modifyitems, pytest_configure
from benchmarks.gpu.clock import Times

NAMES = ("small", "broken", "other", "last")
zoo.NETWORKS.clear()
zoo.SETS["first"] = NAMES
for name in NAMES:
    module = lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    zoo.NETWORKS[name] = zoo.Network(name, module, 16, export=lambda _: None, convolutional=name == "small")

from benchmarks.gpu import test_zoo, zoo_subject
from benchmarks.gpu.running import Running

class Engine(Running):
    choices = {}

class Subject(zoo_subject.ZooSubject):
    def wanted(self, batch):
        with torch.inference_mode():
            return self.module(torch.from_numpy(self.network.inputs(batch))).numpy()
    def running(self, kernels, scale=1.0, **facts):
        return Engine(lambda x: scale * self.wanted(len(x)), lambda: None, kernels, 1000, facts=facts)
    def build(self, precision, batch, disable=()):
        if self.network.name == "broken" and precision == "fp16":
            raise ValueError("no kernel takes it\\nfor a long reason")
        facts = {"steps": 4, "arrays": {"Where": 1}, "outside": {}}
        return self.running(4, 1.1 if self.network.name == "other" and precision == "fp16" else 1.0, **facts), 2.0
    def pytorch(self, how, batch, clock):
        return self.running(5, peer="PyTorch, eager", peer_note="no CUDA graph: it copies")

class Clock:
    def gpu(self, queue, beside=None):
        return Times(30.0, 29.0, 1.5, 20.0) if beside else Times(20.0, 19.0)

test_zoo.network = lambda engine, batch, clock: engine
test_zoo.lost_context = lambda: ""

@pytest.fixture(scope="session")
def clock():
    return Clock()

@pytest.fixture(scope="session")
def zoo():
    made = {name: Subject(each) for name, each in test_zoo.NETWORKS.items()}
    return made.__getitem__
"""
PROGRAM = """
import pathlib, sys, pytest
from benchmarks.record import Record
options = ["-p", "no:cacheprovider", "-q", "-k", "zoo and batch-1 or zoo and FP16 and small and batch-32", "-W", "ignore"]
pytest.main([*options, sys.argv[1]], [Record(pathlib.Path(sys.argv[2]))])
"""


def test_a_network_that_fails_is_a_row_with_its_error_and_the_others_are_measured(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_rows.py").write_text("from benchmarks.gpu.test_zoo import test_int8, test_network, test_peer\n")
    path = tmp_path / "record.json"
    settings = {"BENCHMARK_ZOO": "", "BENCHMARK_ZOO_PEERS": "compile,max-autotune"}
    environment = nested_environment("pytest_benchmark.plugin", **settings)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "test_rows.py"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    record = json.loads(path.read_text())
    infos = record["rows"]
    rows = {(info["precision"], info["network"], info["runner"]): info for info in infos if info["batch"] == 1}
    (large,) = (info for info in infos if info["batch"] == 32)
    order = [row["row"] for row in infos]
    assert order[0] == "zoo FP16, small, batch-1", done.stdout
    assert order[4] == "zoo INT8, small, batch-1"  # all networks in FP16 come first
    assert len(order) == 14
    assert "error_fp32" in rows["FP16", "small", "pytrtplugins"]
    assert "error_fp32" not in large  # what FP32 shows, it shows with batch 1
    assert (large["speed"], large["error"]) == (1.5, 0.0)
    small = rows["FP16", "small", "pytrtplugins"]
    assert (small["us"], small["peer_us"], small["speed"], small["kernels"], small["peer_kernels"]) == (
        20,
        30,
        1.5,
        4,
        5,
    )
    assert (small["peer"], small["peer_note"]) == ("PyTorch, eager", "no CUDA graph: it copies")
    assert (small["build_s"], small["again_s"], small["error"], small["arrays"]) == (2.0, 2.0, 0.0, {"Where": 1})
    assert rows["INT8", "small", "pytrtplugins"]["speed"] == pytest.approx(1 / 1.5)
    for peer in ("PyTorch, torch.compile", "PyTorch, max-autotune"):
        assert rows["FP16", "small", peer]["speed"] == 1.5
    broken = rows["FP16", "broken", "pytrtplugins"]
    assert broken["failure"] == "ValueError: no kernel takes it"
    assert broken["error_fp32"] == 0.0  # what was known before
    other = rows["FP16", "other", "pytrtplugins"]
    assert "relative error 1.00e-01" in other["failure"]
    assert "us" not in other  # nothing is timed that computes something else
    assert rows["FP16", "last", "pytrtplugins"]["speed"] == 1.5
