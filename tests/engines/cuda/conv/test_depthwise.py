"""The depthwise kernel, on the CPU: its numbers are those of the definition, for every tile."""

import math
from dataclasses import replace

import numpy as np
import pytest

from pytrtplugins.engines.cuda.conv.depthwise import DepthwiseProvider, DepthwiseTile, depthwise_tiles
from pytrtplugins.engines.cuda.conv.problem import ConvProblem, DirectProvider, Operands, Scratch
from pytrtplugins.engines.cuda.device.device import HostDevice
from pytrtplugins.engines.cuda.device.elements import encoded
from pytrtplugins.engines.cuda.device.layout import FP8, Format, channels_last
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import convolve, filled
from tests.measures import relative

SINGLE, HALF, CODES = DType.FLOAT32, DType.FLOAT16, DType.INT8
ROOM = {SINGLE: 2e-6, HALF: 1e-3}
UNTOUCHED = 77
_SCALES = {CODES: (1e-4, 2e-4), FP8: (0.5, 1.0)}


def problem(kind=HALF, c=24, n=2, size=(9, 11), kernel=(3, 3), stride=1, pads=None, dilation=1, to=None, **changes):
    """A depthwise convolution, padded so that a stride of 1 keeps the size, unless told otherwise."""
    pads = pads or tuple((side - 1) * dilation // 2 for side in kernel) * 2
    ends = [
        (side + before + behind - (taps - 1) * dilation - 1) // stride + 1
        for side, taps, before, behind in zip(size, kernel, pads[:2], pads[2:], strict=True)
    ]
    x, y = channels_last((n, c, *size), kind), channels_last((n, c, *ends), to or kind)
    made = ConvProblem(
        x=x, y=y, kernel=kernel, strides=(stride, stride), pads=pads, dilations=(dilation, dilation), groups=c
    )
    return replace(made, **changes)


def given(case, seed=1):
    """Operands, x and the residual; what lies between channels is no number, or one that would show."""
    random, c = np.random.default_rng(seed), case.x.dims[1]

    def values(kind, *dims):
        return random.integers(-90, 90, dims) if kind is CODES else random.standard_normal(dims)

    def tensor(form):
        codes = encoded(np, values(form.dtype, *form.dims), form.dtype, {})
        return filled(form, codes, np.nan if form.dtype in ROOM else UNTOUCHED)

    def step(form, scale):
        return scale if form is not None and form.dtype not in ROOM else 1.0

    kind = np.float32 if case.x.dtype in ROOM else case.x.dtype.numpy
    weights = values(case.x.dtype, c, 1, *case.kernel).astype(kind)
    operands = Operands(
        load=lambda: weights,
        bias=random.standard_normal(c).astype(np.float32),
        scale=None if case.x.dtype in ROOM else random.uniform(*_SCALES[case.x.dtype], c).astype(np.float32),
        slopes=np.random.default_rng(2).uniform(-0.5, 1.5, c).astype(np.float32),
        y_scale=step(case.y, 0.05),
        residual_scale=step(case.residual, 0.02),
    )
    return operands, tensor(case.x), None if case.residual is None else tensor(case.residual)


def run(provider, case, tactic, operands, x, residual):
    y = filled(case.y, UNTOUCHED, UNTOUCHED)
    provider.prepare(case, tactic, operands, Scratch())(x, y, residual, None)
    return y


def written(y, channels):
    """What lies in these channels of each pixel."""
    n, _, h, w = y.format.dims
    return y.flat[: n * h * w * y.format.pitch].reshape(n, h, w, y.format.pitch)[..., channels]


def defined(case, operands, x, residual):
    """What the definition gives, which is computed in float64."""
    wanted = filled(case.y, 0)
    convolve(case, operands, x, wanted, residual)
    return wanted.view.astype(np.float64)


def assert_written(case, y, expected, room, tactic):
    """A tensor of the host has these numbers, and zeros in the padding that is its own."""
    found = y.view.astype(np.float64)
    if case.y.dtype is CODES:
        assert np.abs(found - expected).max() <= 1, tactic
        assert (found != expected).mean() < 2e-3, tactic
    else:
        assert relative(found, expected) < room, tactic
    assert not written(y, slice(case.y.dims[1], case.filters)).any(), tactic
    assert (written(y, slice(case.filters, None)) == UNTOUCHED).all(), tactic


def assert_right(case, *tactics):
    """A tactic gives the definition's numbers."""
    provider = DepthwiseProvider(HostDevice())
    assert provider.tactics(case)
    names = [tile.name for tile in depthwise_tiles(case, 132)]
    usual = next(name for name in ("h2w2t64", "h1w2t64", "h1w1t64") if name in names)
    operands, x, residual = given(case)
    expected = defined(case, operands, x, residual)
    for tactic in tactics or [usual]:
        room = ROOM.get(SINGLE if case.x.dtype is CODES else case.y.dtype)
        assert_written(case, run(provider, case, tactic, operands, x, residual), expected, room, tactic)


@pytest.mark.parametrize(
    "tile",
    ["h1w1t128", "h2w2t128", "h2w4t128", "h4w4t128", "h1w7t128", "h1w8t128", "h1w1t96s3", "h1w2t192s3"],
)
@pytest.mark.parametrize("stride", [1, 2])
def test_each_tile_that_the_timer_may_choose(tile, stride):
    assert_right(problem(stride=stride, size=(10, 13)), tile)


ACTIVATIONS = [
    *(
        (name, HALF)
        for name in ("leaky", "logistic", "swish", "quick_gelu", "gelu", "gelu_tanh", "hard_swish", "prelu")
    ),
    *(("swish", CODES), ("swish", SINGLE), ("gelu", SINGLE), ("hard_swish", CODES)),
]


@pytest.mark.parametrize(
    "changes",
    [
        {"c": 13},
        {"c": 3, "kind": SINGLE},
        {"c": 21, "kind": CODES},
        {"n": 3, "size": (1, 1)},
        {"n": 1, "size": (5, 2), "kernel": (5, 5)},
        {"kernel": (1, 5)},
        {"kernel": (7, 3), "stride": 2},
        {"dilation": 2},
        {"dilation": 3, "kernel": (5, 5), "stride": 2},
        {"pads": (0, 0, 0, 0)},
        {"pads": (0, 0, 1, 2), "stride": 2},
        {"pads": (4, 3, 4, 3)},
        {"stride": 3},
        {"kind": CODES, "to": HALF},
        {"kind": CODES, "to": SINGLE},
        {"kind": HALF, "to": SINGLE},
        {"kind": HALF, "to": CODES},
        *({"kind": kind, "kernel": kernel, "stride": stride}
          for kind in (SINGLE, HALF, CODES)
          for kernel, stride in (((3, 3), 1), ((3, 3), 2), ((5, 5), 1), ((5, 5), 2), ((7, 7), 1))),
        *({"kind": kind, "activation": activation} for activation, kind in ACTIVATIONS),
        {"activation": "leaky", "bounds": (0.1, 0.0)},
        *({"kind": kind, "activation": "clip", "bounds": (0.0, 6.0)} for kind in (HALF, CODES)),
        {"activation": "clip", "bounds": (-math.inf, 0.5)},
        *({"kind": kind, "activation": "hard_sigmoid", "bounds": (1 / 6, 0.5)} for kind in (HALF, CODES)),
        *({"kind": kind, "c": 20, "residual": Format((2, 20, 9, 11), added, 48), "residual_activation": "leaky",
           "activation": "prelu" if kind is added else "leaky", "bounds": (0.1, 0.0)}
          for kind in (SINGLE, HALF, CODES) for added in (SINGLE, HALF, CODES)),
        {"x": Format((2, 24, 9, 11), HALF, 40), "y": Format((2, 24, 9, 11), HALF, 64)},
        *({"c": 13, "y": Format((2, 13, 9, 11), HALF, pitch)} for pitch in (13, 14)),
    ],
    ids=str,
)  # fmt: skip
def test_each_kernel_size_stride_border_dilation_type_activation_residual_and_format(changes):
    assert_right(problem(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": CODES, "dilation": 2},
        {"kind": HALF, "dilation": 3, "kernel": (5, 5), "stride": 2},
        {"kind": CODES, "dilation": 2, "kernel": (3, 5), "size": (3, 14)},
    ],
    ids=str,
)
def test_each_tile_with_a_dilation(changes):
    case = problem(**changes)
    tiles = {(tile.h, tile.w, tile.slices): tile.name for tile in depthwise_tiles(case, 132) if tile.threads < 300}
    assert len({h * w for h, w, _ in tiles}) > 2
    assert_right(case, *tiles.values())


@pytest.mark.parametrize("kind", [CODES, FP8])
def test_codes_are_the_plain_kernels(kind):
    residual = channels_last((2, 24, 9, 11), kind)
    case = problem(kind, residual=residual, activation="hard_swish", residual_activation="prelu")
    operands, x, residual = given(case)
    provider, plain = DepthwiseProvider(HostDevice()), DirectProvider(HostDevice())
    wanted = run(plain, case, "direct", operands, x, residual)
    for tactic in provider.tactics(case)[::4]:
        np.testing.assert_array_equal(run(provider, case, tactic, operands, x, residual).flat, wanted.flat)


def assert_refused(case, tactic):
    operands = Operands(load=lambda: np.zeros(0), bias=np.zeros(24, np.float32))
    with pytest.raises(ValueError, match="depthwise"):
        DepthwiseProvider(HostDevice()).prepare(case, tactic, operands, Scratch())


@pytest.mark.parametrize(
    "changes",
    [
        {"groups": 12},
        {"groups": 1},
        {"y": channels_last((2, 48, 9, 11), HALF)},
        {"kernel": (9, 9)},
        {"x": Format((2, 24, 9, 11), HALF, 28)},
        {"pool": True},
        {"element": HALF},
    ],
)
def test_other_problems_are_left_to_others(changes):
    assert DepthwiseProvider(HostDevice()).tactics(problem(**changes)) == []
    assert_refused(problem(**changes), "h1w1t64")


@pytest.mark.parametrize(
    "changes",
    [{"kernel": (5, 5)}, {"kernel": (7, 7), "stride": 2, "c": 13}, {"kernel": (5, 3), "dilation": 2, "kind": CODES}],
    ids=str,
)
def test_threads_may_share_the_rows_of_a_filter(changes):
    case = problem(**changes)
    assert_right(case, *(tile.name for tile in depthwise_tiles(case, 132) if tile.slices > 1 and tile.threads < 300))


@pytest.mark.parametrize("tactic", ["h1w1t64s2", "h9w9t64", "h1w1t63", "fastest", "h4w8t64"])
def test_a_tactic_that_a_file_names_is_checked(tactic):
    assert_refused(problem(dilation=2), tactic)


def test_small_images_get_small_tiles_and_large_batches_larger_ones():
    small, *_ = depthwise_tiles(problem(c=960, n=1, size=(7, 7), kernel=(5, 5)), 132)
    large = depthwise_tiles(problem(c=144, n=32, size=(56, 56)), 132)
    assert (small.h * small.w, small.slices) == (1, 5)
    assert large[0].h * large[0].w >= 4
    assert all(DepthwiseTile.parse(tile.name) == tile for tile in large)


@pytest.mark.parametrize("compiler", ["NVRTC", "nvcc"])
@pytest.mark.parametrize("kind", [SINGLE, HALF, CODES, FP8])
def test_it_compiles(kind, compiler, compile_with):
    compile_with(compiler)
    residual = channels_last((2, 24, 9, 11), kind)
    case = problem(kind, kernel=(5, 5), activation="swish", residual=residual, residual_activation="prelu")
    kernel = DepthwiseProvider(HostDevice())._kernel(case, "h2w4t128")
    assert kernel._kernel.compile(architecture="sm_90").startswith(b"\x7fELF")
