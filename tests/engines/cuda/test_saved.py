"""What an engine file keeps beside the model: run from it without the weights, and damaged."""

import json

import numpy as np
import onnx
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.engines.cuda.conv.cache import Choice
from pytrtplugins.engines.cuda.conv.problem import DirectProvider
from pytrtplugins.engines.cuda.conv.selector import ConvSelector
from pytrtplugins.engines.cuda.device.device import HostDevice
from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.engines.cuda.plan.planner import make_plan
from pytrtplugins.engines.cuda.plan.weights import take_weights, without_weights
from pytrtplugins.engines.cuda.run.execution import Execution
from pytrtplugins.engines.cuda.saved import SavedPlan
from pytrtplugins.errors import BuildError
from pytrtplugins.model.ir import to_ir, to_proto
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.passes.nets import Net

GPU = {"gpu": "NVIDIA H200"}


def net():
    net = Net()
    a = net.conv("data", "a")
    return prepare(net.model(net.conv(a, "b")))


def run(graph, selector, x):
    execution = Execution(HostDevice(), make_plan(graph, {"N": len(x)}), lambda *step: selector.launch(*step))
    execution.input("data")[...] = x
    execution.queue(None)
    return [execution.output(name).copy() for name in execution.plan.outputs]


def selector(weights, plan=None):
    device, choices, packed = HostDevice(), None, None
    if plan:
        choices = plan.choices
        packed = {name: {form: array.copy() for form, array in forms.items()} for name, forms in plan.packed.items()}
    return ConvSelector(device, [DirectProvider(device)], choices, weights=weights, packed=packed)


@pytest.fixture(scope="module")
def built():
    """A network's graph without weights, what it gives, and what a file would keep."""
    graph = lower(net(), float_type=DType.FLOAT16)
    weights = take_weights(graph)
    chosen = selector(weights.__getitem__)
    x = np.random.default_rng(0).random((2, 3, 8, 8), dtype=np.float32)
    y = run(graph, chosen, x)
    return x, y, SavedPlan(b"model", to_proto(graph).SerializeToString(), chosen.choices, chosen.packed())


def graph_of(saved):
    return to_ir(onnx.ModelProto.FromString(saved.graph), checked=True)


def forbidden(name):
    raise AssertionError(f"weights {name} were read")


def test_a_file_runs_without_the_weights_and_gives_the_same_bits(built):
    x, wanted, saved = built
    read = SavedPlan.from_bytes(saved.to_bytes(GPU))
    graph = graph_of(read)
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


def test_the_parts_of_a_file_have_the_names_that_earlier_files_have(built):
    arrays = safetensors.numpy.load(built[2].to_bytes(GPU))
    assert arrays["model"].tobytes() == b"model"
    assert arrays["graph"].tobytes() == built[2].graph
    assert json.loads(arrays["tactics"].tobytes())


def test_the_same_plan_gives_the_same_bytes(built):
    assert built[2].to_bytes(GPU) == SavedPlan.from_bytes(built[2].to_bytes(GPU)).to_bytes(GPU)


def header_of(data):
    """Its text, and where the tensors begin."""
    behind = 8 + int.from_bytes(data[:8], "little")
    return data[8:behind], behind


def with_header(data, text):
    return len(text).to_bytes(8, "little") + text + data[header_of(data)[1] :]


@given(st.data())
def test_a_changed_header_is_refused_or_still_speaks_of_every_byte(built, data):
    whole = built[2].to_bytes(GPU)
    position = data.draw(st.integers(0, header_of(whole)[1] - 1))
    changed = bytearray(whole)
    changed[position] ^= data.draw(st.integers(1, 255))
    try:
        found = SavedPlan.from_bytes(bytes(changed))
    except ValueError:
        return
    arrays = [array for forms in found.packed.values() for array in forms.values()]
    tactics = json.loads(header_of(whole)[0])["tactics"]["shape"][0]
    held = len(found.model) + len(found.graph) + tactics + sum(array.nbytes for array in arrays)
    assert held == len(changed) - header_of(bytes(changed))[1]


@given(st.data())
def test_a_byte_more_or_less_is_refused_wherever_it_is(built, data):
    whole = built[2].to_bytes(GPU)
    position = data.draw(st.integers(0, len(whole) - 1))
    more = bytes([data.draw(st.integers(0, 255))]) + whole[position:]
    for end in (more, b"", whole[position + 1 :]):
        with pytest.raises(ValueError, match=r"."):
            SavedPlan.from_bytes(whole[:position] + end)


@pytest.mark.parametrize("count", [1, 7, 8, 4096, -1, -7, -8, -64])
def test_bytes_behind_the_last_tensor_and_one_that_is_cut_are_refused(built, count):
    whole = built[2].to_bytes(GPU)
    with pytest.raises(ValueError, match=r"engine\.plan is damaged .*file not fully covered"):
        SavedPlan.from_bytes(whole + bytes(count) if count > 0 else whole[:count])


def forged(whole, change):
    header = json.loads(header_of(whole)[0])
    names = sorted(header, key=lambda name: header[name]["data_offsets"])
    change(header, names)
    return with_header(whole, json.dumps(header).encode())


def _moved(header, name, begin, end):
    entry = header[name]
    entry["data_offsets"] = [entry["data_offsets"][0] + begin, entry["data_offsets"][1] + end]


def _retyped(header, names, old, new):
    next(header[name] for name in names if header[name]["dtype"] == old)["dtype"] = new


FORGED = {
    "a gap between tensors": lambda header, names: _moved(header, names[1], 1, 0),
    "tensors over each other": lambda header, names: _moved(header, names[1], -4, 0),
    "the last tensor left out": lambda header, names: header.pop(names[-1]),
    "a tensor in the middle left out": lambda header, names: header.pop(names[1]),
    "a size that its bytes do not have": lambda header, names: header[names[1]].update(shape=[3]),
    "a negative size": lambda header, names: header[names[1]].update(shape=[-1]),
    "a size that is no whole number": lambda header, names: header[names[1]].update(shape=[1.0]),
    "a size that is true": lambda header, names: header[names[-1]].update(shape=[True]),
    "two axes": lambda header, names: header[names[1]].update(shape=[2, 2]),
    "an unknown type": lambda header, names: header[names[1]].update(dtype="F64"),
    "no type": lambda header, names: header[names[1]].pop("dtype"),
    "an unknown type of the same size": lambda header, names: _retyped(header, names, "F16", "BF16"),
    "another type of the same size": lambda header, names: _retyped(header, names, "F16", "I16"),
    "two axes of the same size": lambda header, names: header[names[1]].update(shape=[1, *header[names[1]]["shape"]]),
    "more axes than NumPy has": lambda header, names: header[names[-1]]["shape"].extend([1] * 99),
    "a size beyond 64 bits": lambda header, names: header[names[1]].update(shape=[1 << 64]),
    "sizes whose product is beyond 64 bits": lambda header, names: header[names[1]].update(shape=[1 << 40, 1 << 40]),
    "no choices": lambda header, names: header.update(other=header.pop("tactics")),
    "no model": lambda header, names: header.update(other=header.pop("model")),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_header_is_refused(built, name):
    with pytest.raises(ValueError, match=r"engine\.plan"):
        SavedPlan.from_bytes(forged(built[2].to_bytes(GPU), FORGED[name]))


def test_packed_weights_of_another_size_are_refused(built):
    x, _, saved = built
    short = {name: {form: array[:-8] for form, array in forms.items()} for name, forms in saved.packed.items()}
    forged = SavedPlan(saved.model, saved.graph, saved.choices, short)
    with pytest.raises(BuildError, match=r"has \d+ bytes, expected \d+"):
        run(graph_of(saved), selector(forbidden, forged), x)


def test_a_kernel_that_is_not_here_is_refused(built):
    x, _, saved = built
    forged = SavedPlan(saved.model, saved.graph, dict.fromkeys(saved.choices, Choice("warp", "fast")), saved.packed)
    with pytest.raises(BuildError, match=r"kernels of 'warp' are not here, .*\nDo: build it again$"):
        run(graph_of(saved), selector(forbidden, forged), x)


def test_a_model_without_weights_lacks_the_values_of_its_large_weights():
    net = Net()
    large = net.constant("large", np.ones((1, 3, 32, 32), np.float32))
    small = net.constant("small", np.float32([2]))
    model = prepare(net.model(net.add("Add", [net.add("Mul", ["data", small], "a"), large], "b")))
    model.metadata_props.add(key="key", value="value")
    left = without_weights(model)
    assert [tensor.name for tensor in left.graph.initializer] == [tensor.name for tensor in model.graph.initializer]
    size = max(len(tensor.raw_data) for tensor in model.graph.initializer)
    assert left.ByteSize() < model.ByteSize() - (size - 256)
    filled = onnx.ModelProto()
    filled.CopyFrom(left)
    del filled.graph.initializer[:]
    filled.graph.initializer.extend(model.graph.initializer)
    assert filled == model
    assert without_weights(left) == left
