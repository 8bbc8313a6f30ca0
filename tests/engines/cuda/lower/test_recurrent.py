"""Which recurrent nodes become a product and a recurrence, and what stays a function of arrays."""

import numpy as np
import onnx
import pytest

from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.errors import DimsError
from pytrtplugins.model.ir import dims_of
from pytrtplugins.passes import prepare
from tests.engines.cuda.host import assert_close, run_on_host
from tests.engines.cuda.recurrent import BOTH, Layer


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
