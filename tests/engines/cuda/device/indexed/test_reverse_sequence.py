"""ReverseSequence as one kernel, which also reads moved data in place, against onnxruntime."""

import numpy as np
import pytest

from pytrtplugins.errors import DimsError, ExecutionError
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import run_on_host
from tests.engines.cuda.lower.test_pointwise import Graph, random
from tests.engines.cuda.plan.test_moves import Movements
from tests.engines.operators import ints, literal, model_of


@pytest.mark.parametrize("computed", [True, False])
@pytest.mark.parametrize("time", [0, 1])
@pytest.mark.parametrize("rest", [(), (3,), (8, 2), (16,)])
def test_each_sequence_is_reversed_up_to_its_length(rest, time, computed):
    dims, lengths = ((7, 4) if time == 0 else (4, 7)), ints(7, 0, 1, 5)
    graph = Graph(x=random(*dims, *rest), **({"lengths": lengths} if computed else {}))
    last = graph.add(
        "ReverseSequence", "x", "lengths" if computed else graph.constant(lengths), time_axis=time, batch_axis=1 - time
    )
    assert graph.check(last, rtol=0, atol=0) == ["indexed"]


def test_a_step_or_a_sequence_alone():
    for dims, lengths in (((1, 3, 4), [1, 0, 1]), ((5, 1, 4), [4])):
        graph = Graph(x=random(*dims), lengths=ints(*lengths))
        assert graph.check(graph.add("ReverseSequence", "x", "lengths"), rtol=0, atol=0) == ["indexed"]


def test_what_moves_the_data_before_is_read_in_place():
    graph = Movements(x=random(4, 3, 8), lengths=ints(6, 2, 0, 5))
    steps = graph.turn(graph.reshape("x", 4, 6, 4), 1, 0, 2)
    assert graph.check(graph.add("ReverseSequence", steps, "lengths"), rtol=0, atol=0) == ["indexed"]


def test_float16_and_images():
    graph = Graph(x=random(5, 12, 5, 6), lengths=ints(*[5, 3, 1, 0, 2, 4, 5, 5, 1, 2, 3, 4]))
    weights = graph.constant(random(12, 12, 1, 1, seed=2))
    pixels = graph.add("ReverseSequence", graph.add("Conv", "x", weights), "lengths")
    last = graph.add("Conv", pixels, weights)
    kinds = graph.check(last, float_type=DType.FLOAT16, rtol=0.05, atol=0.05)
    assert "indexed" in kinds
    assert "generic" not in kinds


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.bool_, np.float64])
def test_other_element_types_are_copied(kind):
    x = np.random.default_rng(1).integers(0, 2, (4, 3, 5)).astype(kind)
    model = model_of("ReverseSequence", [x, ints(4, 2, 3)], {}, opset=10)
    found, execution = run_on_host(prepare(model), {"x0": x})
    assert [(step.kind, step.capturable) for step in execution.plan.steps] == [("indexed", True)]
    np.testing.assert_array_equal(found["y0"], literal(model, {"x0": x})[0])


@pytest.mark.parametrize("disable", [(), ("pointwise",)])
@pytest.mark.parametrize("length", [-1, 5])
def test_a_length_out_of_range_names_the_node(length, disable):
    x, lengths = random(4, 2), ints(3, length)
    graph = Graph(x=x, lengths=lengths)
    computed = graph.model(graph.add("ReverseSequence", "x", "lengths", name="turned"))
    with pytest.raises(ExecutionError, match=r"node 'turned' \(ReverseSequence\) cannot run .*out of range"):
        run_on_host(computed, {"x": x, "lengths": lengths}, disable=disable)
    constant = model_of("ReverseSequence", [x, lengths], {})
    with pytest.raises(DimsError, match=r"\(ReverseSequence\) cannot run .*: a length is out of range, of 4 steps: "):
        run_on_host(prepare(constant), {"x0": x}, disable=disable)
