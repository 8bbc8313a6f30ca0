"""Average pools of codes become convolutions of codes: which, and that the numbers stay."""

import numpy as np
import pytest

from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.engines.cuda.plan.planner import make_plan
from pytrtplugins.passes import prepare
from tests.engines.cuda.host import assert_near, by_reference, run_on_host
from tests.engines.cuda.lower.test_transposed_convolution import in_codes
from tests.passes.nets import Net

X = {"data": np.random.default_rng(2).standard_normal((2, 3, 9, 9), dtype=np.float32)}
BORDERED = {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 1}


def pooled(between=16, **attributes):
    """What a convolution and an average pool read, as in an inception block; and what follows the pool."""
    net = Net(size=9, opset=19)
    first = net.add("MaxPool", [net.conv("data", "first", between)], "largest", kernel_shape=[3, 3], pads=[1] * 4)
    x = net.add("AveragePool", [first], "averages", **attributes)
    side = net.conv(net.conv(first, "side", 8, kernel=1), "other", 8)
    return net.model(net.conv(net.conv(x, "next", 8), "last", 8), side)


def operators(model):
    return [node.op_type for node in lower(model).graph]


@pytest.mark.parametrize(("precision", "room"), [("int8", 5e-3), pytest.param("fp8", 3e-2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("between", "attributes"),
    [
        (16, BORDERED),
        (13, {**BORDERED, "strides": [2, 1]}),
        pytest.param(16, {"kernel_shape": [2, 3]}, marks=pytest.mark.slow),
        pytest.param(16, {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "VALID"}, marks=pytest.mark.slow),
        pytest.param(16, {**BORDERED, "pads": [0, 1, 2, 0]}, marks=pytest.mark.slow),
        pytest.param(16, {"kernel_shape": [3, 3], "dilations": [2, 2]}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_pool_of_codes_is_one_kernel_with_the_reference_engines_numbers(between, attributes, precision, room):
    model = in_codes(prepare(pooled(between, **attributes)), X, precision)
    lowered = lower(model)
    steps = make_plan(lowered, {"N": 2}).steps
    names = [step.name for step in steps if step.kind == "conv"]
    assert names == ["first", "averages", "side", "other", "next", "last"]
    assert not [step for step in steps if step.kind in ("pool", "reformat") and "averages" in step.name]
    assert_near(run_on_host(model, X, lowered=lowered)[0], by_reference(model, X, precision), room)


@pytest.mark.parametrize(
    "attributes",
    [
        {**BORDERED, "count_include_pad": 0},
        pytest.param({"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}, marks=pytest.mark.slow),
        pytest.param(
            {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "count_include_pad": 1}, marks=pytest.mark.slow
        ),
        pytest.param({"kernel_shape": [8, 7]}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_other_pools_stay(attributes):
    model = in_codes(prepare(pooled(**attributes)), X, "int8")
    assert "AveragePool" in operators(model)
    assert_near(run_on_host(model, X)[0], by_reference(model, X, "int8"), 5e-3)


def test_a_pool_of_floats_stays():
    assert operators(prepare(pooled(**BORDERED))).count("AveragePool") == 1


def test_without_the_step_it_stays():
    model = in_codes(prepare(pooled(**BORDERED)), X, "int8")
    assert "AveragePool" in [node.op_type for node in lower(model, disable=("int8-moves",)).graph]
