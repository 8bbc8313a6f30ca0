"""Changes that the search can make to a layer, and their costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..calibration import CalibrationTable
from ..model.operator_traits import Trait, operators
from ..passes import CODES, LayerPrecision, Precisions
from ..utils.optional import onnx
from .submodels import Layer, sources

__all__ = ["Intervention", "interventions", "modelled_us"]

_GIGABYTES, _WEIGHTED = 200.0, operators(Trait.WEIGHTED)
_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1, "fp8": 1}


@dataclass(frozen=True)
class Intervention:
    """One change of precisions or scales to try.

    Attributes:
        name: What it is, in words.
        layers: Layers that change → how.
        scales: Tensors that get another scale.
    """

    name: str
    layers: Mapping[str, LayerPrecision]
    scales: Mapping[str, float]

    def apply(self, precisions: Precisions) -> Precisions:
        """The precisions with it."""
        return replace(
            precisions, layers={**precisions.layers, **self.layers}, scales={**precisions.scales, **self.scales}
        )

    def parts(self) -> tuple[Intervention, ...]:
        """Parts that can be reverted separately: each layer, or all scales."""
        if self.scales:
            return (self,)
        return tuple(replace(self, layers={name: choice}) for name, choice in self.layers.items())


def interventions(
    precisions: Precisions,
    layer: Layer,
    layers: list[Layer],
    model: onnx.ModelProto,
    tables: Mapping[str, CalibrationTable],
) -> list[Intervention]:
    """All changes of a layer that have not been tried, the cheapest first."""
    base, candidates = precisions.precision, []
    pinned = set(precisions.pinned())
    fresh = layer.name not in pinned
    if base in CODES and fresh:
        weighted = layer.node.op_type in _WEIGHTED
        current = precisions.layers.get(layer.name)
        if precisions.per_tensor and weighted and (current is None or current.strategy != "per-channel"):
            candidates.append(_one("scales per channel", layer, LayerPrecision(base, "per-channel")))
        read = [tensor for name in layer.inputs for tensor in sources(model, name)]
        for algorithm, table in tables.items():
            scales = {name: float(table[name]) for name in read if name in table and name in precisions.scales}
            if any(precisions.scales[name] != scale for name, scale in scales.items()):
                choice = current or LayerPrecision(base, "calibrator")
                candidates.append(Intervention(f"scales of {algorithm}", {layer.name: choice}, scales))
    if base not in CODES and fresh and layer.node.op_type in _WEIGHTED:
        candidates.append(_one("float32 sums, half weights", layer, LayerPrecision("fp32", "half-weights")))
    if fresh:
        candidates.append(_one("pin", layer, LayerPrecision("fp32", "pin")))
    parents = [member for member in layers if set(member.outputs) & set(layer.inputs) and member.name not in pinned]
    if parents:
        changed = {member.name: LayerPrecision("fp32", "pin", f"read by {layer.name}") for member in parents}
        if fresh:
            changed[layer.name] = LayerPrecision("fp32", "pin")
        candidates.append(Intervention("pin with parents" if fresh else "pin parents", changed, {}))
    return candidates


def modelled_us(precisions: Precisions, layers: list[Layer], model: onnx.ModelProto) -> float:
    """Microseconds of a run on a device that is bound by its memory: 200 GB/s for tensors and weights.

    It is the same on every machine, which a measured time is not; a device that is bound by arithmetic gives the same order.
    """
    pinned = set(precisions.pinned())
    sizes = {tensor.name: 4 * math.prod(tensor.dims) for tensor in model.graph.initializer}
    total = 0.0
    for layer in layers:
        width = _BYTES["fp32" if layer.name in pinned else precisions.precision] / _BYTES["fp32"]
        narrow = layer.name in pinned and precisions.layers[layer.name].strategy == "half-weights"
        weights = 0.5 if narrow else width
        total += layer.bytes * width + weights * sum(sizes.get(name, 0) for name in layer.node.input)
    return total / _GIGABYTES / 1e3


def _one(name: str, layer: Layer, choice: LayerPrecision) -> Intervention:
    return Intervention(name, {layer.name: choice}, {})
