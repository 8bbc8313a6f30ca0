"""Write Triton's config.pbtxt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ModelError
from ..model.proto import info_dims
from ..tensor import Dims, is_concrete
from ..utils.optional import onnx
from ..validation.dataflow import given_inputs

__all__ = ["Binding", "Word", "bindings", "config_text", "same_batch"]

_TYPES = {  # ONNX's element types, by TensorProto.DataType
    1: "FP32", 2: "UINT8", 3: "INT8", 4: "UINT16", 5: "INT16", 6: "INT32", 7: "INT64", 8: "STRING", 9: "BOOL",
    10: "FP16", 11: "FP64", 12: "UINT32", 13: "UINT64", 16: "BF16",
}  # fmt: skip
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}


class Word(str):
    """An enum value of the proto, such as ``KIND_GPU``, written without quotes."""

    __slots__ = ()


@dataclass(frozen=True)
class Binding:
    """An input or output of a model.

    Attributes:
        name: Its name in the model.
        dims: All its dims, the batch included.
        data_type: Triton's name for its type.
    """

    name: str
    dims: Dims
    data_type: str

    def fields(self, *, batched: bool) -> dict[str, Any]:
        """The fields of ``ModelInput`` or ``ModelOutput``; dims without the batch axis if the model is batched."""
        dims = [int(dim) if is_concrete(dim) else -1 for dim in self.dims[int(batched) :]]
        values: dict[str, Any] = {"name": self.name, "data_type": Word(self.data_type), "dims": dims or [1]}
        if not dims and batched:  # a value a request; a scalar of a model without batches needs no reshape
            values["reshape"] = {"shape": []}
        return values


def bindings(model: onnx.ModelProto) -> tuple[tuple[Binding, ...], tuple[Binding, ...]]:
    """Inputs and outputs of a model whose shapes have been inferred.

    Raises:
        ModelError: one is not a tensor, has no known dims, or a type that Triton does not have.
    """
    graph = model.graph
    inputs = tuple(_binding("input", info) for info in given_inputs(graph))
    return inputs, tuple(_binding("output", info) for info in graph.output)


def same_batch(bindings: Sequence[Binding]) -> bool:
    """Whether all tensors have the same free first axis."""
    first = {item.dims[0] if item.dims else 1 for item in bindings}
    return len(first) == 1 and not is_concrete(next(iter(first)))


def config_text(fields: Mapping[str, Any]) -> str:
    """Fields in protobuf's text format.

    Args:
        fields: Field → text, `Word`, number, list of numbers, block of fields, or list of blocks.
    """
    return "".join(f"{line}\n" for line in _lines(fields))


def _lines(fields: Mapping[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        repeated = isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], Mapping)
        if isinstance(value, Mapping) or repeated:
            for block in value if repeated else [value]:
                inner = [f"  {line}" for line in _lines(block)]
                yield from [f"{name} {{", *inner, "}"] if inner else [f"{name} {{ }}"]
        elif isinstance(value, (list, tuple)):
            yield f"{name}: [{', '.join(map(_scalar, value))}]"
        else:
            yield f"{name}: {_scalar(value)}"


def _scalar(value: Any) -> str:
    if isinstance(value, str) and not isinstance(value, Word):
        return '"' + "".join(_ESCAPES.get(character, character) for character in value) + '"'
    return str(value)


def _binding(side: str, info: onnx.ValueInfoProto) -> Binding:
    where = f"{side} {info.name!r}"
    if not info.type.HasField("tensor_type"):
        raise ModelError(f"{where} is not a tensor; Triton takes and gives tensors only", name=info.name)
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        raise ModelError(
            f"{where} has no known dims, and Triton wants them.\n"
            "Do: write them into the model, or register its plugins (--plugins MODULE), whose output_dims return them",
            name=info.name,
        )
    if tensor.elem_type not in _TYPES:
        raise ModelError(f"{where}: Triton has no type for ONNX's element type {tensor.elem_type}", name=info.name)
    return Binding(info.name, info_dims(info), f"TYPE_{_TYPES[tensor.elem_type]}")
