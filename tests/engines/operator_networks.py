"""Networks of every kind of operator, written operator by operator: images of 8 x 8 in, convolutions behind."""

import numpy as np
from onnx import helper

from pytrtplugins.layers import Reorg
from tests.engines.operators import ints
from tests.passes.nets import Net

NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


class Chain(Net):
    """A network written operator by operator, constants in place; its tensors are t1, t2 ..."""

    def __init__(self):
        super().__init__(size=8, seed=5)

    def op(self, op, x, *operands, channels=None, **attributes):
        """Operands are names, arrays, or None for an input that is left out."""
        name = f"t{len(self.nodes) + 1}"
        names = [self._operand(f"{name}_{k}", value) for k, value in enumerate(operands)]
        return self.add(op, [x, *names], name, channels, **attributes)

    def _operand(self, name, value):
        return "" if value is None else value if isinstance(value, str) else self.constant(name, value)

    def weights(self, *shape):
        return (self.random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    def layer(self, x, channels=8, kernel=3, leaky=True):
        return self.conv(x, f"t{len(self.nodes) + 1}", channels, kernel, leaky=leaky)

    def finish(self, x, *others):
        """Two layers behind x, so that x itself is wanted in int8."""
        return self.model(self.layer(self.layer(x, 6), 4, kernel=1, leaky=False), *others)


def transposed_convolution(net):
    weights, bias = net.weights(8, 6, 4, 4), net.weights(6, 1)[:, 0]
    x = net.op("ConvTranspose", net.layer("data"), weights, bias, channels=6, strides=[2, 2], pads=[1] * 4)
    x = net.op("LeakyRelu", x, alpha=0.1)
    x = net.op("ConvTranspose", x, net.weights(6, 2, 2, 2), channels=4, group=2, strides=[2, 2])
    return net.finish(net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]))


def normalized_transposed_convolution(net):
    x = net.op("ConvTranspose", net.layer("data"), net.weights(8, 6, 3, 3), channels=6, pads=[1] * 4)
    statistics = [net.random.uniform(0.5, 1.5, 6).astype(np.float32) for _ in range(4)]
    return net.finish(net.op("Relu", net.op("BatchNormalization", x, *statistics)))


def fully_connected(net):
    x = net.op("Flatten", net.layer("data", 4), channels=256)
    x = net.op("LeakyRelu", net.op("Gemm", x, net.weights(10, 256), net.weights(10, 1)[:, 0], transB=1), alpha=0.1)
    x = net.op("Relu", net.op("Gemm", x, net.weights(10, 64), net.weights(64, 1)[:, 0], alpha=0.5, beta=2.0))
    return net.finish(net.op("Reshape", x, ints(0, 1, 8, 8), channels=1))


def matrix_product(net):
    x = net.op("Reshape", net.layer("data", 4), ints(0, 4, 64))
    return net.finish(net.op("Reshape", net.op("MatMul", x, net.weights(64, 64)), ints(0, 4, 8, 8)))


def locally_connected(net):
    """Windows as columns, then a matrix product a place, with the weights on the left."""
    ones = np.tile(np.eye(9, dtype=np.float32).reshape(9, 1, 3, 3), (4, 1, 1, 1))
    x = net.op("Conv", net.layer("data", 4), ones, channels=36, group=4, pads=[1] * 4)
    x = net.op("Transpose", net.op("Reshape", x, ints(0, 36, 64)), perm=[2, 1, 0])
    x = net.op("MatMul", net.constant("places", net.weights(64, 5, 36)), x, channels=64)
    x = net.op("Reshape", net.op("Transpose", x, perm=[2, 1, 0]), ints(0, 5, 8, 8), channels=5)
    return net.finish(net.op("Add", x, net.weights(1, 5, 8, 8)))


def slices(net):
    x = net.op("Slice", net.layer("data"), ints(4), ints(8), ints(1), channels=4)
    x = net.op("Slice", x, ints(0, 1), ints(8, 8), ints(2, 3), ints(2, 3))
    return net.finish(net.op("Slice", x, ints(-1), ints(-9), ints(3), ints(-1)))


def centre_crop(net):
    x = net.op("Slice", "data", ints(1, 2), ints(7, 8), ints(2, 3))
    return net.finish(net.op("Sub", net.op("Mul", x, np.float32(2)), np.float32(1)))


def pads(net):
    x = net.op("Pad", net.layer("data"), ints(0, 0, 1, 2, 0, 3, 2, 0), channels=11)
    x = net.op("Pad", net.layer(x), ints(0, 0, -1, 0, 0, 0, -1, -2))
    return net.finish(net.op("Pad", net.layer(x), ints(0, 0, 1, 0, 0, 0, 1, 2), np.float32(-0.7)))


def pads_of_copied_values(net):
    """What MaxPool hands on is read in int8 by a layer, and padded along the channels for a shortcut."""
    x = net.op("MaxPool", net.layer("data", 12), kernel_shape=[2, 2], strides=[2, 2])
    padded = net.op("Pad", x, ints(0, 0, 0, 0, 0, 20, 0, 0), channels=32)
    return net.finish(net.op("Add", net.layer(x, 32), padded))


def averages_of_copied_values(net):
    x = net.op("MaxPool", net.layer("data"), kernel_shape=[2, 2], strides=[1, 1])
    averages = net.op("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1)
    return net.finish(net.op("Concat", net.layer(x), averages, channels=16, axis=1))


def split_and_concat(net):
    net.nodes.append(
        helper.make_node("Split", [net.layer("data"), net.constant("parts", ints(3, 5))], ["a", "b"], axis=1)
    )
    net.channels |= {"a": 3, "b": 5}
    return net.finish(net.op("Concat", net.layer("a", 4), net.layer("b", 4), "a", channels=11, axis=1))


def zeros_behind(net):
    net.input[0] = 1
    return net.finish(net.op("Concat", net.layer("data"), np.zeros((1, 3, 8, 8), np.float32), channels=11, axis=1))


def gather(net):
    return net.finish(net.op("Gather", net.layer("data"), ints(3, 0, 0, 7), channels=4, axis=1))


def resizes(net):
    net.input[0] = 1
    x = net.op("Resize", net.layer("data"), None, np.array([1, 1, 2, 2], np.float32), **NEAREST)
    x = net.layer(net.op("Mul", x, np.float32(0.3)))
    return net.finish(net.op("Resize", x, None, None, ints(1, 8, 24, 32), **NEAREST))


def averages(net):
    x = net.op("Mul", net.op("AveragePool", net.layer("data"), kernel_shape=[2, 2], strides=[2, 2]), np.float32(4))
    return net.finish(net.op("AveragePool", net.layer(x), kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2]))


def squeeze_and_excitation(net):
    x = net.layer("data")
    gate = net.layer(net.op("GlobalAveragePool", x), 8, kernel=1, leaky=False)
    return net.finish(net.op("Mul", x, net.op("HardSigmoid", gate)))


def norms(net):
    x = net.layer("data")
    x = net.op("Div", x, net.op("ReduceL2", x, ints(1), channels=1))
    window = np.clip(2 - np.abs(np.arange(8)[:, None] - np.arange(8)), 0, 1)[:, :, None, None].astype(np.float32)
    sums = net.op("Conv", net.op("Mul", x, x), window, np.ones(8, np.float32), kernel_shape=[1, 1])
    return net.finish(net.op("Mul", x, net.op("Pow", sums, np.float32(-0.75))))


def unequal_shortcuts(net):
    x = net.layer("data")
    y = net.layer(x, 6)
    some = net.op("Mul", net.op("Slice", x, ints(0), ints(6), ints(1), channels=6), np.float32(0.5))
    y = net.op("Relu", net.op("Add", y, net.op("Mul", some, (net.weights(1, 6, 8, 8) > 0).astype(np.float32))))
    return net.finish(net.op("Add", net.op("Mul", net.layer(y, 6), np.float32(2)), y))


def activations(net):
    x = "data"
    for op in ("Elu", "Selu", "Tanh", "Sigmoid", "HardSwish", "Mish", "Softplus"):
        x = net.op(op, net.layer(x, 6, leaky=False))
    low, high = np.float32(0), np.float32(6)
    return net.finish(net.op("Clip", net.layer(x, 6, leaky=False), low, high))


def composed_activations(net):
    x = net.layer("data", 6, leaky=False)
    x = net.layer(net.op("Mul", x, net.op("Sigmoid", x)), 6, leaky=False)
    x = net.layer(net.op("Add", x, net.op("Floor", net.op("Mul", x, np.float32(0.5)))), 6, leaky=False)
    gate = net.op("Add", net.op("Erf", net.op("Div", x, np.float32(2**0.5))), np.float32(1))
    return net.finish(net.op("Mul", x, gate))


def shuffled_channels(net):
    x = net.op("Reshape", net.layer("data"), ints(0, 2, 4, 8, 8))
    x = net.op("Reshape", net.op("Transpose", x, perm=[0, 2, 1, 3, 4]), ints(0, 8, 8, 8), channels=8)
    return net.finish(net.op("Transpose", x, perm=[0, 1, 3, 2]))


def groups_of_classes(net):
    x = net.op("Reshape", net.layer(net.layer(net.layer("data")), 8, leaky=False), ints(0, 2, -1))
    return net.model(net.op("Softmax", x, axis=2))


def joined_values(net):
    x = net.layer("data")
    y = net.op("MaxPool", net.layer(x, 4), kernel_shape=[2, 2], strides=[2, 2])
    parts = [net.op("Reshape", part, ints(0, -1, 1, 1), channels=n) for part, n in ((x, 512), (y, 64))]
    x = net.op("Flatten", net.op("Concat", *parts, channels=576, axis=1))
    x = net.op("Relu", net.op("Gemm", x, net.weights(16, 576), transB=1))
    return net.model(net.op("Gemm", x, net.weights(5, 16), transB=1))


def classes_joined_with_larger_values(net):
    """An output of the network that is also joined with values a thousand times its size."""
    x = net.layer("data")
    classes = net.op("Softmax", net.op("Reshape", x, ints(0, -1)), axis=1)
    classes = net.op("Reshape", classes, ints(0, 8, 8, 8), channels=8)
    return net.finish(net.op("Concat", x, classes, channels=16, axis=1), classes)


def negative_factors(net):
    factors = np.float32([[[1.5]], [[-0.5]], [[-2]]])
    return net.finish(net.op("Mul", "data", factors))


def factors_of_places(net):
    """As many places as taps, before convolutions and convolutions of groups."""
    x = net.op("AveragePool", net.layer("data"), kernel_shape=[4, 4], strides=[2, 2])
    x = net.layer(net.op("Div", x, net.random.uniform(0.5, 2, (3, 3)).astype(np.float32)), 4)
    x = net.op("Mul", x, net.random.uniform(0.5, 2, (1, 1, 1, 3)).astype(np.float32))
    return net.finish(net.op("Conv", x, net.weights(4, 1, 3, 3), group=4, pads=[1] * 4))


def summands_of_channels(net):
    """As many channels as columns."""
    x = net.op("MatMul", net.layer("data", 4), net.weights(8, 4))
    return net.finish(net.op("Add", x, np.float32([[[1]], [[-2]], [[3]], [[0.5]]])))


def shared_result(net):
    """A convolution without a bias whose result three nodes read, and which is an output too."""
    x = net.op("Conv", net.layer("data"), net.weights(8, 8, 3, 3), channels=8, pads=[1] * 4)
    gated = net.op("Mul", x, net.op("Sigmoid", net.op("GlobalAveragePool", x)))
    return net.finish(net.op("Add", gated, net.op("Relu", x)), x)


def shared_result_of_a_transposed_convolution(net):
    zeros = np.zeros(6, np.float32)
    x = net.op("ConvTranspose", net.layer("data"), net.weights(8, 6, 2, 2), zeros, channels=6, strides=[2, 2])
    return net.finish(net.op("Neg", x), net.op("MaxPool", x, kernel_shape=[2, 2]))


def moved_by_a_plugin(net):
    net.input[0] = 1
    x = net.op("Mul", "data", net.random.uniform(0.5, 1.5, (1, 3, 1, 1)).astype(np.float32))
    x = net.plugin(Reorg(2), net.op("Concat", x, x, x, x, channels=12, axis=1), "reorg")
    x = net.op("Gemm", net.op("Flatten", x, channels=768), net.weights(64, 768), transB=1)
    return net.finish(net.op("Reshape", x, ints(0, 1, 8, 8), channels=1))


NETWORKS = [
    transposed_convolution, normalized_transposed_convolution, fully_connected, matrix_product, locally_connected, slices,
    centre_crop, pads, pads_of_copied_values, averages_of_copied_values, split_and_concat, zeros_behind, gather, resizes, averages,
    squeeze_and_excitation, norms, unequal_shortcuts, activations, composed_activations, shuffled_channels, groups_of_classes,
    joined_values, classes_joined_with_larger_values, negative_factors, factors_of_places, summands_of_channels, shared_result,
    shared_result_of_a_transposed_convolution, moved_by_a_plugin,
]  # fmt: skip
