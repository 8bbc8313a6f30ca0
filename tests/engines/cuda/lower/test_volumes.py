"""Convolutions and pools of volumes as those of images: the numbers of every window, and which steps a plan has."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.engines.cuda.lower.rewrite import has_residual
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import run_on_host
from tests.engines.cuda.lower.test_pointwise import Graph, random
from tests.engines.cuda.lower.test_transposed_convolution import in_codes, outputs
from tests.measures import relative

ROOM = {DType.FLOAT32: 2e-6, DType.FLOAT16: 3e-3}


class Volumes(Graph):
    """A graph with shorter names for layers of volumes."""

    def conv(self, x, channels, filters, kernel=(3, 3, 3), pads=None, group=1, bias=True, **attributes):
        """A convolution with random weights, padded so that sizes stay, unless pads are given."""
        if pads is None and "auto_pad" not in attributes:
            attributes["pads"] = [size // 2 for size in kernel] * 2
        elif pads is not None:
            attributes["pads"] = pads
        scale = np.float32((np.prod(kernel) * channels / group) ** -0.5)
        seed = len(self.nodes)
        read = [self.constant(random(filters, channels // group, *kernel, seed=seed) * scale)]
        read += [self.constant(random(filters, seed=seed + 1))] if bias else []
        return self.add("Conv", x, *read, group=group, **attributes)


def residual():
    """A network of blocks as in 3-D ResNets."""
    net = Volumes(data=random(1, 3, 4, 16, 16))
    x = net.add("Relu", net.conv("data", 3, 16, (3, 7, 7), strides=[1, 2, 2]))
    x = net.add("MaxPool", x, kernel_shape=[3, 3, 3], strides=[1, 2, 2], pads=[1] * 6)
    inner = net.add("Relu", net.conv(x, 16, 16))
    x = net.add("Relu", net.add("Add", net.conv(inner, 16, 16), x))
    inner = net.add("Relu", net.conv(x, 16, 32, strides=[2, 2, 2]))
    past = net.conv(x, 16, 32, (1, 1, 1), strides=[2, 2, 2])
    x = net.add("Relu", net.add("Add", net.conv(inner, 32, 32), past))
    return net, net.add("GlobalAveragePool", net.conv(x, 32, 32, (1, 1, 1)))


def factored():
    """The same with convolutions of frames, and then through them; their channels fill no 16 bytes."""
    net = Volumes(data=random(1, 3, 4, 16, 16))
    x = net.add("Relu", net.conv("data", 3, 13, (1, 7, 7), strides=[1, 2, 2]))
    x = net.add("Relu", net.conv(x, 13, 16, (3, 1, 1)))
    inner = net.add("Relu", net.conv(x, 16, 18, (1, 3, 3)))
    inner = net.add("Relu", net.conv(inner, 18, 16, (3, 1, 1)))
    inner = net.add("Relu", net.conv(inner, 16, 18, (1, 3, 3)))
    x = net.add("Relu", net.add("Add", net.conv(inner, 18, 16, (3, 1, 1)), x))
    inner = net.add("Relu", net.conv(x, 16, 20, (1, 3, 3), strides=[1, 2, 2]))
    x = net.add("Relu", net.conv(inner, 20, 16, (3, 1, 1), strides=[2, 1, 1]))
    return net, net.add("GlobalAveragePool", x)


def gated():
    """Depthwise convolutions between ones of 1 x 1 x 1, with a factor of each channel, as in X3D."""
    net = Volumes(data=random(2, 16, 4, 8, 8))
    x = net.add("Relu", net.conv("data", 16, 24, (1, 1, 1)))
    x = net.conv(x, 24, 24, group=24)
    means = net.add("GlobalAveragePool", x)
    factor = net.add("Relu", net.conv(means, 24, 8, (1, 1, 1)))
    factor = net.add("Sigmoid", net.conv(factor, 8, 24, (1, 1, 1)))
    x = net.add("Mul", x, factor)
    x = net.add("Mul", x, net.add("Sigmoid", x))
    return net, net.conv(x, 24, 16, (1, 1, 1))


def unet():
    """Down, up by a transposed convolution, and joined with what was there before."""
    net = Volumes(data=random(1, 8, 4, 8, 8))
    kept = net.add("Relu", net.conv("data", 8, 16))
    x = net.add("MaxPool", kept, kernel_shape=[2, 2, 2], strides=[2, 2, 2])
    x = net.add("Relu", net.conv(x, 16, 32))
    weights = net.constant(random(32, 16, 2, 2, 2, seed=9) / 6)
    x = net.add("Relu", net.add("ConvTranspose", x, weights, net.constant(random(16, seed=8)), strides=[2, 2, 2]))
    x = net.add("Relu", net.conv(net.add("Concat", kept, x, axis=1), 32, 16))
    return net, net.conv(x, 16, 3, (1, 1, 1))


NETWORKS = {"unet": unet, "residual": residual, "factored": factored, "gated": gated}


def steps(graph, *results, float_type=DType.FLOAT32, room=None):
    """Kind and operator of each step, once the outputs are onnxruntime's; all can be captured."""
    model = graph.model(*results)
    found, execution = run_on_host(model, graph.inputs, float_type)
    for name, wanted in zip(results, outputs(model, graph.inputs), strict=True):
        assert found[name].shape == wanted.shape
        assert relative(found[name], wanted) < (room or ROOM[float_type]), name
    assert all(step.capturable and step.kind != "generic" for step in execution.plan.steps)
    return [step.op if step.kind == "pointwise" else step.kind for step in execution.plan.steps]


@st.composite
def transposed(draw):
    """A graph with a transposed convolution of any window."""

    def numbers(low, high):
        return draw(st.lists(st.integers(low, high), min_size=3, max_size=3))

    group, kernel, strides, dilations, size = (
        draw(st.sampled_from([1, 1, 2])),
        numbers(1, 3),
        numbers(1, 3),
        numbers(1, 2),
        numbers(1, 3),
    )
    extra = [draw(st.integers(0, stride - 1)) for stride in strides]
    windows = zip(size, strides, kernel, dilations, extra, strict=True)
    full = [(x - 1) * s + (k - 1) * d + 1 + e for x, s, k, d, e in windows]
    at = {"strides": strides, "dilations": dilations, "group": group}
    kind = draw(st.sampled_from(["pads", "output_shape", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if kind == "pads":
        begins = [draw(st.integers(0, min(2, side - 1))) for side in full]
        ends = [draw(st.integers(0, min(2, side - 1 - first))) for side, first in zip(full, begins, strict=True)]
        at |= {"pads": begins + ends, "output_padding": extra}
    elif kind == "output_shape":
        at["output_shape"] = [max(x, side - 1) for x, side in zip(size, full, strict=True)]
    else:
        at["auto_pad"] = kind
    graph, filters = Volumes(x=random(2, 4, *size)), draw(st.integers(1, 3))
    read = [graph.constant(random(4, filters, *kernel, seed=1))]
    read += [graph.constant(random(filters * group, seed=2))] if draw(st.booleans()) else []
    return graph, graph.add("ConvTranspose", "x", *read, **at)


@st.composite
def windows(draw, pool=False):
    """Attributes of a window, and the dims of a volume that holds one at least."""

    def numbers(low, high):
        return draw(st.lists(st.integers(low, high), min_size=3, max_size=3))

    kernel, strides, dilations = numbers(1, 4), numbers(1, 3), [1] * 3 if pool else numbers(1, 2)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    size = [r + more for r, more in zip(reach, numbers(0, 4), strict=True)]
    at = {"strides": strides} | ({} if pool else {"dilations": dilations})
    mode = draw(st.sampled_from(["pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    same = (
        all(s <= r for s, r in zip(strides, kernel, strict=True)) and max(dilations) == 1
    )  # others onnxruntime refuses
    if mode == "pads" or (mode.startswith("SAME") and not same):
        at["pads"] = [draw(st.integers(0, k - 1)) for k in (*kernel, *kernel)]
    else:
        at["auto_pad"] = mode
    return kernel, size, at


@settings(max_examples=20)
@given(windows(), st.sampled_from([(1, 3, 2), (1, 8, 5), (2, 4, 6), (4, 4, 4), (3, 9, 3)]), st.booleans())
def test_every_convolution_is_one_of_images(window, channels, bias):
    (kernel, size, at), (group, c, m) = window, channels
    graph = Volumes(x=random(2, c, *size))
    steps(graph, graph.conv("x", c, m, kernel, group=group, bias=bias, **at))


@settings(max_examples=20)
@given(windows(pool=True), st.booleans(), st.booleans(), st.sampled_from(["MaxPool", "AveragePool"]))
def test_every_pool_is_one_of_images(window, ceil, count, op):
    kernel, size, at = window
    if "pads" in at and ceil:  # behind the pads onnxruntime has other windows than ONNX says
        at |= {"ceil_mode": 1, "pads": [*at["pads"][:3], 0, 0, 0]}
    if op == "AveragePool":
        at["count_include_pad"] = int(count)
    graph = Volumes(x=random(2, 3, *size))
    steps(graph, graph.add(op, graph.conv("x", 3, 3, (1, 1, 1)), kernel_shape=kernel, **at))


@settings(max_examples=10)
@given(transposed())
def test_every_transposed_convolution_is_one_of_images(case):
    graph, last = case
    steps(graph, last)


WINDOW, CONV, MEAN = "Move", "conv", "Rows"
"""Kinds of steps: a copy of the frames of windows, a convolution, the mean of channels."""


def test_a_chain_copies_the_frames_of_windows_and_nothing_else():
    net, last = residual()
    block = [WINDOW, CONV, WINDOW, CONV]
    shrinking = [WINDOW, CONV, WINDOW, CONV, WINDOW, CONV]  # the last copies the places that a 1x1x1 convolution reads
    wanted = [WINDOW, CONV, "pool", *block, *shrinking, CONV, MEAN]
    assert steps(net, last) == wanted
    assert steps(net, last, float_type=DType.FLOAT16) == [*wanted, "reformat"]


def test_factored_convolutions_copy_nothing_but_the_input():
    net, last = factored()
    assert steps(net, last) == [WINDOW, *[CONV] * 8, MEAN]


def test_a_residual_and_an_activation_are_part_of_the_convolution():
    for network, count in ((residual, 2), (factored, 1)):
        net, last = network()
        lowered = list(lower(net.model(last)).graph)
        assert sum(has_residual(node) for node in lowered if node.op_type == "Conv") == count
        assert not any(node.op_type in ("Add", "Relu") for node in lowered)


def test_a_level_of_a_unet_copies_windows_and_frames_between_frames():
    net, last = unet()
    down = ["reformat", "Move", CONV, "pool", WINDOW, CONV]
    up = ["Move", CONV]
    assert steps(net, last) == [*down, *up, WINDOW, CONV, CONV]


def test_a_depthwise_convolution_is_a_sum_of_those_of_frames():
    net, last = gated()
    plan = steps(net, last)
    squeezed = ["squeeze-excite"]  # a factor of each channel, and then the sum of the frames times it
    assert plan == ["reformat", CONV, *[CONV] * 3, "Pointwise", *squeezed, "Pointwise", CONV]


@pytest.mark.parametrize("precision", ["int8", "fp8"])
def test_codes_are_copied_and_multiplied(precision):
    for network in (residual, factored, unet):
        net, last = network()
        model = in_codes(net.model(last), net.inputs, precision)
        found, execution = run_on_host(model, net.inputs)
        assert relative(found[last], outputs(model, net.inputs)[0]) < 1e-5
        plan = execution.plan
        assert all(step.kind != "generic" and step.capturable for step in plan.steps)
        types = [plan.tensors[step.inputs[0]].format.dtype.itemsize for step in plan.steps if step.kind == CONV]
        assert types[1:-1] == [1] * (len(types) - 2)


def test_an_output_of_fewer_channels_than_are_read_at_once():
    net = Volumes(x=random(2, 4, 2, 3, 2))
    weights = net.constant(random(4, 1, 3, 1, 2))
    attributes = {"strides": [1, 1, 2], "dilations": [1, 1, 2], "pads": [0, 0, 0, 2, 1, 0]}
    steps(net, net.add("ConvTranspose", "x", weights, **attributes))


def test_a_free_batch_is_one_of_frames():
    net, last = residual()
    model = net.model(last)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    for value in (*model.graph.output, *model.graph.value_info):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    model = prepare(model)
    lowered = lower(model)
    for count in (1, 3):
        inputs = {"data": random(count, 3, 4, 16, 16, seed=count)}
        found, execution = run_on_host(model, inputs, lowered=lowered)
        assert relative(found[last], outputs(model, inputs)[0]) < 2e-6
        assert {step.kind for step in execution.plan.steps} == {"pointwise", "conv", "pool"}


def test_what_is_no_volume_of_known_sizes_stays():
    net = Volumes(data=random(1, 3, 4, 6, 6), w=random(4, 3, 3, 3, 3))
    computed = net.add("Conv", "data", net.add("Neg", "w"), pads=[1] * 6)
    found, execution = run_on_host(net.model(computed), net.inputs)
    assert [step.op for step in execution.plan.steps if step.kind == "generic"] == ["Conv"]
    net = Volumes(data=random(1, 3, 4, 6, 6))
    pool = net.add("MaxPool", net.conv("data", 3, 3, (1, 1, 1)), kernel_shape=[2, 2, 2], dilations=[2, 1, 1])
    found, execution = run_on_host(net.model(pool), net.inputs)
    assert relative(found[pool], outputs(net.model(pool), net.inputs)[0]) < 2e-6


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_a_pool_without_convolutions_stays_one_of_volumes(op):
    net = Volumes(data=random(1, 3, 4, 6, 6), other=random(1, 3, 2, 3, 3))
    pool = net.add(op, net.add("Sin", "data"), kernel_shape=[2, 2, 2], strides=[2, 2, 2])
    assert steps(net, net.add("Concat", pool, "other", axis=1)) == ["Pointwise", "indexed", "Move"]
    net = Volumes(data=random(1, 3, 4, 6, 6))
    beside = net.add(op, "data", kernel_shape=[1, 1, 1])  # reads the same input as a convolution
    assert "pool" not in steps(net, beside, net.conv("data", 3, 8))
    joined = net.add("Concat", beside, net.conv("data", 3, 8), axis=1)
    assert "pool" in steps(net, net.add("Sin", joined))
