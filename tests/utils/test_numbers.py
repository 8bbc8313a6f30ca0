"""Numbers that callers give: limits are held before anything is made of them."""

import argparse

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.calibration import ImageBatches
from pytrtplugins.errors import UsageError
from pytrtplugins.utils.numbers import IntList, IntRange, check_int, check_share
from pytrtplugins.vision import Head
from tests.engines.networks import conv_net, image

HEAD = Head("y", "region", (1.0, 1.0, 3.0, 2.0), 2)


@pytest.mark.parametrize("value", [1, 7, 12, np.int8(5), np.uint64(12)])
def test_a_whole_number_within_limits_is_taken_as_pythons(value):
    found = check_int("n", value, 1, 12)
    assert found == value
    assert type(found) is int


@pytest.mark.parametrize(
    "value", [0, 13, -1, 10**40, 1.0, 1.5, float("nan"), "3", None, True, [3], np.float32(3), np.arange(3)]
)
def test_what_is_no_whole_number_within_limits_is_refused(value):
    with pytest.raises(UsageError, match=r"^n: expected a whole number from 1 to 12, found ") as caught:
        check_int("n", value, 1, 12)
    assert len(str(caught.value)) < 200


def test_a_number_of_a_million_digits_is_not_printed():
    with pytest.raises(UsageError, match="bits") as caught:
        check_int("n", 10**1_000_000, 1, 12)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("value", [0, 1, 0.5, np.float32(0.25), True * 1])
def test_a_share_is_taken(value):
    assert check_share("x", value) == value


@pytest.mark.parametrize(
    "value", [-0.1, 1.1, float("nan"), float("inf"), "0.5", None, True, [0.5], 10**400, np.nan, 1j]
)
def test_what_is_no_share_is_refused(value):
    with pytest.raises(UsageError, match=r"^x: expected a number from 0 to 1, found "):
        check_share("x", value)


@pytest.mark.parametrize("slots", [0, -1, 257, 99_999, 1 << 80, 1.5, "2", None, True])
def test_a_stream_of_more_or_fewer_slots_than_make_sense_is_refused_at_once(slots):
    engine = ptp.build(conv_net(), engine="null")
    with pytest.raises(UsageError, match="stream: slots: expected a whole number from 1 to 256"):
        engine.stream([], slots=slots)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_detections": 0}, "max_detections: expected a whole number from 1 to 100,000"),
        ({"max_detections": 10**9}, "max_detections: expected a whole number"),
        ({"size": (0, 8)}, "width: expected a whole number from 1 to 16,384, found 0"),
        ({"size": (8, 10**6)}, "height: expected a whole number from 1 to 16,384"),
        ({"size": (8.5, 8)}, "width: expected a whole number"),
    ],
)
def test_a_detection_context_of_no_usable_size_is_refused(options, words):
    engine = ptp.build(conv_net(channels=14), engine="null")
    with pytest.raises(UsageError, match=words):
        engine.create_detection_context([HEAD], **{"size": (8, 8), **options})


@pytest.mark.parametrize("name", ["score_threshold", "iou_threshold"])
@pytest.mark.parametrize("value", [float("nan"), -0.5, 2, "0.5", None])
def test_a_threshold_that_is_no_share_is_refused(name, value):
    engine = ptp.build(conv_net(channels=14), engine="null")
    with engine.create_detection_context([HEAD], (8, 8)) as context:
        for run in (context.detect, context.detect_async):
            with pytest.raises(UsageError, match=f"detect: {name}: expected a number from 0 to 1"):
                run([np.zeros((8, 8, 3), np.uint8)], **{name: value})
        assert len(context.detect([np.zeros((8, 8, 3), np.uint8)])) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch": 0}, "batch: expected a whole number from 1 to 4,096"),
        ({"batch": 10**9}, "batch: expected a whole number"),
        ({"limit": 0}, "limit: expected a whole number from 1"),
        ({"limit": 2.5}, "limit: expected a whole number from 1"),
        ({"size": (10**6, 10**6)}, "size: expected a whole number from 1 to 16,384"),
        ({"size": (416,)}, r"size: expected \(width, height\)"),
    ],
)
def test_batches_of_no_usable_size_are_refused(tmp_path, options, words):
    with pytest.raises(UsageError, match=words):
        ImageBatches(tmp_path, **{"size": (8, 8), **options})


@pytest.mark.parametrize("threads", [0, 4097, 1 << 70, 1.5, "2", True])
def test_threads_that_no_machine_has_are_refused(threads):
    with pytest.raises(UsageError, match="threads: expected a whole number from 1 to 4,096"):
        ptp.build(conv_net(), engine="null", threads=threads)
    assert ptp.build(conv_net(), engine="null", threads=np.int64(2)).create_context().run({"data": image()})


def test_several_numbers_are_as_many_as_they_may_be():
    three = IntList(IntRange(1, 9), 3, 3)
    assert three("1, 2,3") == (1, 2, 3)
    for text in ("1,2", "1,2,3,4", "1,2,10", "1,,3", ",".join("1" * 5000)):
        with pytest.raises(
            argparse.ArgumentTypeError, match=r"expected 3 numbers, each a whole number from 1 to 9"
        ) as caught:
            three(text)
        assert len(str(caught.value)) < 250
