"""A node of ``com.microsoft`` for authors of function bodies: attributes, inputs, and their known types and dims."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...model.proto import numpy_type
from ...plugin.onnx_node import node_attributes
from ...utils.optional import onnx

__all__ = ["ContribNode", "MalformedError", "NotWritableError", "UnknownTypeError", "ints", "number"]


class NotWritableError(Exception):
    """No function body here computes this form of an operator."""


class MalformedError(Exception):
    """A node is invalid for its operator; the text follows the node's name in the message, and ", which" follows it."""


class UnknownTypeError(Exception):
    """A function body needs a tensor's type or dims that are not known, or not yet."""


class ContribNode:
    """One node. In a function body its inputs are ``x0``, ``x1`` and so on, and its outputs ``y0``, ``y1``."""

    def __init__(self, node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]) -> None:
        self.node, self._types, self._attributes = node, types, node_attributes(node)

    def attribute(self, name: str, *default: Any) -> Any:
        """An attribute's value, or the default.

        Raises:
            MalformedError: the node has no such attribute, and there is no default.
        """
        if name not in self._attributes and not default:
            raise MalformedError(f"lacks the attribute {name!r}")
        return self._attributes.get(name, *default)

    def has(self, index: int) -> bool:
        """Whether an input is there."""
        return len(self.node.input) > index and bool(self.node.input[index])

    def gives(self, index: int) -> bool:
        """Whether an output is there."""
        return len(self.node.output) > index and bool(self.node.output[index])

    def inputs(self, *indices: int) -> str:
        """Names of the inputs for a call, up to the last that is present: ``x0, "", x2``."""
        last = max((index for index in indices if self.has(index)), default=-1)
        return ", ".join(f"x{index}" if self.has(index) else '""' for index in indices[: [*indices].index(last) + 1])

    def attributes(self, *names: str, **others: Any) -> str:
        """Attributes in a call: those of the node with these names, and others."""
        values = {name: self._attributes[name] for name in names if name in self._attributes} | others
        return f"<{', '.join(f'{name} = {_literal(value)}' for name, value in values.items())}>" if values else ""

    def dims(self, index: int) -> tuple[int, ...]:
        """Dims of an input; 0 where they are free.

        Raises:
            MalformedError: the node has no such input.
            UnknownTypeError: they are not known.
        """
        kind = self._type(index)
        if not kind.HasField("shape"):
            raise UnknownTypeError(self.node.input[index])
        return tuple(dim.dim_value for dim in kind.shape.dim)

    def rank(self, index: int) -> int | None:
        """How many dims an input has; None where that is not known."""
        kind = self._types.get(self.node.input[index]) if self.has(index) else None
        return len(kind.tensor_type.shape.dim) if kind and kind.tensor_type.HasField("shape") else None

    def lacks_elements(self, index: int) -> bool:
        """Whether it is known that an input has no elements."""
        if self.rank(index) is None:
            return False
        dims = self._type(index).shape.dim
        return any(dim.HasField("dim_value") and dim.dim_value == 0 for dim in dims)

    def check_rank(self, index: int, rank: int) -> None:
        """Require an input of this rank, if it is present and known."""
        actual = self.rank(index)
        if actual not in (None, rank):
            raise MalformedError(f"has {actual} dims in its input {index} instead of the {rank}")

    def check_length(self, index: int, length: int) -> None:
        """Require an input with one dim of this size, if it is present and known."""
        self.check_rank(index, 1)
        if length and self.rank(index) and self.dims(index)[0] not in (0, length):
            raise MalformedError(f"has {self.dims(index)[0]} elements in its input {index} instead of the {length}")

    def dtype(self, index: int) -> str:
        """ONNX's name of an input's element type, such as ``float16``.

        Raises:
            MalformedError: the node has no such input.
            UnknownTypeError: it is not known.
        """
        return _TYPE_NAMES.get(name := numpy_type(self._type(index).elem_type).name, name)

    def number(self, name: str, value: float, like: int = 0) -> str:
        """A statement that makes a number of the type of an input.

        Raises:
            NotWritableError: it is a fraction, and the input has whole numbers.
        """
        dtype = self.dtype(like)
        if dtype == "float":
            return number(name, value)
        if not dtype.endswith(("float16", "double")) and not float(value).is_integer():
            raise NotWritableError(f"it reads {dtype}, and computes with {value}")
        return f"{number(f'{name}_float', value)}\n{name} = {self.cast(f'{name}_float', like)}"

    def cast(self, name: str, like: int = 0) -> str:
        """A call that gives a tensor the type of an input."""
        return f"Cast <to = {self._type(like).elem_type}> ({name})"

    def scale(self, index: int) -> str:
        """A statement ``sN = …``: the scale or zero point that an input is, as a scalar where it has one element.

        Raises:
            MalformedError: it has none.
        """
        if self.lacks_elements(index):
            raise MalformedError(f"has no elements in its input {index}")
        return f"s{index} = {'Squeeze' if self.dims(index) == (1,) else 'Identity'} (x{index})"

    def check_reads(self, names: Iterable[str]) -> None:
        """Require the inputs of these names, such as ``x2``, among others that are no inputs."""
        for index in sorted(int(name[1:]) for name in names if _INPUT.fullmatch(name)):
            self._check_has(index)

    def _check_has(self, index: int) -> None:
        if not self.has(index):
            raise MalformedError(f"lacks its input {index}")

    def _type(self, index: int) -> Any:
        self._check_has(index)
        kind = self._types.get(self.node.input[index])
        if kind is None or not kind.tensor_type.elem_type:
            raise UnknownTypeError(self.node.input[index])
        return kind.tensor_type


_INPUT = re.compile(r"x\d+")
_TYPE_NAMES = {"float32": "float", "float64": "double"}


def number(name: str, value: float) -> str:
    """A statement that makes a scalar of float32."""
    return f"{name} = Constant <value = float {{{float(value)!r}}}> ()"


def ints(name: str, values: Sequence[int]) -> str:
    """A statement that makes a 1-D tensor of whole numbers."""
    return f"{name} = Constant <value = int64[{len(values)}] {{{', '.join(map(str, values))}}}> ()"


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_literal, value))}]"
    return repr(float(value)) if isinstance(value, float) else str(int(value))
