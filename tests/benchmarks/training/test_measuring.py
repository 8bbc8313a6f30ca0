"""What the benchmarks of training share: which rows are chosen, and records that are joined."""

import argparse

import pytest

from benchmarks.training import measuring


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ([], ["replicated", "parameter_server", "staged, CUDA graphs"]),
        (["-k", "SERVER"], ["parameter_server"]),
        (["-k", "server", "-k", "cuda graphs"], ["parameter_server", "staged, CUDA graphs"]),
        (["-k", "server$"], ["parameter_server"]),
        (["-k", "none such"], []),
    ],
)
def test_rows_are_chosen_by_any_of_the_words(options, chosen):
    parser = argparse.ArgumentParser()
    measuring.add_common(parser)
    given = parser.parse_args(options)
    names = ("replicated", "parameter_server", "staged, CUDA graphs")
    assert [name for name in names if measuring.is_chosen(given, name)] == chosen


def record(command, *rows, note="", processor="a GPU"):
    fields = ("network", "name", "rate", "reason")
    about = {"processor": processor, "python": "3.12", "versions": {}, "date": "2026-11-27", "note": note}
    return {**about, "command": command, "rows": [dict(zip(fields, row, strict=True)) for row in rows]}


@pytest.mark.parametrize(
    ("processor", "run"),
    [
        ("a GPU", "`modes -k b`, the same day"),
        ("another", "another, Python 3.12; 2026-11-27. Command: `modes -k b`."),
    ],
)
def test_of_a_row_in_several_records_the_first_figure_counts_and_the_note_says_what_is_of_another_run(processor, run):
    first = record("modes", ("voc", "a", 1.0, ""), ("voc", "b", 0.0, "too slow"), note="Alone.")
    more = ("voc", "a", 2.0, ""), ("voc", "b", 3.0, ""), ("compact", "a", 4.0, "")
    joined = measuring.joined([first, record("modes -k b", *more, processor=processor)])
    assert [(row["network"], row["name"], row["rate"]) for row in joined["rows"]] == [
        ("voc", "a", 1.0),
        ("voc", "b", 3.0),
        ("compact", "a", 4.0),
    ]
    assert joined["note"] == f"Alone. Of another run ({run}) are: voc, b; compact, a."


def test_records_without_new_rows_change_nothing():
    first = record("modes", ("voc", "a", 1.0, ""))
    assert measuring.joined([first, record("again", ("voc", "a", 2.0, ""))]) == first


def test_a_record_tells_its_command_without_the_places_of_its_files(monkeypatch):
    monkeypatch.setattr(measuring.machine, "about", lambda packages, command, note: {"command": command})
    device = argparse.Namespace(type="cpu")
    given = ["--json", "/tmp/a.json", "-k", "CUDA graphs", "--docs", "/tmp", "--seconds", "2"]
    pytest.importorskip("torch", reason='pip install "pytrtplugins[train]"')
    assert (
        measuring.about("modes", device, "", given)["command"]
        == "python -m benchmarks.training modes -k 'CUDA graphs' --seconds 2"
    )
