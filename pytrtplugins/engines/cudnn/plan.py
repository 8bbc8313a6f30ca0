"""What a context needs to know to run: steps, and where each tensor lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...plugin import Plugin
from .format import Format
from .memory import Layout

__all__ = ["Placed", "Plan", "Step"]


@dataclass(frozen=True)
class Step:
    """One piece of work.

    Attributes:
        kind: ``"conv"``, ``"pool"``, ``"reformat"``, ``"plugin"`` or ``"generic"``.
        name: The node's name, for messages and profiles.
        op: The node's type.
        attributes: The node's.
        inputs: Tensors or constants read; empty texts for what is left out.
        outputs: Tensors written.
        plugin: The plugin, for kind ``"plugin"``.
        captured: Whether it may be part of a CUDA graph.
    """

    kind: str
    name: str
    op: str
    attributes: Mapping[str, Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    plugin: Plugin | None = None
    captured: bool = True


@dataclass(frozen=True)
class Placed:
    """A tensor's place.

    Attributes:
        format: How it lies.
        storage: Name of the block of memory.
        offset: Where in it, in bytes.
    """

    format: Format
    storage: str
    offset: int = 0


@dataclass(frozen=True)
class Plan:
    """All that a context needs to know for inputs of some dims.

    Attributes:
        steps: In order.
        tensors: Every tensor that is computed.
        constants: Arrays of the model.
        inputs: Model's input → tensor, linear, that it is copied to.
        outputs: Model's output → tensor, linear, that it is copied from.
        memory: Where the storages lie.
    """

    steps: tuple[Step, ...]
    tensors: Mapping[str, Placed]
    constants: Mapping[str, np.ndarray[Any, Any]]
    inputs: tuple[str, ...]
    outputs: Mapping[str, str]
    memory: Layout
