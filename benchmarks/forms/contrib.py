"""Schemas of onnxruntime's own operators, with the fields of `onnx.defs.OpSchema` that forms use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx
from onnx.defs import OpSchema

__all__ = ["CONTRIB", "OPSETS", "ContribSchema", "contrib_schemas", "qualified_name"]

CONTRIB = "com.microsoft"
OPSETS = (11, 13, 17, 21, 22)
"""Opsets of ai.onnx in the models around these operators."""
_UNDECLARED = {"LayerNormalization": range(9, 17), "SimplifiedLayerNormalization": OPSETS}
"""Operators that onnxruntime puts into ONNX's domain in version 1 → opsets of models that have them."""


@dataclass(frozen=True)
class Parameter:
    """An input or an output.

    Attributes:
        name: Its name.
        type_str: A type variable, or a type such as ``tensor(float)``.
        option: Whether it is optional or variadic.
    """

    name: str
    type_str: str
    option: OpSchema.FormalParameterOption


@dataclass(frozen=True)
class Attribute:
    """An attribute: ``type`` is its number in ``onnx.AttributeProto``, ``default`` an ``onnx.AttributeProto`` in bytes, or empty."""

    type: int
    required: bool
    default: bytes = b""

    @property
    def default_value(self) -> onnx.AttributeProto:
        """The value of an attribute that is left out; without a name where it has none."""
        return onnx.AttributeProto.FromString(self.default)


@dataclass(frozen=True)
class TypeConstraint:
    """A type variable and the types that it may be."""

    type_param_str: str
    allowed_type_strs: tuple[str, ...]


@dataclass(frozen=True)
class ContribSchema:
    """The fields of `onnx.defs.OpSchema` of the same names."""

    name: str
    domain: str
    since_version: int
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    attributes: Mapping[str, Attribute]
    type_constraints: tuple[TypeConstraint, ...]

    @property
    def opsets(self) -> tuple[int, ...]:
        """Opsets of ai.onnx in the models of its forms."""
        return OPSETS if self.domain else tuple(_UNDECLARED[self.name])


@cache
def contrib_schemas() -> tuple[ContribSchema, ...]:
    """The operators of ``com.microsoft``, and those that onnxruntime puts into ONNX's domain, ordered by name."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    schemas = [
        schema
        for schema in get_all_operator_schema()
        if not schema.deprecated
        and (
            schema.domain == CONTRIB
            or (schema.domain == "" and schema.name in _UNDECLARED and schema.since_version == 1)
        )
    ]
    return tuple(_schema(schema) for schema in sorted(schemas, key=lambda schema: (schema.name, schema.domain)))


def qualified_name(schema: Any) -> str:
    """The operator with its domain in front, unless that is ai.onnx."""
    return f"{schema.domain}.{schema.name}" if schema.domain else str(schema.name)


def _schema(schema: Any) -> ContribSchema:
    return ContribSchema(
        str(schema.name),
        str(schema.domain),
        int(schema.since_version),
        tuple(map(_parameter, schema.inputs)),
        tuple(map(_parameter, schema.outputs)),
        {
            name: Attribute(int(item.type), bool(item.required), bytes(item._default_value or b""))
            for name, item in sorted(schema.attributes.items())
        },
        tuple(
            TypeConstraint(item.type_param_str, tuple(sorted(item.allowed_type_strs)))
            for item in schema.type_constraints
        ),
    )


def _parameter(item: Any) -> Parameter:
    return Parameter(str(item.name), str(item.typeStr), OpSchema.FormalParameterOption(int(item.option)))  # type: ignore[call-arg]
