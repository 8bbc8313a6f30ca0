"""What the benchmarks of training share: which rows are chosen, and records that are joined."""

from __future__ import annotations

import argparse

import pytest

from benchmarks.training import page


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ([], ["replicated", "parameter_server", "staged, CUDA graphs"]),
        (["-k", "SERVER"], ["parameter_server"]),
        (["-k", "server", "-k", "cuda graphs"], ["parameter_server", "staged, CUDA graphs"]),
        (["-k", "none such"], []),
    ],
)
def test_rows_are_chosen_by_any_of_the_words(options, chosen):
    parser = argparse.ArgumentParser()
    page.add_common(parser)
    given = parser.parse_args(options)
    names = ("replicated", "parameter_server", "staged, CUDA graphs")
    assert [name for name in names if page.is_chosen(given, name)] == chosen


def record(command, *rows, note=""):
    fields = (
        {"network": network, "name": name, "rate": rate, "reason": reason} for network, name, rate, reason in rows
    )
    about = {
        "processor": "a GPU",
        "python": "3.12",
        "versions": {},
        "date": "2026-11-27",
        "command": command,
        "note": note,
    }
    return {**about, "rows": list(fields)}


def test_of_a_row_in_several_records_the_first_figure_counts_and_the_note_says_what_is_of_another_run():
    first = record("modes", ("voc", "a", 1.0, ""), ("voc", "b", 0.0, "too slow"), note="Alone.")
    second = record("modes -k b", ("voc", "a", 2.0, ""), ("voc", "b", 3.0, ""), ("compact", "a", 4.0, ""))
    joined = page.joined([first, second])
    assert [(row["network"], row["name"], row["rate"]) for row in joined["rows"]] == [
        ("voc", "a", 1.0),
        ("voc", "b", 3.0),
        ("compact", "a", 4.0),
    ]
    assert joined["note"].startswith("Alone. From another run, a GPU, Python 3.12;")
    assert "Command: `modes -k b`." in joined["note"]
    assert joined["note"].endswith("These rows: b; a.")


def test_records_without_new_rows_change_nothing():
    first = record("modes", ("voc", "a", 1.0, ""))
    assert page.joined([first, record("again", ("voc", "a", 2.0, ""))]) == first
