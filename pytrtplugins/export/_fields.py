"""Write a traced plugin's fields in C++: members, checks, and arrays for kernels."""

from __future__ import annotations

from typing import Any

from ..plugin.fields import MISSING, FieldSpec, format_value
from ..utils.cpp_literals import text_literal
from ._expressions import ELEMENTS, Scope, method
from ._traced import TracedPlugin
from ._values import Expr, leaves_of

__all__ = ["field_checks", "field_members", "table_releases", "table_uploads"]

_SCOPE = Scope("inputs[{}]")  # no dims stand in what is made of fields


def field_members(traced: TracedPlugin) -> list[str]:
    """A member for each field and for each table, and the method that visits the fields."""
    members = [
        f"    {spec.field_kind.cpp} {spec.name}_{_initial(traced.fixed.get(spec.name, spec.default), spec)};"
        for spec in traced.specs
    ]
    tables = [f"    Table table{number}_;" for number in range(len(traced.tables))]
    visits = []
    for spec in traced.specs:
        visits.append(f"        visit({text_literal(spec.name)}, {spec.name}_);")
        after = spec.field_kind.cpp_after_visit(f"{spec.name}_", _label(traced, spec))
        visits += [f"        {line}" for line in after]
    visitor = "visit" if visits else "/*visit*/"
    return [*members, *tables, "", *method(f"void fields(FieldVisitor& {visitor}) override", visits)]


def field_checks(traced: TracedPlugin) -> list[str]:
    """C++ lines of validate: checks of the library beyond the class's own."""
    lines = []
    for spec in traced.specs:
        if spec.name in traced.fixed:
            value = traced.fixed[spec.name]
            reason = f"{traced.name}.{spec.name}: this library was exported for {format_value(value)} alone"
            lines.append(
                f"        if (!({spec.name}_ == {spec.field_kind.cpp_literal(value)})) throw FieldError({text_literal(reason)});"
            )
        elif spec.default is MISSING:
            required = spec.field_kind.cpp_required(f"{spec.name}_", _label(traced, spec))
            lines += [f"        {line}" for line in required]
    return lines


def table_uploads(traced: TracedPlugin) -> list[str]:
    """C++ lines of initialize: copy array fields, and arrays computed from them, to the device."""
    return [f"        table{number}_.fill({_bytes(values)});" for number, values in enumerate(traced.tables)]


def _bytes(values: Expr) -> str:
    if values.op == "values":
        return f"{values.args[0]}_.data"
    if values.op == "cast":
        inner, dtype = values.args
        return f"cast({_array(inner)}, {text_literal(dtype)})"
    return f"{_array(values)}.data"


def _array(values: Expr) -> str:
    """An `Array` of the C++ headers."""
    first = next(leaf.args[0] for leaf in leaves_of(values) if leaf.op == "values")
    if values.op == "values":
        return f"{first}_"
    dtype = values.args[-1]
    return (
        f"computed<{ELEMENTS[dtype]}>({first}_, {text_literal(dtype)}, [&](size_t i) {{ return {_SCOPE.at(values)}; }})"
    )


def table_releases(traced: TracedPlugin) -> list[str]:
    """C++ lines of terminate: free the memory of array fields."""
    return [f"        table{number}_.clear();" for number in range(len(traced.tables))]


def _label(traced: TracedPlugin, spec: FieldSpec) -> str:
    return text_literal(f"{traced.name}.{spec.name}")


def _initial(value: Any, spec: FieldSpec) -> str:
    return spec.field_kind.cpp_empty if value is MISSING else f" = {spec.field_kind.cpp_literal(value)}"
