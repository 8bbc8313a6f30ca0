"""A first convolution reads the columns of its windows as channels: what matches, and that the numbers stay."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines import calibrate
from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.engines.cuda.lower.rewrite import DOMAIN, weight_dims
from pytrtplugins.passes import prepare, quantize
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import assert_near, by_reference, run_on_host
from tests.passes.nets import Net

SIDE = 11


class First(Net):
    """A first convolution of any window, and one behind it."""

    def __init__(self, channels=3, side=SIDE):
        super().__init__(channels)
        self.input = ["N", channels, side, side + 2]

    def first(self, kernel, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), filters=8, group=1, x="data"):
        weights = self.random.normal(size=(filters, self.channels[x] // group, *kernel)) / np.sqrt(np.prod(kernel))
        arrays = {"first_w": weights, "first_b": self.random.normal(0, 0.1, filters)}
        names = [self.constant(name, array.astype(np.float32)) for name, array in arrays.items()]
        windows = {"strides": strides, "pads": pads, "dilations": dilations, "group": group}
        self.add("Conv", [x, *names], "first", filters, **windows)
        return self.conv("first", "last", 4, kernel=1)


def image(channels=3, count=2, side=SIDE):
    return {"data": np.random.default_rng(1).standard_normal((count, channels, side, side + 2), dtype=np.float32)}


def gathered(model):
    """The kernel of the first convolution, and the attributes of the copy in front of it."""
    nodes = [node for node in lower(prepare(model)).graph if node.domain == DOMAIN]
    copies = [node for node in nodes if node.op_type == "Patches"]
    first = next(node for node in nodes if node.op_type == "Conv")
    assert len(copies) <= 1
    return weight_dims(first), {name: found.value for name, found in copies[0].attributes.items()} if copies else None


def assert_right(model, x, float_type=DType.FLOAT32, disable=()):
    prepared = prepare(model)
    found, execution = run_on_host(prepared, x, float_type, disable)
    assert_near(found, by_reference(prepared, x), 2e-6 if float_type is DType.FLOAT32 else 2e-3)
    return [step.op for step in execution.plan.steps]


WINDOWS = {
    "7x7 of a residual network": ({"kernel": (7, 7), "strides": (2, 2), "pads": (3, 3, 3, 3)}, (8, 21, 7, 1)),
    "3x3 of a mobile network": ({"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}, (8, 9, 3, 1)),
    "4x4 patches": ({"kernel": (4, 4), "strides": (4, 4)}, (8, 48, 1, 1)),
    "patches with a border": ({"kernel": (3, 3), "strides": (4, 3), "pads": (1, 2, 0, 1)}, (8, 27, 1, 1)),
    "a row": ({"kernel": (1, 5), "strides": (1, 2), "pads": (0, 2, 0, 1)}, (8, 15, 1, 1)),
    "uneven": ({"kernel": (2, 3), "strides": (1, 3), "pads": (1, 0, 2, 1)}, (8, 9, 2, 1)),
    "dilated down": ({"kernel": (3, 2), "strides": (1, 2), "pads": (2, 1, 2, 1), "dilations": (2, 1)}, (8, 6, 3, 1)),
    "dilated down, apart": ({"kernel": (2, 3), "strides": (5, 2), "dilations": (3, 1)}, (8, 9, 2, 1)),
}


@pytest.mark.parametrize("float_type", [DType.FLOAT32, DType.FLOAT16])
@pytest.mark.parametrize(("window", "kernel"), WINDOWS.values(), ids=WINDOWS)
def test_columns_become_channels(window, kernel, float_type):
    net = First()
    model = net.model(net.first(**window))
    assert gathered(model)[0] == kernel
    assert assert_right(model, image(), float_type)[:2] == ["Patches", "Conv"]


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_any_few_channels_will_do(channels):
    net = First(channels)
    model = net.model(net.first((3, 3), (2, 2), (1, 1, 1, 1)))
    assert gathered(model)[0] == (8, 3 * channels, 3, 1)
    assert_right(model, image(channels))


def test_codes_are_made_on_the_way():
    net = First()
    model = prepare(net.model(net.first((7, 7), (2, 2), (3, 3, 3, 3))))
    table = calibrate(model, MinMaxCalibrator([image(count=1)]), progress=False)
    quantized = quantize(model, table)
    found, execution = run_on_host(quantized, image())
    assert [step.op for step in execution.plan.steps][:2] == ["Patches", "Conv"]
    assert execution.plan.tensors[execution.plan.steps[0].outputs[0]].format.dtype is DType.INT8
    assert_near(found, by_reference(quantized, image(), "int8"), 5e-3)


def test_without_it_the_image_gets_channels_last():
    net = First()
    model = net.model(net.first((7, 7), (2, 2), (3, 3, 3, 3)))
    assert assert_right(model, image(), disable=("patches",))[:2] == ["Reformat", "Conv"]


OTHERS = {
    "five channels": (5, {"kernel": (3, 3), "strides": (2, 2)}),
    "one column": (3, {"kernel": (3, 1)}),
    "groups": (4, {"kernel": (3, 3), "group": 2}),
    "a dilation across": (3, {"kernel": (3, 3), "dilations": (1, 2)}),
    "windows that overlap much": (3, {"kernel": (5, 5)}),
}


@pytest.mark.parametrize(("channels", "window"), OTHERS.values(), ids=OTHERS)
def test_others_stay(channels, window):
    net = First(channels)
    model = net.model(net.first(**window))
    assert gathered(model)[1] is None
    assert_right(model, image(channels))


def test_what_another_layer_gives_stays():
    net = First()
    net.add("Sqrt", [net.add("Abs", ["data"], "size")], "root")
    model = net.model(net.first((4, 4), (4, 4), x="root"))
    assert gathered(model)[1] is None
    assert_right(model, image())


def test_an_image_of_free_sizes_stays():
    net = First()
    last = net.first((4, 4), (4, 4))
    net.input = ["N", 3, "H", "W"]
    assert gathered(net.model(last))[1] is None


def test_an_image_of_float16_stays():
    net = First()
    net.channels["single"] = 3
    net.add("Cast", ["data"], "single", 3, to=TensorProto.FLOAT)
    model = net.model(net.first((4, 4), (4, 4), x="single"))
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("data", TensorProto.FLOAT16, net.input))
    assert gathered(model)[1] is None


def test_an_image_that_something_else_reads_too_is_read_twice():
    net = First()
    last = net.first((4, 4), (4, 4))
    mean = net.add("GlobalAveragePool", ["data"], "mean")
    assert "Patches" in assert_right(net.model(last, mean), image())


@pytest.mark.parametrize("float_type", [DType.FLOAT32, DType.FLOAT16])
@pytest.mark.parametrize(("channels", "layer"), [(3, True), (13, False)])
def test_large_windows_of_what_another_layer_gives_or_of_more_channels_become_pixels(channels, layer, float_type):
    net = First(channels, 24)
    net.input[3] = 16
    x = (
        net.add("Sub", ["data", net.constant("mean", np.full((channels, 1, 1), 0.5, np.float32))], "moved")
        if layer
        else "data"
    )
    model = net.model(net.first((8, 8), (8, 8), x=x))
    assert gathered(model) == ((8, 64 * channels, 1, 1), None)
    values = np.random.default_rng(1).standard_normal((2, channels, 24, 16), dtype=np.float32)
    assert_right(model, {"data": values}, float_type)


LARGE = {
    "a border": ({"pads": (0, 0, 0, 8)}, 16),
    "an overlap": ({"strides": (8, 4)}, 16),
    "windows apart": ({"kernel": (8, 8), "strides": (9, 9)}, 17),
    "fewer pixels": ({"kernel": (7, 7), "strides": (7, 7)}, 21),
    "a part of a window": ({}, 18),
    "groups": ({"group": 2}, 16),
    "oblong": ({"kernel": (8, 4), "strides": (8, 4)}, 16),
}


@pytest.mark.parametrize(("window", "columns"), LARGE.values(), ids=LARGE)
def test_other_large_windows_stay(window, columns):
    net = First(6, 16)
    net.input[3] = columns
    model = net.model(net.first(**{"kernel": (8, 8), "strides": (8, 8), **window}))
    assert gathered(model)[0] == (8, 6 // window.get("group", 1), *window.get("kernel", (8, 8)))


def test_large_windows_of_codes_become_pixels():
    net = First(6, 16)
    net.input[3] = 16
    model = prepare(net.model(net.first((8, 8), (8, 8))))
    values = {"data": np.random.default_rng(1).standard_normal((2, 6, 16, 16), dtype=np.float32)}
    quantized = quantize(model, calibrate(model, MinMaxCalibrator([values]), progress=False))
    found, execution = run_on_host(quantized, values)
    (moved,) = [step for step in execution.plan.steps if step.op == "SpaceToDepth" or "windows" in step.name]
    assert execution.plan.tensors[moved.outputs[0]].format.dtype is DType.INT8
    assert_near(found, by_reference(quantized, values, "int8"), 5e-3)
