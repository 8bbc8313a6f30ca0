"""Remove nodes without effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ...utils.optional import ir
from ...utils.override import override
from ..eliminate import Eliminate
from ._base import Finding, Repair

__all__ = ["Leftovers"]


class Leftovers(Repair):
    """Remove what pass `eliminate` removes: Identity, Dropout at inference, and nodes that lead to no output."""

    name: ClassVar[str] = "leftovers"
    fault: ClassVar[bool] = False
    why: ClassVar[str] = "Exporters write copies, and layers of the training that do nothing at inference."

    @override
    def mend(self, model: ir.Model) -> Iterator[Finding]:
        before = [(node, node.op_type) for node in model.graph]
        Eliminate()(model)
        remaining = set(model.graph)
        for node, op in before:
            if node not in remaining:
                idle = op in ("Identity", "Dropout")
                yield self.finding(
                    node, f"{op}, {'which changes nothing' if idle else 'which leads to no output'}", "it goes"
                )
