"""Operations and bytes of a network."""

import pytest

from benchmarks.gpu.blocks import BLOCKS
from benchmarks.gpu.cost import cost, floors


def test_a_bottlenecks_cost_is_that_of_its_three_convolutions():
    model = BLOCKS["bottleneck"].model()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    found = cost(model, 2)
    pixels = 56 * 56
    assert found.operations == 2 * 2 * pixels * (256 * 64 + 64 * 64 * 9 + 64 * 256)
    assert found.weights == 256 * 64 + 64 * 64 * 9 + 64 * 256 + 64 + 64 + 256
    assert found.activations == 2 * pixels * (256 + 64 + 64 + 256)
    assert found.bytes("FP16") == 2 * (found.weights + found.activations) == found.bytes("TF32") // 2


def test_floors_are_work_over_ceilings():
    ceilings = {"FP16 TOP/s": 500.0, "copy GB/s": 2000.0, "launch µs": 0.5}
    assert floors(10**12, 4 * 10**9, "FP16", ceilings, 30) == pytest.approx((2000.0, 2000.0, 15.0))
    assert floors(10**12, 4 * 10**9, "FP16", ceilings, None)[2] is None
