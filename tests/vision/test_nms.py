import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.errors import UsageError
from pytrtplugins.vision import nms
from tests.oracles.diounms import suppress

from . import darknet

A, B, C = (0.5, 0.5, 0.2, 0.2), (0.51, 0.5, 0.2, 0.2), (0.9, 0.9, 0.1, 0.1)


def scores(*rows):
    return np.array(rows, np.float32)


@given(
    count=st.integers(1, 80),
    classes=st.integers(1, 5),
    threshold=st.sampled_from([0.0, 0.3, 0.45, 0.7, 1.0]),
    ties=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_the_result_is_do_nms_sorts(count, classes, threshold, ties, seed):
    rng = np.random.default_rng(seed)
    boxes = np.concatenate([rng.normal(0.5, 0.1, (count, 2)), rng.uniform(0.02, 0.6, (count, 2))], 1).astype(np.float32)
    values = rng.random((count, classes), dtype=np.float32)
    values = np.round(values, 1) if ties else values
    values[values < 0.3] = 0
    np.testing.assert_array_equal(nms(boxes, values, threshold), darknet.suppressed(boxes, values, threshold))


@given(
    kind=st.sampled_from([("default", 0.6), ("greedynms", 0.3), ("diounms", 0.6), ("diounms", 0.2), ("diounms", 0.0)]),
    count=st.integers(1, 30),
    classes=st.integers(1, 3),
    threshold=st.sampled_from([0.0, 0.3, 0.45]),
    seed=st.integers(0, 10_000),
)
def test_with_a_distance_the_result_is_the_forks(kind, count, classes, threshold, seed):
    rng = np.random.default_rng(seed)
    boxes = np.concatenate([rng.normal(0.5, 0.05, (count, 2)), rng.uniform(0.1, 0.6, (count, 2))], 1).astype(np.float32)
    boxes[::7] = 0
    values = np.round(rng.random((count, classes), dtype=np.float32), 1)
    power = {"default": None, "greedynms": 0.6}.get(kind[0], float(np.float32(kind[1])))
    expected = suppress(boxes, values, threshold, *kind)
    np.testing.assert_array_equal(nms(boxes, values, threshold, distance_power=power), expected)


def test_the_distance_keeps_boxes_beside_each_other():
    boxes, values = np.array([A, (0.57, 0.5, 0.2, 0.2)], np.float32), scores([0.9], [0.6])
    assert nms(boxes, values).ravel().tolist() == scores([0.9], [0]).ravel().tolist()
    np.testing.assert_array_equal(nms(boxes, values, distance_power=0.6), values)


def test_a_power_below_0_is_refused():
    with pytest.raises(UsageError, match="distance_power: expected a number of at least 0, found -1"):
        nms(np.zeros((1, 4), np.float32), np.zeros((1, 1), np.float32), distance_power=-1.0)


@pytest.mark.parametrize(
    ("boxes", "values", "expected"),
    [
        pytest.param([A, B, C], scores([0.6], [0.9], [0.5]), scores([0], [0.9], [0.5]), id="the better of two boxes"),
        pytest.param([A, B], scores([0.6, 0], [0, 0.9]), scores([0.6, 0], [0, 0.9]), id="two classes"),
        pytest.param([A, B], scores([0, 0.6], [0, 0.9]), scores([0, 0], [0, 0.9]), id="a class that no box has"),
        pytest.param([(0, 0, 0, 0)] * 2, scores([0.5], [0.4]), scores([0.5], [0.4]), id="no area"),
        pytest.param([A, (0.574, 0.5, 0.2, 0.2)], scores([0.9], [0.5]), scores([0.9], [0]), id="overlap 0.126 / 0.274"),
        pytest.param(
            [A, (0.577, 0.5, 0.2, 0.2)], scores([0.9], [0.5]), scores([0.9], [0.5]), id="0.123 / 0.277 < 0.45"
        ),
    ],
)
def test_what_is_suppressed_was_worked_out_by_hand(boxes, values, expected):
    np.testing.assert_array_equal(nms(np.array(boxes, np.float32), values), expected)


def test_the_input_is_left_alone():
    values = scores([0.6], [0.9])
    nms(np.array([A, B], np.float32), values)
    np.testing.assert_array_equal(values, scores([0.6], [0.9]))


def test_no_boxes_are_fine():
    assert nms(np.zeros((0, 4), np.float32), np.zeros((0, 3), np.float32)).shape == (0, 3)


@pytest.mark.parametrize("threshold", [-0.1, 1.1])
def test_a_threshold_outside_0_to_1_is_refused(threshold):
    with pytest.raises(UsageError, match="iou_threshold"):
        nms(np.zeros((1, 4), np.float32), scores([1]), threshold)


@pytest.mark.parametrize(
    ("boxes", "values"),
    [((2, 4), (1, 1)), ((1, 5), (1, 1)), ((1, 1, 4), (1, 1)), ((4,), (4, 1)), ((1, 4), (1,)), ((1, 4), (1, 1, 1))],
)
def test_shapes_that_do_not_fit_are_refused(boxes, values):
    with pytest.raises(UsageError, match="expected boxes") as caught:
        nms(np.zeros(boxes, np.float32), np.zeros(values, np.float32))
    assert str(caught.value).endswith(f"found {boxes} and {values}.")
