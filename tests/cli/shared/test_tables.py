"""Tables say the figures that they are given, in the unit of their column."""

from types import SimpleNamespace

import pytest
from rich.console import Console

from pytrtplugins.bench import Benchmark, Row
from pytrtplugins.cli.shared import tables
from pytrtplugins.cli.shared.config import Default, Defaults
from pytrtplugins.cli.shared.tables import print_benchmark, print_defaults, print_offers, print_ran, print_report
from pytrtplugins.doctor import Extra


def cells(capsys, beginning):
    """The text of the row that begins so, without its borders."""
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.strip().startswith(beginning))
    return " ".join(row.replace("│", " ").split())


def test_a_benchmark_has_its_percentiles_and_rates_in_the_order_of_its_columns(capsys):
    times = {"p50_ms": 1.5, "p90_ms": 2.25, "p99_ms": 3.125}
    row = Row("cpu fp32", **times, speed=0.5, rate=666.7, host_mib=12, gpu_mib=34, build_s=0.75, error=1e-6, runs=99)
    print_benchmark(Benchmark((row,), 5, 2, {"x": (1, 4)}, {"processor": "a CPU"}, 0.5, "today"))
    assert cells(capsys, "cpu fp32") == "cpu fp32 1.500 2.250 3.125 0.50 666.7 12 MiB, GPU 34 MiB 0.75 1.0e-06 99"


@pytest.mark.parametrize(
    ("print_facts", "facts", "heads"),
    [
        (print_defaults, {"file": "a", "defaults": ()}, [("command", "option", "value", "line")]),
        (
            print_report,
            {"machine": {}, "extras": (), "engines": ()},
            [
                ("", "here"),
                ("extra", "for", "packages", "here", "Do"),
                ("engine", "available", "a small network", "details"),
            ],
        ),
        (tables.print_devices, {"engines": (), "auto": "cpu"}, [("engine", "available", "details")]),
        (print_offers, {"models": ()}, [("model", "what it does", "licence", "size", "here")]),
        (
            print_ran,
            {"outputs": (), "median_ms": 1.0, "runs": 1, "engine": "cpu", "computed": "fp32"},
            [("output", "type", "dims", "min", "max", "mean")],
        ),
        (tables.print_nodes, {"engine": "", "nodes": ()}, [("node", "operator", "reads → gives")]),
    ],
)
def test_columns_have_the_names_of_what_stands_in_them(monkeypatch, print_facts, facts, heads):
    printed = []
    monkeypatch.setattr(tables, "print_table", lambda columns, rows: printed.append(tuple(columns)))
    print_facts(SimpleNamespace(**facts))
    assert printed == heads


def test_a_benchmarks_columns_have_their_units(monkeypatch):
    printed = []
    monkeypatch.setattr(tables, "print_table", lambda columns, rows: printed.append(tuple(columns)))
    print_benchmark(Benchmark((Row("a", reason="none"),), 5, 2, {}, {"processor": ""}, 0.5, "today"))
    times = ("", "p50 ms", "p90 ms", "p99 ms", "speed")
    others = ("runs/s, 2 at a time", "memory", "build s", "error", "runs")
    assert printed == [(*times, *others), ("not timed", "reason")]


@pytest.mark.parametrize(("line", "text"), [(7, "7"), (0, "")])
def test_a_default_has_its_line_where_that_is_known(capsys, line, text):
    print_defaults(Defaults("pytrt.toml", (Default("build", "engine", "cuda", line),)))
    assert cells(capsys, "pytrt build") == f'pytrt build --engine "cuda" {text}'.strip()


def test_sizes_of_models_that_can_be_fetched_are_in_millions_of_bytes(capsys):
    files = [SimpleNamespace(bytes=1_500_000), SimpleNamespace(bytes=100_000)]
    model = SimpleNamespace(name="animals", about="finds", licence="MIT", files=files)
    print_offers(SimpleNamespace(models=[SimpleNamespace(model=model, file=None)]))
    assert cells(capsys, "animals") == "animals finds MIT 1.6 MB –"


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"median_ms": 1.25, "runs": 1}, "1.25 ms"),
        ({"median_ms": 1.25, "runs": 9}, "median 1.25 ms of 9 runs"),
        (
            {"median_ms": None, "runs": 9, "runs_per_second": 800.0, "slots": 2},
            "800.0 runs a second of 9 runs, 2 at a time",
        ),
    ],
)
def test_the_time_of_runs_is_in_milliseconds(capsys, facts, text):
    output = SimpleNamespace(name="y", type="float32", dims=(1, 4), min=-1.0, max=2.0, mean=0.5)
    print_ran(SimpleNamespace(outputs=[output], engine="cpu", computed="fp32", **facts))
    assert capsys.readouterr().err == f"engine cpu, fp32: {text}\n"


def test_the_doctor_has_the_seconds_of_a_build_and_the_microseconds_of_a_run(capsys):
    engine = {
        "name": "cpu",
        "failure": "",
        "builds": False,
        "reason": "",
        "details": "",
        "build_s": 0.25,
        "run_us": 120.4,
    }
    print_report(SimpleNamespace(machine={}, extras=[], engines=[SimpleNamespace(**engine)]))
    assert "right; built in 0.25 s, 120 µs a run" in " ".join(capsys.readouterr().out.split())


def test_the_doctor_has_the_packages_of_an_extra_and_what_is_missing(capsys, monkeypatch):
    monkeypatch.setattr(tables, "console", lambda: Console(width=200))
    extra = Extra("cpu", "a CPU", (("numpy", "2.1"), ("openvino", "2026.1")), ("onnxruntime",))
    print_report(SimpleNamespace(machine={}, extras=[extra], engines=[]))
    command = 'pip install "pytrtplugins[cpu]"'
    assert cells(capsys, "cpu") == f"cpu a CPU missing: onnxruntime numpy 2.1, openvino 2026.1 {command}"
