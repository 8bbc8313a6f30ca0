"""PRelu with a slope for each channel becomes part of the convolution before it: where, and that the numbers stay."""

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.engines.base.fusion import fusion_of
from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.engines.cuda.plan.parts import parts_of
from pytrtplugins.engines.cuda.plan.planner import make_plan
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import assert_near, by_reference, run_on_host
from tests.engines.cuda.lower.test_transposed_convolution import in_codes
from tests.measures import relative
from tests.passes.nets import Net

X = {"data": np.random.default_rng(2).standard_normal((2, 3, 8, 8), dtype=np.float32)}


class Faces(Net):
    """Networks of convolutions with PRelu."""

    def prelu(self, x, output, slopes=None):
        """Slopes of (K, 1, 1), on both sides of 0 and beyond 1, unless they are given."""
        if slopes is None:
            slopes = self.random.uniform(-0.5, 1.5, (self.channels[x], 1, 1))
        name = self.constant(f"{output}_slopes", np.asarray(slopes, np.float32))
        return self.add("PRelu", [x, name], output)

    def bent(self, x, output, channels, **more):
        """A convolution with its PRelu."""
        return self.prelu(self.conv(x, f"{output}_sum", channels, leaky=False, **more), output)


def faces():
    """Every convolution that such a network has: an image's, 3x3 and 1x1, of groups, depthwise, with residuals, pooled, of rows."""
    net = Faces()
    x = net.bent("data", "first", 16)
    x = net.bent(net.bent(x, "wide", 24, kernel=1), "deep", 24, group=24)
    back = net.conv(x, "back", 16, kernel=1, leaky=False)
    behind = net.prelu(net.add("Add", [back, "first"], "added"), "behind")
    before = net.add("Add", [net.bent(behind, "before", 16), behind], "summed")
    grouped = net.bent(before, "grouped", 32, group=4)
    conv = net.conv(grouped, "odd", 13, leaky=False)
    rising = net.prelu(conv, "rising", net.random.uniform(0, 1.5, (1, 13, 1, 1)))
    pooled = net.add("MaxPool", [rising], "pooled", kernel_shape=[2, 2], strides=[2, 2])
    rows = net.add("Flatten", [pooled], "flat", 13 * 16)
    w = net.constant("rows_w", net.random.normal(size=(13 * 16, 10)).astype(np.float32) / 15)
    product = net.add("MatMul", [rows, w], "product", 10)
    net.prelu(product, "last", net.random.uniform(-0.5, 1.5, 10))
    return net.model("last")


def reference(model, inputs=X):
    with ptp.build(model, engine="onnxruntime", progress=False).create_context() as context:
        return context.run(inputs)


def operators(model, disable=("patches",)):
    return [node.op_type for node in lower(prepare(model), disable=disable).graph]


def convolutions(model):
    """The engine's own, by the name of what they write."""
    graph = lower(prepare(model)).graph
    return {node.outputs[0].name: node.attributes for node in graph if node.op_type == "Conv"}


def test_no_prelu_of_a_face_network_stays():
    model = faces()
    assert sorted(operators(model)) == ["Conv"] * 8 + ["Flatten"]
    found = convolutions(model)
    acts = {name: (at["activation"].value, at["residual_activation"].value) for name, at in found.items()}
    before = dict.fromkeys(("first", "wide", "deep", "summed", "grouped", "pooled", "last"), ("prelu", "linear"))
    assert acts == {**before, "behind": ("linear", "prelu")}
    assert (found["first"]["image"].value, found["pooled"]["pool"].value, found["last"]["rows"].value) == (1, 1, 1)


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize(("float_type", "room"), [(DType.FLOAT32, 2e-6), (DType.FLOAT16, 3e-3)])
def test_the_numbers_are_onnxruntimes(float_type, room, direct):
    model = faces()
    found, _ = run_on_host(prepare(model), X, float_type, direct=direct)
    assert relative(found["last"], reference(model)["last"]) < room


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize(("precision", "room"), [("int8", 5e-3), ("fp8", 3e-2)])
def test_in_codes_a_convolution_and_its_prelu_are_one(precision, room, direct):
    model = in_codes(prepare(faces()), X, precision)
    lowered = lower(model)
    kinds = [node.op_type for node in lowered.graph]
    assert (kinds.count("Conv"), "PRelu" in kinds) == (8, False)
    scales = {node.outputs[0].name: node.attributes for node in lowered.graph if node.op_type == "Conv"}
    floats = {name for name, at in scales.items() if not at["x_scale"].value}
    assert floats == {"last", *(["first_quantized"] if precision == "fp8" else [])}
    names = ("first", "wide", "deep", "behind", "before", "grouped")
    assert all(scales[f"{name}_quantized"]["y_scale"].value for name in names)
    assert_near(run_on_host(model, X, direct=direct)[0], by_reference(model, X, precision), room)


@pytest.mark.parametrize(
    ("slopes", "activation"),
    [
        (np.full((16, 1, 1), 0.25), "leaky"),
        (0.25, "leaky"),
        ([[[0.25]]], "leaky"),
        (-0.25, "prelu"),
        (np.full((1, 16, 1, 1), 1.5), "prelu"),
        (np.linspace(0, 1, 16).reshape(16, 1, 1), "prelu"),
    ],
)
def test_one_slope_between_0_and_1_is_darknets_leaky(slopes, activation):
    net = Faces()
    model = net.model(net.conv(net.prelu(net.conv("data", "a", 16, leaky=False), "bent", slopes), "last", 8))
    at = convolutions(model)["bent"]
    assert at["activation"].value == activation
    assert at["bounds"].value[0] == pytest.approx(0.25 if activation == "leaky" else 0.0)
    assert_near(run_on_host(prepare(model), X)[0], reference(model), 2e-6)


@pytest.mark.parametrize("dims", [(16, 8, 8), (8,), (1, 8), (16, 8, 1), (2, 16, 1, 1)], ids=str)
def test_slopes_of_pixels_or_images_stay(dims):
    net = Faces()
    net.input[0] = 2
    slopes = net.random.uniform(-0.5, 1.5, dims)
    model = net.model(net.prelu(net.conv("data", "a", 16, leaky=False), "bent", slopes))
    assert operators(model) == ["Conv", "PRelu"]
    assert relative(run_on_host(prepare(model), X)[0]["bent"], reference(model)["bent"]) < 2e-6


def test_slopes_that_are_computed_stay():
    net = Faces()
    slopes = net.add("GlobalAveragePool", ["data"], "slopes")
    model = net.model(net.add("PRelu", [net.conv("data", "a", 3, leaky=False), slopes], "bent"))
    assert "PRelu" in operators(model)


def test_what_something_else_reads_too_is_not_bent():
    net = Faces()
    model = net.model(net.conv(net.bent("data", "a", 16), "last", 8), "a_sum")
    assert operators(model).count("PRelu") == 1


def test_slopes_before_a_residual_and_others_behind_it_stay_apart():
    net = Faces()
    a = net.conv("data", "a", 16)
    model = net.model(net.prelu(net.add("Add", [net.bent(a, "b", 16), a], "added"), "behind"))
    assert operators(model) == ["Conv", "Conv", "PRelu"]
    assert relative(run_on_host(prepare(model), X)[0]["behind"], reference(model)["behind"]) < 2e-6


@pytest.mark.parametrize(("low", "left"), [(0.0, []), (-0.1, ["MaxPool"])])
def test_a_pool_stays_behind_slopes_below_0(low, left):
    net = Faces()
    bent = net.prelu(net.conv("data", "a", 16, leaky=False), "bent", np.linspace(low, 1.5, 16).reshape(16, 1, 1))
    model = net.model(net.add("MaxPool", [bent], "pooled", kernel_shape=[2, 2], strides=[2, 2]))
    assert operators(model) == ["Conv", *left]
    assert relative(run_on_host(prepare(model), X)[0]["pooled"], reference(model)["pooled"]) < 2e-6


def test_convolutions_of_one_tensor_become_one_with_the_slopes_of_both():
    net = Faces(channels=8)
    parts = [net.bent("data", name, 16, kernel=1) for name in "ab"]
    third = net.conv("data", "c", 16, kernel=1)  # of another activation
    joined = net.add("Concat", [*(net.conv(part, f"{part}_next", 8) for part in (*parts, third))], "joined", 24, axis=1)
    model, x = net.model(net.conv(joined, "last", 8)), {"data": X["data"].repeat(3, 1)[:, :8].copy()}
    assert "a.fused" in convolutions(model)
    assert_near(run_on_host(prepare(model), x)[0], reference(model, x), 2e-6)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_blocks_of_pixels_keep_the_slopes_of_their_filters(mode):
    net = Faces()
    shuffled = net.add("DepthToSpace", [net.bent("data", "a", 64)], "shuffled", 16, blocksize=2, mode=mode)
    model = net.model(net.conv(shuffled, "last", 8, leaky=False))
    first, _ = convolutions(model).values()
    assert (first["blocks"].value, first["activation"].value) == (2, "prelu")
    assert relative(run_on_host(prepare(model), X)[0]["last"], reference(model)["last"]) < 2e-6


def test_without_the_step_prelu_is_a_kernel_of_its_own():
    model = prepare(faces())
    lowered = lower(model, disable=("activations",))
    steps = make_plan(lowered, {"N": 2}, ("activations",)).steps
    assert len([step for step in steps if step.kind == "pointwise"]) >= 8
    found, _ = run_on_host(model, X, disable=("activations",), lowered=lowered)
    assert relative(found["last"], reference(faces())["last"]) < 2e-6


def test_a_kernels_part_names_the_prelu():
    model = prepare(faces())
    inputs = ptp.build(model, engine="null").inputs
    found = fusion_of(model, parts_of(lower(model), inputs, (), {}))
    kernels = [[found.names[place] for place in kernel.nodes] for kernel in found.computing]
    assert ["back", "added", "behind"] in kernels
    assert ["odd", "rising", "pooled"] in kernels
