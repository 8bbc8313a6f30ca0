"""CumSum and CumProd as one kernel, against onnxruntime and NumPy."""

import numpy as np
import pytest

from pytrtplugins.passes import prepare
from tests.engines.cuda.host import run_on_host
from tests.engines.cuda.lower.test_pointwise import random
from tests.engines.cuda.plan.test_moves import Movements
from tests.engines.operators import ints, literal, model_of


@pytest.mark.parametrize(("dims", "axis"), [((3, 5), 1), ((2, 900, 3), 1), ((40,), -1), ((2, 3, 4, 5), 0)])
@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_sums_from_either_end(dims, axis, exclusive, reverse):
    x = random(*dims)
    model = model_of("CumSum", [x, ints(axis)[0]], {"exclusive": exclusive, "reverse": reverse}, opset=14)
    found, execution = run_on_host(prepare(model), {"x0": x})
    assert [(step.kind, step.capturable) for step in execution.plan.steps] == [("indexed", True)]
    np.testing.assert_allclose(found["y0"], literal(model, {"x0": x})[0], rtol=1e-5, atol=2e-5)


def test_whole_numbers_wrap_and_moved_values_are_read_in_place():
    graph = Movements(x=random(4, 20, 3))
    last = graph.add("CumSum", graph.turn(graph.slice("x", 1, 3), 2, 1, 0), graph.constant(np.int64(1)))
    assert graph.check(last) == ["indexed"]
    x = np.full((2, 70), 2**61, np.int64)
    found = run_on_host(prepare(model_of("CumSum", [x, ints(1)[0]], {}, opset=14)), {"x0": x})[0]["y0"]
    np.testing.assert_array_equal(found, np.cumsum(x, axis=1))
