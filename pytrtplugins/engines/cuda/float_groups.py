"""Convolutions of groups that stay in float in an INT8 network.

No library has them in INT8, and where a group has few channels most of what an instruction of codes multiplies is zeros. So a network
that has such convolutions is built both ways, and timed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol, TypeVar

from ...model.ir import dims_of, is_op, remove_unused, to_ir, to_proto
from ...passes.quantize import FLOAT_LAYERS

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

__all__ = ["faster", "with_float_groups"]

_WHY = "a convolution of groups, with which the network is faster in float"


class Timed(Protocol):
    """What `faster` needs of an engine."""

    choices: dict[str, str]

    def network_us(self) -> float | None:
        """Microseconds of a run; None if it cannot be timed."""


Kind = TypeVar("Kind", bound=Timed)


def with_float_groups(quantized: onnx.ModelProto) -> onnx.ModelProto | None:
    """A copy in which convolutions of groups read floats; None if there are none.

    Args:
        quantized: With Q/DQ nodes. Depthwise convolutions stay in INT8: they have kernels of their own.
    """
    model = to_ir(quantized)
    found = [(node, pair) for node in model.graph if _has_groups(node) and (pair := _quantizes(node)) is not None]
    if not found:
        return None
    for node, quantize in found:
        node.replace_input_with(0, quantize.inputs[0])
    remove_unused(model)
    noted = json.loads(model.metadata_props.get(FLOAT_LAYERS, "{}"))
    model.metadata_props[FLOAT_LAYERS] = json.dumps(noted | {str(node.name): _WHY for node, _ in found})
    return to_proto(model)


def faster(int8: Kind, mixed: Kind) -> Kind:
    """The engine whose network takes less time; it says so in its choices.

    Args:
        int8: All in INT8.
        mixed: With convolutions of groups in float.
    """
    codes, floats = int8.network_us(), mixed.network_us()
    if codes is None or floats is None:
        return int8
    kept, how = (mixed, "float") if floats < codes else (int8, "INT8")
    kept.choices["convolutions of groups"] = (
        f"{how}: with them in INT8 the network takes {codes:.1f} µs, in float {floats:.1f}"
    )
    return kept


# -- inside ----------------------------------------------------------------------------------------------------------------


def _has_groups(node: ir.Node) -> bool:
    """Whether it is a convolution of groups, and not depthwise."""
    weights = dims_of(node.inputs[1]) if is_op(node, "Conv") else None
    return node.attributes.get_int("group", 1) > 1 and weights is not None and weights[1] > 1


def _quantizes(node: ir.Node) -> ir.Node | None:
    """What makes codes of its data, right before they are floats again."""
    for op_type in ("DequantizeLinear", "QuantizeLinear"):
        before = node.inputs[0].producer() if node.inputs[0] is not None else None
        if before is None or not is_op(before, op_type):
            return None
        node = before
    return node
