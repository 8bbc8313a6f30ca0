"""The recorded behaviour of a plugin class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from ..cuda.source import CompileUnit
from ..plugin.base import Plugin
from ..plugin.fields import FieldSpec
from ..tensor import DType
from ._explore import Returned, Tree
from ._values import Expr

__all__ = ["Case", "Format", "Launch", "Pointer", "TracedPlugin"]

Format = tuple[tuple[DType, str], ...]  # of the inputs, then of the outputs


@dataclass(frozen=True)
class Case:
    """Types, layouts and ranks for which a method was traced; ``format`` is an index into `TracedPlugin.formats`."""

    format: int
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Pointer:
    """Location of a launch's array: role ``"input"``, ``"output"``, ``"workspace"``, ``"constant"``, ``"table"`` or ``"null"``."""

    role: str
    index: int
    offset: Expr


@dataclass(frozen=True)
class Launch:
    """One launch; ``kernel`` is an index into `TracedPlugin.kernels`."""

    kernel: int
    arguments: tuple[Expr | Pointer, ...]
    threads: tuple[Expr, ...]
    block: tuple[int, int, int]
    shared: Expr


@dataclass
class TracedPlugin:
    """The recorded behaviour of a plugin class.

    Attributes:
        plugin: The class.
        fixed: Values of the fields that the exported library has no choice about.
        outputs: How many outputs there are.
        validate: Ends in None.
        dims: By the numbers of axes of the inputs; ends in one tuple of expressions for each output.
        types: Ends in, for each output, ``{types of the inputs: its type}``.
        formats: Types and layouts that are accepted, under any fields.
        supports: Ends in the places of those that are accepted.
        configure: Ends in None.
        workspace: Ends in a number of bytes.
        enqueue: Ends in a tuple of launches.
        kernels: What is launched, each for one element type.
        constants: Arrays among the arguments.
        tables: Array fields among the arguments, and what arithmetic makes of them.
    """

    plugin: type[Plugin]
    fixed: Mapping[str, Any]
    inputs: int
    outputs: int = 0
    validate: Tree = field(default_factory=lambda: Returned(None))
    dims: dict[tuple[int, ...], Tree] = field(default_factory=dict)
    types: Tree = field(default_factory=lambda: Returned(()))
    formats: list[Format] = field(default_factory=list)
    supports: Tree = field(default_factory=lambda: Returned(()))
    configure: dict[Case, Tree] = field(default_factory=dict)
    workspace: dict[Case, Tree] = field(default_factory=dict)
    enqueue: dict[Case, Tree] = field(default_factory=dict)
    kernels: list[CompileUnit] = field(default_factory=list)
    constants: list[npt.NDArray[Any]] = field(default_factory=list)
    tables: list[Expr] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The class's name in messages."""
        return self.plugin.__name__

    @property
    def specs(self) -> tuple[FieldSpec, ...]:
        """The fields."""
        return self.plugin.field_specs()
