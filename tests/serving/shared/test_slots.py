"""Shared memory, given away in slots."""

import os

import pytest

from pytrtplugins.errors import FormatError, RequestError
from pytrtplugins.serving.shared.slots import UNIT, Block, Slots


@pytest.fixture
def slots():
    descriptor = Block.create(8)
    yield Slots(Block(descriptor))
    os.close(descriptor)


def test_a_slot_has_as_many_units_as_it_needs(slots):
    assert [slots.take(size)[:2] for size in (1, UNIT, UNIT + 1, 3 * UNIT)] == [(0, 1), (1, 1), (2, 2), (4, 3)]
    assert slots.free_units == 1


def test_what_is_given_back_is_given_away_again_with_another_generation(slots):
    first, count, generation = slots.take(2 * UNIT)
    slots.take(1)
    slots.give_back(first, count)
    assert slots.take(1) == (first, 1, generation + 1)
    assert slots.block.generation(first) == generation + 1


def test_too_much_for_now_and_too_much_for_ever_are_told_apart(slots):
    slots.take(6 * UNIT)
    with pytest.raises(RequestError) as now:
        slots.take(3 * UNIT)
    with pytest.raises(RequestError) as ever:
        slots.take(9 * UNIT)
    assert (now.value.status, now.value.retry_after, ever.value.status) == (503, 1, 413)


def test_what_one_mapping_writes_another_reads():
    descriptor = Block.create(2)
    one, other = Block(descriptor), Block(descriptor)
    one.part(1, 5, 3)[:] = b"abc"
    assert bytes(other.part(1, 0, 10)) == b"\0\0\0\0\0abc\0\0"
    assert other.generation(1) == 0
    os.close(descriptor)


OUTSIDE = [(8, 0, 0), (-1, 0, 1), (7, 0, UNIT + 1), (0, -1, 1), (0, 0, -1), (7, UNIT, 1)]


@pytest.mark.parametrize(("first", "start", "size"), OUTSIDE)
def test_bytes_outside_of_the_memory_are_refused(slots, first, start, size):
    with pytest.raises(FormatError):
        slots.block.part(first, start, size)


@pytest.mark.parametrize("first", [-1, 8, 1 << 31])
def test_units_outside_of_the_memory_have_no_generation(slots, first):
    with pytest.raises(FormatError):
        slots.block.generation(first)


def test_a_model_gets_its_own_part_and_what_is_left_of_that_of_all_to_the_last_unit():
    """Of 8 units 2 are each model's own, and 4 are for both."""
    descriptor = Block.create(8)
    try:
        for held in range(7):  # units of the other model: from 3 on they are of those for both
            slots = Slots(Block(descriptor), models=2)
            if held:
                slots.take(held * UNIT, 1)
            most = 2 + 4 - max(0, held - 2)
            with pytest.raises(RequestError) as refused:
                slots.take((most + 1) * UNIT, 0)
            assert refused.value.status == (413 if most == 6 else 503)
            assert slots.take(most * UNIT, 0)[1] == most
    finally:
        os.close(descriptor)
