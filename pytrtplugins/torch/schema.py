"""Derive the name and schema of a PyTorch operator from a plugin class, its typed fields and inputs."""

from __future__ import annotations

import inspect
import re
from typing import Any

from ..errors import FieldError
from ..plugin.base import Plugin
from ..plugin.fields import MISSING, FieldSpec

__all__ = ["given_fields", "input_names", "operator_name", "schema"]


def operator_name(cls: type[Plugin], name: str | None = None) -> str:
    """Return the operator's name: ``"darknet::reorg"`` for class ``Reorg`` of namespace ``"darknet"``."""
    key = cls.plugin_key()
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key.name).lower() if name is None else name
    return "::".join(re.sub(r"\W", "_", part) for part in (key.namespace, snake))


def input_names(cls: type[Plugin]) -> list[str] | None:
    """Return the names of the inputs from the parameters of `Plugin.compute`; None if it takes any number."""
    is_static = isinstance(inspect.getattr_static(cls, "compute"), staticmethod)
    parameters = list(inspect.signature(cls.compute).parameters.values())[0 if is_static else 1 :]
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in kinds]


def schema(cls: type[Plugin], outputs: int) -> str:
    """Return the schema without the name: ``"(Tensor x, *, int stride=1, bool reverse=False) -> Tensor"``.

    Raises:
        FieldError: a field is an array, which no operator of PyTorch's takes as an attribute.
    """
    names = input_names(cls)
    inputs = ["Tensor[] inputs"] if names is None else [f"Tensor {name}" for name in names]
    fields = [_argument(cls, spec) for spec in cls.field_specs()]
    arguments = ", ".join([*inputs, *(["*", *fields] if fields else [])])
    return f"({arguments}) -> {'Tensor' if outputs == 1 else '(' + ', '.join(['Tensor'] * outputs) + ')'}"


def given_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call without those that are None, for which the class's default is used."""
    return {name: value for name, value in fields.items() if value is not None}


def _argument(cls: type[Plugin], spec: FieldSpec) -> str:
    kind = spec.field_kind
    if not kind.torch:
        raise FieldError(
            f"{cls.__name__}.{spec.name} is an array, which an operator of PyTorch's cannot have as an attribute.\n"
            "Do: make it an input of the plugin",
            name=spec.name,
        )
    if spec.default is MISSING:
        return f"{kind.torch} {spec.name}"
    literal = kind.torch_literal(spec.default)
    return f"{kind.torch}? {spec.name}=None" if literal is None else f"{kind.torch} {spec.name}={literal}"
