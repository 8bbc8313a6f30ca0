"""`OpBuilder`, which writes ONNX operators in a plugin's `decompose`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import DimsError
from ..tensor import Dims, DType, is_concrete
from ..utils.optional import onnx, require

__all__ = ["FLOATS", "OpBuilder", "Value"]

FLOATS = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)
"""Types that constants with a fraction may have."""
_FEATURE = "working on ONNX models"


@dataclass(frozen=True)
class Value:
    """A symbolic tensor in a decomposition.

    Attributes:
        name: Its name in the graph.
        dims: Its dims where they are known: always for a plugin's inputs, not for what operators give. The batch may be
            a `SymbolicDim`.
    """

    name: str
    dims: Dims = ()

    def _raise_operator_error(self, *_: object) -> Any:
        raise TypeError(
            "Python's operators do not work on the tensors of a decomposition.\nDo: op.Mul(x, y), op.Add(x, y), op.Neg(x)"
        )

    __array_ufunc__ = None  # so that NumPy leaves its own operators to those below
    __add__ = __sub__ = __mul__ = __truediv__ = __pow__ = __matmul__ = __neg__ = _raise_operator_error
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rpow__ = __rmatmul__ = _raise_operator_error


class OpBuilder:
    """Builder of a decomposition: collects ONNX nodes.

    Any ONNX operator is a method: ``op.Transpose(x, perm=[0, 2, 1])``. Inputs are `Value`s, or arrays, numbers and lists,
    which become constants (lists of ints: int64; Python's floats: the type of the plugin's first input of floats). The result
    is one `Value`; with ``outputs=n`` a list of n.

    Args:
        prefix: Start of all names that are made, so that they are unique in the graph.
        doc: Names the plugin, for messages.
        floats: Element type of constants that are given as Python's floats, or as arrays of float64.
    """

    def __init__(self, prefix: str, doc: str = "", floats: DType = DType.FLOAT32) -> None:
        self.prefix, self.doc, self.floats = prefix, doc, floats
        self.nodes: list[onnx.NodeProto] = []
        self._count = 0

    def __getattr__(self, op_type: str) -> Any:
        if not op_type[:1].isupper():
            raise AttributeError(f"OpBuilder has no attribute {op_type!r}; operators start with a capital")

        def make(*inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
            input_names = [self._input_name(value) for value in inputs]
            output_names = [self._new_name(op_type) for _ in range(outputs)]
            helper = require("onnx.helper", extra="onnx", feature=_FEATURE)
            self.nodes.append(helper.make_node(op_type, input_names, output_names, name=output_names[0], **attributes))
            values = [Value(name) for name in output_names]
            return values[0] if outputs == 1 else values

        return make

    def _input_name(self, value: Any) -> str:
        if isinstance(value, Value):
            return value.name
        if value is None:
            return ""
        if isinstance(value, (list, tuple)) and any(not is_concrete(item) for item in value):
            raise DimsError(f"{self.doc}: a symbolic dim cannot be a constant; use -1 or 0 in a Reshape", value=value)
        array = np.asarray(value, np.int64 if _all_ints(value) else None)
        name = self._new_name("Constant")
        onnx = require("onnx", extra="onnx", feature=_FEATURE)
        tensor = onnx.numpy_helper.from_array(
            array.astype(self.floats.numpy) if array.dtype == np.float64 else array, name
        )
        self.nodes.append(onnx.helper.make_node("Constant", [], [name], name=name, value=tensor))
        return name

    def _new_name(self, op_type: str) -> str:
        self._count += 1
        return f"{self.prefix}/{op_type}_{self._count}"


def _all_ints(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, (int, np.integer)) for item in value)
