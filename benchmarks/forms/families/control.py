"""If, Loop and Scan, with bodies that read tensors from outside, and sequences inside of a network."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from ..draft import Draft, Unfit
from .table import builds

_FLOAT = TensorProto.FLOAT


def _value(name: str, kind: int = _FLOAT, dims: list[int] | None = None) -> Any:
    return helper.make_tensor_value_info(name, kind, dims)


def _body(nodes: list[Any], inputs: list[Any], outputs: list[Any], name: str) -> Any:
    return helper.make_graph(nodes, name, inputs, outputs)


@builds("If")
def if_(draft: Draft) -> None:
    """Branches that read the network's second input, which stands behind the condition."""
    operators = draft.one(("Neg", "Exp"), ("Relu", "Identity"), ("Abs", "Sigmoid"))
    for name, operator in zip(("then_branch", "else_branch"), operators, strict=True):
        node = helper.make_node(operator, ["outer"], [f"{name}_y"])
        draft.set(name, _body([node], [], [_value(f"{name}_y")], name))
    draft.read(np.asarray(draft.chance()), constant=False)


@builds("Loop")
def loop(draft: Draft) -> None:
    """A sum that a loop carries, a limit of rounds or a condition, and what each round gives."""
    dims = list(draft.dims(1, 2, filled=True))
    dtype = np.dtype(np.float32)
    inputs = [_value("i", TensorProto.INT64, []), _value("c", TensorProto.BOOL, []), _value("s", _FLOAT, dims)]
    nodes = [
        helper.make_node("Add", ["s", "s"], ["t"]),
        helper.make_node("Identity", ["c"], ["c2"]),
        helper.make_node("Identity", ["t"], ["u"]),
    ]
    outputs = [_value("c2", TensorProto.BOOL, []), _value("t", _FLOAT, dims), _value("u", _FLOAT, dims)]
    draft.set("body", _body(nodes, inputs, outputs, "body"))
    draft.read(np.asarray(draft.one(0, 1, 3), np.int64))
    if draft.chance():
        draft.read(np.asarray(True))
    else:
        draft.skip()
    draft.read(draft.values(dims, dtype), constant=False)
    draft.outputs = ["y0", "y1"]


@builds("Scan")
def scan(draft: Draft) -> None:
    """Sums along an axis, forwards and backwards."""
    if draft.version < 9:
        raise Unfit("Scan-8 has a batch")
    length, width = draft.one(1, 3, 4), draft.one(1, 2)
    inputs = [_value("s", _FLOAT, [width]), _value("e", _FLOAT, [width])]
    nodes = [helper.make_node("Add", ["s", "e"], ["t"]), helper.make_node("Identity", ["t"], ["u"])]
    outputs = [_value("t", _FLOAT, [width]), _value("u", _FLOAT, [width])]
    draft.set("body", _body(nodes, inputs, outputs, "body"))
    draft.set("num_scan_inputs", 1)
    draft.attribute("scan_input_directions", [0], [1])
    draft.attribute("scan_output_directions", [0], [1])
    axis = draft.attribute("scan_input_axes", [0], [1], default=[0])[0]
    draft.read(draft.values((width,), np.dtype(np.float32)), constant=False)
    draft.read(draft.values((width, length) if axis else (length, width), np.dtype(np.float32)), constant=False)
    draft.outputs = ["y0", "y1"]
