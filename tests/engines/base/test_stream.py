"""Overlapping runs: order, laziness, errors, and that contexts are closed."""

import threading

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import BindingError
from tests.engines.networks import conv_net, image


@pytest.fixture(scope="module")
def engine():
    return ptp.build(conv_net(), engine="onnxruntime")


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(engine, slots):
    images = [image(seed=seed) for seed in range(7)]
    with engine.create_context() as context:
        wanted = [context.run({"data": each})["y"] for each in images]
    found = list(engine.stream(({"data": each} for each in images), slots=slots))
    assert len(found) == 7
    for outputs, value in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(outputs["y"], value)


def test_items_are_prepared_in_other_threads(engine):
    seen = set()

    def prepare(seed):
        seen.add(threading.current_thread())
        return {"data": image(seed=seed)}

    assert len(list(engine.stream(range(6), prepare=prepare))) == 6
    assert threading.main_thread() not in seen
    assert 1 <= len(seen) <= 2


@pytest.mark.parametrize("prepare", [None, dict])
def test_no_more_items_are_taken_ahead_than_there_are_slots(engine, prepare):
    taken = []

    def source():
        for seed in range(10):
            taken.append(seed)
            yield {"data": image(seed=seed)}

    results = engine.stream(source(), prepare=prepare, slots=3)
    next(results)
    count = len(taken)
    assert 3 <= count <= 4
    results.close()
    assert len(taken) == count


def test_an_error_comes_at_its_items_turn_behind_the_results_before_it(engine):
    items = [{"data": image()}, {"data": image()}, {"wrong": image()}, {"data": image()}]
    results = engine.stream(items, slots=2)
    assert next(results)["y"].shape == (1, 4, 8, 8)
    assert next(results)["y"].shape == (1, 4, 8, 8)
    with pytest.raises(BindingError, match="wrong"):
        next(results)


def test_nothing_gives_nothing(engine):
    assert list(engine.stream([])) == []
