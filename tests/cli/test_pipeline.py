"""``pytrt pipeline``: what is read and printed; `tests/pipeline` has the rest."""

from __future__ import annotations

import json

import pytest

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


def test_check_lists_the_steps_in_the_order_in_which_they_run(pytrt, path):
    code, out, err = pytrt("pipeline", "check", path, "--set", "size=smoke", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)["result"]
    assert found["parameters"] == {"size": "smoke"}
    assert [(step["name"], step["after"]) for step in found["steps"]] == [("a", []), ("b", ["a"])]
    code, out, _ = pytrt("pipeline", "check", path)
    assert code == 0
    assert out.index("a ") < out.index("b ")


def test_check_says_all_that_is_wrong_and_ends_with_code_2(pytrt, tmp_path):
    (tmp_path / "pipeline.yaml").write_text(TEXT.replace("inputs", "inptus").replace("name: demo", "name: Demo"))
    code, out, err = pytrt("pipeline", "check", str(tmp_path / "pipeline.yaml"))
    assert (code, out) == (2, "")
    assert "line 1: name: expected lower-case letters" in err
    assert "line 4: steps.b.inptus: is not known. Write inputs" in err
