"""Steps side by side: whatever clashes keeps its order."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.engines.cuda.plan.schedule import Access, one_stream, schedule

ACCESS = st.builds(
    lambda storage, begin, length, writes: Access(storage, begin, begin + length, writes),
    st.sampled_from("abcd"),
    st.integers(0, 6),
    st.integers(1, 4),
    st.booleans(),
)
STEPS = st.lists(st.lists(ACCESS, min_size=1, max_size=3), max_size=12)


def reads(name):
    return Access(name, 0, 8, False)


def writes(name):
    return Access(name, 0, 8, True)


def clash(first, second):
    """Whether two steps touch one byte, and one of them writes it."""

    def touched(accesses):
        return {
            (access.storage, byte, access.writes) for access in accesses for byte in range(access.begin, access.end)
        }

    return any(
        (storage, byte, True) in others or (writes and (storage, byte, False) in others)
        for others in [touched(second)]
        for storage, byte, writes in touched(first)
    )


def enforced(order):
    """What streams and waits by themselves put before each step, as sets."""
    found = list[Any]()
    for index, (stream, waits) in enumerate(zip(order.streams, order.waits, strict=True)):
        direct = {*waits, *(earlier for earlier in range(index) if order.streams[earlier] == stream)}
        found.append(direct.union(*(found[earlier] for earlier in direct)))
    return found


@given(STEPS, st.integers(1, 4))
def test_steps_that_clash_are_ordered_by_streams_and_waits_alone(steps, most):
    order = schedule(steps, most)
    before = enforced(order)
    assert set(order.streams) <= set(range(most))
    for first, second in itertools.combinations(range(len(steps)), 2):
        assert order.ordered(first, second) == (first in before[second])
        if clash(steps[first], steps[second]):
            assert first in before[second]


@given(STEPS)
def test_no_step_waits_for_what_its_stream_has_done_already(steps):
    order = schedule(steps)
    for index, waits in enumerate(order.waits):
        assert all(order.streams[earlier] != order.streams[index] for earlier in waits)


def test_a_chain_stays_on_one_stream_and_branches_get_their_own():
    chain = [[writes("a")], [reads("a"), writes("b")], [reads("b"), writes("c")]]
    assert schedule(chain).streams == (0, 0, 0)
    branches = [*chain[:2], [reads("a"), writes("c")], [reads("b"), reads("c"), writes("d")]]
    order = schedule(branches)
    assert order.streams == (0, 0, 1, 1)
    assert order.waits == ((), (), (0,), (1,))


def test_other_channels_of_one_tensor_may_be_written_side_by_side():
    left, right = Access("a", 0, 4, True), Access("a", 4, 8, True)
    assert set(schedule([[left], [right]]).streams) == {0, 1}
    assert schedule([[left], [Access("a", 3, 5, True)]]).streams == (0, 0)


@pytest.mark.parametrize("first", [reads("a"), writes("a")], ids=["read", "written"])
@pytest.mark.parametrize("second", [reads("a"), writes("a")], ids=["reads", "writes"])
def test_only_two_reads_have_no_order(first, second):
    """Read then written, written then read, written twice: all three keep their order."""
    order = schedule([[first], [second]])
    assert (order.streams == (0, 0)) == (first.writes or second.writes)


def test_one_stream_has_every_step_behind_all_before_it():
    order = one_stream(4)
    assert order.streams == (0, 0, 0, 0)
    assert all(order.ordered(first, second) for first, second in itertools.combinations(range(4), 2))
