"""Which photos a step gets."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.errors import NoDataError, UsageError
from training.sampler import StepSampler

lengths, seeds, steps = st.integers(1, 60), st.integers(0, 2**64 - 1), st.integers(0, 2000)


@given(lengths, st.integers(1, 20), seeds)
def test_each_photo_comes_once_an_epoch(length: int, batch: int, seed: int) -> None:
    sampler = StepSampler(length, batch, seed=seed)
    epochs = 3
    drawn = np.concatenate([sampler.indices(step) for step in range(-(-length * epochs // batch))])
    for epoch in range(epochs):
        assert sorted(drawn[epoch * length : (epoch + 1) * length]) == list(range(length))


@given(lengths, st.integers(1, 6), st.sampled_from([1, 2, 3, 6]), seeds, steps)
def test_ranks_share_the_photos_that_one_rank_would_get(
    length: int, share: int, world: int, seed: int, step: int
) -> None:
    batch = 6 * share
    whole = StepSampler(length, batch, seed=seed).indices(step)
    parts = [StepSampler(length, batch, seed=seed, rank=rank, world=world).indices(step) for rank in range(world)]
    assert np.array_equal(np.concatenate(parts), whole)
    assert whole.dtype == np.int64


@given(lengths, st.integers(1, 20), seeds, st.lists(steps, min_size=1, max_size=5))
def test_a_step_does_not_depend_on_the_steps_before(length: int, batch: int, seed: int, order: list[int]) -> None:
    used = StepSampler(length, batch, seed=seed)
    for step in order:
        assert np.array_equal(used.indices(step), StepSampler(length, batch, seed=seed).indices(step))


@given(lengths, st.integers(1, 8), seeds, steps, st.data())
def test_replacements_are_the_next_photos_of_the_epoch(
    length: int, batch: int, seed: int, step: int, data: st.DataObject
) -> None:
    sampler = StepSampler(length, batch, seed=seed)
    row = data.draw(st.integers(0, batch - 1))
    tried = [sampler.after(step, row, tries) for tries in range(length)]
    assert tried[0] == sampler.indices(step)[row]
    assert sorted(tried) == list(range(length))  # after the last of the epoch comes its first
    if row + 1 < batch and (step * batch + row + 1) % length:
        assert tried[1] == sampler.indices(step)[row + 1]


def test_orders_differ_by_epoch_and_seed_and_stay_the_same_for_ever() -> None:
    """A checkpoint continues with these: a change would let a resumed run see some photos twice."""
    assert StepSampler(8, 8, seed=3).indices(0).tolist() == [0, 4, 7, 1, 5, 6, 3, 2]
    orders = {tuple(StepSampler(8, 8, seed=seed).indices(step)) for seed in range(5) for step in range(5)}
    assert len(orders) > 20


def test_worker_processes_draw_the_same() -> None:
    sampler = StepSampler(9, 4, seed=5, rank=1, world=2)
    sampler.indices(0)
    copy = pickle.loads(pickle.dumps(sampler))
    assert [copy.indices(step).tolist() for step in range(9)] == [sampler.indices(step).tolist() for step in range(9)]


def test_wrong_numbers_are_refused() -> None:
    with pytest.raises(NoDataError, match="no photos"):
        StepSampler(0, 4, seed=0)
    with pytest.raises(UsageError, match=r"Do: choose a batch of 8 or 12") as caught:
        StepSampler(9, 10, seed=0, world=4)
    assert (caught.value.batch, caught.value.world) == (10, 4)
    with pytest.raises(UsageError, match="rank"):
        StepSampler(9, 10, seed=0, rank=2, world=2)
    with pytest.raises(UsageError, match="step"):
        StepSampler(9, 10, seed=0).indices(-1)
