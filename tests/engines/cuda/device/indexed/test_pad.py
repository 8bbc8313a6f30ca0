"""Pad in the modes reflect, edge and wrap as one kernel, against onnxruntime."""

import numpy as np
import pytest

from pytrtplugins.passes import prepare
from tests.engines.cuda.host import run_on_host
from tests.engines.cuda.lower.test_pointwise import random
from tests.engines.operators import ints, literal, model_of


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
@pytest.mark.parametrize(
    ("dims", "pads", "axes"),
    [
        ((2, 3, 4, 5), [0, 0, 3, 2, 0, 0, 1, 4], None),
        ((2, 3, 4, 5), [1, 0, 1, 3], [-1, 0]),
        ((1, 8, 6, 6), [0, 0, 2, 2, 0, 0, 2, 2], None),
        ((3, 7), [0, 6, 0, 6], None),
    ],
)
def test_values_come_from_the_other_side_of_a_border(mode, dims, pads, axes):
    if mode == "reflect" and axes:
        pads = [1, 0, 1, 1]  # onnxruntime reflects once
    x = random(*dims)
    more = [] if axes is None else [None, ints(*axes)]
    model = model_of("Pad", [x, ints(*pads), *more], {"mode": mode}, opset=19)
    found, execution = run_on_host(prepare(model), {"x0": x})
    assert [(step.kind, step.capturable) for step in execution.plan.steps][-1] == ("indexed", True)
    np.testing.assert_array_equal(found["y0"], literal(model, {"x0": x})[0])


def test_an_axis_of_one_value_repeats_it_and_whole_numbers_are_copied():
    x = np.arange(6, dtype=np.int64).reshape(1, 6) << 40
    model = model_of("Pad", [x, ints(2, 0, 1, 0)], {"mode": "edge"}, opset=19)
    found, execution = run_on_host(prepare(model), {"x0": x})
    assert [step.kind for step in execution.plan.steps] == ["indexed"]
    np.testing.assert_array_equal(found["y0"], np.repeat(x, 4, 0))


def test_negative_pads_are_left_to_arrays():
    x = random(4, 5)
    model = model_of("Pad", [x, ints(-1, 0, 1, 0)], {"mode": "edge"}, opset=19)
    found, execution = run_on_host(prepare(model), {"x0": x})
    assert [step.kind for step in execution.plan.steps] == ["generic"]
    np.testing.assert_array_equal(found["y0"], literal(model, {"x0": x})[0])
