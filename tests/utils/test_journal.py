"""Results of an interrupted run are used again, where they are those of the same run."""

import math

import pytest

from pytrtplugins.utils.journal import Journal


def kept(path, identity):
    """The results that a run with this identity takes up."""
    journal = Journal(path, identity)
    return {key: journal.get(key, lambda: "new") for key in ("a", "b") if key in journal}


def test_results_of_the_same_run_are_used_also_those_that_are_no_numbers(tmp_path):
    path, identity = tmp_path / "journal.json", {"seed": 1, "limit": math.inf}
    journal = Journal(path, identity)
    assert journal.get("a", lambda: [1.5, math.nan]) == [1.5, pytest.approx(math.nan, nan_ok=True)]
    journal.get("b", lambda: (1, -math.inf))
    assert kept(path, identity) == {"a": [1.5, pytest.approx(math.nan, nan_ok=True)], "b": [1, -math.inf]}
    assert kept(path, {**identity, "seed": 2}) == {}
    journal.forget("a")
    assert ("a" in journal, len(journal), journal.get("a", lambda: 3)) == (False, 1, 3)
    journal.close()
    assert kept(path, identity) == {}
