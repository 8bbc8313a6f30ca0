"""A kind of fields: how values of one type are written in each form of a plugin.

Readers and writers of a form (serialized bytes, ONNX, TensorRT, C++, PyTorch, caffe, the command line) ask the kind of a field, and know no
types themselves. Libraries' types are named here as text, and looked up where the library is imported. The kinds are in `field_kinds`.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..utils.override import override
from .packing import Reader

__all__ = ["FieldKind", "Scalar", "TupleKind", "UnfitValueError"]

Values = npt.NDArray[Any]


class UnfitValueError(Exception):
    """A field cannot hold the value.

    Attributes:
        value: The value, or the item of a tuple.
        reason: Why, in words; empty: it is of another type.
    """

    def __init__(self, value: Any, reason: str = "") -> None:
        super().__init__(value, reason)
        self.value, self.reason = value, reason


class FieldKind:
    """How values of one type are written in each form of a plugin. A stored value is one that `convert` returned.

    Attributes:
        annotation: The type: ``tuple[int, ...]``.
        type_name: The type's name in messages.
        source: The type's name in the source of a class.
        code: Type code in the serialized form (docs/reference/format.md).
        onnx: Type of the ONNX attribute, by the names of ``AttributeProto``: ``INTS``.
        plugin_field: Types of TensorRT's ``PluginField`` and, in NumPy, of its elements; None: no ``PluginField`` holds such values.
        cpp: Type of the member in C++.
        cpp_empty: What follows the member's name in C++ where there is no default.
        expression: How an export follows a traced value: as an expression (``b``, ``i``, ``f`` or ``s``), as an ``array``, or not at all.
        torch: Type in a schema of PyTorch; empty: it has none.
        caffe: Type of the protobuf field, after ``*`` if it is repeated; empty: a caffe network has none.
        quotes: What JSON begins with that a person types for text; empty: values are no text.
        file_ending: Ending of file names that may be typed without ``@``; empty: none.
        samples: Values to try where a plugin is made without the user's.
        is_varied: Whether tests of a plugin try other values than the user's.
        example: What a message shows as a value of the field ``{}`` on the command line.
    """

    annotation: Any
    type_name: str
    source: str
    code: int
    onnx: str
    plugin_field: tuple[str, str] | None = None
    cpp: str
    cpp_empty = ""
    expression = ""
    torch = ""
    caffe = ""
    quotes = ""
    file_ending = ""
    samples: tuple[Any, ...] = ()
    is_varied = False
    example = "..."

    def convert(self, value: Any) -> Any:
        """The one stored form of a value.

        Raises:
            UnfitValueError: the value is of another type, or too large.
        """
        raise NotImplementedError

    def from_array(self, array: Values) -> Any:
        """An array, from a node's attribute or constant input, in the form nearest to this kind."""
        return array.item() if array.size == 1 else array

    def pack(self, value: Any) -> bytes:
        """A stored value in the serialized form."""
        raise NotImplementedError

    def unpack(self, reader: Reader, where: str) -> Any:
        """Read what `pack` wrote; ``where`` names the field in messages."""
        raise NotImplementedError

    def to_onnx(self, value: Any) -> Any:
        """A stored value in the attribute; an array where its type is ``TENSOR``."""
        return value

    def to_plugin_field(self, value: Any) -> tuple[str, Values] | None:
        """Type and elements of the ``PluginField``; None if none can hold this value."""
        return None

    def from_plugin_field(self, elements: Values) -> Any:
        """The value that a ``PluginField`` of numbers has.

        Raises:
            ValueError: the number of elements is wrong.
        """
        values = elements.reshape(-1).tolist()
        if len(values) != 1:
            raise ValueError(f"expected one value, found {len(values)}")
        return values[0]

    def declared_plugin_field(self, default: Any) -> tuple[str, str] | None:
        """`plugin_field` of a field with this default, None for none."""
        return self.plugin_field

    def placeholder(self, default: Any) -> Any:
        """The value in a node for TensorRT's parser where no ``PluginField`` can hold the field's own."""
        raise NotImplementedError

    def quick_types(self, numbers: bool) -> dict[str, Any]:
        """Attributes of a quickly deployable plugin that hold a value, with their types; ``{}`` in a name stands for the field's.

        Their types are Python's, or NumPy's name of the elements of an array; ``numbers`` says whether TensorRT reads plain numbers.
        """
        raise NotImplementedError

    def to_quick(self, value: Any, numbers: bool) -> tuple[Any, ...]:
        """A stored value in these attributes."""
        raise NotImplementedError

    def from_quick(self, *attributes: Any) -> Any:
        """The value in attributes of a quickly deployable plugin."""
        raise NotImplementedError

    def cpp_literal(self, value: Any) -> str:
        """A stored value in C++."""
        raise NotImplementedError

    def cpp_after_visit(self, member: str, label: str) -> list[str]:
        """Statements in C++ that follow each visit of the member; ``label`` is a literal that names the field."""
        return []

    def cpp_required(self, member: str, label: str) -> list[str]:
        """C++ statements that refuse a member without a value."""
        return []

    def torch_literal(self, value: Any) -> str | None:
        """A default in a schema of PyTorch; None if it cannot be written there."""
        return None

    def torch_constant(self, get: Callable[[Any, str], Any], unpack: Callable[[Any], Any], value: Any) -> Any:
        """The constant that a traced graph of PyTorch has: ``get`` reads one by the letter of its type, ``unpack`` parts a list."""
        raise NotImplementedError

    def from_caffe(self, value: Any) -> Any:
        """The value of a parameter of a caffe layer."""
        return value

    def split_text(self, text: str) -> Any:
        """The value that a person typed, where values are text."""
        return text


class Scalar(FieldKind):
    """A kind whose values are Python scalars of one type.

    Attributes:
        layout: Format of a serialized value, for `struct`.
        zero: The value in a ``PluginField`` that holds nothing.
        element_dtype: Type of elements in NumPy that hold values exactly; empty: no array holds them.
        torch_letter: Letter of a constant's type in a traced graph of PyTorch.
        is_torch_list: Whether PyTorch has lists of such values as constants and defaults.
    """

    annotation: type
    layout: str
    zero: Any = 0
    element_dtype: str
    torch_letter: str
    is_torch_list = True

    def __init__(self) -> None:
        self.type_name = self.source = self.annotation.__name__

    def adapt(self, value: Any) -> Any:
        """A value of a type that is taken for this one, in this one; others as they are."""
        return value

    def check(self, value: Any) -> Any:
        """The stored form of a value of the right type."""
        return value

    @override
    def convert(self, value: Any) -> Any:
        value = self.adapt(value.item() if isinstance(value, np.generic) else value)
        if type(value) is not self.annotation:
            raise UnfitValueError(value)
        return self.check(value)

    def shown(self, value: Any) -> str:
        """A stored value as a person would write it."""
        return repr(value)

    def pack_items(self, values: Sequence[Any]) -> bytes:
        """Several stored values in the serialized form, one after the other."""
        return struct.pack(f"<{len(values)}{self.layout}", *values)

    def unpack_items(self, reader: Reader, count: int) -> tuple[Any, ...]:
        """Read what `pack_items` wrote."""
        return struct.unpack(f"<{count}{self.layout}", reader.take(count * struct.calcsize(f"<{self.layout}")))

    @override
    def pack(self, value: Any) -> bytes:
        return self.pack_items((value,))

    @override
    def unpack(self, reader: Reader, where: str) -> Any:
        return self.unpack_items(reader, 1)[0]

    def fits_plugin_field(self, value: Any) -> bool:
        """Whether an element of a ``PluginField`` can hold a stored value."""
        return True

    @override
    def to_plugin_field(self, value: Any) -> tuple[str, Values] | None:
        return TupleKind(self).to_plugin_field((value,))

    @override
    def placeholder(self, default: Any) -> Any:
        return self.zero

    @override
    def quick_types(self, numbers: bool) -> dict[str, Any]:
        return {"{}": self.annotation if numbers or not self.element_dtype else self.element_dtype}

    @override
    def to_quick(self, value: Any, numbers: bool) -> tuple[Any, ...]:
        return (value if numbers or not self.element_dtype else np.array([value], self.element_dtype),)

    @override
    def from_quick(self, *attributes: Any) -> Any:
        return self.annotation(np.reshape(attributes[0], -1).tolist()[0])

    @override
    def torch_literal(self, value: Any) -> str | None:
        return repr(value) if math.isfinite(value) else None

    @override
    def torch_constant(self, get: Callable[[Any, str], Any], unpack: Callable[[Any], Any], value: Any) -> Any:
        return get(value, self.torch_letter)


class TupleKind(FieldKind):
    """A kind whose values are tuples of one kind of scalars."""

    def __init__(self, item: Scalar) -> None:
        self.item = item
        self.annotation = tuple[item.annotation, ...]  # type: ignore[name-defined]
        self.type_name = self.source = f"tuple[{item.type_name}, ...]"
        self.code, self.onnx = item.code + 16, f"{item.onnx}S"
        self.plugin_field = item.plugin_field if item.element_dtype else None
        self.cpp, self.torch, self.caffe = f"std::vector<{item.cpp}>", f"{item.torch}[]", f"*{item.caffe}"
        self.quotes = item.quotes and f"[{item.quotes}"
        self.samples = (item.samples[:2], item.samples[:1], ()) if item.samples else ()

    @override
    def convert(self, value: Any) -> Any:
        if isinstance(value, str) or not hasattr(value, "__iter__"):
            raise UnfitValueError(value)
        return tuple(self.item.convert(item) for item in value)

    @override
    def from_array(self, array: Values) -> Any:
        return array.tolist()

    @override
    def pack(self, value: Any) -> bytes:
        return struct.pack("<I", len(value)) + self.item.pack_items(value)

    @override
    def unpack(self, reader: Reader, where: str) -> Any:
        return self.item.unpack_items(reader, reader.unpack("<I")[0])

    @override
    def to_onnx(self, value: Any) -> Any:
        return [self.item.to_onnx(item) for item in value]

    @override
    def to_plugin_field(self, value: Any) -> tuple[str, Values] | None:
        if self.plugin_field is None or not value or not all(map(self.item.fits_plugin_field, value)):
            return None
        return self.plugin_field[0], np.array(value, self.plugin_field[1])

    @override
    def from_plugin_field(self, elements: Values) -> Any:
        return tuple(elements.reshape(-1).tolist())

    @override
    def placeholder(self, default: Any) -> Any:
        return (self.item.zero,)

    @override
    def quick_types(self, numbers: bool) -> dict[str, Any]:
        return {"{}": self.item.element_dtype or str}

    @override
    def to_quick(self, value: Any, numbers: bool) -> tuple[Any, ...]:
        return (np.array(value, self.item.element_dtype) if self.item.element_dtype else json.dumps(value),)

    @override
    def from_quick(self, *attributes: Any) -> Any:
        values = np.reshape(attributes[0], -1).tolist() if self.item.element_dtype else json.loads(attributes[0])
        return tuple(map(self.item.annotation, values))

    @override
    def cpp_literal(self, value: Any) -> str:
        return f"{self.cpp}{{{', '.join(map(self.item.cpp_literal, value))}}}"

    @override
    def torch_literal(self, value: Any) -> str | None:
        literals = [self.item.torch_literal(item) for item in value]
        return f"[{', '.join(filter(None, literals))}]" if self.item.is_torch_list and all(literals) else None

    @override
    def torch_constant(self, get: Callable[[Any, str], Any], unpack: Callable[[Any], Any], value: Any) -> Any:
        letter = self.item.torch_letter
        return get(value, f"{letter}s") if self.item.is_torch_list else [get(item, letter) for item in unpack(value)]

    @override
    def from_caffe(self, value: Any) -> Any:
        return value if isinstance(value, (list, tuple)) else (value,)

    @override
    def split_text(self, text: str) -> Any:
        return tuple(text.split(",")) if text else ()
