"""What is computed of constants while a model is prepared is what onnxruntime computes of them in a run."""

import numpy as np
import pytest
from onnx import helper, numpy_helper

from pytrtplugins.model.ir import to_ir, to_proto
from pytrtplugins.passes import PropagateConstants
from tests.engines.operators import literal, model_of
from tests.engines.sweeps import SWEEPS, expected

MOST = 25
"""Forms of an operator; of more than these, as many from the first to the last."""
X = {"x": np.zeros(1, np.float32)}


def constants_only(op, inputs, attributes, outputs):
    """A model whose operator reads constants, beside an input that it does not read."""
    model = model_of(op, inputs, attributes, outputs)
    model.graph.initializer.append(numpy_helper.from_array(inputs[0], "x0"))
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", 1, [1]))
    model.graph.node.append(helper.make_node("Identity", ["x"], ["z"]))
    model.graph.output.append(helper.make_tensor_value_info("z", 1, [1]))
    return model


@pytest.mark.parametrize("op", SWEEPS)
def test_an_operator_of_constants_gives_what_it_gives_in_a_run(op):
    cases = [case for case in SWEEPS[op] if op != "LRN" or case[1]["size"] % 2]  # onnxruntime runs what is left of them
    for case in cases[:: -(-len(cases) // MOST)]:
        folded = to_ir(constants_only(op, *case))
        PropagateConstants()(folded)
        *results, _ = literal(to_proto(folded), X)
        for result, wanted in zip(results, expected(op, case), strict=True):
            assert (result.shape, result.dtype) == (wanted.shape, wanted.dtype), case[1]
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5, err_msg=f"{case[1]} {case[0][1:]}")


@pytest.mark.parametrize(
    ("start", "end", "wanted"), [(-9, -9, [0]), (-9, -3, []), (-3, -9, [1, 0]), (9, -9, [3, 2, 1, 0])]
)
def test_a_slice_of_constants_that_runs_backwards_begins_at_the_nearest_element(start, end, wanted):
    numbers = [np.array([number]) for number in (start, end, 0, -1)]
    folded = to_ir(constants_only("Slice", [np.arange(4), *numbers], {}, 1))
    PropagateConstants()(folded)
    assert [node.op_type for node in folded.graph] == ["Identity", "Identity"]
    assert literal(to_proto(folded), X)[0].tolist() == wanted
