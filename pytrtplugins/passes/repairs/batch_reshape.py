"""Repair Reshapes that fix the batch although it is free."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from ...model.ir import add_constant, dims_of, is_op, names_in, operand
from ...tensor import SymbolicDim
from ...utils.optional import ir
from ...utils.override import override
from ._base import Finding, Repair, forget_dims, held_constant

__all__ = ["BatchReshape"]


class BatchReshape(Repair):
    """Replace the fixed batch in a Reshape's shape by 0, "as in the input".

    It is the batch if all of this holds: the first dim of what is reshaped is the free first dim of an input of the model; and
    the other dims are numbers, as many elements before as after. Such a Reshape fails for every batch but one.

    What stays: a Reshape with -1 in it, which fits any batch, whatever was meant; and whatever is not certain.
    """

    name: ClassVar[str] = "batch-reshape"
    fault: ClassVar[bool] = True
    why: ClassVar[str] = (
        "The model was exported with one batch, and its inputs were freed afterwards; the Reshape was not."
    )

    @override
    def mend(self, model: ir.Model) -> Iterator[Finding]:
        batches = {
            dims[0] for value in model.graph.inputs if (dims := dims_of(value)) and isinstance(dims[0], SymbolicDim)
        }
        mended = False
        for node in model.graph:
            if not is_op(node, "Reshape") or node.attributes.get_int("allowzero", 0) != 0:
                continue
            dims, target = dims_of(node.inputs[0]), held_constant(operand(node, 1))
            if dims and target is not None and dims[0] in batches and _is_fixed(dims[1:], target):
                free = np.concatenate([[0], target[1:]]).astype(np.int64)
                node.replace_input_with(
                    1, add_constant(model.graph, f"{node.outputs[0].name}_shape", free, names_in(model.graph))
                )
                mended = True
                yield self.finding(
                    node,
                    f"dims {target.tolist()} of a tensor with the free batch {str(dims[0])!r}",
                    f"dims {free.tolist()}",
                )
        if mended:
            forget_dims(model.graph)


def _is_fixed(other_dims: tuple[Any, ...], target: Any) -> bool:
    """Whether the first target dim is a number, and the others have the product of the input's other dims."""
    if not target.size or (target < 1).any() or not all(isinstance(dim, int) for dim in other_dims):
        return False
    return int(np.prod(target[1:].astype(object))) == int(np.prod(np.array(other_dims, dtype=object)))
