"""Nodes that ``onnx.reference`` computes: ONNX's own implementation of its operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import EngineError
from ...model.proto import copy_of, numpy_type
from ...utils.optional import onnx, require
from ...validation.operators import standard_domain
from .half import half_type, is_half
from .spec import refusal

__all__ = ["Delegated"]

_READS_BITS = ("BitCast",)  # it must not be widened
_SCALARS = {
    "CumProd": "x1",
    "CumSum": "x1",
    "OneHot": "x1",
}  # inputs of one element that onnx.reference takes without dims only
_POSITIONS = {"OneHot": "x0"}  # inputs that become whole numbers first, which onnx.reference compares as they are


class Delegated:
    """One node for ``onnx.reference``.

    Half numbers are widened to float32 before, and what comes out is rounded once, to the type that the model says.

    The node has no graphs in its attributes; types are given as far as they are known.

    Raises:
        BuildError: ``onnx.reference`` has no such operator, or refuses its attributes.
    """

    def __init__(
        self, node: onnx.NodeProto, opsets: Mapping[str, int], types: Mapping[str, onnx.TypeProto], where: str
    ) -> None:
        self._where = where
        self._inputs = [f"x{index}" if name else "" for index, name in enumerate(node.input)]
        self._outputs = [f"y{index}" if name else "" for index, name in enumerate(node.output)]
        self._dtypes = [_dtype(types.get(name)) for name in node.output]
        self._widens, self._scalar = node.op_type not in _READS_BITS, _SCALARS.get(node.op_type)
        self._positions = _POSITIONS.get(node.op_type)
        copy = copy_of(node)
        copy.input[:], copy.output[:], copy.domain = self._inputs, self._outputs, standard_domain(node.domain)
        graph = onnx.helper.make_graph(
            [copy],
            "one",
            [
                onnx.helper.make_value_info(inner, self._widened(types[name], onnx))
                for inner, name in zip(self._inputs, node.input, strict=True)
                if name in types
            ],
            [onnx.helper.make_value_info(name, onnx.TypeProto()) for name in self._outputs if name],
        )
        try:
            self._evaluator = require("onnx.reference", extra="onnx").ReferenceEvaluator(graph, opsets=dict(opsets))
        except Exception as error:  # it raises types of every kind
            raise refusal(
                node,
                f"{where}: onnx.reference does not compute it: {_short(error)}.\n"
                'Do: engine="onnxruntime" or engine="cpu", or write it as a plugin: @plugin(namespace=...)',
            ) from error

    def __call__(self, given: Sequence[Any]) -> list[Any]:
        """The node's outputs; None for those that are left out."""
        feeds = {name: self._fed(value) for name, value in zip(self._inputs, given, strict=True) if name}
        if self._scalar is not None:
            feeds[self._scalar] = feeds[self._scalar].reshape(())
        if self._positions is not None:
            feeds[self._positions] = feeds[self._positions].astype(np.int64)
        names = [name for name in self._outputs if name]
        try:
            found = dict(zip(names, self._evaluator.run(names, feeds), strict=True))
        except Exception as error:
            raise EngineError(f"{self._where}: onnx.reference cannot compute it: {_short(error)}") from error
        pairs = zip(self._outputs, self._dtypes, strict=True)
        return [self._typed(found.get(name), dtype, half_type(given)) for name, dtype in pairs]

    def _fed(self, value: Any) -> Any:
        """An input as it is given: not to be written, since it may be a weight or the caller's."""
        if isinstance(value, list):
            return [self._fed(item) for item in value]
        if not isinstance(value, np.ndarray):
            return value
        if self._widens and is_half(value.dtype):
            return value.astype(np.float32)
        view = value.view()
        view.flags.writeable = False
        return view

    def _typed(self, value: Any, dtype: np.dtype[Any] | None, half: np.dtype[Any] | None) -> Any:
        """An output in the type that the model says; if it says none, in that of half inputs."""
        if isinstance(value, list) or value is None:
            return value
        array: npt.NDArray[Any] = np.asarray(value)
        wanted = dtype if dtype is not None else half if half is not None and array.dtype == np.float32 else array.dtype
        if array.dtype == wanted:
            return array
        if not (_is_float(array.dtype) and _is_float(wanted)):
            raise EngineError(f"{self._where}: the model says {wanted}, onnx.reference gives {array.dtype}")
        return array.astype(wanted)

    def _widened(self, kind: onnx.TypeProto, onnx: Any) -> onnx.TypeProto:
        if not (self._widens and kind.tensor_type.elem_type in (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)):
            return kind
        wide = copy_of(kind)
        wide.tensor_type.elem_type = onnx.TensorProto.FLOAT
        return wide


def _dtype(kind: onnx.TypeProto | None) -> np.dtype[Any] | None:
    if kind is None or not kind.tensor_type.elem_type:
        return None
    return numpy_type(kind.tensor_type.elem_type)


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or is_half(dtype)


def _short(error: Exception) -> str:
    text = " ".join(str(error.__cause__ or error).split())
    return text if len(text) <= 300 else text[:297] + "..."
