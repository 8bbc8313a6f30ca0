"""Reshapes that fix a batch which is free."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...model.ir import add_constant, dims_of, is_op, names_in, operand
from ...tensor import SymbolicDim
from ...utils.override import override
from ._base import Finding, Repair, forget_dims, held_constant

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["BatchReshape"]


class BatchReshape(Repair):
    """Write 0, "as it is", for the first dim of a Reshape that fixes the batch.

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
            dims, wanted = dims_of(node.inputs[0]), held_constant(operand(node, 1))
            if dims and wanted is not None and dims[0] in batches and _is_fixed(dims[1:], wanted):
                free = np.concatenate([[0], wanted[1:]]).astype(np.int64)
                node.replace_input_with(
                    1, add_constant(model.graph, f"{node.outputs[0].name}_shape", free, names_in(model.graph))
                )
                mended = True
                yield self.finding(
                    node,
                    f"dims {wanted.tolist()} of a tensor with the free batch {str(dims[0])!r}",
                    f"dims {free.tolist()}",
                )
        if mended:
            forget_dims(model.graph)


def _is_fixed(rest: tuple[Any, ...], wanted: Any) -> bool:
    """Whether the first of the wanted dims is a number, and the others have the elements that there are."""
    if not wanted.size or (wanted < 1).any() or not all(isinstance(dim, int) for dim in rest):
        return False
    return int(np.prod(wanted[1:].astype(object))) == int(np.prod(np.array(rest, dtype=object)))
