"""State of a conversion from MXNet to ONNX: tensors with known dims, and written nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..model.ir import unused_name
from ..utils.optional import onnx, require
from .attributes import LARGEST, Attributes
from .params import FloatArray
from .symbol import Node

__all__ = ["BATCH", "Dims", "Layer", "OnnxGraph", "Tensor", "dims_text"]

BATCH = "N"
"""The name of the free batch."""
OPSET, IR_VERSION = 18, 10
Dims = tuple[int | None, ...]
"""None: a size that a run determines. The first is the batch."""


@dataclass(frozen=True)
class Tensor:
    """An output of a node: name and dims.

    Attributes:
        name: In the ONNX graph.
        dims: Its dims.
    """

    name: str
    dims: Dims


class OnnxGraph:
    """Builder of the ONNX model."""

    def __init__(self, name: str, taken: Iterable[str]) -> None:
        require("onnx", extra="onnx", feature="writing ONNX")
        self.model: onnx.ModelProto = onnx.ModelProto(ir_version=IR_VERSION, producer_name="pytrtplugins.mxnet")
        self.model.opset_import.append(onnx.helper.make_opsetid("", OPSET))
        self.model.graph.name = name
        self.taken = set(taken)
        self._constants: dict[tuple[str, tuple[int, ...], bool], str] = {}

    def node(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> None:
        """Write an operator, named after its output."""
        self.model.graph.node.append(onnx.helper.make_node(op, inputs, [output], name=output, **attributes))

    def constant(self, name: str, array: Any, *, changed: bool = False) -> str:
        """Write an initializer once; ``changed``: its values are not those of the parameter of this name."""
        key = (name, array.shape, changed)
        if key not in self._constants:
            first = not changed and not any(stored == name for stored, _, _ in self._constants)
            self._constants[key] = unique = name if first else unused_name(name, self.taken)
            tensor = onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), unique)
            self.model.graph.initializer.append(tensor)
        return self._constants[key]

    def info(self, name: str, dims: Sequence[int | str | None]) -> onnx.ValueInfoProto:
        """Return the `ValueInfoProto` of an input or output."""
        return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims)


class Layer:
    """One MXNet operator during its conversion.

    Attributes:
        node: The operator.
        attributes: Its attributes.
        inputs: The tensors that it reads; None for parameters, which `weight` gives.
    """

    def __init__(
        self, node: Node, sources: Sequence[Node], tensors: Mapping[str, Tensor], params: Mapping[str, FloatArray],
        graph: OnnxGraph,
    ) -> None:  # fmt: skip
        self.node, self.attributes, self._sources = node, Attributes(node), sources
        self._tensors, self._params, self._graph = tensors, params, graph

    def expect_inputs(self, *counts: int) -> int:
        """Require one of these numbers of inputs, and return the number."""
        if len(self._sources) not in counts:
            expected = " or ".join(map(str, counts))
            raise self.node.error(f"it reads {len(self._sources):,} tensors; expected {expected}")
        return len(self._sources)

    @property
    def inputs(self) -> list[Tensor]:
        """All inputs, as tensors."""
        return [self.data(index) for index in range(len(self._sources))]

    def data(self, index: int = 0, *, rank: int | None = None) -> Tensor:
        """Return an input tensor; a parameter becomes a constant."""
        source = self._sources[index]
        if source.name in self._tensors:
            tensor = self._tensors[source.name]
        else:
            array = self._params[source.name]
            tensor = Tensor(self._graph.constant(source.name, array), array.shape)
        if rank is not None and len(tensor.dims) != rank:
            raise self.node.error(
                f"it reads {source.name[:200]!r} of dims {dims_text(tensor.dims)}; expected rank {rank}"
            )
        return tensor

    def weight(self, index: int, dims: Dims, *, name: str | None = None) -> FloatArray:
        """Return the values of a parameter, and check its dims; ``name``: a parameter that is not an input."""
        name = self._sources[index].name if name is None else name
        array = self._params.get(name)
        if array is None:
            raise self.node.error(
                f"the parameter {name[:200]!r} is missing from the .params file",
                "Causes: (1) the .params file belongs to another network; (2) it was saved before the symbol was changed.\n"
                "Do: name the .params file that was saved with this symbol.json",
            )
        dims_match = len(dims) == array.ndim and all(a in (None, b) for a, b in zip(dims, array.shape, strict=True))
        if not dims_match:
            raise self.node.error(
                f"the parameter {name[:200]!r} has dims {dims_text(array.shape)}; expected {dims_text(dims)}",
                "Causes: (1) the .params file belongs to another network; (2) --shape gives other dims than the network was trained "
                "with.\nDo: name the .params file that was saved with this symbol.json",
            )
        return array

    def parameter(self, index: int) -> str:
        """Return the name of the parameter at an input."""
        return self._sources[index].name

    def constant(self, name: str, array: Any, *, changed: bool = False) -> str:
        """Write an initializer."""
        return self._graph.constant(name, np.asarray(array), changed=changed)

    def step(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Write an intermediate operator, and return the name of its output."""
        name = unused_name(f"{self.node.name}/{op}", self._graph.taken)
        self._graph.node(op, inputs, name, **attributes)
        return name

    def result(self, op: str, inputs: Sequence[str], dims: Dims, **attributes: Any) -> Tensor:
        """Write the last operator, whose output has the node's name, and return the output."""
        if any(dim is not None and not 1 <= dim <= LARGEST for dim in dims):
            raise self.node.error(f"its result would have dims {dims_text(dims)}; expected sizes of 1 to {LARGEST:,}")
        self._graph.node(op, inputs, self.node.name, **attributes)
        return Tensor(self.node.name, dims)


def dims_text(dims: Dims) -> str:
    """Return dims as text for messages: ``N x 64 x ? x ?``."""
    batch_part = [BATCH] if dims and dims[0] is None else []
    size_parts = ["?" if dim is None else str(dim)[:20] for dim in dims[len(batch_part) : 9]]
    return " x ".join([*batch_part, *size_parts, *(["..."] if len(dims) > 9 else [])]) or "no dims"
