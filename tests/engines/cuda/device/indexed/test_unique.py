"""Unique as one kernel in the graph, of whose results the number is read back: what NumPy finds, and onnxruntime where nothing is NaN."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import pytrtplugins as ptp
from pytrtplugins.engines.cuda.device.indexed import unique
from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import run_on_host
from tests.engines.operators import literal, model_of
from tests.randomness import generator

RNG = generator(12)


def repeated(*dims, kind=np.float32, values=20):
    """Values of which many are equal."""
    return (RNG.integers(-values, values, dims) / (4 if np.dtype(kind).kind == "f" else 1)).astype(kind)


def unique_model(x, is_sorted=1, outputs=4, **attributes):
    return model_of("Unique", [x], {"sorted": is_sorted, **attributes}, outputs, 11)


def uniques(x, is_sorted):
    """What NumPy finds, as `onnx.reference` does: NaNs are one value, above all numbers; of zeros the first."""
    values, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    order = np.arange(len(first)) if is_sorted else np.argsort(first)
    return [values[order], first[order], np.argsort(order)[inverse.reshape(-1)], counts[order]]


def kinds(execution):
    return [step.kind for step in execution.plan.steps]


def assert_equal(found, wanted):
    """Zeros have their signs."""
    np.testing.assert_array_equal(found, wanted)
    assert found.dtype == wanted.dtype
    if wanted.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(wanted[wanted == 0]))


@pytest.mark.parametrize(
    ("x", "is_sorted"),
    [
        (repeated(1), 0),
        (repeated(7), 1),
        (repeated(2, 3, 41, 7, values=300), 0),
        (repeated(2, 3, 41, 7, values=300), 1),
        (repeated(5000, values=30000), 0),  # in memory
        (repeated(5000, values=30000), 1),
        (np.zeros((4, 5), np.float32), 0),
        (np.arange(1000, dtype=np.float32)[::-1], 0),
        (np.float32([0.0, -0.0, 3, -0.0, np.inf, -np.inf, 1e-45, -1e-45]), 1),
        (np.float32([-0.0, 0.0]), 0),
        (repeated(6, 31, kind=np.int32), 0),
        (repeated(2, 700, kind=np.int64) << 40, 1),
        (np.int64([np.iinfo(np.int64).min, np.iinfo(np.int64).max, 0, -1, np.iinfo(np.int64).min]), 1),
        (repeated(300, kind=np.float64), 0),
        (repeated(50, kind=np.int8), 1),
    ],
    ids=lambda x: f"{x.dtype}-{'x'.join(map(str, x.shape))}" if isinstance(x, np.ndarray) else str(x),
)
def test_the_results_are_onnxruntimes_and_numpys(x, is_sorted):
    model = unique_model(x, is_sorted)
    outputs, execution = run_on_host(prepare(model), {"x0": x})
    assert kinds(execution) == ["indexed", "tail"]
    assert execution.plan.steps[0].capturable
    for found, wanted in zip(outputs.values(), uniques(x, is_sorted), strict=True):
        assert_equal(found, wanted)
    if x.dtype != np.int32:  # for which onnxruntime has no kernel
        for found, wanted in zip(outputs.values(), literal(model, {"x0": x}), strict=True):
            assert_equal(found, wanted)


@pytest.mark.parametrize("is_sorted", [0, 1])
def test_nans_are_one_value_above_all_numbers(is_sorted):
    """As `onnx.reference` has it; in onnxruntime a NaN is equal to whatever it is compared with first."""
    x = np.float32([1, np.nan, 1, np.inf, -np.nan, 0])
    outputs, _ = run_on_host(prepare(unique_model(x, is_sorted)), {"x0": x})
    for found, wanted in zip(outputs.values(), uniques(x, is_sorted), strict=True):
        assert_equal(found, wanted)
    with ptp.build(unique_model(x, is_sorted), engine="reference").create_context() as context:
        for name, wanted in context.run({"x0": x}).items():
            assert_equal(outputs[name], wanted)
    assert literal(unique_model(x, is_sorted), {"x0": x})[3].tolist() != outputs["y3"].tolist()


@pytest.mark.parametrize("kind", [bool, np.uint8, np.float16])
def test_other_types(kind):
    x = repeated(90, kind=kind)
    outputs, execution = run_on_host(prepare(unique_model(x)), {"x0": x})
    assert kinds(execution) == ["indexed", "tail"]
    for found, wanted in zip(outputs.values(), uniques(x, 1), strict=True):
        assert_equal(found, wanted)


@pytest.mark.parametrize("names", [("y0",), ("y0", "", "y2"), ("", "y1"), ("", "", "", "y3"), ("", "", "y2")])
def test_results_that_nobody_reads_are_not_written(names):
    is_sorted = len(names) % 2
    x = repeated(3, 40)
    model = unique_model(x, is_sorted)
    model.graph.node[0].output[:] = names
    kept = [info for info in model.graph.output if info.name in names]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    if not names[0]:
        model.graph.node[0].output[0] = "values"  # which ONNX requires
    outputs, execution = run_on_host(prepare(model), {"x0": x})
    assert kinds(execution) == (["indexed"] if kept[0].name == "y2" else ["indexed", "tail"])
    wanted = dict(zip(("y0", "y1", "y2", "y3"), uniques(x, is_sorted), strict=True))
    for name, values in outputs.items():
        assert_equal(values, wanted[name])


def test_in_memory_of_few_threads_and_a_second_run(monkeypatch):
    monkeypatch.setattr(unique, "_SHARED_BYTES", 64)
    monkeypatch.setattr(unique, "_MAX_THREADS", 4)
    x = repeated(5, 23)
    outputs, execution = run_on_host(prepare(unique_model(x, 0)), {"x0": x})
    for found, wanted in zip(outputs.values(), uniques(x, 0), strict=True):
        assert_equal(found, wanted)
    x = repeated(5, 23)
    execution.input("x0")[...] = x
    execution.queue(None)
    assert_equal(execution.late["y0"].numbers(), uniques(x, 0)[0])


def test_free_dims_what_stands_before_and_behind():
    """A product before it; a Gather of the values by the inverse indices, and a sum of the counts, run node by node."""
    x, nodes = (
        repeated(2, 3, 4, 40),
        [("Mul", ["x", "x"], ["squares"]), ("Unique", ["squares"], ["y", "", "inverse", "n"])],
    )
    nodes += [("Gather", ["y", "inverse"], ["again"]), ("ReduceSum", ["n"], ["all"])]
    graph = helper.make_graph(
        [helper.make_node(op, inputs, outputs) for op, inputs, outputs in nodes],
        "behind",
        [helper.make_tensor_value_info("x", 1, ["N", 3, 4, "L"])],
        [
            helper.make_tensor_value_info("again", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("all", TensorProto.INT64, None),
            helper.make_tensor_value_info("inverse", TensorProto.INT64, None),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    for length in (40, 33, 0):
        feeds = {"x": x[..., :length].copy()}
        outputs, execution = run_on_host(prepare(model), feeds)
        assert ("indexed" in kinds(execution)) == bool(length)
        np.testing.assert_array_equal(outputs["again"], feeds["x"].reshape(-1) ** 2)
        np.testing.assert_array_equal(outputs["all"], [feeds["x"].size])
        np.testing.assert_array_equal(outputs["inverse"], uniques(feeds["x"] ** 2, 1)[2])


def test_a_network_in_float16_looks_at_float32():
    x = np.float32([0, 1e-10, 0, -1e-12, 1])
    outputs, _ = run_on_host(prepare(unique_model(x)), {"x0": x}, DType.FLOAT16)
    assert_equal(outputs["y0"], np.unique(x))


def operators(model, disable=()):
    return {node.op_type for node in lower(prepare(model), disable).graph}


def test_what_does_not_match_stays_a_node_of_its_own(monkeypatch):
    x = repeated(3, 4)
    assert "PaddedUnique" in operators(unique_model(x))
    assert "PaddedUnique" in operators(unique_model(x.reshape(-1), axis=0))
    assert "PaddedUnique" not in operators(unique_model(x, axis=0))
    assert "PaddedUnique" not in operators(unique_model(x), ["pointwise"])
    assert "PaddedUnique" not in operators(unique_model(np.zeros((3, 0), np.float32)))
    monkeypatch.setattr("pytrtplugins.engines.cuda.lower.uniques._MAX_VALUES", 11)
    assert "PaddedUnique" not in operators(unique_model(x))
