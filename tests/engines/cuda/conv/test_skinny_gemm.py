"""The kernel for a few rows, on the CPU: its numbers are those of the plain kernel."""

from dataclasses import replace

import numpy as np
import pytest

from pytrtplugins.engines.cuda.conv.problem import ConvProblem, DirectProvider, Operands, Scratch
from pytrtplugins.engines.cuda.conv.skinny_gemm import SkinnyGemmProvider
from pytrtplugins.engines.cuda.device.device import HostDevice
from pytrtplugins.engines.cuda.device.layout import FP8, Format, channels_last
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import filled

SINGLE, HALF, CODES = DType.FLOAT32, DType.FLOAT16, DType.INT8


def problem(kind=HALF, rows=1, c=64, k=9, to=None, **changes):
    x, y = channels_last((1, c, rows, 1), kind), channels_last((1, k, rows, 1), to or kind, dense=True)
    return replace(ConvProblem(x=x, y=y, kernel=(1, 1)), **changes)


def run(provider, case, whole=False):
    random = np.random.default_rng(1)
    codes = case.x.dtype is CODES

    def values(*dims):
        return random.integers(-90, 90, dims) if codes else random.standard_normal(dims)

    c, k = case.x.dims[1], case.y.dims[1]
    weights = values(k, c, 1, 1).astype(np.int8 if codes else np.float32)
    scale = np.full(k, 1e-4, np.float32) if codes else None
    operands = Operands(
        load=lambda: weights,
        bias=random.standard_normal(k).astype(np.float32),
        scale=scale,
        slopes=np.random.default_rng(2).uniform(-0.5, 1.5, k).astype(np.float32),
        y_scale=0.05,
    )
    x, y = filled(case.x, values(*case.x.dims)), filled(case.y, 77, 77)
    residual = None if case.residual is None else filled(case.residual, values(*case.residual.dims))
    (tactic,) = provider.tactics(case)
    provider.prepare(case, tactic, operands, Scratch())(x, y, residual, None)
    return y.flat[: case.y.elements].reshape(-1, case.y.pitch) if whole else y.view.astype(np.float64)


RESIDUAL = channels_last((1, 9, 2, 1), HALF)


@pytest.mark.parametrize(
    ("case", "room"),
    [
        *((problem(kind, *sizes), 2e-3 if kind is HALF else 1e-5) for kind in (SINGLE, HALF, CODES)
          for sizes in ((1, 64, 9), (1, 2048, 5), (3, 272, 4), (8, 16, 1), (5, 13, 6))),
        (problem(rows=2, activation="gelu"), 2e-3),
        (problem(rows=2, activation="leaky", bounds=(0.1, 0.0)), 2e-3),
        (problem(rows=2, residual=RESIDUAL, residual_activation="leaky"), 2e-3),
        (problem(rows=2, activation="prelu", residual=RESIDUAL), 2e-3),
        (problem(rows=2, residual=RESIDUAL, residual_activation="prelu"), 2e-3),
        (problem(rows=2, to=SINGLE), 2e-3),
    ],
)  # fmt: skip
def test_its_numbers_are_the_plain_kernels(case, room):
    found, wanted = (run(provider(HostDevice()), case) for provider in (SkinnyGemmProvider, DirectProvider))
    np.testing.assert_allclose(found, wanted, rtol=room, atol=room)


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": 9},
        {"strides": (2, 1)},
        {"pads": (0, 0, 0, 1)},
        {"kernel": (3, 3), "pads": (1, 1, 1, 1)},
        {"groups": 2},
        {"x": Format((1, 64, 1, 1), HALF, 68)},
        {"pool": True},
    ],
)
def test_other_problems_are_left_to_others(changes):
    case = problem(**changes)
    assert SkinnyGemmProvider(HostDevice()).tactics(case) == []
    with pytest.raises(ValueError, match="few-rows"):
        SkinnyGemmProvider(HostDevice()).prepare(
            case, "few-rows", Operands(load=lambda: np.zeros(0), bias=np.zeros(9, np.float32)), Scratch()
        )


@pytest.mark.parametrize("kind", [SINGLE, HALF, CODES])
@pytest.mark.parametrize("rows", [1, 3])
def test_padding_of_its_own_becomes_zero(rows, kind):
    case = problem(kind, rows, k=9, y=channels_last((1, 9, rows, 1), kind))
    found = run(SkinnyGemmProvider(HostDevice()), case, whole=True)
    np.testing.assert_array_equal(found[:, 9:], 0)
    assert found[:, :9].any()
    part = replace(case, y=Format((1, 16, rows, 1), kind, 48))
    assert (run(SkinnyGemmProvider(HostDevice()), part, whole=True)[:, 16:] == 77).all()


@pytest.mark.parametrize("kind", [SINGLE, HALF, CODES, FP8])
def test_it_compiles(kind, compile_with):
    compile_with("NVRTC")
    kernel = SkinnyGemmProvider(HostDevice())._kernel(problem(kind, activation="hard_sigmoid"), "few-rows")
    assert kernel._kernel.compile(architecture="sm_90").startswith(b"\x7fELF")
