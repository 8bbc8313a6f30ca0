"""The sample pipeline on Argo Workflows: its export, and what the exported workflow does."""

import json
from pathlib import Path

import pytest

from pytrtplugins.mlops.pipeline.argo import ArgoTarget, argo_yaml, load_live
from pytrtplugins.mlops.registry import ModelRegistry
from tests.mlops.pipeline.argo.interpreter import Interpreter
from tests.mlops.pipeline.argo.strict import dangling, unknown_by_hera

yaml = pytest.importorskip("yaml")
pytest.importorskip("hera", reason='pip install "pytrtplugins[pipeline]"')

SAMPLES = Path(__file__).parents[4] / "samples"


def exported(size, **target):
    """The sample's workflow."""
    found = load_live(SAMPLES / "pipeline/pipeline.yaml", {"size": size})
    text = argo_yaml(
        found, ArgoTarget("registry.example.com/animals:1", bucket="models", in_image=("samples",), **target)
    )
    return yaml.safe_load(text)


@pytest.mark.parametrize(("size", "given"), [("smoke", []), ("full", ["data-animals"])])
def test_the_sample_can_be_exported(size, given):
    found = exported(size)
    assert unknown_by_hera(found) == []
    assert list(dangling(found["spec"])) == []
    assert [each["name"] for each in found["spec"]["arguments"].get("artifacts", ())] == given


@pytest.mark.slow
def test_the_exported_sample_makes_a_served_engine(tmp_path):
    pytest.importorskip("openvino")
    spec = exported("smoke", folder=str(tmp_path / "work"))["spec"]
    text = json.dumps(spec).replace("/tmp/passes", f"{tmp_path}/passes").replace("/inputs/", f"{tmp_path}/inputs/")
    environment = {"PYTRT_MODEL_REGISTRY": str(tmp_path / "registry"), "HOME": str(tmp_path)}  # on a cluster a volume
    ran = Interpreter(json.loads(text), tmp_path, {}, image=(SAMPLES,), environment=environment)
    assert ran.run() == "Succeeded", ran.said
    assert ran.phases["gate-stops"] == "Skipped"
    assert ModelRegistry(tmp_path / "registry").get("yolov2-animals", stage="production").version == 1
