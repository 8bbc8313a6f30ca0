"""Which results of a kernel count as right."""

from types import SimpleNamespace

import numpy as np
import pytest

from pytrtplugins.engines.cuda.conv.problem import ConvProblem
from pytrtplugins.engines.cuda.conv.timer import Timer, _unlikely
from pytrtplugins.engines.cuda.device.elements import decoded, encoded
from pytrtplugins.engines.cuda.device.layout import FP8, channels_last
from pytrtplugins.tensor import DType

XP = SimpleNamespace(**vars(np), cuda=SimpleNamespace(Stream=lambda non_blocking: None))
TIMER = Timer(SimpleNamespace(xp=XP, capability=80), oracle=None)


def problem(x, y, tensor_cores=True):
    x, y = (channels_last((1, 16, 32, 32), kind) for kind in (x, y))
    return ConvProblem(x=x, y=y, kernel=(3, 3), pads=(1, 1, 1, 1), tensor_cores=tensor_cores)


WANTED = np.random.default_rng(0).standard_normal((1, 16, 32, 32)).astype(np.float32)
STRICT, TF32 = (problem(DType.FLOAT32, DType.FLOAT32, cores) for cores in (False, True))
HALF, LAST = (problem(DType.FLOAT16, kind) for kind in (DType.FLOAT16, DType.FLOAT32))


@pytest.mark.parametrize(
    ("asked", "error", "right"),
    [
        (STRICT, 5e-6, True), (STRICT, 5e-5, False), (TF32, 5e-4, True), (TF32, 5e-3, False),
        (HALF, 1e-3, True), (HALF, 5e-3, False), (LAST, 1e-3, True), (LAST, np.nan, False),
    ],
)  # fmt: skip
def test_floats_are_right_as_far_as_their_precision_goes(asked, error, right):
    assert TIMER._agrees(asked, WANTED * np.float32(1 + error), WANTED) is right


@pytest.mark.parametrize(("share", "step", "right"), [(0.001, 1, True), (0.004, 1, False), (0.001, 2, False)])
def test_codes_are_right_but_for_few_steps(share, step, right):
    codes = np.rint(40 * WANTED)
    found = codes.copy()
    found.ravel()[: round(share * codes.size)] += step
    assert TIMER._agrees(problem(DType.INT8, DType.INT8), found, codes) is right


@pytest.mark.parametrize(("share", "codes", "right"), [(0.04, 1, True), (0.06, 1, False), (0.001, 3, False)])
def test_codes_of_fp8_are_right_but_for_few_neighbours(share, codes, right):
    wanted = encoded(np, 100 * WANTED, FP8, {})
    found = wanted.copy()
    some = np.flatnonzero(np.abs(100 * WANTED) > 32)[: round(share * found.size)]
    found.ravel()[some] += codes
    assert TIMER._agrees(problem(FP8, FP8), *(decoded(np, each, FP8) for each in (found, wanted))) is right


@pytest.mark.parametrize("asked", [STRICT, HALF, problem(DType.INT8, DType.INT8), problem(FP8, FP8)])
def test_zeros_are_right_where_zeros_are_wanted(asked):
    zeros = np.zeros_like(WANTED)
    assert TIMER._agrees(asked, zeros, zeros) is True


@pytest.mark.parametrize(
    ("channels", "groups", "is_timed"), [(128, 1, True), (256, 1, False), (4096, 4096, True), (4096, 2, True)]
)
def test_the_direct_kernel_is_timed_for_groups_and_small_problems(channels, groups, is_timed):
    form = channels_last((1, channels, 16, 16), DType.FLOAT16)  # 75 and 302 MFLOP without groups
    asked = ConvProblem(x=form, y=form, kernel=(3, 3), pads=(1, 1, 1, 1), groups=groups)
    assert ("direct" not in _unlikely(asked)) is is_timed


def test_what_is_off_in_all_codes_of_fp8_is_wrong():
    found, wanted = (decoded(np, encoded(np, factor * WANTED, FP8, {}), FP8) for factor in (101, 100))
    assert TIMER._agrees(problem(FP8, FP8), found, wanted) is False
    assert TIMER._agrees(problem(FP8, FP8), np.full_like(wanted, np.nan), wanted) is False
