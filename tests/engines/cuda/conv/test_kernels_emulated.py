"""The handwritten kernels on a CPU, from their first to their last line but for clusters, each against the definition in float64."""

import itertools
import math

import numpy as np
import pytest

from pytrtplugins.cuda.backends.host import available
from pytrtplugins.engines.cuda.conv.launcher import Addresses, conv_arguments
from pytrtplugins.engines.cuda.conv.packing import pack_biases, pack_filters
from pytrtplugins.engines.cuda.conv.stem_kernel import stem_arguments
from pytrtplugins.engines.cuda.device.elements import stored, to_stored
from tests.engines.cuda.conv.definition import (
    STEP,
    agrees,
    as_read,
    assert_written,
    biases_of,
    problem,
    stem_problem,
    untouched,
)
from tests.engines.cuda.conv.emulated import addressed, emulated
from tests.engines.cuda.conv.shapes import FP8, HALF, INT8, SINGLE, between, grouped, packed_weights, square, tactics_of

pytestmark = pytest.mark.skipif(not available(), reason="g++ is missing")


def run(family, shape, tactic, x, weights, scale, biases, y, residual, factor, step):
    """What a kernel makes of y; behind each array lies what would show in its numbers."""
    arrays = [to_stored(x), packed_weights(shape, tactic, weights), pack_filters(scale, tactic, shape, 1.0), biases, y]
    held = [addressed(array) for array in (*arrays, *([] if residual is None else [to_stored(residual)]))]
    arguments = conv_arguments(shape, tactic, Addresses(*(address for _, address in held)), factor, step)
    rows, columns = tactic.tiles(shape)
    launch = emulated(f"conv_{family}.cu", tactic.definitions(shape), tactic.shared_bytes(shape))
    launch(arguments, rows * columns, tactic.threads)
    return held[4][0]


def assert_right(family, shape, tactic):
    """A tactic gives the definition's numbers, and writes nothing else."""
    x, weights, scale, bias, residual, expected = problem(shape)
    biases, y = biases_of(shape, tactic, bias), untouched(shape, expected)
    found = run(family, shape, tactic, as_read(shape, x), weights, scale, biases, y, residual, 0.37, STEP)
    assert_written(shape, found, expected, tactic.name)


def whole(family, shape):
    """The first tactics of each width of tiles that need no cluster: they differ in how filters are shared out."""
    found = [tactic for tactic in tactics_of(family, shape, 100, 89) if tactic.split_k == 1]
    return {(tactic.tile_n, tactic.columns, tactic.units > 1): tactic for tactic in found[::-1]}.values()


def bent(kind, k=33, **more):
    """A small convolution with a slope for each filter, before the residual unless told otherwise."""
    return square(1, 6, 16, k, 3, kind, **({} if "residual_gate" in more else {"gate": 8}), **more)


def added(kind, k=33, **more):
    return bent(kind, k, residual_type=kind, residual_pitch=48, **more)


FORMS = [
    form
    for kind in (HALF, INT8, FP8, SINGLE)
    for form in (
        *(bent(kind, 72), added(kind), added(kind, residual_gate=8), bent(kind, 72, pool=True)),
        *(bent(kind, 40, reorg=2, y_pitch=176), bent(kind, 128, blocks=2, y_pitch=48)),
        bent(kind, linear=True, y_type=SINGLE),
        *([bent(kind, linear=True, y_type=HALF)] if kind is not SINGLE else []),
        *(square(1, 6, 16, 33, 3, kind), square(1, 6, 16, 72, 3, kind, pool=True, slope=0.1)),
        *(square(1, 6, 16, 33, 3, kind, gate=9), added(kind, residual_gate=9)),
        between((2, 7, 9, 48), (4, 5, 24), 3, kind, strides=(2, 2), pads=(1, 1), y_type=kind, gate=8),
    )
]
FORMS += [grouped(1, 5, groups, 8, kind, gate=8) for kind in (HALF, INT8, FP8) for groups in (3, 9)]


def image_in_fp8(kind, pool):
    return square(1, 6, 16, 24, 3, kind, y_type=FP8, y_pitch=32, pool=pool, slope=0.1)


@pytest.mark.parametrize(
    ("family", "shape"),
    [
        pytest.param("mma", image_in_fp8(HALF, True), id="floats become FP8 behind a pool"),
        pytest.param("mma", image_in_fp8(HALF, False), marks=pytest.mark.slow, id="floats become FP8"),
        pytest.param("simt", image_in_fp8(SINGLE, True), marks=pytest.mark.slow, id="float32 becomes FP8"),
        pytest.param("mma", added(INT8, residual_gate=8), id="slopes are those of their filters"),
        pytest.param("simt", added(SINGLE), marks=pytest.mark.slow, id="slopes in float32"),
    ],
)
def test_the_first_kernel_is_right(family, shape):
    assert_right(family, shape, next(iter(whole(family, shape))))


@pytest.mark.parametrize(("family", "kind"), [("mma", HALF), ("simt", SINGLE)])
@pytest.mark.parametrize("behind", [False, True], ids=["plain", "residual"])
def test_relu_makes_0_of_minus_infinity_and_keeps_nan(family, kind, behind):
    more = {"residual_type": kind, "residual_pitch": 16, "residual_gate": 9} if behind else {"gate": 9}
    shape = square(1, 4, 16, 16, 1, kind, **more)
    x = np.zeros((1, 4, 4, 16), kind.numpy)
    x[0, 0, :3, 5] = -np.inf, np.inf, np.nan
    weights, ones, y = np.ones((16, 16, 1, 1), kind.numpy), np.ones(16, np.float32), np.full_like(x, 77)
    tactic = next(iter(whole(family, shape)))
    biases = pack_biases([ones], tactic, shape)
    found = run(family, shape, tactic, x, weights, ones, biases, to_stored(y), y if behind else None, 1.0, 1.0)
    assert found[0, 0, :, 0].tolist()[:2] == [0.0, np.inf]
    assert np.isnan(found[0, 0, 2]).all()
    assert (found[0, 1:] == (78.0 if behind else 1.0)).all()


@pytest.mark.slow
@pytest.mark.parametrize("shape", FORMS, ids=lambda shape: f"{shape.x_type}-{shape.k}")
def test_each_way_to_memory_with_tiles_of_each_width(shape):
    family = "simt" if shape.x_type is SINGLE else "mma"
    tactics = whole(family, shape)
    assert tactics
    for tactic in tactics:
        assert_right(family, shape, tactic)


@pytest.mark.parametrize(
    ("element", "y_type", "pool", "prelu"),
    [
        (HALF, HALF, True, True),
        (HALF, FP8, True, False),
        *(
            pytest.param(*kinds, *case, marks=pytest.mark.slow)
            for kinds in ((HALF, HALF), (HALF, FP8), (INT8, INT8), (FP8, FP8))
            for case in itertools.product((True, False), (True, False))
        ),
    ],
)
def test_the_stem_takes_the_image_as_it_is(element, y_type, pool, prelu):
    shape, arrays, expected = stem_problem(element, pool, prelu, y_type)
    held = [addressed(to_stored(array)) for array in (*arrays, np.full(expected.shape, 77, stored(y_type)))]
    launch = emulated("stem.cu", shape.definitions())
    launch(stem_arguments(shape, *(address for _, address in held)), math.prod(shape.tiles), 256)
    assert agrees(held[-1][0], expected, y_type)
