"""Measure the error that each layer adds, and the error that it inherits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..calibration import Histogram
from ..passes import CODES, Precisions
from ..utils.files import sha256_hex
from .network import Network, Sample
from .submodels import Layer, in_groups, sources
from .tolerance import Tolerance

__all__ = ["LayerError", "Measurer", "inf_to_text"]

_BINS = 64
_LEVELS = 127
_HALF_RANGE = {"fp16": 65504.0, "bf16": 3.3895313892515355e38}


@dataclass(frozen=True)
class LayerError:
    """Errors of one layer, in units of the tolerance.

    Attributes:
        own: The layer's error when it runs alone on float32's inputs.
        total: The layer's error in the network: its own and the inherited one.
        amax: Largest |x| of its outputs in float32.
        clipped: Share of the values that the precision cannot represent, being too large.
        histogram: Counts of |x| in 64 bins of equal width from 0 to ``histogram_range``.
        histogram_range: Upper end of the last bin.
        limit: Largest |x| that the precision represents there.
    """

    name: str
    op_type: str
    own: float
    total: float
    amax: float
    clipped: float
    histogram: tuple[int, ...] = field(repr=False)
    histogram_range: float
    limit: float

    def to_dict(self) -> dict[str, Any]:
        """Values for JSON."""
        values = {key: inf_to_text(value) for key, value in vars(self).items()}
        return {**values, "histogram": list(self.histogram)}


def inf_to_text(value: Any) -> Any:
    """A number as JSON has it: infinity and NaN as text."""
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value


class Measurer:
    """Measures the layers of a network on the same samples, with bounded memory.

    Tensors of so many bytes are held at a time; the network runs again for the next ones.
    """

    def __init__(self, network: Network, samples: Sequence[Sample], tolerance: Tolerance, limit_bytes: int) -> None:
        self.network, self.samples, self.tolerance, self.limit_bytes = network, samples, tolerance, limit_bytes
        self._own: dict[str, float] = {}
        self._exact: list[dict[str, Any]] = [{} for _ in samples]

    def layers(self, precisions: Precisions) -> list[LayerError]:
        """Errors of every layer: the network runs whole in both precisions, and each layer alone."""
        groups = in_groups(self.network.layers, self.limit_bytes)
        return [error for group in groups for error in self._group(precisions, group)]

    def tensors(self, precisions: Precisions, names: Sequence[str]) -> dict[str, float]:
        """Errors of tensors in the network."""
        errors = dict.fromkeys(names, 0.0)
        exact = self._expected(names)
        with self.network.candidate(precisions, names).create_context() as candidate:
            for sample, expected in zip(self.samples, exact, strict=True):
                actual = candidate.run(dict(sample))
                for name in names:
                    errors[name] = max(errors[name], self.tolerance.error(actual[name], expected[name]))
        return errors

    def _expected(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Tensors of the float32 model, sample by sample; recent ones are cached, within the memory limit."""
        new = [name for name in names if name not in self._exact[0]]
        if sum(array.nbytes for tensors in self._exact for array in tensors.values()) > self.limit_bytes:
            self._exact, new = [{} for _ in self.samples], list(names)
        if new:
            with self.network.reference(new).create_context() as reference:
                for sample, tensors in zip(self.samples, self._exact, strict=True):
                    tensors.update(reference.run(dict(sample)))
        return self._exact

    def _group(self, precisions: Precisions, group: list[Layer]) -> list[LayerError]:
        """Measure a group of layers in one run per sample."""
        inputs = {info.name for info in self.network.model.graph.input}
        taps = list(dict.fromkeys(name for layer in group for name in layer.outputs))
        alone: dict[str, Any] = {layer.name: self.network.alone(precisions, layer) for layer in group}
        parts = {name: part.SerializeToString() for name, part in alone.items() if part is not None}
        keys = {name: sha256_hex(part) for name, part in parts.items()}
        new = [layer for layer in group if layer.name in keys and keys[layer.name] not in self._own]
        reads = {layer.name: [info.name for info in alone[layer.name].graph.input] for layer in new}
        tensor_names = list(dict.fromkeys([*taps, *(name for names in reads.values() for name in names)]))
        totals, own_errors = dict.fromkeys(taps, 0.0), dict.fromkeys((layer.name for layer in new), 0.0)
        histograms = {layer.name: Histogram() for layer in group}
        with ExitStack() as stack:
            tapped = [name for name in tensor_names if name not in inputs]
            reference = stack.enter_context(self.network.reference(tapped).create_context())
            candidate = stack.enter_context(self.network.candidate(precisions, taps).create_context())
            engines = {layer.name: self.network.build(precisions.precision, alone[layer.name]) for layer in new}
            contexts = {name: stack.enter_context(engine.create_context()) for name, engine in engines.items()}
            for sample in self.samples:
                expected = {**sample, **reference.run(dict(sample))}
                actual = candidate.run(dict(sample))
                for name in taps:
                    totals[name] = max(totals[name], self.tolerance.error(actual[name], expected[name]))
                for layer in new:
                    layer_inputs = {
                        desc.name: np.asarray(expected[desc.name], desc.dtype.numpy)
                        for desc in engines[layer.name].inputs
                    }
                    result = contexts[layer.name].run(layer_inputs)
                    worst = max(self.tolerance.error(result[name], expected[name]) for name in layer.outputs)
                    own_errors[layer.name] = max(own_errors[layer.name], worst)
                for layer in group:
                    values = expected[layer.outputs[0]]
                    histograms[layer.name].add(values[np.isfinite(values)])
        for layer in new:
            self._own[keys[layer.name]] = own_errors[layer.name]
        return [
            self._error(precisions, layer, self._own.get(keys.get(layer.name, ""), 0.0), totals, histograms[layer.name])
            for layer in group
        ]

    def _error(
        self, precisions: Precisions, layer: Layer, own_error: float, totals: Mapping[str, float], histogram: Histogram
    ) -> LayerError:
        limit = self._limit(precisions, layer)
        edges = histogram.width * np.arange(len(histogram.counts))
        beyond = int(histogram.counts[edges >= limit].sum()) if histogram.maximum > limit > 0 else 0
        return LayerError(
            layer.name,
            layer.node.op_type,
            own_error,
            max(totals[name] for name in layer.outputs),
            histogram.maximum,
            beyond / max(histogram.count, 1),
            tuple(histogram.counts.reshape(_BINS, -1).sum(axis=1).tolist()),
            histogram.range,
            limit,
        )

    def _limit(self, precisions: Precisions, layer: Layer) -> float:
        """Largest |x| of the layer's output that the precision represents; 0: it stays in float32."""
        if layer.name in precisions.pinned():
            return 0.0
        if precisions.precision not in CODES:
            return _HALF_RANGE[precisions.precision]
        names = sources(self.network.model, layer.outputs[0])
        return _LEVELS * max((precisions.scales.get(name, 0.0) for name in names), default=0.0)
