"""Which recurrent nodes become a product and a recurrence, and what stays a function of arrays."""

import numpy as np
import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.engines.cuda.settings import PLACEMENT
from pytrtplugins.errors import DimsError
from pytrtplugins.model.ir import dims_of, dtype_of
from pytrtplugins.passes import prepare, quantize
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import assert_close, run_on_host
from tests.engines.cuda.recurrent import BOTH, Layer, language_model, scales, text_recognizer
from tests.engines.operators import literal
from tests.measures import relative


def kinds(layer):
    """Kinds of the steps that a layer is planned as, and whether its numbers are onnxruntime's."""
    model, inputs = layer.model()
    outputs, execution = run_on_host(prepare(model), inputs)
    assert_close(outputs, layer.wanted(), 2e-6)
    return [step.kind for step in execution.plan.steps if step.kind != "reformat"]


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_one_product_has_the_inputs_of_all_steps_and_directions(op):
    layer = Layer(op, width=8, direction=BOTH, optional="b")
    assert kinds(layer) == ["conv", "recurrent"]
    conv, recurrent = lower(prepare(layer.model()[0])).graph
    assert dims_of(conv.inputs[1]) == (*(dims_of(conv.inputs[2]) or ()), 8, 1, 1)
    assert recurrent.op_type == "Recurrent"


def test_weights_that_are_computed_stay_with_the_function_of_arrays():
    assert kinds(Layer(computed=True, width=8)) == ["generic"]


def test_first_states_that_are_constants_are_no_steps():
    layer = Layer(width=8)
    model, inputs = layer.model()
    states = {name: inputs.pop(name) for name in "HC"}
    left = [info for info in model.graph.input if info.name not in states]
    del model.graph.input[:]
    model.graph.input.extend(left)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in states.items())
    outputs, execution = run_on_host(prepare(model), inputs)
    assert_close(outputs, layer.wanted(), 2e-6)
    assert [step.kind for step in execution.plan.steps] == ["conv", "recurrent"]


def test_first_states_of_another_batch_are_refused():
    model, inputs = Layer(width=8).model()
    for info in model.graph.input:
        info.type.tensor_type.shape.dim[0 if info.name == "lengths" else 1].dim_param = f"N{info.name}"
    with pytest.raises(DimsError, match="input 4"):
        run_on_host(prepare(model), {**inputs, "H": inputs["H"][:, :2]})


@pytest.mark.parametrize(("steps", "batch"), [(0, 3), (4, 0)])
def test_sequences_without_values_give_the_first_states(steps, batch):
    layer = Layer(width=8, steps=steps, batch=batch, outputs="yh")
    model, inputs = layer.model()
    outputs, _ = run_on_host(prepare(model), inputs)
    assert outputs["y"].shape == (steps, 1, batch, layer.hidden)
    np.testing.assert_array_equal(outputs["h"], inputs["H"])


def quantized(make):
    """A network in INT8 with its recurrent layers, its inputs, and its float form."""
    model, inputs = make()
    model = prepare(model)
    return quantize(model, scales(model, inputs), placement=PLACEMENT), inputs, model


@pytest.mark.parametrize("make", [text_recognizer, language_model])
def test_products_of_inputs_are_products_of_codes_in_int8(make):
    """Each recurrent layer's, in a network, as onnxruntime computes the same file without optimizations."""
    model, inputs, floats = quantized(make)
    wanted, near = (literal(each, inputs)[0] for each in (model, floats))
    products = [node for node in lower(model).graph if node.op_type == "Conv"]
    assert [node.attributes["x_scale"].value > 0 for node in products] == [*[True] * (len(products) - 1), False]
    recurrent = [node for node in lower(model).graph if node.op_type == "Recurrent"]
    assert len(recurrent) == 2
    assert all(dtype_of(node.inputs[1]) is DType.FLOAT32 for node in recurrent)
    outputs, execution = run_on_host(model, inputs)
    assert "generic" not in {step.kind for step in execution.plan.steps}
    np.testing.assert_allclose(outputs["out"], wanted, atol=3e-6)
    half, _ = run_on_host(model, inputs, DType.FLOAT16)
    np.testing.assert_allclose(half["out"], wanted, atol=0.02)
    assert 0 < relative(wanted, near) < 0.05


@pytest.mark.parametrize("make", [text_recognizer, language_model])
@pytest.mark.parametrize("engine", ["cpu", "onnxruntime", "reference"])
def test_other_engines_give_the_same_from_the_same_file(make, engine):
    model, inputs, _ = quantized(make)
    with ptp.build(model, engine=engine, precision="int8").create_context() as context:
        assert relative(context.run(inputs)["out"], literal(model, inputs)[0]) < 5e-3  # some codes are one step apart


@pytest.mark.parametrize(
    ("axis", "scale_dims", "codes"),
    [(1, (160,), True), (-2, (160,), True), (None, (), True), (0, (2,), False), (2, (8,), False)],
)
@pytest.mark.parametrize("weights", ["W", "R"])
def test_weights_that_others_quantized_become_codes_where_rows_have_scales(axis, scale_dims, codes, weights):
    """And floats elsewhere, as R always does."""
    layer = Layer(width=8 if weights == "W" else 5, hidden=40 if weights == "W" else 8, direction=BOTH, optional="b")
    model, inputs = layer.model()
    graph, rng = model.graph, np.random.default_rng(1)
    (tensor,) = [tensor for tensor in graph.initializer if tensor.name == weights]
    dims = tensor.dims[1] if scale_dims == (160,) else tensor.dims[2] if scale_dims == (8,) else None
    steps = rng.integers(-127, 128, tensor.dims).astype(np.int8)
    sizes = (rng.random(scale_dims if dims is None else (dims,)) * 0.005 + 0.001).astype(np.float32)
    graph.initializer.remove(tensor)
    arrays = {"steps": steps, "sizes": sizes, "zeros": np.zeros(sizes.shape, np.int8)}
    arrays |= {"x_scale": np.float32(0.03), "x_zero": np.int8(0)}
    graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items())
    at = {} if axis is None else {"axis": axis}
    nodes = [
        onnx.helper.make_node("DequantizeLinear", ["steps", "sizes", "zeros"], [weights], **at),
        onnx.helper.make_node("QuantizeLinear", ["X", "x_scale", "x_zero"], ["x_codes"]),
        onnx.helper.make_node("DequantizeLinear", ["x_codes", "x_scale", "x_zero"], ["x"]),
        graph.node[0],
    ]
    nodes[-1].input[0] = "x"
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)
    product = next(node for node in lower(prepare(model)).graph if node.op_type == "Conv")
    assert (product.attributes["x_scale"].value > 0) == (codes and weights == "W")
    outputs, execution = run_on_host(prepare(model), inputs)
    assert "generic" not in {step.kind for step in execution.plan.steps}
    for found, wanted in zip(outputs.values(), literal(model, inputs), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=3e-6, atol=3e-6)
