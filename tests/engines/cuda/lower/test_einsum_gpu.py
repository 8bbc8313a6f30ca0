"""Einsum on a GPU: the numbers in each precision, in one CUDA graph."""

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.engines.cuda.device.cublaslt import cublaslt_version
from pytrtplugins.engines.cuda.plan.fallbacks import fallbacks
from pytrtplugins.passes import prepare
from tests.engines.cuda.lower.test_einsum import EQUATIONS, attention, network
from tests.engines.operators import literal
from tests.measures import relative

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

BOUNDS = {"fp32": 1e-5, "fp16": 2e-2}


def assert_right(case, precision):
    made, inputs = case
    (wanted,) = literal(made, inputs)
    engine = ptp.build(prepare(made), engine="cuda", precision=precision, settings={"disable": ["tactics"]})
    with engine.create_context() as context:
        for _ in range(3):  # the first is captured
            assert relative(np.asarray(context.run(inputs)["y"]), wanted) < BOUNDS[precision]
        if cublaslt_version():
            assert not [
                how for how in fallbacks(next(iter(context._ready.values())).execution.plan) if "outside" in how
            ]


@pytest.mark.parametrize("precision", list(BOUNDS))
@pytest.mark.parametrize("equation", EQUATIONS[::2])
def test_equations(equation, precision):
    assert_right(network(equation), precision)


@pytest.mark.parametrize("precision", list(BOUNDS))
@pytest.mark.parametrize("equation", ["bhid,bhjd->bhij", "bqhd,bkhd->bhqk", "oc,bchw->bohw", "bhid,bhjd->bhji"])
def test_larger_ones(equation, precision):
    sizes = dict(zip("bhidjqkocw", (2, 5, 49, 32, 65, 50, 33, 48, 40, 9), strict=True))
    assert_right(network(equation, sizes=sizes), precision)
    assert_right(network(equation, sizes=sizes, constants=[1]), precision)


@pytest.mark.parametrize("precision", list(BOUNDS))
@pytest.mark.parametrize("bias", [None, (3, 49, 49), (4, 1, 49, 49)])
def test_attention_of_windows(bias, precision):
    equations = ("bghid,bghjd->bghij", "bghij,bghjd->bghid")
    assert_right(attention(*equations, (2, 4, 3, 49, 32), bias), precision)
