"""Switch Dropout and BatchNormalization from training to inference mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ...model.ir import is_op, operand
from ...utils.optional import ir
from ...utils.override import override
from ._base import Finding, Repair, held_constant

__all__ = ["TrainingMode"]


class TrainingMode(Repair):
    """Switch nodes to inference mode, if nothing reads the outputs that only training needs.

    1. Dropout that is told to train by a constant, whose mask nobody reads.
    2. BatchNormalization with ``training_mode=1``, whose new statistics nobody reads: it takes those that are stored.

    What stays: nodes whose mask or statistics are read, or are outputs of the model: it is meant to train.
    """

    name: ClassVar[str] = "training-mode"
    fault: ClassVar[bool] = True
    why: ClassVar[str] = "In training mode a result depends on chance, or on the other samples of the batch."

    @override
    def mend(self, model: ir.Model) -> Iterator[Finding]:
        for node in model.graph:
            if any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
                continue
            if is_op(node, "Dropout"):
                mode = held_constant(operand(node, 2))
                if mode is not None and mode.any():
                    node.resize_inputs(2)
                    node.resize_outputs(1)
                    yield self.finding(node, "Dropout in training mode: it drops at random", "it drops nothing")
            elif is_op(node, "BatchNormalization") and node.attributes.get_int("training_mode", 0) != 0:
                del node.attributes["training_mode"]
                node.resize_outputs(1)
                yield self.finding(node, "BatchNormalization in training mode", "it takes the stored statistics")
