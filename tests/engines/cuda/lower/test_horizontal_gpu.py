"""Concats over horizontally fused convolutions, on a GPU."""

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.passes import prepare
from tests.engines.cuda.branches import dense, inception, partial, stacked
from tests.engines.cuda.host import assert_near, by_reference

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

BOUNDS = {"fp32": 1e-5, "tf32": 3e-3, "fp16": 4e-3}


@pytest.mark.parametrize("disable", [[], ["handwritten-kernels"]], ids=["handwritten", "cudnn"])
@pytest.mark.parametrize("precision", list(BOUNDS))
@pytest.mark.parametrize("make", [inception, partial, stacked, dense])
def test_blocks_with_horizontal_fusion_are_right(make, precision, disable):
    model = prepare(make())
    x = {"data": np.random.default_rng(2).standard_normal((2, 8, 8, 8), dtype=np.float32)}
    wanted = by_reference(model, x)
    settings = {"disable": ["tactics", *disable], "batch": 2}
    with ptp.build(model, engine="cuda", precision=precision, settings=settings).create_context() as context:
        for _ in range(3):
            assert_near(context.run(x), wanted, BOUNDS[precision])
