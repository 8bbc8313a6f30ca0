"""The plan of a network for some input dims: steps, and the memory of each tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....errors import BindingError
from ....plugin.base import Plugin
from ..device.layout import Format
from .arena import Layout
from .schedule import Access, Schedule
from .tail import Tail

__all__ = ["Placed", "Plan", "Step", "step_accesses"]


@dataclass(frozen=True)
class Step:
    """One step of a plan: a kernel launch, a library call, a copy or an array function.

    Attributes:
        kind: ``"conv"``, ``"pool"``, ``"activation"``, ``"attention"``, ``"pointwise"``, ``"indexed"``, ``"reformat"``, ``"zero"``,
            ``"matmul"``, ``"recurrent"``, ``"squeeze-excite"``, ``"plugin"``, ``"generic"`` or ``"tail"``.
        name: The node's name, for messages and profiles.
        op: The node's type.
        attributes: The node's.
        inputs: Tensors or constants read; empty texts for what is left out.
        outputs: Tensors written.
        plugin: The plugin, for kind ``"plugin"``.
        capturable: Whether it may be part of a CUDA graph.
    """

    kind: str
    name: str
    op: str
    attributes: Mapping[str, Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    plugin: Plugin | None = None
    capturable: bool = True


@dataclass(frozen=True)
class Placed:
    """A tensor's format and its place in memory.

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
    """Steps, tensors and memory of a run with inputs of some dims.

    Attributes:
        steps: In order.
        tensors: Every tensor that is computed.
        constants: Arrays of the model.
        inputs: Model's input → tensor, linear, that it is copied to.
        outputs: Model's output → tensor, linear, that it is copied from; those that the tail gives are not among them.
        memory: Where the storages lie.
        schedule: Which steps run side by side.
        tail: What runs behind the steps and cannot be planned, for the last of them, of kind ``"tail"``.
    """

    steps: tuple[Step, ...]
    tensors: Mapping[str, Placed]
    constants: Mapping[str, np.ndarray[Any, Any]]
    inputs: tuple[str, ...]
    outputs: Mapping[str, str]
    memory: Layout
    schedule: Schedule
    tail: Tail | None = None

    def tensor_of(self, output: str) -> str:
        """The name of the tensor from which a network output is copied.

        Raises:
            BindingError: its dims are data-dependent.
        """
        if output not in self.outputs:
            raise BindingError(
                f"engine 'cuda': output {output!r} has data-dependent dims, so no memory can be "
                "allocated for it before a run: it cannot be bound, enqueued or decoded on the GPU.\nDo: context.run(inputs)",
                output=output,
            )
        return self.outputs[output]


def step_accesses(step: Step, tensors: Mapping[str, Placed]) -> list[Access]:
    """The memory accesses of a step."""
    accesses = []
    for names, writes in ((step.inputs, False), (step.outputs, True)):
        for placed in (tensors[name] for name in names if name in tensors):
            form, size = placed.format, placed.format.dtype.itemsize
            whole = not form.nhwc or (placed.offset == 0 and form.dims[1] + form.vector > form.pitch)
            end = 1 << 62 if whole else placed.offset + form.dims[1] * size
            accesses.append(Access(placed.storage, placed.offset, end, writes))
    return accesses
