"""What an engine file keeps beside the model: run from it without the weights, and damaged."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytrtplugins.engines.cudnn.conv import DirectProvider
from pytrtplugins.engines.cudnn.device import HostDevice
from pytrtplugins.engines.cudnn.execution import Execution
from pytrtplugins.engines.cudnn.lower import lower
from pytrtplugins.engines.cudnn.planner import make_plan
from pytrtplugins.engines.cudnn.saved import SavedPlan
from pytrtplugins.engines.cudnn.select_conv import ConvSelector
from pytrtplugins.engines.cudnn.tactics import Choice
from pytrtplugins.engines.cudnn.weights import outline, take_weights
from pytrtplugins.errors import BuildError
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.passes.nets import Net

GPU = {"gpu": "NVIDIA H200"}


def net():
    net = Net()
    a = net.conv("data", "a")
    return prepare(net.model(net.conv(a, "b")))


def run(graph, selector, x):
    execution = Execution(
        HostDevice(), make_plan(graph, {"N": len(x)}, DType.FLOAT16), lambda *step: selector.launch(*step)
    )
    execution.input("data")[...] = x
    execution.queue(None)
    return [execution.output(name).copy() for name in execution.plan.outputs]


def selector(weights, plan=None):
    device = HostDevice()
    packed = (
        {name: {form: array.copy() for form, array in forms.items()} for name, forms in plan.packed.items()}
        if plan
        else None
    )
    return ConvSelector(
        device, [DirectProvider(device)], plan.choices if plan else None, weights=weights, packed=packed
    )


@pytest.fixture(scope="module")
def built():
    """A network's graph without weights, what it gives, and what a file would keep."""
    graph = lower(net())
    weights = take_weights(graph)
    chosen = selector(weights.__getitem__)
    x = np.random.default_rng(0).random((2, 3, 8, 8), dtype=np.float32)
    y = run(graph, chosen, x)
    return x, y, SavedPlan(b"model", graph.SerializeToString(), chosen.choices, chosen.packed())


def forbidden(name):
    raise AssertionError(f"weights {name} were read")


def test_a_file_runs_without_the_weights_and_gives_the_same_bits(built):
    x, wanted, saved = built
    read = SavedPlan.from_bytes(saved.to_bytes(GPU))
    graph = onnx.ModelProto.FromString(read.graph)
    again = selector(forbidden, read)
    for one, other in zip(run(graph, again, x), wanted, strict=True):
        np.testing.assert_array_equal(one, other)
    assert again.choices == saved.choices
    assert again.packed().keys() == saved.packed.keys()


def test_the_graph_of_a_file_holds_no_weights_but_their_dims(built):
    graph = onnx.ModelProto.FromString(built[2].graph).graph
    sizes = {tensor.name: len(tensor.raw_data) + 4 * len(tensor.float_data) for tensor in graph.initializer}
    outside = [tensor for tensor in graph.initializer if tensor.data_location == onnx.TensorProto.EXTERNAL]
    assert len(outside) == 2
    assert all(sizes[tensor.name] == 0 and len(tensor.dims) == 4 for tensor in outside)


def test_the_same_plan_gives_the_same_bytes(built):
    assert built[2].to_bytes(GPU) == SavedPlan.from_bytes(built[2].to_bytes(GPU)).to_bytes(GPU)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_what_is_cut_or_forged_is_a_value_error_or_a_plan(built, data):
    whole = built[2].to_bytes(GPU)
    header = 8 + int.from_bytes(whole[:8], "little")
    position = data.draw(st.integers(0, header + 64))
    kind = data.draw(st.sampled_from(["flip", "cut", "insert"]))
    changed = {
        "flip": whole[:position] + bytes([whole[position] ^ data.draw(st.integers(1, 255))]) + whole[position + 1 :],
        "cut": whole[: -position - 1],
        "insert": whole[:position] + b"0" + whole[position:],
    }[kind]
    try:
        SavedPlan.from_bytes(changed)
    except ValueError:
        return
    assert kind == "flip"


def test_packed_weights_of_another_size_are_refused(built):
    x, _, saved = built
    short = {name: {form: array[:-8] for form, array in forms.items()} for name, forms in saved.packed.items()}
    forged = SavedPlan(saved.model, saved.graph, saved.choices, short)
    with pytest.raises(BuildError, match=r"has \d+ bytes, expected \d+"):
        run(onnx.ModelProto.FromString(saved.graph), selector(forbidden, forged), x)


def test_a_kernel_that_is_not_here_is_refused(built):
    x, _, saved = built
    forged = SavedPlan(saved.model, saved.graph, dict.fromkeys(saved.choices, Choice("warp", "fast")), saved.packed)
    with pytest.raises(BuildError, match="kernels of 'warp' are not here"):
        run(onnx.ModelProto.FromString(saved.graph), selector(forbidden, forged), x)


def test_an_outline_is_the_model_without_the_values_of_its_large_weights():
    net = Net()
    large = net.constant("large", np.ones((1, 3, 32, 32), np.float32))
    small = net.constant("small", np.float32([2]))
    model = prepare(net.model(net.add("Add", [net.add("Mul", ["data", small], "a"), large], "b")))
    helper_set(model, "key", "value")
    left = outline(model)
    assert [tensor.name for tensor in left.graph.initializer] == [tensor.name for tensor in model.graph.initializer]
    assert left.ByteSize() < model.ByteSize() - large_bytes(model)
    filled = onnx.ModelProto()
    filled.CopyFrom(left)
    del filled.graph.initializer[:]
    filled.graph.initializer.extend(model.graph.initializer)
    assert filled == model
    assert outline(left) == left


def helper_set(model, key, value):
    model.metadata_props.add(key=key, value=value)


def large_bytes(model):
    return max(len(tensor.raw_data) for tensor in model.graph.initializer) - 256
