"""Letterbox, decoding and suppression as kernels, against their NumPy forms."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytrtplugins import errors
from pytrtplugins.cuda.backends import host as host_backend
from pytrtplugins.errors import UsageError
from pytrtplugins.layers import Region, Yolo
from pytrtplugins.vision import MODES, decode_region, decode_yolo, letterbox, nms, place_image
from pytrtplugins.vision.kernels import (
    decode_into,
    head_priors,
    letterbox_batch_into,
    letterbox_into,
    nms_into,
    resize_rule,
    top_k_into,
)

pytestmark = pytest.mark.skipif(not host_backend.available(), reason="no C++ compiler (apt-get install g++)")


@pytest.fixture(params=["numpy", pytest.param("cupy", marks=pytest.mark.gpu)])
def xp(request):
    """Where arrays live: kernels compiled for the CPU, and for a GPU."""
    return np if request.param == "numpy" else request.getfixturevalue("cupy")


def on_host(array):
    return array if isinstance(array, np.ndarray) else array.get()


image_side, input_side = st.integers(1, 70), st.integers(1, 50)


def random_image(width, height, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)


@given(
    width=image_side, height=image_side, out_w=input_side, out_h=input_side, nhwc=st.booleans(), mode=st.sampled_from(MODES)
)  # fmt: skip
def test_letterbox_has_the_bits_of_numpys(width, height, out_w, out_h, nhwc, mode):
    image = random_image(width, height, width)
    output = np.full((3, out_h, out_w), np.nan, np.float32)
    found, expected = letterbox_into(image, output, mode=mode, nhwc=nhwc), letterbox(image, (out_w, out_h), mode)
    planes = output.reshape(out_h, out_w, 3).transpose(2, 0, 1) if nhwc else output
    np.testing.assert_array_equal(planes, expected.data, strict=True)
    assert found == expected.placement


@pytest.mark.parametrize("size", [(768, 576), (832, 832), (1248, 416), (416, 416), (400, 300), (3000, 2), (1, 1)])
def test_letterbox_has_the_bits_of_numpys_on_images_of_cameras(size):
    image = random_image(*size)
    output = np.empty((3, 416, 416), np.float32)
    letterbox_into(image, output)
    np.testing.assert_array_equal(output, letterbox(image, (416, 416)).data)


def test_images_of_a_batch_have_sizes_of_their_own():
    images, size = [random_image(37, 50), random_image(80, 20), random_image(5, 5)], (32, 24)
    memory, places = np.zeros(20_000, np.uint8), np.zeros((4, 8), np.int32)
    end = 0
    for image, row, mode in zip(images, places, MODES, strict=False):
        memory[end : end + image.size] = image.ravel()
        placement = place_image(image.shape[1::-1], size, mode)
        row[:] = [end // 16, *placement.original_size, *placement.inner, *placement.corner, resize_rule(mode)]
        end += -(-image.size // 16) * 16
    output = np.full((4, 3, 24, 32), np.nan, np.float32)
    letterbox_batch_into(memory, places, output)
    for image, data, mode in zip(images, output, MODES, strict=False):
        np.testing.assert_array_equal(data, letterbox(image, size, mode).data)
    assert (output[3] == 0.5).all()  # no image there


def test_every_byte_becomes_its_share_of_255():
    image = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3, 2)
    output = np.empty((3, 1, 256), np.float32)
    letterbox_into(image, output, mode="darknet")
    np.testing.assert_array_equal(output[0, 0], (np.arange(256) / 255).astype(np.float32))


@pytest.mark.parametrize("nhwc", [False, True])
def test_letterbox_rounds_to_half_and_to_int8(nhwc):
    image, exact = random_image(50, 31), letterbox(random_image(50, 31), (40, 40), "darknet").data
    half, small = np.empty((3, 40, 40), np.float16), np.empty((3, 40, 40), np.int8)
    step = 0.5 / 127  # so that the brighter half saturates
    letterbox_into(image, half, mode="darknet", nhwc=nhwc)
    letterbox_into(image, small, mode="darknet", step=step, nhwc=nhwc)
    exact = np.ascontiguousarray(exact.transpose(1, 2, 0)).reshape(3, 40, 40) if nhwc else exact
    np.testing.assert_array_equal(half, exact.astype(np.float16))
    np.testing.assert_array_equal(small, np.clip(np.rint(exact / np.float32(step)), -128, 127).astype(np.int8))


@given(
    n=st.integers(1, 2), anchors=st.integers(1, 3), classes=st.integers(1, 6), h=st.integers(1, 5), w=st.integers(1, 5),
    kind=st.sampled_from(["region", "background", "yolo", "new_coords"]), nhwc=st.booleans(),
    dtype=st.sampled_from(["float32", "float16"]), threshold=st.sampled_from([0.0, 0.2]),
)  # fmt: skip
def test_decoding_gives_the_boxes_and_scores_of_numpy(n, anchors, classes, h, w, kind, nhwc, dtype, threshold):
    rng = np.random.default_rng(h * w)
    x = rng.standard_normal((n, anchors * (5 + classes), h, w)).astype(dtype)
    pairs = tuple(float(value) for value in rng.uniform(0.5, 9, 2 * anchors))
    if kind in ("region", "background"):
        output = Region(classes=classes, num=anchors, softmax=True).compute(x)
        expected = decode_region(output, pairs, classes, background=kind == "background")
        priors = head_priors(pairs, (w, h))
    else:
        output = Yolo(anchors=pairs, mask=tuple(range(anchors)), classes=classes).compute(x)
        size = (32 * w, 32 * h)
        expected = decode_yolo(output, pairs, classes, size=size, new_coords=kind == "new_coords")
        priors = head_priors(pairs, size)
    boxes = np.full((n, anchors * h * w, 4), np.nan, np.float32)
    scores = np.full((n, classes, anchors * h * w), np.nan, np.float32)
    given_output = np.ascontiguousarray(output.transpose(0, 2, 3, 1)).reshape(output.shape) if nhwc else output
    decode_into(given_output, boxes, scores, priors, background=kind == "background", new_coords=kind == "new_coords",
                score_threshold=threshold, nhwc=nhwc)  # fmt: skip
    np.testing.assert_array_equal(boxes, expected[0])
    wanted = np.where(expected[1] > np.float32(threshold), expected[1], 0)
    np.testing.assert_array_equal(scores, wanted.transpose(0, 2, 1))


# more boxes than a block has threads; few; as many candidates as shared memory holds; more
@example(n=1, count=600, classes=1, threshold=0.3, keep=0.1, levels=1000, power=0.6)
@example(n=2, count=300, classes=4, threshold=0.45, keep=0.9, levels=3, power=None)
@example(n=1, count=2100, classes=2, threshold=0.0, keep=0.9, levels=5, power=0.3)
@example(n=1, count=2300, classes=2, threshold=0.0, keep=0.95, levels=5, power=0.6)
@given(n=st.integers(1, 2), count=st.integers(1, 60), classes=st.integers(1, 4), threshold=st.sampled_from([0.0, 0.45, 1.0]),
       keep=st.floats(0.05, 1), levels=st.sampled_from([2, 5, 1000]), power=st.sampled_from([None, 0.0, 0.6]))  # fmt: skip
def test_suppression_and_the_best_are_numpys(n, count, classes, threshold, keep, levels, power):
    rng = np.random.default_rng(count)
    places, sizes = rng.uniform(0, 1, (n, count, 2)), rng.uniform(0.05, 0.5, (n, count, 2))
    boxes = np.concatenate([places, sizes], 2).astype(np.float32)
    boxes[:, ::7, 2] = np.inf
    boxes[:, ::11, 0] = np.nan
    scores = (rng.integers(1, levels, (n, classes, count)) / levels).astype(np.float32)
    scores[rng.uniform(size=scores.shape) > keep] = 0
    with np.errstate(invalid="ignore"):
        expected = np.stack([nms(boxes[i], scores[i].T, threshold, distance_power=power) for i in range(n)])
    found, counts = np.zeros((n, classes * count), np.uint64), np.zeros(n, np.int32)
    limit = np.array([threshold], np.float32)
    nms_into(boxes, scores, limit, distance_power=power, found=found, counts=counts)
    np.testing.assert_array_equal(np.maximum(scores, 0).transpose(0, 2, 1), expected)
    rows, totals = np.full((n, 20, 6), np.nan, np.float32), np.zeros(n, np.int32)
    top_k_into(found, counts, boxes, rows, totals, classes)
    for image in range(n):
        chosen = sorted(zip(*expected[image].nonzero(), strict=True), key=lambda item: -expected[image][item])[:20]
        assert totals[image] == len(chosen)
        wanted = [(k, expected[image, box, k], *boxes[image, box]) for box, k in chosen]
        np.testing.assert_array_equal(rows[image, : len(chosen)], np.reshape(wanted, (-1, 6)).astype(np.float32))


@pytest.mark.parametrize("threshold", [-0.5, 1.5, np.float32(-0.5)])
def test_a_threshold_outside_0_to_1_is_refused(threshold):
    with pytest.raises(UsageError, match="iou_threshold: expected a number from 0 to 1"):
        nms_into(np.zeros((1, 4, 4), np.float32), np.zeros((1, 2, 4), np.float32), threshold)


def test_of_equal_scores_the_earlier_box_wins():
    boxes = np.tile(np.array([0.5, 0.5, 0.2, 0.2], np.float32), (1, 40, 1))
    scores = np.full((1, 2, 40), 0.5, np.float32)
    scores[0, 1, :7] = 0.25
    nms_into(boxes, scores)
    assert [np.flatnonzero(scores[0, k] > 0).tolist() for k in (0, 1)] == [[0], [7]]


def test_scores_that_are_no_numbers_are_no_candidates_and_break_no_tie():
    boxes = np.random.default_rng(0).uniform(0.1, 0.9, (1, 60, 4)).astype(np.float32)
    scores = np.full((1, 3, 60), 0.5, np.float32)
    scores[0, 0, ::3] = np.nan
    scores[0, 1, ::5] = np.nan
    found, counts = np.zeros((1, 180), np.uint64), np.zeros(1, np.int32)
    nms_into(boxes, scores, 1.0, found=found, counts=counts)  # 1.0: nothing overlaps too much
    assert counts[0] == 180 - 20 - 12
    assert len(np.unique(found[0, : counts[0]])) == counts[0]


def test_layers_share_their_arrays_each_from_its_first_box():
    rng = np.random.default_rng(0)
    outputs = [rng.uniform(0.1, 0.9, (2, 2 * 7, side, side)).astype(np.float32) for side in (2, 3)]
    anchors = (1, 2, 3, 4, 5, 6, 7, 8)
    boxes, scores = np.zeros((2, 26, 4), np.float32), np.zeros((2, 2, 26), np.float32)
    for output, first, mask in zip(outputs, (0, 8), ((2, 3), (0, 1)), strict=True):
        decode_into(output, boxes, scores, head_priors(anchors, (64, 64), mask), first=first)
        expected = decode_yolo(output, anchors, 2, mask=mask, size=(64, 64))
        end = first + expected[0].shape[1]
        np.testing.assert_array_equal(boxes[:, first:end], expected[0])
        np.testing.assert_array_equal(scores[:, :, first:end], expected[1].transpose(0, 2, 1))
    for first in (-1, 9):
        with pytest.raises(errors.UsageError, match=f"with B at least {first + 18}, found"):
            decode_into(outputs[1], boxes, scores, head_priors(anchors[:4], (64, 64)), first=first)


@pytest.mark.parametrize("limit", [0.3, np.float32(0.7), np.float64(0.3), "array"])
def test_a_score_that_equals_the_threshold_is_none(xp, limit):
    """In float32: a threshold of float64 is rounded like the scores."""
    threshold = np.float32(0.3 if isinstance(limit, str) else limit)
    output = np.zeros((2, 2 * 7, 1, 3), np.float32)
    output[:, 4::7] = 1  # objectness
    scores = np.array([np.nextafter(threshold, np.float32(0)), threshold, np.nextafter(threshold, np.float32(1))])
    output[:, 5::7], output[:, 6::7] = scores, scores[::-1]
    boxes, written = xp.empty((2, 6, 4), np.float32), xp.empty((2, 2, 6), np.float32)
    given_limit = xp.asarray([threshold]) if isinstance(limit, str) else limit
    decode_into(xp.asarray(output), boxes, written, head_priors((1, 1, 2, 2), (3, 1)), score_threshold=given_limit)
    above = float(scores[2])
    assert on_host(written).tolist() == [[[0, 0, above] * 2, [above, 0, 0] * 2]] * 2


@pytest.mark.parametrize("place", [0, 1, 2])
def test_boxes_whose_overlap_equals_the_threshold_stay(xp, place):
    """Two boxes in one of three images, which share exactly half of what both cover."""
    boxes = np.zeros((3, 2, 4), np.float32)
    boxes[:] = [[0.25, 0.25, 0.5, 0.25], [0.75, 0.25, 0.5, 0.25]]  # beside each other
    boxes[place] = [[0.375, 0.25, 0.75, 0.5], [0.625, 0.25, 0.75, 0.5]]
    scores = np.full((3, 1, 2), [0.9, 0.8], np.float32)
    for threshold, stays in ((0.5, True), (np.nextafter(np.float32(0.5), np.float32(0)), False)):
        expected = [[[np.float32(0.9), np.float32(0.8) if stays or image != place else 0]] for image in range(3)]
        written = xp.asarray(scores)
        nms_into(xp.asarray(boxes), written, threshold)
        np.testing.assert_array_equal(np.maximum(on_host(written), 0), expected)
        np.testing.assert_array_equal(nms(boxes[place], scores[place].T, threshold).T, expected[place])


@pytest.mark.parametrize("count", [2047, 2048, 2049])
def test_as_many_candidates_as_shared_memory_holds_and_one_more_give_the_same(xp, count):
    """Boxes in a row, a fifth of each two is shared: every second one stays."""
    boxes, scores = np.zeros((1, count, 4), np.float32), np.zeros((1, 1, count), np.float32)
    boxes[0, :, 0], boxes[0, :, 1:] = np.arange(count), (0, 1.5, 1)
    scores[0, 0] = np.linspace(1, 0.5, count)
    written, listed, counts = xp.asarray(scores), xp.zeros((1, count), np.uint64), xp.zeros(1, np.int32)
    nms_into(xp.asarray(boxes), written, 0.1, found=listed, counts=counts)
    assert np.flatnonzero(on_host(written)[0, 0] > 0).tolist() == list(range(0, count, 2))
    assert int(counts[0]) == (count + 1) // 2


@pytest.mark.parametrize("room", [1, 2, 3, 4])
def test_the_best_rows_are_filled_to_the_last_one(xp, room):
    """Three boxes are there: of them as many as there is room for, in each image."""
    boxes = np.arange(24, dtype=np.float32).reshape(2, 3, 4) + 100 * np.arange(3, dtype=np.float32)[:, None]
    scores = np.array([[[0.25, 0.75, 0.5]], [[0.5, 0.25, 0.75]]], np.float32)
    listed, counts = xp.zeros((2, 3), np.uint64), xp.zeros(2, np.int32)
    nms_into(xp.asarray(boxes), xp.asarray(scores), 1.0, found=listed, counts=counts)
    rows, totals = xp.full((2, room, 6), -1, np.float32), xp.zeros(2, np.int32)
    top_k_into(listed, counts, xp.asarray(boxes), rows, totals, 1)
    assert on_host(totals).tolist() == [min(room, 3)] * 2
    for image, order in enumerate(([1, 2, 0], [2, 0, 1])):
        wanted = [[0, scores[image, 0, box], *boxes[image, box]] for box in order][:room]
        np.testing.assert_array_equal(on_host(rows)[image, : len(wanted)], wanted)


def test_thresholds_are_0_and_0_45_unless_given():
    boxes = np.array([[(0.5, 0.5, 0.2, 0.2), (0.574, 0.5, 0.2, 0.2), (0.426, 0.51, 0.2, 0.2)]], np.float32)
    scores = np.array([[[0.9, 0.5, 0]], [[0.9, 0.5, 0.4]]], np.float32)
    both = np.repeat(boxes, 2, 0)
    nms_into(both, scores)
    assert (scores > 0).tolist() == [[[True, False, False]], [[True, False, True]]]


def test_images_and_inputs_of_other_dims_are_refused():
    good, output = random_image(4, 4), np.zeros((3, 4, 4), np.float32)
    for image, other in (
        (good[:, :, 0], output), (good[..., None], output), (good[:, :, :2], output), (good[None], output),
        (good, output[0]), (good, output[:2]), (good, output[None]),
    ):  # fmt: skip
        with pytest.raises(errors.UsageError, match=r"^letterbox_into: expected an image \(H, W, 3\) and an output"):
            letterbox_into(image, other)


def test_arrays_of_other_dims_are_refused():
    boxes, scores = np.zeros((1, 8, 4), np.float32), np.zeros((1, 3, 9), np.float32)
    with pytest.raises(errors.UsageError, match=r"expected boxes \(1, 9, 4\)"):
        nms_into(boxes, scores)
    for arrays in (
        (boxes, scores), (boxes, scores[:, :, :7]), (boxes, scores[:, :2, :8]), (boxes[..., :3], scores[..., :8]),
    ):  # fmt: skip
        with pytest.raises(
            errors.UsageError, match=r"needs boxes \(N, B, 4\) and scores \(N, 3, B\) with B at least 8"
        ):
            decode_into(np.zeros((1, 16, 2, 2), np.float32), *arrays, head_priors((1, 1, 2, 2), (2, 2)))
    with pytest.raises(errors.UsageError, match="expected one of letterbox"):
        letterbox_into(random_image(4, 4), np.zeros((3, 4, 4), np.float32), mode="crop")
    with pytest.raises(errors.UsageError, match=r"an output \(3, H, W\)"):
        letterbox_into(random_image(4, 4), np.zeros((4, 4, 3), np.float32))
