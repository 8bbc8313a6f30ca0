"""A plugin's fields ↔ the attributes of a quickly deployable plugin, which are numbers, text and one-dimensional arrays.

Numbers and text stay what they are, tuples of numbers become arrays, and an array becomes two: its values in order, and its dims. Tuples
of text become one text in JSON. Where TensorRT cannot read numbers, they are arrays of one, which look the same in an engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import FieldError
from ...plugin.base import Plugin
from ...plugin.field_values import value_origin
from ...plugin.fields import FieldSpec

__all__ = ["attribute_types", "from_attributes", "reads_numbers", "to_attributes"]

_ARRAYS = ("int8", "int32", "int64", "float16", "float32", "float64")


def reads_numbers(major: int) -> bool:
    """Whether ``tensorrt.plugin`` can read numbers: that of TensorRT 10 converts arrays of one to them, which NumPy gave up in 2.4."""
    try:
        return bool(major > 10 or int(np.zeros(1, np.int64)) == 0)
    except TypeError:
        return False


def attribute_types(cls: type[Plugin], numbers: bool) -> dict[str, Any]:
    """The type of each attribute, in order, as ``tensorrt.plugin.register`` reads it.

    Args:
        cls: The plugin's class.
        numbers: Whether TensorRT reads numbers, see `reads_numbers`.

    Raises:
        FieldError: a field is an array without an element type, or of one that QDP does not have.
    """
    found: dict[str, Any] = {}
    for spec in cls.field_specs():
        for name, kind in spec.field_kind.quick_types(numbers).items():
            found[name.format(spec.name)] = _array_of(cls, spec, kind) if isinstance(kind, str) else kind
    return found


def to_attributes(plugin: Plugin, numbers: bool) -> dict[str, Any]:
    """The values of all attributes."""
    found: dict[str, Any] = {}
    for spec, value in zip(plugin.field_specs(), plugin.fields().values(), strict=True):
        found |= zip(_names(spec, numbers), spec.field_kind.to_quick(value, numbers), strict=True)
    return found


def from_attributes(cls: type[Plugin], values: Mapping[str, Any]) -> Plugin:
    """The plugin of these attributes."""
    with value_origin("TensorRT's attribute '{}'"):
        return cls(**{spec.name: _value(spec, values) for spec in cls.field_specs()})


def _names(spec: FieldSpec, numbers: bool = True) -> list[str]:
    """Names of the attributes of a field."""
    return [name.format(spec.name) for name in spec.field_kind.quick_types(numbers)]


def _value(spec: FieldSpec, values: Mapping[str, Any]) -> Any:
    return spec.field_kind.from_quick(*(values[name] for name in _names(spec)))


def _array_of(cls: type[Plugin], spec: FieldSpec, dtype: str) -> Any:
    """The annotation of an array, ``numpy.typing.NDArray[numpy.int64]`` for ``"int64"``."""
    if dtype not in _ARRAYS:
        raise FieldError(
            f"{cls.__name__}.{spec.name}: quickly deployable plugins take arrays of one of {', '.join(_ARRAYS)}; "
            f"found {dtype or 'any type'}.\nDo: annotate it, for instance {spec.name}: numpy.typing.NDArray[numpy.float32]",
            name=spec.name,
        )
    element: Any = getattr(np, dtype)
    return npt.NDArray[element]
