"""The command ``pytrt serve``: what it hands on."""

from __future__ import annotations

import json

import pytest

from pytrtplugins.cli import main


@pytest.fixture
def served(monkeypatch):
    calls = []
    counts = dict.fromkeys(("succeeded", "failed", "refused", "late", "batches"), 3)

    def serve(specs, **options):
        calls.append((specs, options))
        return {each.name: counts for each in specs}

    monkeypatch.setattr("pytrtplugins.cli.serve.serve", serve)

    def run(*words):
        with pytest.raises(SystemExit) as caught:
            main(["serve", *words])
        return caught.value.code, calls

    return run


def test_models_and_limits_are_handed_on(served):
    words = ["a=x.engine", "y.onnx", "--max-batch", "8", "--max-delay", "500us", "--queue", "9", "--port", "0"]
    code, [(specs, options)] = served(*words, "--body-limit", "2")
    assert not code
    assert [(each.name, each.target, each.max_batch, each.max_delay_ms, each.queue) for each in specs] == [
        ("a", "x.engine", 8, 0.5, 9),
        ("y", "y.onnx", 8, 0.5, 9),
    ]
    assert (options["host"], options["port"], options["limits"].body_bytes) == ("127.0.0.1", 0, 2 << 20)


@pytest.mark.parametrize(
    ("words", "cpu", "engines"),
    [([], None, 1), (["--local"], 0, 1), (["--workers", "0"], 0, 1), (["--cpu", "12", "--gpu", "4"], 12, 4)],
)
def test_processes_are_handed_on(served, words, cpu, engines):
    _, [(_, options)] = served("x.engine", *words)
    assert (options["cpu"], options["engines"]) == (cpu, engines)


def test_one_process_and_several_contradict_each_other(served, capsys):
    assert served("x.engine", "--local", "--cpu", "2") == (2, [])
    assert "leave one of them out" in capsys.readouterr().err


@pytest.mark.parametrize("delay", ["2", "11s", "-1ms", "ms", "2 ms"])
def test_a_delay_without_a_unit_or_beyond_reason_is_refused(served, delay, capsys):
    code, calls = served("x.engine", f"--max-delay={delay}")
    assert (code, calls) == (2, [])
    assert "such as 500us, 2ms or 1s" in " ".join(capsys.readouterr().err.split())


def test_at_its_end_it_says_what_was_served(served, capsys):
    served("x.engine", "-q", "--json")
    assert json.loads(capsys.readouterr().out)["result"]["models"] == [
        {"name": "x", "succeeded": 3, "failed": 3, "refused": 3, "late": 3, "batches": 3}
    ]
