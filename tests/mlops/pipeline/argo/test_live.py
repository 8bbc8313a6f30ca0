"""Parameters that only go into commands stay parameters on a cluster."""

import json

import pytest

from pytrtplugins.mlops.pipeline.argo import load_live

pytest.importorskip("yaml")

PIPELINE = """
name: demo
parameters:
  text: hello
  whole: 7
  real: 0.5
  flag: true
  unused: 3
  size: smoke
  count: {by: size, smoke: 1, full: 2}
  where: out
  limit: 60
  margin: 0.01
  chosen: a
  told: x
steps:
  first:
    command: [echo, "${text}", "--n=${whole},${real}", "${flag}", "${count}"]
    outputs: ["${where}/a"]
    time_limit: "${limit}"
  second:
    function: demo:work
    inputs: ["${where}/a"]
    outputs: [b.json]
    parameters: {text: "${text}", whole: "${whole}"}
  third:
    gate: b.mAP above ${margin}
    inputs: [b.json]
    outputs: [c.json]
  fourth:
    command: "true"
    outputs: [d]
    when: {chosen: a}
on_exit:
  command: echo ${told}
  outputs: [e]
"""


@pytest.fixture
def live(tmp_path):
    def live(**values):
        (tmp_path / "pipeline.yaml").write_text(PIPELINE)
        return load_live(tmp_path / "pipeline.yaml", values)

    return live


def test_parameters_of_words_are_live_and_others_are_not(live):
    assert live().live == {
        "text": "hello", "whole": "7", "real": "0.5", "count": "1", "margin": "0.01", "told": "x",
    }  # fmt: skip


def test_commands_have_places_where_live_parameters_go(live):
    commands = live().commands
    place = "{{{{workflow.parameters.{}}}}}".format
    assert commands["first"] == (
        "echo", place("text"), f"--n={place('whole')},{place('real')}", "true", place("count"),
    )  # fmt: skip
    assert commands[""] == ("echo", place("told"))
    assert commands["third"][3] == f"b.mAP above {place('margin')}"
    assert f'"whole": {place("whole")}' in commands["second"][-1]
    given = json.loads(commands["second"][-1].replace(place("whole"), "8").replace(place("text"), "bye"))
    assert given["parameters"] == {"text": "bye", "whole": 8}


def test_the_users_values_are_the_ones_that_it_begins_with(live):
    found = live(whole="9", size="full")
    assert found.live["whole"] == "9"
    assert found.live["count"] == "2"
    assert found.pipeline.parameters["size"] == "full"


def test_words_with_values_put_back_are_those_of_the_pipeline(live):
    found = live()
    for step in found.pipeline.steps:
        words = found.commands[step.name]
        for name, value in found.live.items():
            words = tuple(word.replace(f"{{{{workflow.parameters.{name}}}}}", value) for word in words)
        assert words == step.argv()
