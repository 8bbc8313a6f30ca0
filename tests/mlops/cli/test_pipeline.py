"""``pytrt pipeline``: what is read and printed; `tests/mlops/pipeline` has the rest."""

import functools
import json
import sys

import pytest

from pytrtplugins.mlops.pipeline.run import run_pipeline
from pytrtplugins.mlops.pipeline.states import step_states
from tests.mlops.pipeline.plain_store import PlainStore

pytest.importorskip("yaml")

TEXT = """name: demo
parameters: {size: full}
steps:
  b: {command: "x ${size}", inputs: [o], outputs: [p]}
  a: {command: x, outputs: [o]}
"""


@pytest.fixture
def path(tmp_path):
    (tmp_path / "pipeline.yaml").write_text(TEXT)
    return str(tmp_path / "pipeline.yaml")


def test_check_lists_the_steps_in_the_order_in_which_they_run(pytrt, printed, path):
    code, out, err = pytrt("pipeline", "check", path, "--parameter", "size=smoke", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)["result"]
    assert found["parameters"] == {"size": "smoke"}
    assert [(step["name"], step["after"]) for step in found["steps"]] == [("a", []), ("b", ["a"])]
    out = printed("pipeline", "check", path)
    assert out.index("a ") < out.index("b ")


def test_check_says_all_that_is_wrong_and_ends_with_code_2(pytrt, tmp_path):
    (tmp_path / "pipeline.yaml").write_text(TEXT.replace("inputs", "inptus").replace("name: demo", "name: Demo"))
    code, out, err = pytrt("pipeline", "check", str(tmp_path / "pipeline.yaml"))
    assert (code, out) == (2, "")
    assert "line 1: name: expected lower-case letters" in err
    assert "line 4: steps.b.inptus: is not known. Write inputs" in err


@pytest.fixture
def real(tmp_path, monkeypatch):
    """A pipeline whose steps run, without DVC."""
    if sys.platform == "win32":
        pytest.skip("pipelines run on Linux and macOS")
    from pytrtplugins.mlops.cli import pipeline

    monkeypatch.setattr(pipeline, "run_pipeline", functools.partial(run_pipeline, store=PlainStore.opened))
    monkeypatch.setattr(pipeline, "step_states", functools.partial(step_states, store=PlainStore.opened))
    monkeypatch.setattr(pipeline.doctor, "machine", lambda: {"Python": "3"})
    (tmp_path / "pipeline.yaml").write_text("""name: demo
parameters: {code: 0}
steps:
  a: {command: [sh, -c, "echo said; echo '{\\"x\\": 1}' > o; exit ${code}"], metrics: [o]}
  b: {command: cp o p, inputs: [o], outputs: [p], approval: true}
""")
    return str(tmp_path / "pipeline.yaml")


def test_a_picture_of_another_kind_is_refused_before_the_pipeline_is_read(refused):
    assert "plot 'steps.txt': unknown suffix" in refused("pipeline", "show", "nowhere.yaml", "--graph", "steps.txt")


def test_run_ends_with_a_code_for_each_end(pytrt, refused, real, tmp_path):
    code, out, err = pytrt("pipeline", "run", real)
    assert (code, "a: done in " in err, "; x 1" in err) == (3, True, True)
    assert "Do: pytrt pipeline run ... --approve b" in out
    code, out, err = pytrt("pipeline", "run", real, "--approve", "b")
    assert (code, "a: unchanged" in err, "1 of 2 steps ran, 1 unchanged" in out) == (0, True, True)
    code, out, err = pytrt("pipeline", "run", real, "--parameter", "code=7", "-q")
    assert (code, out) == (1, "")
    assert err.startswith("step a ended with exit code 7\n  | said")
    assert "pipeline demo has no step 'c'" in refused("pipeline", "run", real, "--approve", "c")


@pytest.mark.slow
def test_show_prints_and_draws_the_states(pytrt, real, tmp_path):
    pytest.importorskip("matplotlib")
    pytrt("pipeline", "run", real)
    code, out, _ = pytrt("pipeline", "show", real, "--graph", str(tmp_path / "graph.svg"))
    assert (code, "waiting for approval" in out, "x 1" in out) == (0, True, True)
    picture = (tmp_path / "graph.svg").read_text()
    assert picture.count("<svg") == 1
    code, out, _ = pytrt("pipeline", "show", real, "--json")
    assert [each["state"] for each in json.loads(out)["result"]["steps"]] == ["done", "waiting for approval"]
