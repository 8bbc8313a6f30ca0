"""Networks with one defect each, planted in a known layer."""

import numpy as np
from onnx import numpy_helper

from pytrtplugins.passes import prepare
from tests.passes.nets import Net


def edit(model, name, change):
    """Change a constant in place, by a function of its array."""
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    array = np.array(numpy_helper.to_array(tensor))
    change(array)
    tensor.CopyFrom(numpy_helper.from_array(array, name))


def chain(layers=5, seed=0):
    """conv1 … conv5, each with LeakyRelu, 8 channels, and a head."""
    net = Net(size=10, seed=seed)
    x = "data"
    for number in range(1, layers + 1):
        x = net.conv(x, f"conv{number}", 8)
    net.conv(x, "head", 4, kernel=1, leaky=False)
    return net.model("head")


def overflowing():
    """One weight of conv3 is 80,000: beyond float16, where no tensor is."""
    model = chain()
    edit(model, "conv2_w", lambda w: w[0].__imul__(1e-3))
    edit(model, "conv2_b", lambda b: b[:1].__imul__(0))

    def plant(w):
        w[:, 0] = 0
        w[3, 0, 1, 1] = 80_000

    edit(model, "conv3_w", plant)
    edit(model, "conv4_w", lambda w: w[:, 3].__imul__(0.02))
    return prepare(model)


def outlier_weights():
    """Two weights of conv3 are 50 and cancel: a scale for all its channels has no steps left for the others."""
    model = chain()
    for name in ("conv2_w", "conv2_b"):
        edit(model, name, lambda array: array[1:2].__setitem__(slice(None), array[:1]))

    def plant(w):
        w[0] = 0
        w[0, 0, 1, 1], w[0, 1, 1, 1] = 50, -50

    edit(model, "conv3_w", plant)
    return prepare(model)


def outlier_activations():
    """One channel that conv3 reads is 300 times the others, and its weights are small in turn."""
    model = chain()
    edit(model, "conv2_w", lambda w: w[5].__imul__(300))
    edit(model, "conv2_b", lambda b: b[5:6].__imul__(300))
    edit(model, "conv3_w", lambda w: w[:, 5].__imul__(1 / 300))
    return prepare(model)


def long_sums():
    """Six channels that conv3 reads cancel in its sums, where they are thousands of times what the other two leave."""
    model = chain()
    for name in ("conv2_w", "conv2_b"):
        edit(model, name, lambda array: array.__setitem__(slice(3, 6), array[:3]))

    def plant(w):
        w[:, :3] *= 5000
        w[:, 3:6] = -w[:, :3]

    edit(model, "conv3_w", plant)
    return prepare(model)


def large_values(factor):
    """What conv2 gives is so many times as large as elsewhere, and conv3's weights are small in turn."""
    model = chain()
    for name in ("conv2_w", "conv2_b"):
        edit(model, name, lambda array: array.__imul__(factor))
    edit(model, "conv3_w", lambda w: w.__imul__(1 / factor))
    return prepare(model)


def cancelling():
    """left and right nearly cancel in add: what remains is a thousandth of either."""
    net = Net(size=10, seed=1)
    x = net.conv("data", "stem", 8)
    net.conv(x, "left", 8, leaky=False)
    net.conv(x, "right", 8, leaky=False)
    net.add("Add", ["left", "right"], "add")
    net.constant("gain", np.float32(1000))
    net.add("Mul", ["add", "gain"], "scaled")
    net.conv(net.conv("scaled", "after", 8), "head", 4, kernel=1, leaky=False)
    model = net.model("head")
    arrays = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    noise = np.random.default_rng(2).normal(size=arrays["left_w"].shape).astype(np.float32) * 1e-4
    edit(model, "right_w", lambda w: w.__setitem__(slice(None), -arrays["left_w"] + noise))
    edit(model, "right_b", lambda b: b.__setitem__(slice(None), -arrays["left_b"]))
    return prepare(model)


def samples(model, count=2):
    """Random inputs, one image each."""
    rng = np.random.default_rng(7)
    dims = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim][1:]
    return [{"data": rng.uniform(size=(1, *dims)).astype(np.float32)} for _ in range(count)]
