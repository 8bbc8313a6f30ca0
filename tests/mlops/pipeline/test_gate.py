"""Gates: what their words mean, compared with plain Python, and what they refuse."""

import json

import pytest

from pytrtplugins.errors import PipelineError
from pytrtplugins.mlops.pipeline import gate as module
from pytrtplugins.mlops.pipeline.gate import Gate
from pytrtplugins.mlops.pipeline.run_gate import main

FIGURES = {
    "int8": {"result.mAP50": 0.646, "result.p99_ms": 12.5, "size_mib": 4.0, "x-y": 3.0},
    "served": {"mAP50": 0.65, "p99_ms": 11.0},
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mAP50 within 0.005 of served and p99 below 20 ms", abs(0.646 - 0.65) <= 0.005 and 12.5 < 20),
        ("mAP50 within 0.003 of served", abs(0.646 - 0.65) <= 0.003),
        ("mAP50 within 1% of served", abs(0.646 - 0.65) <= 0.01),
        ("int8.mAP50 >= served.mAP50 - 0.005", 0.646 >= 0.65 - 0.005),
        ("p99_ms below 0.02 s", 12.5 < 20),
        ("p99 < 0.0125 s", 12.5 < 12.5),
        ("p99 at most 0.0125 s", 12.5 <= 12.5),
        ("p99 at least 13", 12.5 >= 13),
        ("20 ms > p99", 20 > 12.5),
        ("p99 <= 1.1 * served", 12.5 <= 1.1 * 11),
        ("p99 <= 1.2 * served", 12.5 <= 1.2 * 11),
        ("p99 / served.p99 < 1.13", 12.5 / 11 < 1.13),
        ("1 + 2 * 3 is 7", 1 + 2 * 3 == 7),
        ("8 / 2 / 2 == 2", 8 / 2 / 2 == 2),
        ("10 - 2 - 3 == 5", 10 - 2 - 3 == 5),
        ("size < 4097 KiB", 4.0 * 1024 < 4097),
        ("size < 4095 KiB", 4.0 * 1024 < 4095),
        ("x-y == 3", True),
        ("not p99 > 5 or size above 3 and size below 5", (not 12.5 > 5) or 3 < 4 < 5),
        ("not (p99 > 5 or size above 3)", not (12.5 > 5 or 4 > 3)),
        ("(p99 > 50 or size above 3) and size != 5", (12.5 > 50 or 4 > 3) and 4 != 5),
        ("p99 > -1", True),
    ],
)
def test_a_gate_means_what_python_computes(text, expected):
    assert Gate.parse(text).check(FIGURES).passes is expected


@pytest.mark.parametrize(("unit", "kind", "size"), [(unit, *values) for unit, values in module._UNITS.items()])
def test_every_unit_of_figures_and_of_numbers_is_worth_what_it_says(unit, kind, size):
    assert size == WORTH[unit]
    base = {"time": "s", "size": "bytes"}[kind]
    figures = {"f": {f"a_{unit.lower()}": 3.0, f"b_{base}": 3 * WORTH[unit]}}
    for text in (
        f"a above {2.999 * size!r} {base} and a below {3.001 * size!r} {base}",
        f"b above 2.999 {unit} and b below 3.001 {unit}",
        "a / b within 0.001 of 1",
    ):
        assert Gate.parse(text).check(figures).passes, text


WORTH = {
    **{"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1},
    **{"bytes": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3},
}


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("a within 0.25 of b", True),
        ("b within 0.25 of a", True),
        ("a within 0.2499 of b", False),
        ("a within 25% of b", True),
        ("a at most 1", True),
        ("a below 1", False),
        ("a at least 1", True),
        ("a above 1", False),
        ("a is 1", True),
        ("a != 1", False),
    ],
)
def test_a_figure_that_is_equal_to_its_limit(text, passes):
    assert Gate.parse(text).check({"m": {"a": 1.0, "b": 1.25}}).passes is passes


def test_all_comparisons_are_reported_with_their_figures():
    verdict = Gate.parse("mAP50 within 0.003 of served and p99 below 20 ms").check(FIGURES)
    assert [(each.text, each.holds) for each in verdict.comparisons] == [
        ("mAP50 within 0.003 of served", False),
        ("p99 below 20 ms", True),
    ]
    assert "0.646" in verdict.comparisons[0].found
    assert "0.004" in verdict.comparisons[0].found
    assert verdict.comparisons[1].found == "int8.result.p99_ms 12.5 < 20 ms"


def test_a_figure_that_is_not_a_number_fails():
    assert not Gate.parse("a < 1 or a >= 1").check({"m": {"a": float("nan")}}).passes


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "a number or a figure"),
        ("a", "a comparison"),
        ("a <", "a number or a figure"),
        ("a < 1 b", "and, or, or the end"),
        ("(a < 1", "')'"),
        ("a within 1", "'of'"),
        ("a < 1; import os", "found ';'"),
        ("__import__('os')", "a comparison"),
        ("(" * 100 + "a < 1" + ")" * 100, "at most 32 levels"),
        ("a < 1 and " * 300 + "a < 1", "at most 2,000 characters"),
    ],
)
def test_what_is_not_a_gate_is_refused(text, problem):
    with pytest.raises(PipelineError, match=problem.replace("(", r"\(").replace(")", r"\)")):
        Gate.parse(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("speed > 1", "speed is not among the figures: int8.result.mAP50"),
        ("int8.speed > 1", "int8.speed is not among the figures"),
        ("x-y < 20 ms", "no unit"),
        ("size < 20 ms", "cannot be compared"),
        ("p99 * p99 > 1", "cannot be multiplied"),
        ("p99 / 0 > 1", "division by zero"),
    ],
)
def test_figures_that_do_not_fit_are_named(text, problem):
    with pytest.raises(PipelineError, match=problem):
        Gate.parse(text).check(FIGURES)


def test_a_name_that_may_mean_two_figures_is_refused():
    with pytest.raises(PipelineError, match=r"p may mean a\.p, b\.p"):
        Gate.parse("p > 1").check({"m": {"a.p": 1.0, "b.p": 2.0}})


def test_the_program_writes_its_verdict_only_where_the_gate_holds(tmp_path, capsys):
    (tmp_path / "int8.json").write_text(json.dumps({"mAP50": 0.6, "list": [1, {"deep": 2}]}))
    (tmp_path / "served.json").write_text(
        json.dumps({"command": "", "version": "", "ok": True, "options": {}, "result": {"mAP50": 0.7}})
    )
    files = [str(tmp_path / "int8.json"), str(tmp_path / "served.json"), "--output", str(tmp_path / "gate.json")]
    for gate, code in (("mAP50 within 0.05 of served", 1), ("mAP50 within 0.2 of served and list.1.deep is 2", 0)):
        with pytest.raises(SystemExit) as ended:
            main([gate, *files])
        assert ended.value.code == code
        assert (tmp_path / "gate.json").exists() == (code == 0)
    assert "FAILS: mAP50 within 0.05 of served (int8.mAP50 0.6 differs" in capsys.readouterr().out
    assert json.loads((tmp_path / "gate.json").read_text())["passes"] is True
