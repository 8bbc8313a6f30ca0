"""Forms of operators: which there are, which are drawn, and which no builder reaches."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import onnx
from onnx.defs import OpSchema

from .contrib import ContribSchema, contrib_schemas, qualified_name
from .draft import Draft, Unfit, element_type
from .exclusions import excluded
from .families import BUILDERS
from .write import write

__all__ = ["Form", "draw_form", "draw_forms", "items_of", "schemas"]

Item = tuple[str, str, str]
"""Part of a schema that a form uses: ``("attribute", name, how)``, ``("input", name, how)`` or ``("type", variable, type)``."""
_LEAST, _TRIES = 36, 6
"""Forms of each version of an operator, and draws for each of them."""


@dataclass
class Form:
    """A model with one node of interest.

    Attributes:
        name: Such as ``"Conv-11/17"`` or ``"com.microsoft.Gelu-1/3"``: operator, version, number.
        operator: The operator, with its domain unless that is ai.onnx.
        version: Its version.
        opset: The opset of the model.
        data: The model's bytes.
        inputs: Arrays by the names of the inputs.
        items: The parts of the schema that it uses.
        tags: How it was written.
        exact: Whether results are values of the operands.
        loose: Factor on the tolerance.
        expected: What the oracles give, by the order of the outputs; None where they do not run it.
        source: Which oracle that is.
        notes: What else is known, such as that a library did not survive it.
    """

    name: str
    operator: str
    version: int
    opset: int
    data: bytes
    inputs: dict[str, Any]
    items: frozenset[Item]
    tags: tuple[str, ...]
    exact: bool
    loose: float
    expected: list[Any] | None = None
    source: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def model(self) -> onnx.ModelProto:
        """The model, read anew."""
        return onnx.load_model_from_string(self.data)


@cache
def schemas() -> tuple[OpSchema | ContribSchema, ...]:
    """All versions of all operators of ai.onnx that are not deprecated, ordered by name and version; then those of onnxruntime."""
    found = [each for each in onnx.defs.get_all_schemas_with_history() if each.domain == "" and not each.deprecated]
    return (*sorted(found, key=lambda each: (each.name, each.since_version)), *contrib_schemas())


@cache
def _versions() -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            found.setdefault(schema.name, []).append(schema.since_version)
    return {name: sorted(versions) for name, versions in found.items()}


def opsets(schema: OpSchema | ContribSchema) -> Sequence[int]:
    """Opsets of ai.onnx in which this version of the operator is the valid one."""
    if isinstance(schema, ContribSchema):
        return schema.opsets
    later = [version for version in _versions()[schema.name] if version > schema.since_version]
    return range(schema.since_version, min(later, default=onnx.defs.onnx_opset_version() + 1))


def items_of(schema: OpSchema | ContribSchema) -> set[Item]:
    """All parts of a schema that a form may use."""
    items: set[Item] = set()
    for name, attribute in schema.attributes.items():
        items.add(("attribute", name, "set"))
        if not attribute.required:
            items.add(("attribute", name, "left out"))
    inputs: Sequence[Any] = schema.inputs
    for parameter in inputs:
        items.add(("input", parameter.name, "given"))
        if parameter.option == OpSchema.FormalParameterOption.Optional:
            items.add(("input", parameter.name, "left out"))
    for variable, texts in _variables(schema).items():
        items |= {("type", variable, text) for text in texts}
    return items


def _variables(schema: OpSchema | ContribSchema) -> dict[str, list[str]]:
    """Element types of the type variables that inputs have."""
    inputs: Sequence[Any] = schema.inputs
    used = {parameter.type_str for parameter in inputs}
    return {
        constraint.type_param_str: list(constraint.allowed_type_strs)
        for constraint in schema.type_constraints
        if constraint.type_param_str in used
    }


def _items_used(draft: Draft) -> set[Item]:
    schema = draft.schema
    items = {("attribute", name, "set" if name in draft.attributes else "left out") for name in schema.attributes}
    inputs: Sequence[Any] = schema.inputs
    for index, parameter in enumerate(inputs):
        there = index < len(draft.operands) and draft.operands[index].values is not None
        items.add(("input", parameter.name, "given" if there else "left out"))
        if there and parameter.type_str in _variables(schema):
            number = draft.operands[index].elements
            texts = _variables(schema)[parameter.type_str]
            items |= {("type", parameter.type_str, text) for text in texts if element_type(text) == number}
    return items & items_of(schema)


def draw_forms(seed: int = 0, only: Iterable[str] = (), least: int = _LEAST, most: int | None = None) -> Iterator[Form]:
    """Draw forms of all operators, or of some operators or domains; the same for the same seed, whatever else is drawn.

    Each version gets at least ``least`` forms, and more until every part of its schema that its builder reaches is used, or until it
    has ``most``.
    """
    wanted = set(only)
    for schema in schemas():
        name = qualified_name(schema)
        if name in BUILDERS and (not wanted or name in wanted or schema.domain in wanted):
            yield from islice(_forms_of(schema, seed, least), most)


def draw_form(name: str, seed: int = 0) -> Form:
    """Draw one form again, by its name."""
    operator, _, place = name.rpartition("-")
    version, number = map(int, place.split("/"))
    schema = next(item for item in schemas() if (qualified_name(item), item.since_version) == (operator, version))
    return _form(_draft(schema, seed, number), number)


def _forms_of(schema: OpSchema | ContribSchema, seed: int, least: int) -> Iterator[Form]:
    missing = {item for item in items_of(schema) if not excluded(schema, item)}
    made = 0
    for number in range(least * _TRIES):
        if made >= least and not missing:
            return
        try:
            draft = _draft(schema, seed, number)
        except Unfit:
            continue
        items = _items_used(draft)
        if made >= least and not items & missing:
            continue
        missing -= items
        made += 1
        yield _form(draft, number)


def _draft(schema: OpSchema | ContribSchema, seed: int, number: int) -> Draft:
    """Draw one form of a version."""
    operator = qualified_name(schema)
    key = zlib.crc32(f"{operator}-{schema.since_version}".encode())
    draft = Draft(schema, _opset(schema, number), np.random.default_rng([seed, key, number]))
    with np.errstate(all="ignore"):
        BUILDERS[operator](draft)
    return draft


def _form(draft: Draft, number: int) -> Form:
    """Write a draft as a model."""
    schema, items = draft.schema, frozenset(_items_used(draft))
    with np.errstate(all="ignore"):
        model, inputs, tags = write(draft)
    operator = qualified_name(schema)
    name = f"{operator}-{schema.since_version}/{number}"
    data = model.SerializeToString(deterministic=True)
    return Form(name, operator, schema.since_version, draft.opset, data, inputs, items, tags, draft.exact, draft.loose)


def _opset(schema: OpSchema | ContribSchema, number: int) -> int:
    """The version itself in every other form, else each of its opsets in turn; of onnxruntime's operators each in turn."""
    valid = opsets(schema)
    if isinstance(schema, ContribSchema):
        return valid[number % len(valid)]
    return valid[0] if number % 2 else valid[number // 2 % len(valid)]
