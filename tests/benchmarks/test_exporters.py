"""The command that writes networks as others' tools do: which networks, which files, and what is said of those that are not written."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import onnx
import torch

from benchmarks import exporters
from benchmarks.exporters import NETWORKS, Export, exports, write_files
from benchmarks.node_tests import PASSED, REFUSED


def test_there_are_sixty_networks_with_names_of_their_own():
    assert len({network.name for network in NETWORKS}) == len(NETWORKS) == 60
    found = exports(["resnet18"], [11, 17])
    assert {export.network.name for export in found} == {"resnet18", "skresnet18"}
    assert len({export.name for export in found}) == len(found) == 8
    assert len(exports([], [17])) == 120


@pytest.fixture
def small(monkeypatch):
    layers = torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 5)
    module = torch.nn.Sequential(*layers).eval()
    monkeypatch.setattr(exporters, "_module", lambda network: (module, {"image": torch.rand(2, 3, 8, 8)}))


def test_a_network_is_written_and_so_is_what_onnxruntimes_tools_make_of_it(small, tmp_path):
    outcome = write_files(Export(NETWORKS[0], "torchscript", 17), tmp_path)
    assert (outcome.kind, outcome.values) == (PASSED, {})
    operators = {path.stem: {node.op_type for node in onnx.load(path).graph.node} for path in tmp_path.glob("*.onnx")}
    name = f"{NETWORKS[0].name}-torchscript-17"
    assert operators[name] == {"Conv", "Relu", "Flatten", "Gemm"}
    assert "FusedConv" in operators[f"{name}-extended"]
    assert "QuantizeLinear" in operators[f"{name}-qdq"]
    assert "QLinearConv" in operators[f"{name}-qoperator"]
    assert "ConvInteger" in operators[f"{name}-dynamic"]
    assert len(operators) == 7


def test_what_an_exporter_does_not_write_is_said(small, tmp_path):
    outcome = write_files(Export(NETWORKS[0], "torchscript", 99), tmp_path)
    assert outcome.kind == REFUSED
    assert "99" in outcome.reason
    assert not list(tmp_path.iterdir())
