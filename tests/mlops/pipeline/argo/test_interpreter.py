"""An exported workflow does what the pipeline says."""

import json

import pytest

from tests.mlops.pipeline.argo.exports import PIPELINE, exported, specification
from tests.mlops.pipeline.argo.interpreter import Interpreter

pytest.importorskip("hera", reason='pip install "pytrtplugins[pipeline]"')


def run(load, tmp_path, **parameters):
    """An export run by the interpreter."""
    (found,) = exported(load(), folder=str(tmp_path / "work"))
    spec = json.loads(
        json.dumps(specification(found))
        .replace("/tmp/passes", f"{tmp_path}/passes")
        .replace("/inputs/", f"{tmp_path}/inputs/")
    )
    ran = Interpreter(spec, tmp_path, {"photos-txt": "three photos"}, **parameters)
    return ran, ran.run()


def test_the_exported_workflow_does_what_the_pipeline_says(load, tmp_path):
    ran, phase = run(load, tmp_path, images="7", note="bye")
    assert phase == "Succeeded", ran.said
    assert ran.phases.pop("quality-stops") == "Skipped"
    assert set(ran.phases.values()) == {"Succeeded"}
    kept = tmp_path / "stored"
    assert (kept / "package/package").read_text() == "three photos"
    assert (kept / "shards/shards/count").read_text() == "7\n"
    assert json.loads((kept / "evaluate-int8/metrics-int8-json").read_text()) == {"mAP": 0.5}
    assert json.loads((kept / "quality/gates-int8-json").read_text())["passes"] is True
    assert ran.said["exit"].split() == ["Succeeded", "bye"]


def test_a_gate_that_does_not_hold_stops_it_and_says_so(load, tmp_path):
    ran, phase = run(load, tmp_path, share="0.25")
    assert phase == "Failed"
    assert ran.phases["quality"] == "Succeeded"
    assert ran.phases["quality-stops"] == "Failed"
    assert (ran.phases["approve-package"], ran.phases["package"]) == ("Skipped", "Omitted")
    assert "FAILS: int8.mAP above 0.4" in ran.said["quality"]
    assert (
        "Gate quality stops the pipeline: int8.mAP within 0.1 of fp32 and int8.mAP above 0.4"
        in ran.said["quality-stops"]
    )


def test_a_step_that_fails_leaves_out_what_is_behind_it(load, tmp_path):
    (found,) = exported(load(PIPELINE.replace("mkdir shards;", "false &&")), folder=str(tmp_path / "work"))
    ran = Interpreter(specification(found), tmp_path, {"photos-txt": ""})
    assert ran.run() == "Failed"
    assert ran.phases.pop("shards") == "Failed"
    assert set(ran.phases.values()) == {"Omitted"}
