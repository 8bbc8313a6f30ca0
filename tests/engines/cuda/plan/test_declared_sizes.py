"""Dims that a file declares where values of the run tell them: another size in the run is an error or the right result."""

import numpy as np
import pytest
from onnx import helper

from pytrtplugins.errors import ExecutionError
from pytrtplugins.passes import prepare
from tests.engines.cuda.host import run_on_host
from tests.engines.model_parts import I64, F, info
from tests.engines.model_parts import model as model_of
from tests.engines.operators import f, ints, literal

X = f(2, 3, 4)
CASES = {
    "Reshape": ([X, ints(6, 4)], (3, 8)),
    "Expand": ([f(1, 3, 1), ints(2, 3, 4)], (1, 3, 1)),
    "ConstantOfShape": ([ints(1, 1, 1)], (2, 3, 2)),
    "Unsqueeze": ([X, ints(0)], (2, 3, 4, 1)),
    "Squeeze": ([f(1, 3, 1), ints(0)], (1, 3)),
    "Split": ([f(6, 2), ints(2, 4)], (3, 2)),
    "Resize": ([f(1, 1, 2, 2), None, None, ints(1, 1, 4, 4)], (1, 1, 2, 2)),
    "MaxUnpool": ([f(1, 1, 1, 1), ints(0).reshape(1, 1, 1, 1), ints(1, 1, 2, 3)], (1, 1, 2, 2)),
    "Col2Im": ([f(1, 4, 1), ints(2, 2), ints(2, 2)], (1, 1, 4, 4)),
    "Slice": ([X, ints(0), ints(1), ints(1)], (2, 3, 4)),
    "Tile": ([X, ints(1, 1, 1)], (2, 6, 4)),
    "Pad": ([X, ints(0, 0, 0, 0, 0, 0)], (2, 5, 4)),
    "TopK": ([X, ints(1)], (2, 3, 2)),
    "OneHot": ([ints(0, 1), ints(1), f(2)], (2, 3)),
    "Range": ([np.int64(0), np.int64(1), np.int64(1)], (3,)),
    "ReduceSum": ([X, ints(1)], (1, 3, 4)),
}
"""Operator → inputs, of which the second and later ones come in the run, and what the file declares."""


@pytest.mark.parametrize("op", CASES)
def test_declared_dims_are_never_filled_with_what_has_others(op):
    inputs, declared = CASES[op]
    names = ["" if array is None else f"x{index}" for index, array in enumerate(inputs)]
    feeds = {name: np.asarray(array) for name, array in zip(names, inputs, strict=True) if name}
    outputs = ["y", "z"] if op in ("Split", "TopK") else ["y"]
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in feeds.items()}
    described = [info(name, kinds[name], array.shape) for name, array in feeds.items()]
    results = [info(name, I64 if (op, name) in (("TopK", "z"), ("Range", "y")) else F, declared) for name in outputs]
    options = {"kernel_shape": [1, 1]} if op == "MaxUnpool" else {}
    model = model_of([helper.make_node(op, names, outputs, name=op, **options)], described, results, opset=18)
    found, error = {}, None
    try:
        found, _ = run_on_host(prepare(model), feeds)
    except ExecutionError as raised:
        error = raised
    assert (error is None) != (op in str(error))
    for name, array in found.items():
        np.testing.assert_array_equal(array, literal(model, feeds, [name])[0])
