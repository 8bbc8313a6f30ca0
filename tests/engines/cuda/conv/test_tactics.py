"""Which problems handwritten kernels are offered for, and in which terms; no GPU is needed to say so."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.engines.cuda.conv.handwritten import HandwrittenProvider
from pytrtplugins.engines.cuda.conv.hopper import halo_tactics, hopper_tactics
from pytrtplugins.engines.cuda.conv.launcher import Addresses, conv_arguments
from pytrtplugins.engines.cuda.conv.problem import ConvProblem
from pytrtplugins.engines.cuda.conv.shape import ConvShape
from pytrtplugins.engines.cuda.conv.stem import StemProvider
from pytrtplugins.engines.cuda.conv.tactics import (
    SHARED_BYTES,
    Tactic,
    im2col_corners,
    mma_tactics,
    simt_tactics,
)
from pytrtplugins.engines.cuda.device.layout import Format, channels_last, linear
from pytrtplugins.tensor import DType
from tests.engines.cuda.conv import order
from tests.engines.cuda.conv.shapes import (
    FP8,
    HALF,
    INT8,
    SINGLE,
    YOLOV2,
    between,
    grouped,
    square,
    tactics_of,
)

WINDOW: dict[str, Any] = {"kernel": (3, 3), "pads": (1, 1, 1, 1), "activation": "leaky", "bounds": (0.1, 0.0)}


def gpu(capability=90, multiprocessors=132):
    return SimpleNamespace(capability=capability, multiprocessors=multiprocessors)


def problem(kind=HALF, channels=32, filters=64, to=None, **changes):
    x, y = channels_last((2, channels, 16, 16), kind), channels_last((2, filters, 16, 16), to or kind)
    return replace(ConvProblem(x=x, y=y, **WINDOW), **changes)


def first(kind=HALF, channels=3, filters=32, **changes):
    x, y = linear((2, channels, 16, 16), SINGLE), channels_last((2, filters, 8, 8), kind)
    return replace(ConvProblem(x=x, y=y, pool=True, element=kind, **WINDOW), **changes)


RESIDUAL = {
    "residual": channels_last((2, 64, 16, 16), INT8),
    "residual_activation": "leaky",
    "residual_bounds": (0.0, 0.0),
}
PLAIN = {"n": 2, "h": 16, "w": 16, "c": 32, "k": 64, "oh": 16, "ow": 16, "x_pitch": 32, "y_pitch": 64, "pool": False}


@pytest.mark.parametrize(
    ("asked", "facts"),
    [
        pytest.param(problem(), {**PLAIN, "slope": pytest.approx(0.1)}, id="plain"),
        pytest.param(problem(INT8, channels=24, filters=125, to=HALF),
                     {"c": 32, "x_pitch": 32, "k": 128, "y_pitch": 128}, id="padded to 16 bytes"),
        pytest.param(problem(y=Format((2, 64, 16, 16), HALF, 320)), {"k": 64, "y_pitch": 320}, id="part of a concat"),
        pytest.param(problem(y=channels_last((2, 64, 8, 8), HALF), pool=True),
                     {"oh": 16, "ow": 16, "pool": True}, id="pixels before a pool"),
        pytest.param(problem(INT8, **RESIDUAL),
                     {"residual_type": INT8, "residual_pitch": 64, "residual_slope": 0.0}, id="residual"),
    ],
)  # fmt: skip
def test_a_problem_in_the_kernels_terms(asked, facts):
    shape = ConvShape.of(asked)
    assert {name: getattr(shape, name) for name in facts} == facts
    assert shape.unsupported() == ""


def test_bounds_reach_the_kernel():
    shape = ConvShape.of(problem(activation="clip", bounds=(0.0, 6.0)))
    numbers = conv_arguments(shape, hopper_tactics(shape)[0], Addresses(16, 32, 48, 64, 80), 1.0, 1.0)
    assert (shape.bounds, numbers.low, numbers.high) == ((0.0, 6.0), 0.0, 6.0)
    assert ConvShape.of(problem(activation="leaky", bounds=(0.1, 0.0))).bounds == (0.0, 0.0)


def test_bounds_make_another_problem():
    def key(activation, *bounds):
        return problem(activation=activation, bounds=bounds).key

    assert key("clip", 0.0, 6.0) != key("clip", 0.0, 1.0)
    assert key("leaky", 0.1, 0.0) == key("leaky", 0.1, 1.0)


@pytest.mark.parametrize(
    "activation",
    ["logistic", "swish", "quick_gelu", "gelu", "gelu_tanh", "hard_swish", "hard_sigmoid", "clip", "prelu"],
)
def test_activations_that_are_no_slopes_are_compiled_into_a_kernel(activation):
    sloped, other = (ConvShape.of(problem(activation=name)) for name in ("leaky", activation))
    assert hopper_tactics(other) == hopper_tactics(sloped)
    tactic = hopper_tactics(other)[0]
    assert (tactic.definitions(sloped)["GATE"], tactic.definitions(other)["GATE"]) == (0, other.gate)
    assert other.gate > 0


@pytest.mark.parametrize(("kind", "gate"), [(HALF, 9), (SINGLE, 9), (INT8, 0), (FP8, 0)])
def test_relu_is_no_slope_where_a_sum_can_be_infinite(kind, gate):
    residual = channels_last((2, 64, 16, 16), HALF)
    base = problem(kind, tensor_cores=kind is not SINGLE)
    relu = ConvShape.of(replace(base, bounds=(0.0, 0.0)))
    behind = ConvShape.of(replace(base, residual=residual, residual_activation="leaky", residual_bounds=(0.0, 0.0)))
    assert (relu.gate, behind.gate, behind.residual_gate, relu.has_slopes) == (gate, 0, 9, False)


def test_slopes_of_filters_are_compiled_in_before_a_residual_or_behind_it():
    residual = channels_last((2, 64, 16, 16), HALF)
    plain = ConvShape.of(problem())
    before = ConvShape.of(problem(activation="prelu", residual=residual, residual_activation="leaky"))
    behind = ConvShape.of(problem(residual=residual, residual_activation="prelu"))
    gates = [(shape.gate, shape.residual_gate, shape.has_slopes) for shape in (plain, before, behind)]
    assert gates == [(0, 0, False), (8, 9, True), (0, 8, True)]
    assert (plain.filter_bytes, behind.filter_bytes) == (8, 12)
    assert hopper_tactics(behind)[0].definitions(behind)["RESIDUAL_GATE"] == 8


@pytest.mark.parametrize("family", ["hopper", "halo", "mma", "simt"])
def test_slopes_have_room_in_shared_memory_beside_the_largest_rings(family):
    kind = SINGLE if family == "simt" else INT8
    shape = square(1, 64, 512, 512, 3, kind, gate=8)
    tactics = tactics_of(family, shape, 1000)
    assert tactics
    room = SHARED_BYTES[90] * 1024
    assert all(each.shared_bytes(shape) + 12 * each.tile_n + 16 * each.stages <= room for each in tactics)


@pytest.mark.parametrize(("family", "beside"), [("mma", 0), ("simt", 1024)])
def test_the_largest_ring_may_fill_shared_memory_and_not_more(monkeypatch, family, beside):
    shape = square(1, 64, 512, 512, 3, SINGLE if family == "simt" else HALF)
    largest = max(tactics_of(family, shape, 1000), key=lambda tactic: tactic.shared_bytes(shape))
    need = -(-(largest.shared_bytes(shape) + shape.filter_bytes * largest.tile_n + beside) // 1024)
    for room, offered in ((need, True), (need - 1, False)):
        monkeypatch.setitem(SHARED_BYTES, 90, room)
        assert (largest in tactics_of(family, shape, 1000)) is offered


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": SINGLE},  # may be rounded to TF32
        {"kind": SINGLE, "tensor_cores": False, "groups": 2},
        {"groups": 32, "filters": 32},  # depthwise
        {"residual": channels_last((2, 64, 16, 16), HALF), "residual_activation": "clip"},
        {"residual": channels_last((2, 64, 16, 16), HALF), "residual_activation": "logistic"},
        {"element": HALF},
    ],
)
def test_what_the_kernels_cannot_compute_gets_no_tactics(changes):
    for family in ("hopper", "halo", "mma", "simt"):
        provider = HandwrittenProvider(gpu(), family)
        assert provider.tactics(problem(**changes)) == []


@pytest.mark.parametrize("family", ["hopper", "halo", "mma"])
@pytest.mark.parametrize(("kind", "capability"), [(HALF, 80), (INT8, 80), (FP8, 89)])
@pytest.mark.parametrize("width", [1, 4, 8, 13, 32, 64, 128, 256])
def test_groups_of_any_width_get_tactics_that_fit(family, kind, capability, width):
    groups, device = max(2, 160 // width), gpu(capability if family == "mma" else 90)
    channels, filters = groups * width, groups * width * (2 if width == 1 else 1)
    found = problem(kind, channels=channels, filters=filters, groups=groups)
    shape, names = ConvShape.of(found), HandwrittenProvider(device, family).tactics(found)
    assert (shape.group_channels, shape.group_filters, shape.unsupported()) == (width, filters // groups, "")
    assert names
    for name in names:
        tactic = Tactic.parse(family, name)
        assert tactic.shared_bytes(shape) <= SHARED_BYTES[device.capability] * 1024
        assert tactic.steps(shape) % tactic.units == 0
        assert tactic.definitions(shape)["GROUPED"] == 1


def test_a_tile_of_filters_reads_the_channels_of_its_groups():
    narrow, wide = grouped(1, 8, 32, 8, HALF), grouped(1, 8, 2, 256, INT8)
    assert [narrow.window_bytes(tile_n) for tile_n in (32, 64, 128, 256)] == [64, 128, 256, 512]
    assert [wide.window_bytes(tile_n) for tile_n in (32, 64, 128, 256)] == [256] * 4
    assert [narrow.first_channel(filter_index) for filter_index in (0, 32, 192)] == [0, 32, 192]
    assert [wide.first_channel(filter_index) for filter_index in (0, 192, 256)] == [0, 0, 256]
    uneven = grouped(1, 8, 8, 20, HALF)  # a tile begins and ends within a group, whose channels begin within 16 bytes
    assert [uneven.first_channel(filter_index) for filter_index in (32, 64, 96, 128)] == [16, 56, 80, 120]
    assert uneven.window_bytes(32) == 2 * 64  # the second tile: from 16 to 80
    assert square(1, 8, 96, 64, 3, HALF).window_bytes(32) == 2 * 96


def test_groups_reach_the_kernel():
    shape = grouped(1, 8, 8, 20, HALF, filters=12)
    numbers = conv_arguments(shape, mma_tactics(shape)[0], Addresses(16, 32, 48, 64, 80), 1.0, 1.0)
    assert (numbers.group_filters, numbers.group_bytes) == (12, 40)
    assert mma_tactics(square(1, 8, 64, 64, 3, HALF))[0].definitions(square(1, 8, 64, 64, 3, HALF))["GROUPED"] == 0


@pytest.mark.parametrize("family", ["hopper", "halo", "simt"])
def test_a_gpu_of_fewer_multiprocessors_tries_other_tactics_first(family):
    """With K split among blocks only while that gives multiprocessors something to do."""
    asked = problem(SINGLE if family == "simt" else HALF, tensor_cores=family != "simt", channels=512, filters=512)
    large, small = (
        HandwrittenProvider(gpu(multiprocessors=count), family, 1 << 30).tactics(asked) for count in (132, 8)
    )
    assert large != small
    if family != "simt":
        assert not any(Tactic.parse(family, name).split_k > 1 for name in small)
        assert any(Tactic.parse(family, name).split_k > 1 for name in large)


@pytest.mark.parametrize("capability", [80, 89, 90, 120])
def test_true_float32_has_a_family_of_its_own(capability):
    device = gpu(capability)
    assert HandwrittenProvider(device, "simt").tactics(problem(SINGLE, channels=3, tensor_cores=False))
    assert HandwrittenProvider(device, "mma").tactics(problem(SINGLE, tensor_cores=False)) == []


def test_a_float32_image_is_read_as_it_is():
    taken = first(SINGLE, tensor_cores=False)
    shape = ConvShape.of(taken)
    assert (shape.c, shape.x_pitch, shape.planes, shape.pool, shape.unsupported()) == (4, 1, 3, True, "")
    assert HandwrittenProvider(gpu(80), "simt").tactics(taken)
    for image in (first(HALF), first(SINGLE), first(SINGLE, channels=5, tensor_cores=False)):
        assert ConvShape.of(image) is None


@pytest.mark.parametrize(
    ("family", "capability"), [("hopper", 80), ("hopper", 100), ("halo", 80), ("halo", 100), ("mma", 75)]
)
def test_a_gpu_without_the_instructions_gets_no_tactics(family, capability):
    assert HandwrittenProvider(gpu(capability), family).tactics(problem()) == []


@pytest.mark.parametrize("kind", [HALF, INT8])
def test_the_stems_kernel_is_offered_for_images_of_few_channels(kind):
    assert StemProvider(gpu(80)).tactics(first(kind)) == ["stem"]


@pytest.mark.parametrize(
    ("capability", "changes"),
    [
        (75, {}),
        (90, {"kind": SINGLE}),
        (90, {"channels": 5}),
        (90, {"filters": 24}),
        (90, {"strides": (2, 2)}),
        (90, {"activation": "logistic"}),
        (90, {"element": None, "x": channels_last((2, 3, 16, 16), HALF)}),
    ],
)
def test_it_is_not_offered_for_anything_else(capability, changes):
    assert StemProvider(gpu(capability)).tactics(first(**changes)) == []


def test_a_fused_problem_counts_the_operations_of_all_its_pixels():
    assert first().flops == 2 * 2 * 32 * 16 * 16 * 3 * 9
    assert first().unfused.y.dims == (2, 32, 16, 16)
    assert first().unfused.x == channels_last((2, 3, 16, 16), HALF)
    assert first().key != first().unfused.key


@given(st.data())
def test_the_copy_engines_box_has_the_outputs_places(data):
    number = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    kernel, stride, pad, dilation = number(1, 5), number(1, 3), number(0, 2), number(1, 2)
    side = number(10, 20)
    out = (side + 2 * pad - (kernel - 1) * dilation - 1) // stride + 1
    more = {"strides": (stride,) * 2, "pads": (pad,) * 2, "dilations": (dilation,) * 2}
    shape = between((1, side, side, 16), (out, out, 16), kernel, HALF, **more)
    (left, top), (right, bottom) = im2col_corners(shape)
    columns = range(left, side - 1 + right + 1, stride)
    rows = range(top, side - 1 + bottom + 1, stride)
    assert list(columns) == [place * stride - pad for place in range(out)]
    assert len(rows) == out


@pytest.mark.parametrize(
    ("kernel", "stride", "side"),
    [(16, 16, 224), (9, 9, 90), (3, 1, 400)],
    ids=["patches of a vision transformer", "a stride above 8", "a pad of 200"],
)
def test_what_the_copy_engine_cannot_count_is_left_to_other_kernels(kernel, stride, side):
    pad = 200 if kernel == 3 else 0
    out = (side + 2 * pad - kernel) // stride + 1
    more = {"strides": (stride,) * 2, "pads": (pad,) * 2}
    shape = between((1, side, side, 16), (out, out, 64), kernel, HALF, **more)
    assert not [tactic for tactic in hopper_tactics(shape) if not tactic.spatial_tile]


def test_patches_of_an_image_that_the_copy_engine_cannot_count_are_for_the_other_kernels():
    x, y = channels_last((1, 8, 224, 224), HALF), channels_last((1, 64, 14, 14), HALF)
    shape = ConvShape.of(ConvProblem(x=x, y=y, kernel=(16, 16), strides=(16, 16)))
    assert hopper_tactics(shape) == []
    assert mma_tactics(shape, 90)
    assert not any(tactic.spatial_tile for tactic in mma_tactics(shape, 90))


@pytest.mark.parametrize("capability", [80, 86, 90, 120])
@pytest.mark.parametrize("n", [1, 8])
def test_yolov2s_convolutions_have_float32_tactics_that_fit(n, capability):
    for side, c, k, kernel, pool in [(416, 4, 32, 3, True), *YOLOV2]:
        shape = square(n, side, c, k, kernel, SINGLE, pool=pool)
        found = simt_tactics(shape, capability)
        assert found
        for tactic in found:
            assert tactic.shared_bytes(shape) + 8 * tactic.tile_n <= SHARED_BYTES[capability] * 1024
            assert tactic.threads == 128
            assert tactic.split_k == 1 or capability >= 90
            assert not shape.pool or tactic.thread_m % 4 == 0
            assert Tactic.parse("simt", tactic.name) == tactic


@pytest.mark.parametrize("x_type", [HALF, INT8, FP8])
@pytest.mark.parametrize("n", [1, 8, 32])
def test_yolov2s_convolutions_have_tactics_that_fit(x_type, n):
    for side, c, k, kernel, pool in YOLOV2:
        shape = square(n, side, c, k, kernel, x_type, pool=pool)
        hopper, halo, mma = hopper_tactics(shape), halo_tactics(shape), mma_tactics(shape, 89)
        assert hopper
        assert mma
        assert bool(halo) or kernel == 1
        assert all(tactic.persistent for tactic in halo) or kernel > 1  # with one tap there is nothing to share
        for tactic in hopper + halo + mma:
            assert tactic.shared_bytes(shape) <= (99 if tactic.family == "mma" else 227) * 1024
            assert shape.taps * tactic.chunks(shape) % tactic.units == 0
            assert not (shape.pool and (tactic.split_k > 1 or not tactic.spatial_tile))
            assert Tactic.parse(tactic.family, tactic.name) == tactic
            assert Tactic(**json.loads(json.dumps(asdict(tactic)))) == tactic


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"x_type": DType.UINT8}, "uint8"),
        ({"planes": 3}, "3 planes of float16"),
        ({"x_type": SINGLE, "planes": 3}, "3 planes of float32"),
        ({"x_type": SINGLE, "planes": 3, "x_pitch": 1}, "3 planes of float32"),  # of 16 channels
        ({"x_type": SINGLE, "planes": 3, "c": 4}, "3 planes of float32"),
        ({"x_type": SINGLE, "planes": 5, "c": 4, "x_pitch": 1}, "5 planes of float32"),
        ({"c": 12}, "16 bytes"),
        ({"slope": 1.5}, "slopes"),
        ({"pool": True, "oh": 5}, "odd size"),
        ({"reorg": 3}, "reorg"),
        ({"reorg": 2, "linear": True}, "linear"),
        ({"blocks": 2, "k": 96}, "blocks"),
        ({"blocks": 2, "k": 64, "linear": True}, "blocks"),
        ({"residual_type": HALF, "residual_pitch": 16, "pool": True}, "residual"),
    ],
)
def test_what_the_kernels_cannot_compute_has_no_tactics(change, reason):
    shape = replace(square(1, 8, 16, 16, 3, HALF), **change)
    assert reason in shape.unsupported()
    assert hopper_tactics(shape) == halo_tactics(shape) == mma_tactics(shape, 90) == simt_tactics(shape) == []
    assert mma_tactics(square(1, 8, 16, 16, 3, HALF), 75) == []


@pytest.mark.parametrize(("channels", "depths"), [(64, {64, 128}), (32, {64}), (16, {32})])
def test_a_unit_is_as_deep_as_the_channels_fill_or_64_bytes(channels, depths):
    """Of 2 bytes each."""
    found = mma_tactics(square(8, 32, channels, 64, 3, HALF), 90, max_tactics=1000)
    assert {tactic.depth for tactic in found} == depths


def test_fp8_begins_with_ada():
    for shape in (square(1, 8, 16, 16, 3, FP8), square(1, 8, 16, 16, 3, HALF, y_type=FP8)):
        assert mma_tactics(shape, 86) == []
        assert mma_tactics(shape, 89)


def test_float32_and_the_others_are_different_families():
    single, half = square(1, 8, 16, 16, 3, SINGLE), square(1, 8, 16, 16, 3, HALF)
    assert hopper_tactics(single) == mma_tactics(single, 90) == simt_tactics(half) == simt_tactics(single, 75) == []
    assert simt_tactics(square(1, 16, 16, 16, 13, SINGLE)) == []


def test_a_tactics_name_is_checked():
    with pytest.raises(ValueError, match="not a tactic of 'mma'"):
        Tactic.parse("mma", "m64")


def test_the_tactics_that_are_tried_first_are_those_that_were_fast_on_an_h200():
    listed = order.LIST.read_text().splitlines()
    found = list(order.order())
    assert found == listed[: len(found)], "Do: python -m tests.engines.cuda.conv.order"
    assert list(order.variants()) == listed[len(found) :], "Do: python -m tests.engines.cuda.conv.order"
