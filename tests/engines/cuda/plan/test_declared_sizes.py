"""Dims that a file declares where values of the run tell them: another size in the run is an error or the right result."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from pytrtplugins.errors import ExecutionError
from pytrtplugins.passes import prepare
from tests.engines.cuda.host import run_on_host
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
    feeds = {name: array for name, array in zip(names, inputs, strict=True) if name}
    outputs = ["y", "z"] if op in ("Split", "TopK") else ["y"]
    described = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype), np.shape(array))
        for name, array in feeds.items()
    ]
    kind = TensorProto.INT64 if op == "Range" else TensorProto.FLOAT
    results = [
        helper.make_tensor_value_info(name, TensorProto.INT64 if (op, name) == ("TopK", "z") else kind, declared)
        for name in outputs
    ]
    options = {"kernel_shape": [1, 1]} if op == "MaxUnpool" else {}
    graph = helper.make_graph([helper.make_node(op, names, outputs, name=op, **options)], "graph", described, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    found, error = {}, None
    try:
        found, _ = run_on_host(prepare(model), {name: np.asarray(array) for name, array in feeds.items()})
    except ExecutionError as raised:
        error = raised
    assert (error is None) != (op in str(error))
    for name, array in found.items():
        np.testing.assert_array_equal(array, literal(model, feeds, [name])[0])
