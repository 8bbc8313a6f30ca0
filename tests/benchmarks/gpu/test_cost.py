"""Operations and bytes of a network."""

from benchmarks.gpu.blocks import BLOCKS
from benchmarks.gpu.cost import cost


def test_a_bottlenecks_cost_is_that_of_its_three_convolutions():
    model = BLOCKS["bottleneck"].model()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    found = cost(model, 2)
    pixels = 56 * 56
    assert found.operations == 2 * 2 * pixels * (256 * 64 + 64 * 64 * 9 + 64 * 256)
    assert found.weights == 256 * 64 + 64 * 64 * 9 + 64 * 256 + 64 + 64 + 256
    assert found.activations == 2 * pixels * (256 + 64 + 64 + 256)
    assert found.bytes("FP16") == 2 * (found.weights + found.activations) == found.bytes("TF32") // 2
