"""Which stage a version is in follows from what was done."""

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.errors import ModelRegistryError
from pytrtplugins.mlops.registry import Change, History


def changed(*changes):
    history = History()
    for action, version, *stage in changes:
        history = history.with_change(Change("2026-01-31T12:00:00Z", "me", "", action, version, *stage))
    return history


def test_a_promoted_version_takes_the_place_of_the_present_one():
    history = changed(("promote", 1, "production"), ("promote", 2, "production"))
    assert (history.current("production"), history.stage_of(1), history.stage_of(3)) == (2, "archived", None)


def test_a_second_rollback_goes_further_back():
    history = changed(
        *(("promote", version, "production") for version in (1, 2, 3)),
        ("rollback", 2, "production"),
        ("rollback", 1, "production"),
    )
    assert (history.current("production"), history.before("production")) == (1, None)


def test_after_a_rollback_a_promotion_goes_on_from_there():
    history = changed(
        *(("promote", version, "production") for version in (1, 2)),
        ("rollback", 1, "production"),
        ("promote", 3, "production"),
    )
    assert history.stacks()["production"] == [1, 3]


def test_staging_is_empty_once_its_version_is_in_production():
    history = changed(("promote", 1, "staging"), ("promote", 2, "staging"), ("promote", 2, "production"))
    assert (history.current("staging"), history.stage_of(1), history.stage_of(2)) == (None, "archived", "production")


def test_no_rollback_returns_to_a_version_that_was_removed():
    history = changed(
        *(("promote", version, "production") for version in (1, 2, 1, 3)),
        ("remove", 2),
    )
    assert (history.stacks()["production"], history.removed()) == ([1, 3], {2})


@pytest.mark.parametrize(
    "last",
    [
        ("promote", 1, "archived"),
        ("promote", 1, "staging"),
        ("remove", 1),
        ("rollback", 1, "production"),
        ("promote", 3, "production"),
    ],
)
def test_production_is_never_empty_again_and_what_was_removed_stays_so(last):
    with pytest.raises(ModelRegistryError):
        changed(
            ("promote", 3, "staging"), ("promote", 1, "production"), ("promote", 3, "archived"), ("remove", 3), last
        )


ACTIONS = st.tuples(
    st.sampled_from(["promote", "rollback", "remove"]),
    st.integers(1, 4),
    st.sampled_from(["staging", "production", "archived"]),
)


@given(st.lists(ACTIONS, max_size=12))
def test_whatever_is_done_each_stage_has_one_version_that_is_in_it(actions):
    history, served = History(), False
    for action, version, stage in actions:
        change = Change("2026-01-31T12:00:00Z", "me", "", action, version, None if action == "remove" else stage)
        try:
            history = history.with_change(change)
        except ModelRegistryError:
            continue
        stages = [history.stage_of(each) for each in range(1, 5)]
        assert stages.count("production") == (history.current("production") is not None)
        assert stages.count("staging") == (history.current("staging") is not None)
        served = served or (stage == "production" and action == "promote")
        assert not served or history.current("production") is not None
        assert not {history.current("production"), history.current("staging")} & history.removed()
    assert History.from_json({"changes": [asdict(change) for change in history.changes]}) == history


CHANGE = {"time": "2026-01-31T12:00:00Z", "who": "", "why": "", "action": "promote", "version": 1, "stage": "staging"}


@pytest.mark.parametrize(
    "facts",
    [
        [],
        {"changes": {}},
        {"changes": [{}]},
        {"changes": [[]]},
        {"changes": [{**CHANGE, "time": "now"}]},
        {"changes": [{**CHANGE, "action": "eat", "stage": None}]},
        {"changes": [{**CHANGE, "action": "eat"}]},
        {"changes": [{**CHANGE, "version": 0}]},
        {"changes": [{**CHANGE, "version": True}]},
    ],
)
def test_what_is_no_history_is_refused(facts):
    with pytest.raises(ModelRegistryError):
        History.from_json(facts)


def test_a_change_as_it_is_written_is_read():
    assert History.from_json({"changes": [CHANGE]}).current("staging") == 1


@pytest.mark.parametrize("name", ["who", "why"])
def test_texts_of_a_change_have_2000_characters_at_most(name):
    facts = asdict(Change("2026-01-31T12:00:00Z", "me", "", "promote", 1, "production"))
    assert getattr(Change.from_json({**facts, name: 2000 * "x"}), name) == 2000 * "x"
    for wrong in (2001 * "x", 7, None):
        with pytest.raises(ModelRegistryError, match="not a change of a stage"):
            Change.from_json({**facts, name: wrong})
