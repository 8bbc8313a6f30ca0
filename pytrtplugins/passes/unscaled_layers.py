"""Find layers that cannot be quantized because a calibration table lacks the scale of a tensor that they read or write."""

from __future__ import annotations

from collections.abc import Collection

from ..model.proto import node_name
from ..utils.optional import ir
from ._int8_demand import input_of
from ._quantize_plan import QuantizePlan, make_plan
from .codes import INT8, codes_of
from .int8_forms import Int8Forms
from .placement import Placement

__all__ = ["unscaled_layers"]


def unscaled_layers(
    model: ir.Model,
    scales: Collection[str],
    *,
    placement: Placement | None = None,
    precision: str = INT8.precision,
) -> dict[str, str]:
    """Find the layers that must stay in float for a table that lacks tensors.

    A layer that stays in float makes others unnecessary to quantize, so the plan is made again until every tensor that it
    needs has a scale.

    Args:
        model: A prepared float model. It is rewritten as `Quantize` rewrites it first, if the placement asks for that.
        scales: Names of the tensors that have a scale.
        placement: The engine's Q/DQ placement.
        precision: ``"int8"`` or ``"fp8"``.

    Returns:
        Name of each layer → name of the tensor that has no scale.
    """
    if placement is not None and placement.rewritten:
        Int8Forms()(model)
    layers: dict[str, str] = {}
    while True:
        plan = make_plan(model, None, exclude=tuple(layers), placement=placement, codes=codes_of(precision))
        missing = [name for name in plan.required if name not in scales]
        more = {layer: name for name in missing for layer in _layers_at(plan, name)}
        if not more.keys() - layers.keys():
            return layers
        layers = {**more, **layers}


def _layers_at(plan: QuantizePlan, tensor: str) -> list[str]:
    """Names of the quantized layers that read a tensor, also through nodes that copy; else of the layer that writes it."""
    layers = set(plan.layers)
    readers: dict[ir.Value, list[ir.Node]] = {}
    for node, indices in plan.code_readers.items():
        for index in indices:
            readers.setdefault(input_of(node, index), []).append(node)
    waiting = [value for value in dict.fromkeys((*readers, *plan.scales)) if value.name == tensor]
    producers = [value.producer() for value in waiting]
    seen, names = set(waiting), list[str]()
    while waiting:
        for node in readers.get(waiting.pop(), []):
            if node in layers:
                names.append(node_name(node))
                continue
            outputs = [value for value in node.outputs if value not in seen]
            seen.update(outputs)
            waiting += outputs
    return names or [node_name(node) for node in producers if node is not None and node in layers]
