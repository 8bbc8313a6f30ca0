"""The commands ``pytrt pipeline export`` and ``pytrt pipeline report``."""

import json

import pytest

from pytrtplugins.mlops.pipeline.record import RunRecord, StepRecord

yaml = pytest.importorskip("yaml")
pytest.importorskip("onnx")
pytest.importorskip("typer")
PIPELINE = """
name: demo
parameters: {words: hello, size: smoke, limit: 60}
steps:
  say: {command: "echo ${words}", stdout: said.txt, time_limit: "${limit}"}
"""
IDS = ["20261121T100000.000Z-00000a", "20261122T100000.000Z-00000b", "20261122T110000.000Z-00000c"]


@pytest.fixture(autouse=True)
def pipeline(tmp_path):
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)


@pytest.fixture
def records(tmp_path):
    for number, (name, pipeline) in enumerate(zip(IDS, ("demo", "demo", "other"), strict=True)):
        step = StepRecord("say", figures={"letters": float(number)})
        RunRecord(name, pipeline, "done", 1e9 + number, 1e9 + number + 1, (step,)).save(
            tmp_path / ".pytrt/pipelines" / pipeline
        )


def test_a_pipeline_becomes_a_file(printed, tmp_path):
    pytest.importorskip("hera.workflows.models", reason='pip install "pytrtplugins[pipeline]"')
    words = (
        "--image",
        "r.example.com/a:1",
        "--parameter",
        "words=bye",
        "--kind",
        "template",
        "--service-account",
        "runner",
    )
    out = printed("pipeline", "export", "argo", "pipeline.yaml", "-o", "w.yaml", *words, "--json")
    assert json.loads(out)["result"] == {
        "file": "w.yaml",
        "kind": "template",
        "steps": 1,
        "parameters": {"words": "bye"},
        "fixed": ["size", "limit"],
    }
    found = yaml.safe_load((tmp_path / "w.yaml").read_text())
    assert (found["kind"], found["spec"]["serviceAccountName"]) == ("WorkflowTemplate", "runner")
    assert found["spec"]["arguments"]["parameters"] == [{"name": "words", "value": "bye"}]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("argo", "pipeline.yaml", "--image", "a:1"), "--output is missing"),
        (("argo", "pipeline.yaml", "-o", "w.yaml"), "--image is missing"),
        (("argo", "pipeline.yaml", "-o", "w.json", "--image", "a:1"), "unknown suffix '.json'"),
        (("argo", "pipeline.yaml", "-o", "w.yaml", "--image", "a b"), "image: 'a b'"),
        (("argo", "pipeline.yaml", "-o", "w.yaml", "--image", "a:1", "--parameter", "colour=red"), "no such parameter"),
        (("kubeflow", "pipeline.yaml", "-o", "w.yaml", "--image", "a:1"), "kubeflow"),
    ],
)
def test_what_is_missing_or_wrong_is_said_and_nothing_is_written(refused, tmp_path, words, said):
    assert said in " ".join(refused("pipeline", "export", *words).split())
    assert not list(tmp_path.glob("w.*"))


def test_the_last_run_is_reported(printed, records, tmp_path):
    assert printed("pipeline", "report") == f"report.html: run {IDS[2]} of other, done\n"
    assert IDS[2] in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("words", "run", "beside"),
    [
        (["--pipeline", "demo"], 1, 0),
        ([IDS[1]], 1, 0),
        (["20261122T10"], 1, 0),
        (["20261121", "--against", "20261122T10"], 0, 1),
    ],
)
def test_runs_are_found_by_their_pipeline_or_the_beginning_of_their_id(printed, records, tmp_path, words, run, beside):
    out = printed("pipeline", "report", *words, "-o", "r.html", "--json")
    assert json.loads(out)["result"]["run"] == IDS[run]
    assert f"beside run {IDS[beside]}" in (tmp_path / "r.html").read_text()


def test_a_run_that_is_not_there_is_said_with_the_last_ones(refused, records, tmp_path):
    said = refused("pipeline", "report", "2025")
    assert f"has no run '2025'. The last ones: {', '.join(IDS)}." in " ".join(said.split())
    assert not (tmp_path / "report.html").exists()


def test_without_runs_the_next_command_is_said(refused):
    said = refused("pipeline", "report", "--pipeline", "demo")
    assert "has no run of pipeline 'demo'" in said
    assert "Do: pytrt pipeline run pipeline.yaml" in said
