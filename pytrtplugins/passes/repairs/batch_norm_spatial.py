"""Remove spatial=0 of BatchNormalization, which MXNet's exporter wrote up to MXNet 1.5."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ...model.ir import dims_of, is_op
from ...utils.optional import ir
from ...utils.override import override
from ._base import Finding, Repair

__all__ = ["BatchNormSpatial"]


class BatchNormSpatial(Repair):
    """Remove ``spatial=0`` if the statistics have one number per channel, which is what spatial=1, the default, means.

    Behind a dense layer both mean the same, and it is no fault.

    What stays: statistics for each place, with dims (C, H, W), for which spatial=0 is right.
    """

    name: ClassVar[str] = "batchnorm-spatial"
    fault: ClassVar[bool] = True
    why: ClassVar[str] = (
        "spatial=0 demands statistics for each place, (C, H, W); MXNet has them for each channel. onnxruntime refuses this when it runs, "
        "and behind a dense layer it cannot be converted to opset 9."
    )

    @override
    def mend(self, model: ir.Model) -> Iterator[Finding]:
        for node in model.graph:
            if not is_op(node, "BatchNormalization") or node.attributes.get_int("spatial", 1) != 0:
                continue
            dims = [dims_of(value) for value in node.inputs[1:5]]
            if all(operand_dims is not None and len(operand_dims) == 1 for operand_dims in dims):
                del node.attributes["spatial"]
                x = dims_of(node.inputs[0])
                what = f"spatial=0 with {dims[0][0]} numbers, one for each channel"  # type: ignore[index]
                yield self.finding(node, what, "spatial=1", fault=x is None or len(x) > 2)
