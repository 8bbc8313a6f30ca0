"""Free a batch that is fixed everywhere, as MXNet's and other exporters fix it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from ...errors import ModelError
from ...model.ir import add_constant, dims_of, is_op, names_in, operand
from ...model.proto import node_name
from ...tensor import SymbolicDim
from ...utils.optional import ir
from ...utils.override import override
from ._base import Finding, Repair, forget_dims, held_constant, infer_dims

__all__ = ["FreeBatch"]

_BATCH = "N"
_DO = "Do: leave out free-batch, or export the model with a free batch"


class FreeBatch(Repair):
    """Free the first dim of all inputs, which must be the same number in each, and that number in Reshapes.

    It is done as a whole or not at all: the first dim of each output must follow from the inputs', and no Reshape may fix a
    tensor that has the batch in it.

    Raises:
        ModelError: by `mend`; the first dims of the inputs differ, or a node fixes the batch in another way.
    """

    name: ClassVar[str] = "free-batch"
    fault: ClassVar[bool] = False
    why: ClassVar[str] = (
        "The exporter fixed the batch of the inputs and of each Reshape; the network computes each sample by itself."
    )
    on_request: ClassVar[bool] = True

    @override
    def mend(self, model: ir.Model) -> Iterator[Finding]:
        inputs = [value for value in model.graph.inputs if value.name not in model.graph.initializers]
        dims = {str(value.name): dims_of(value) for value in inputs}
        batches = {input_dims[0] if input_dims else None for input_dims in dims.values()}
        if all(isinstance(batch, SymbolicDim) for batch in batches):
            return
        (batch,) = batches if len(batches) == 1 else (None,)
        if not isinstance(batch, int):
            shown = ", ".join(f"{name} {'?' if not input_dims else input_dims[0]}" for name, input_dims in dims.items())
            raise ModelError(
                f"the batch cannot be freed: the first dims of the inputs are {shown}; expected one number.\n{_DO}"
            )
        for value in inputs:
            value.shape = ir.Shape([_BATCH, *value.shape[1:]])  # type: ignore[index]
            yield self.finding(str(value.name), f"the input has the fixed batch {batch}", f"its batch is {_BATCH}")
        yield from self._free_reshapes(model, batch)
        _check_outputs(model.graph)

    def _free_reshapes(self, model: ir.Model, batch: int) -> Iterator[Finding]:
        """Free Reshapes one after the other: the batch after each is known only then."""
        visited: set[ir.Node] = set()
        forget_dims(model.graph)
        infer_dims(model)
        while (
            node := next(
                (candidate for candidate in model.graph if candidate not in visited and _fixes(candidate)), None
            )
        ) is not None:
            dims, target = dims_of(node.inputs[0]), held_constant(operand(node, 1))
            if not dims or not _is_batch(dims, target, batch):
                raise ModelError(
                    f"the batch cannot be freed: node {node_name(node)!r} (Reshape) gives dims {target.tolist()}, and the batch is not "
                    f"certainly the first of them.\n{_DO}",
                    node=node.name,
                )
            free = np.concatenate([[0], target[1:]]).astype(np.int64)
            name = f"{node.outputs[0].name}_shape"
            node.replace_input_with(1, add_constant(model.graph, name, free, names_in(model.graph)))
            visited.add(node)
            yield self.finding(node, f"dims {target.tolist()}", f"dims {free.tolist()}")
            forget_dims(model.graph)
            infer_dims(model)


def _fixes(node: ir.Node) -> bool:
    """Whether a Reshape's shape fixes the batch of its input."""
    dims, target = (
        (dims_of(operand(node, 0)), held_constant(operand(node, 1))) if is_op(node, "Reshape") else (None, None)
    )
    if target is None or not target.size or target[0] <= 0:
        return False
    return dims is None or any(not isinstance(dim, int) for dim in dims)


def _is_batch(dims: tuple[Any, ...], target: Any, batch: int) -> bool:
    """Whether the first target dim is the batch: it has its number, and the other dims have the elements of one sample."""
    sample_dims, others = dims[1:], [int(size) for size in target[1:]]
    if (
        target[0] != batch
        or dims[0] != SymbolicDim(_BATCH)
        or not all(isinstance(dim, int) for dim in sample_dims)
        or 0 in others
    ):
        return False
    sample_size, named = (
        int(np.prod(np.array(sample_dims, object))),
        int(np.prod(np.array([each for each in others if each > 0], object))),
    )
    return sample_size % named == 0 if -1 in others else sample_size == named


def _check_outputs(graph: ir.Graph) -> None:
    for value in graph.outputs:
        dims = dims_of(value)
        if not dims or dims[0] != SymbolicDim(_BATCH):
            raise ModelError(
                f"the batch cannot be freed: the first dim of the output {value.name!r} does not follow from that of the inputs; it is "
                f"{dims[0] if dims and dims[0] is not None else 'unknown'}.\n{_DO}",
                tensor=value.name,
            )
