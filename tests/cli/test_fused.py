"""``pytrt inspect --fused``."""

import json

import onnx
import pytest

from tests.engines.base.test_fusion import residual


@pytest.fixture
def file(pytrt, tmp_path):
    onnx.save(residual(), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def test_kernels_are_listed_and_drawn(printed, file):
    out = printed("inspect", file, "--fused", "--engine", "onnxruntime", "--graph", "f.svg")
    assert "7 nodes become 5 kernels on engine onnxruntime, fp32" in out
    assert "1 x Conv + Relu" in out
    assert "1 nodes are computed while the engine is built" in out
    assert "written: f.svg" in out
    assert (file.parent / "f.svg").read_text().startswith("<?xml")


def test_json_has_the_nodes_of_each_kernel_also_of_a_saved_engine(pytrt, file):
    assert pytrt("build", file, "--engine", "reference", "-o", "net.engine")[0] == 0
    for target, engine in ((file, "onnxruntime"), ("net.engine", "reference")):
        code, out, _ = pytrt("inspect", target, "--fused", *(("--engine", engine) if target is file else ()), "--json")
        result = json.loads(out)["result"]
        assert code == 0
        assert result["engine"] == engine
        assert {"nodes": ["first", "act"], "operators": ["Conv", "Relu"]}.items() <= result["kernels"][1].items() or (
            engine == "reference"
        )


def test_a_picture_without_fusion_and_of_another_kind_are_refused(refused, file):
    assert "--graph f.svg needs --fused" in refused("inspect", file, "--graph", "f.svg")
    assert ".svg" in refused("inspect", file, "--fused", "--graph", "f.png")
