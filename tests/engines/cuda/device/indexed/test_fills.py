"""OneHot and Trilu as one kernel, against onnxruntime."""

import numpy as np
import pytest

from pytrtplugins.passes import prepare
from tests.engines.cuda.host import run_on_host
from tests.engines.cuda.lower.test_pointwise import random
from tests.engines.operators import ints, literal, model_of

INDICES = np.array([[0, 3, -1], [5, -6, 9]])


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("values", [np.array([0.5, 2], np.float32), ints(3, 7)])
def test_one_place_of_each_index(axis, values):
    model = model_of("OneHot", [INDICES, ints(6)[0], values], {"axis": axis}, opset=11)
    found, execution = run_on_host(prepare(model), {"x0": INDICES})
    assert [(step.kind, step.capturable) for step in execution.plan.steps] == [("indexed", True)]
    np.testing.assert_array_equal(found["y0"], literal(model, {"x0": INDICES})[0])


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [None, -2, 0, 1, 9])
def test_triangles(upper, k):
    x = random(2, 4, 5)
    model = model_of("Trilu", [x, None if k is None else ints(k)[0]], {"upper": upper}, opset=14)
    found, execution = run_on_host(prepare(model), {"x0": x})
    assert [(step.kind, step.capturable) for step in execution.plan.steps] == [("indexed", True)]
    np.testing.assert_array_equal(found["y0"], literal(model, {"x0": x})[0])
