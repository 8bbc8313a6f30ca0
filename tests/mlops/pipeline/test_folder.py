"""What a step's outputs depend on, and what of it is another."""

from typing import Any

import pytest

from pytrtplugins.mlops.pipeline import Step
from pytrtplugins.mlops.pipeline.folder import changed_keys, step_key
from pytrtplugins.version import __version__

NOW: dict[str, Any] = {
    "argv": ["train", "7"],
    "stdout": "",
    "parameters": {"size": 7, "seed": 1},
    "environment": {"CUDA": "1", "GONE": None},
    "pytrtplugins": "2",
}


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ({}, []),
        ({"argv": ["train", "8"]}, ["what it runs"]),
        ({"stdout": "log.txt"}, ["what it runs"]),
        ({"pytrtplugins": "1"}, ["pytrtplugins 1, now 2"]),
        ({"pytrtplugins": "1", "argv": []}, ["pytrtplugins 1, now 2", "what it runs"]),
        ({"parameters": {"size": 8, "seed": 1}, "argv": ["train", "8"]}, ["parameter size"]),
        ({"parameters": {"size": 7}}, ["parameter seed"]),
        ({"parameters": {**NOW["parameters"], "old": 3, "a": 1}}, ["parameter a", "parameter old"]),
        ({"environment": {"CUDA": "2"}, "stdout": "x"}, ["variable CUDA"]),
        ({"environment": {"CUDA": "1"}}, []),
        ({"parameters": [], "environment": 7}, ["parameter seed", "parameter size", "variable CUDA"]),
    ],
)
def test_what_changed_is_said_and_a_command_only_where_nothing_else_did(before, words):
    assert list(changed_keys({**NOW, **before}, NOW)) == words


def test_a_key_has_what_outputs_depend_on_and_no_secret(monkeypatch):
    monkeypatch.setenv("CUDA", "1")
    monkeypatch.setenv("TOKEN", "secret")
    step = Step(
        "a",
        command=("train", "7"),
        stdout="log",
        parameters={"size": 7},
        environment=("CUDA", "GONE"),
        secrets=("TOKEN",),
    )
    assert step_key(step) == {
        **{"argv": ["train", "7"], "stdout": "log", "parameters": {"size": 7}},
        **{"environment": {"CUDA": "1", "GONE": None}, "pytrtplugins": __version__},
    }
