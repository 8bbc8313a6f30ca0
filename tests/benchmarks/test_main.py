"""The command of the benchmarks: which options need which, and what it does with them."""

import json
import signal
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.gpu import lanes


@pytest.fixture(autouse=True)
def handler():
    """That of SIGTERM stays for the tests that follow: the command sets it for its process."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def give(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["benchmarks", *map(str, words)])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gpu", "--gpus", "0,1"], "--gpus: it needs --gpu, --rows, --seconds and --json"),
        (["--gpus", "0", "--rows", "a", "--seconds", "9", "--json", "b"], "--gpus: it needs --gpu"),
        (["--gpu", "--no-page"], "--no-page: it needs --json"),
        (["--operators"], "--operators: it needs --gpu"),
    ],
)
def test_an_option_that_lacks_others_says_which(words, said, monkeypatch, capsys):
    give(monkeypatch, *words)
    with pytest.raises(SystemExit):
        command.main()
    assert said in capsys.readouterr().err


def test_a_list_runs_on_several_gpus_and_its_record_becomes_a_page_where_asked(tmp_path, monkeypatch, capsys):
    record, calls, pages = tmp_path / "joined.json", [], []

    def run(*what):
        calls.append(what)
        record.write_text(json.dumps({"rows": []}))

    def write(*what):
        pages.append(what)
        return [Path("page.md")]

    monkeypatch.setattr(lanes, "run", run)
    monkeypatch.setattr(command.gpu_records, "keep", write)
    words = ["--gpu", "--rows", "rows.txt", "--gpus", "0,3", "--seconds", "90", "--json", record]
    give(monkeypatch, *words, "--no-page")
    assert command.main() == 0
    assert calls == [(Path("rows.txt"), ["0", "3"], 90.0, record, tmp_path / "joined.work")]
    assert pages == []
    give(monkeypatch, *words, "--work", tmp_path / "kept", "--docs", tmp_path, "--keep")
    assert command.main() == 0
    assert calls[1][-1] == tmp_path / "kept"
    assert pages == [([record], "gpu", tmp_path, True)]
    assert "written: page.md" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "files"),
    [
        ([], ["test_yolov2.py"]),
        (["--gpu"], ["gpu/test_image.py", "gpu/test_race.py", "gpu/test_steps.py", "gpu/test_build.py", "gpu/test_zoo.py"]),
        (["--gpu", "--operators"], ["gpu/test_operators.py"]),
    ],
)  # fmt: skip
def test_the_rows_are_those_of_the_processor_of_the_gpu_or_of_single_operators(words, files, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(command, "run", lambda *what: calls.append(what) or 3)
    give(monkeypatch, *words, "--json", tmp_path / "record.json")
    assert command.main() == 3  # no row was finished
    assert calls[0][1] == files
