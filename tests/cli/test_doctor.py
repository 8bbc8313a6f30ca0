"""``pytrt doctor``, ``pytrt --version`` and ``python -m pytrtplugins``."""

import json
import subprocess
import sys

import pytrtplugins as ptp
from pytrtplugins.cli import doctor
from pytrtplugins.doctor import EngineReport, Extra, Report

REPORT = Report(
    {"Python": "3.13"},
    (Extra("cuda", "engine cuda", (("safetensors", "0.8"),), ("cupy-cuda13x",)), Extra("cli", "pytrt", (), ())),
    (
        EngineReport("cuda", "no driver.\nDo: nvidia-smi", ""),
        EngineReport("cpu", "", "OpenVINO", "", 0.25, 21.0),
        EngineReport("reference", "", "NumPy", "a convolution is 1.0e-02 of its norm off"),
    ),
)


def test_it_shows_what_is_missing_and_what_fails(pytrt, monkeypatch):
    monkeypatch.setattr(doctor, "examine", lambda run: REPORT)
    code, out, _ = pytrt("doctor")
    assert code == 1
    for words in ("missing: cupy-cuda13x", 'pip install "pytrtplugins[cuda]"', "Do: nvidia-smi", "right; built in 0.25 s, 21 µs",
                  "fails: a convolution is 1.0e-02"):  # fmt: skip
        assert words in out
    code, out, err = pytrt("doctor", "--json")
    assert (code, err) == (1, "")
    found = json.loads(out)
    assert not found["ok"]
    assert [engine["name"] for engine in found["result"]["engines"]] == ["cuda", "cpu", "reference"]


def test_a_healthy_machine_ends_with_0(pytrt, monkeypatch):
    asked = []
    monkeypatch.setattr(doctor, "examine", lambda run: asked.append(run) or Report({}, (), REPORT.engines[:2]))
    assert pytrt("doctor", "--no-run")[0] == 0
    assert asked == [False]


def test_the_version_is_told(pytrt):
    assert pytrt("--version")[:2] == (0, f"pytrtplugins {ptp.__version__}\n")


def test_the_package_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "pytrtplugins", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"pytrtplugins {ptp.__version__}\n"
