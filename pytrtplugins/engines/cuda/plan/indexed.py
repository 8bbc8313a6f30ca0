"""Make the steps of nodes that read or write at computed positions (Gather, Scatter, …)."""

from __future__ import annotations

from dataclasses import replace

from ..device.indexed import INDEXED, fits_kernel
from ..operators import computed
from .plan import Step
from .tensors import Tensors

__all__ = ["indexed_steps"]


def indexed_steps(step: Step, tensors: Tensors) -> list[Step]:
    """The steps for a node in order: its kernel, and before it, of a Scatter, the copy of the data that it changes.

    Args:
        step: The node, of ONNX's domain, as a step.
        tensors: All that are known; copies that the kernel reads are added.

    Returns:
        The steps; none for a node that no kernel takes.
    """
    row, constants = INDEXED.get(step.op), tensors.constants
    if row is None or computed(step.op, step.inputs, constants):
        return []
    names = [step.inputs[place] for place in row.reads]
    known = {place: constants[name] for place, name in enumerate(step.inputs) if name in constants}
    attributes = {**step.attributes, "known": known}
    outputs = [tensors.described(name) if name else None for name in step.outputs]
    if not fits_kernel(step.op, attributes, list(map(tensors.described, names)), outputs):
        return []
    read, moves = tensors.read(list(map(tensors.move, names)))
    steps = [replace(step, kind="indexed", attributes={**attributes, "reads": moves}, inputs=read)]
    if 0 not in row.reads:
        data, places = tensors.read([tensors.move(step.inputs[0])])
        copy = {"operations": (), "results": (0,), "reads": places}
        steps.insert(0, replace(step, kind="pointwise", op="Move", attributes=copy, inputs=data))
    return steps
