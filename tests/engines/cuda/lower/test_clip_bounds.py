"""Clip of bfloat16 without a bound: infinity becomes the largest finite number of the type."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import run_on_host
from tests.engines.model_parts import model as model_of

LARGEST = 3.3895313892515355e38


@pytest.mark.parametrize("free", [False, True], ids=["fixed", "free"])
@pytest.mark.parametrize(
    ("low", "high", "ends"), [(None, None, (-LARGEST, LARGEST)), (0, None, (0, LARGEST)), (None, 1, (-LARGEST, 1))]
)
def test_a_bound_that_is_left_out_is_the_types_own(low, high, ends, free):
    kind, dims = DType.BFLOAT16.numpy, ["n" if free else 2, 3]
    bounds = {name: np.array(value, kind) for name, value in (("low", low), ("high", high)) if value is not None}
    names = ["x", *(name if name in bounds else "" for name in ("low", "high"))]
    node = helper.make_node("Clip", names, ["y"])
    infos = [helper.make_tensor_value_info(name, TensorProto.BFLOAT16, dims) for name in ("x", "y")]
    model = model_of([node], infos[:1], infos[1:], bounds, opset=13)
    x = np.array([[-np.inf, -2, 0], [0.5, 2, np.inf]], kind)
    found = run_on_host(prepare(model), {"x": x})[0]["y"].astype(np.float64)
    np.testing.assert_array_equal(found, np.clip(x.astype(np.float64), *ends))
