"""NonZero as one kernel in the graph, of whose results the number is read back: the places that onnxruntime and NumPy find."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from pytrtplugins.engines.cuda.device.indexed import nonzero
from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import run_on_host
from tests.engines.operators import literal, model_of
from tests.randomness import generator

RNG = generator(11)


def sparse(*dims, kind=np.float32, share=0.3):
    """Values of which a share is not zero."""
    values = RNG.integers(1, 100, dims) * np.where(RNG.random(dims) < 0.5, -1, 1)
    return np.where(RNG.random(dims) < share, values, 0).astype(kind)


def nonzero_model(x):
    return model_of("NonZero", [x], {}, 1, 13)


def kinds(execution):
    return [step.kind for step in execution.plan.steps]


@pytest.mark.parametrize(
    "x",
    [
        sparse(7),
        sparse(3, 50),
        sparse(2, 3, 41, 67),  # several blocks
        sparse(1, 1, 300, 30, share=0.001),
        np.zeros((4, 5), np.float32),
        np.ones((1, 5000), np.float32),
        np.float32([0.0, -0.0, np.nan, np.inf, 1e-45]),
        sparse(2, 30, kind=np.int64) << 40,
        sparse(6, 31, kind=bool),
        sparse(3, 9, kind=np.uint8),
    ],
    ids=lambda x: f"{x.dtype}-{'x'.join(map(str, x.shape))}",
)
def test_the_places_are_onnxruntimes(x):
    model = nonzero_model(x)
    outputs, execution = run_on_host(prepare(model), {"x0": x})
    assert kinds(execution) == ["indexed", "tail"]
    assert execution.plan.steps[0].capturable
    wanted = literal(model, {"x0": x})[0]
    np.testing.assert_array_equal(outputs["y0"], wanted)
    np.testing.assert_array_equal(wanted, np.nonzero(x))
    assert outputs["y0"].dtype == wanted.dtype


def test_a_block_for_each_value_and_a_second_run(monkeypatch):
    """Blocks find what those before have published; the counters are 0 again in the next run."""
    monkeypatch.setattr(nonzero, "_THREADS", 2)
    monkeypatch.setattr(nonzero, "_VALUES", 1)
    x = sparse(5, 23)
    outputs, execution = run_on_host(prepare(nonzero_model(x)), {"x0": x})
    np.testing.assert_array_equal(outputs["y0"], np.nonzero(x))
    x = sparse(5, 23)
    execution.input("x0")[...] = x
    execution.queue(None)
    np.testing.assert_array_equal(execution.late["y0"].numbers(), np.nonzero(x))


def test_free_dims_what_stands_before_and_behind():
    """A comparison before it is fused with nothing else; a Transpose and a GatherND behind it run node by node."""
    x, nodes = sparse(2, 3, 40), [("Greater", ["x", "least"], "large"), ("NonZero", ["large"], "places")]
    nodes += [("Transpose", ["places"], "rows"), ("GatherND", ["x", "rows"], "values")]
    graph = helper.make_graph(
        [helper.make_node(op, inputs, [output]) for op, inputs, output in nodes],
        "behind",
        [helper.make_tensor_value_info("x", 1, ["N", 3, "L"])],
        [
            helper.make_tensor_value_info("rows", TensorProto.INT64, None),
            helper.make_tensor_value_info("values", TensorProto.FLOAT, None),
        ],
        [helper.make_tensor("least", 1, [], [20.0])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    for length in (40, 33, 0):
        feeds = {"x": x[..., :length].copy()}
        outputs, execution = run_on_host(prepare(model), feeds)
        assert ("indexed" in kinds(execution)) == bool(length)
        for found, wanted in zip(outputs.values(), literal(model, feeds), strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_a_network_in_float16_looks_at_float32():
    x = np.float32([0, 1e-10, 0, -1e-12, 1])
    outputs, _ = run_on_host(prepare(nonzero_model(x)), {"x0": x}, DType.FLOAT16)
    np.testing.assert_array_equal(outputs["y0"], np.nonzero(x))


def operators(model, disable=()):
    return {node.op_type for node in lower(prepare(model), disable).graph}


def test_what_does_not_match_stays_a_node_of_its_own(monkeypatch):
    x = sparse(3, 4)
    assert "PaddedNonZero" in operators(nonzero_model(x))
    assert "PaddedNonZero" not in operators(nonzero_model(x), ["pointwise"])
    assert "PaddedNonZero" not in operators(nonzero_model(np.zeros((3, 0), np.float32)))
    assert "PaddedNonZero" not in operators(nonzero_model(np.float32(1)))
    monkeypatch.setattr("pytrtplugins.engines.cuda.lower.nonzeros._MAX_VALUES", 11)
    assert "PaddedNonZero" not in operators(nonzero_model(x))
