"""ConvTranspose as one convolution and a move: which nodes it becomes, and that the numbers stay."""

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines import BuildOptions, calibrate
from pytrtplugins.engines.cuda.device.layout import FP8
from pytrtplugins.engines.cuda.lower.hoist_activations import HoistActivations
from pytrtplugins.engines.cuda.lower.one_dimension import WriteAsImages
from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.engines.cuda.lower.rewrite import weight_dims
from pytrtplugins.engines.cuda.lower.transposed_convolution import ConvTransposeToConv
from pytrtplugins.engines.reference.engine import ReferenceEngine
from pytrtplugins.model.ir import remove_unused, to_ir, to_proto
from pytrtplugins.passes import prepare, quantize
from pytrtplugins.tensor import DType
from tests.engines.cuda.conftest import in_fp8
from tests.engines.cuda.host import run_on_host
from tests.engines.cuda.lower.test_pointwise import Graph, random
from tests.measures import relative
from tests.passes.nets import Net


def outputs(model, inputs):
    """By onnxruntime, node by node: its fusions do not know FP8."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def split(graph, *results):
    """The operators behind the two passes, once onnxruntime has found the same numbers before and behind them."""
    model = graph.model(*results)
    network = to_ir(model)
    WriteAsImages()(network)
    ConvTransposeToConv()(network)
    HoistActivations()(network)
    remove_unused(network)
    for found, wanted in zip(outputs(to_proto(network), graph.inputs), outputs(model, graph.inputs), strict=True):
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    return [node.op_type for node in network.graph]


def transposed(size, filters, count=2, bias=True, **attributes):
    """A graph of one node; the first two of the filters' dims are the input's channels and the filters of a group."""
    graph = Graph(x=random(count, filters[0], *size))
    operands = [graph.constant(random(*filters, seed=1))]
    if bias:
        operands.append(graph.constant(random(filters[1] * attributes.get("group", 1), seed=2)))
    return graph, graph.add("ConvTranspose", "x", *operands, **attributes)


@st.composite
def drawn(draw):
    rank, group = draw(st.integers(1, 2)), draw(st.sampled_from([1, 1, 3]))

    def numbers(low, high):
        return draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank))

    size, kernel, strides, dilations = numbers(1, 5), numbers(1, 5), numbers(1, 4), numbers(1, 3)
    at = {"strides": strides, "dilations": dilations, "group": group}
    extra = [draw(st.integers(0, stride - 1)) for stride in strides]
    full = [
        (x - 1) * s + (k - 1) * d + 1 + e for x, s, k, d, e in zip(size, strides, kernel, dilations, extra, strict=True)
    ]
    kind = draw(st.sampled_from(["pads", "output_shape", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if kind == "pads":
        begins = [draw(st.integers(0, min(3, side - 1))) for side in full]
        ends = [draw(st.integers(0, min(3, side - 1 - first))) for side, first in zip(full, begins, strict=True)]
        at |= {"pads": begins + ends, "output_padding": extra}
    elif kind == "output_shape":
        at["output_shape"] = [max(x, side - 1) for x, side in zip(size, full, strict=True)]
    else:
        at["auto_pad"] = kind
    filters = (group * draw(st.integers(1, 2)), draw(st.integers(1, 3)), *kernel)
    return transposed(size, filters, bias=draw(st.booleans()), **at)


@given(drawn())
def test_every_window_is_a_convolution_of_phases(case):
    graph, last = case
    assert "ConvTranspose" not in split(graph, last)


@pytest.mark.parametrize(
    ("filters", "attributes", "taps"),
    [
        ((8, 4, 2, 2), {"strides": [2, 2]}, (16, 8, 1, 1)),
        ((8, 4, 4, 4), {"strides": [2, 2], "pads": [1] * 4}, (16, 8, 2, 2)),
        ((8, 4, 3, 3), {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]}, (16, 8, 2, 2)),
        ((8, 1, 4, 4), {"strides": [2, 2], "pads": [1] * 4, "group": 8}, (32, 1, 2, 2)),
        ((8, 4, 3, 3), {"pads": [1] * 4}, (4, 8, 3, 3)),
        ((8, 4, 2, 3), {"strides": [2, 1], "dilations": [2, 2]}, (8, 8, 2, 5)),
    ],
)  # fmt: skip
def test_a_phase_has_the_fewest_taps(filters, attributes, taps):
    graph, last = transposed((5, 6), filters, **attributes)
    convs = [node for node in lower(graph.model(last)).graph if node.op_type == "Conv"]
    assert [weight_dims(conv) for conv in convs] == [taps]


def test_blocks_are_cut_only_where_pads_ask_for_it():
    plain = transposed((3, 4), (4, 2, 3, 3), strides=[2, 2], pads=[1] * 4, output_padding=[1, 1])
    assert split(*plain) == ["Conv", "DepthToSpace"]
    assert split(*transposed((3, 4), (4, 2, 4, 4), strides=[2, 2], pads=[1] * 4)) == ["Conv", "DepthToSpace", "Slice"]
    assert split(*transposed((3, 4), (4, 2, 3, 3))) == ["Conv"]
    row = ["Unsqueeze", "Conv", "Reshape", "Transpose", "Reshape", "Squeeze"]
    assert split(*transposed((4,), (4, 2, 2), strides=[2])) == row


def test_volumes_and_computed_weights_stay():
    assert split(*transposed((2, 3, 2), (2, 1, 2, 2, 2), strides=[2, 2, 2])) == ["ConvTranspose"]
    graph = Graph(x=random(1, 2, 3, 3), w=random(2, 1, 2, 2))
    last = graph.add("ConvTranspose", "x", graph.add("Neg", "w"), strides=[2, 2])
    assert split(graph, last) == ["Neg", "ConvTranspose"]
    graph = Graph(x=random(1, 2, 3, 3), b=random(1))
    read = graph.constant(random(2, 1, 2, 2)), graph.add("Neg", "b")
    assert split(graph, graph.add("ConvTranspose", "x", *read)) == ["Neg", "ConvTranspose"]


def test_what_acts_on_each_value_stands_before_the_move_unless_something_reads_what_is_before_it():
    graph, up = transposed((3, 4), (4, 2, 4, 4), strides=[2, 2], pads=[1] * 4)
    act = graph.add("LeakyRelu", up, alpha=0.1)
    assert split(graph, act) == ["Conv", "LeakyRelu", "DepthToSpace", "Slice"]
    assert split(graph, act, up) == ["Conv", "DepthToSpace", "Slice", "LeakyRelu"]


@pytest.mark.parametrize("float_type", [DType.FLOAT32, DType.FLOAT16])
def test_a_level_of_a_unet_is_captured_and_written_into_the_concat(float_type):
    net = Unet()
    model, x = prepare(net.model("joined")), {"data": random(2, 3, 8, 8)}
    found, execution = run_on_host(model, x, float_type)
    assert relative(found["joined"], reference(model, x)) < (2e-6 if float_type is DType.FLOAT32 else 2e-3)
    assert {step.kind for step in execution.plan.steps} == {"conv", "pool"}
    tensors = execution.plan.tensors
    assert tensors["up"].storage == tensors["both"].storage == tensors["kept"].storage
    apart, other = run_on_host(model, x, float_type, disable=("blocks",))
    assert [step.op for step in other.plan.steps if step.kind == "pointwise"] == ["Move"]
    assert other.plan.tensors["up"].storage == other.plan.tensors["kept"].storage
    np.testing.assert_array_equal(found["joined"], apart["joined"])


def test_blocks_of_few_channels_are_copied():
    for filters, blocks in ((16, 2), (8, 0)):
        graph, last = transposed((3, 4), (8, filters, 2, 2), strides=[2, 2])
        found = [node for node in lower(graph.model(last)).graph if node.op_type == "Conv"]
        assert [node.attributes.get_int("blocks") for node in found] == [blocks]
    graph, last = transposed((3, 4), (8, 16, 2, 2), strides=[2, 2])
    other = graph.add("Relu", last)
    (conv,) = [node for node in lower(graph.model(other, last)).graph if node.op_type == "Conv"]
    assert conv.attributes.get_int("blocks") == 2


@pytest.mark.parametrize(
    ("precision", "channels", "kinds"),
    [
        *((precision, 64, ["reformat", "conv", "conv", "conv"]) for precision in ("fp32", "int8", "fp8")),
        ("fp8", 24, ["reformat", "conv", "pointwise", "conv", "conv"]),
    ],
)
def test_a_pixel_shuffle_is_written_by_the_convolution_before_it(precision, channels, kinds):
    """PyTorch's keeps the pixels of a channel side by side, whose filters change places; few channels are copied."""
    net = Net(channels=16)
    first = net.conv("data", "first", channels)
    shuffled = net.add("DepthToSpace", [first], "shuffled", channels // 4, blocksize=2, mode="CRD")
    model = prepare(net.model(net.conv(net.conv(shuffled, "second"), "last", leaky=False)))
    x = {"data": random(2, 16, 8, 8)}
    model = in_codes(model, x, precision)
    found, execution = run_on_host(model, x)
    assert [step.kind for step in execution.plan.steps] == kinds
    assert relative(found["last"], outputs(model, x)[0]) < (2e-6 if precision == "fp32" else 2e-2)


@pytest.mark.parametrize(("pads", "cut"), [([1, 1, 1, 1], [1, 1, 1, 1]), ([0, 3, 1, 0], [0, 1, 1, 0])])
def test_borders_of_blocks_are_left_out_by_the_convolution(pads, cut):
    graph, last = transposed((3, 4), (8, 16, 4, 4), strides=[2, 2], pads=pads)
    model = graph.model(last)
    (conv,) = [node for node in lower(model).graph if node.op_type not in ("Constant", "Identity")]
    assert list(conv.attributes.get_ints("cut")) == cut
    found, execution = run_on_host(model, graph.inputs)
    assert [step.kind for step in execution.plan.steps] == ["reformat", "conv", "reformat"]
    assert relative(found[last], outputs(model, graph.inputs)[0]) < 2e-6


@pytest.mark.parametrize(("precision", "kind"), [("int8", DType.INT8), ("fp8", FP8)])
def test_codes_go_through_the_convolution_and_the_move(precision, kind):
    x = {"data": random(2, 3, 8, 8)}
    model = in_codes(prepare(Unet().model("joined")), x, precision)
    transposed = next(node for node in model.graph.node if node.op_type == "ConvTranspose")
    assert transposed.input[1] in {node.output[0] for node in model.graph.node if node.op_type == "DequantizeLinear"}
    found, execution = run_on_host(model, x)
    assert relative(found["joined"], outputs(model, x)[0]) < 1e-2
    up = next(step for step in execution.plan.steps if step.kind == "conv" and step.name == "up")
    assert [execution.plan.tensors[name].format.dtype for name in (up.inputs[0], up.outputs[0])] == [kind, kind]


def in_codes(model, x, precision):
    """A prepared model with Q/DQ, calibrated with these inputs, prepared again; in precisions without codes the model."""
    if precision not in ("int8", "fp8"):
        return model
    table = calibrate(model, MinMaxCalibrator([x["data"]]), progress=False)
    return in_fp8(model, table) if precision == "fp8" else prepare(quantize(model, table))


class Unet(Net):
    """A level of a U-Net: down, up by a transposed convolution, joined, and a last layer, which stays in float."""

    def __init__(self):
        super().__init__(3)
        self.input = ["N", 3, 8, 8]
        kept = self.add("Relu", [self.conv("data", "first", 16, leaky=False)], "kept", 16)
        down = self.add("MaxPool", [kept], "down", 16, kernel_shape=[2, 2], strides=[2, 2])
        down = self.conv(down, "middle", 32)
        weights = self.constant("up_w", random(32, 16, 2, 2, seed=4) / 8)
        up = self.add("ConvTranspose", [down, weights, self.constant("up_b", random(16))], "up", 16, strides=[2, 2])
        both = self.add("Concat", [kept, up], "both", 32, axis=1)
        self.conv(self.conv(both, "inner", 8), "joined", 8, kernel=1, leaky=False)


def reference(model, x):
    with ReferenceEngine(model, BuildOptions()).create_context() as context:
        return context.run(x)["joined"]


@pytest.mark.parametrize(
    ("strides", "kernel", "attributes", "kinds"),
    [
        ([2, 2], (4, 4), {"pads": [1, 1, 1, 1]}, ["reformat", "conv", "reformat"]),
        ([2, 2], (3, 3), {"pads": [1, 0, 1, 1], "output_padding": [1, 0]}, ["reformat", "conv", "reformat"]),
        ([2, 2], (2, 2), {"auto_pad": "SAME_UPPER"}, ["reformat", "conv", "reformat"]),
        ([1, 1], (3, 3), {"dilations": [2, 1]}, ["reformat", "conv"]),
        ([2, 1], (3, 3), {}, ["generic", "reformat"]),
    ],
)
def test_sizes_may_be_free(strides, kernel, attributes, kinds):
    net = Net(8)
    net.input = ["N", 8, "H", "W"]
    weights = net.constant("w", random(8, 16, *kernel) / 8)
    net.add("ConvTranspose", ["data", weights], "y", strides=strides, **attributes)
    lowered = lower(model := prepare(net.model("y")))
    for size in ((3, 4), (6, 5)):
        x = {"data": random(2, 8, *size)}
        found, execution = run_on_host(model, x, lowered=lowered)
        assert [step.kind for step in execution.plan.steps] == kinds
        assert relative(found["y"], outputs(model, x)[0]) < 2e-6
