"""A network that the search builds repeatedly: in float32, and with chosen precisions, whole or in parts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..engines.base.engine import Engine
from ..engines.base.types import BuildOptions
from ..engines.calibrate import network_digest
from ..engines.registry import available_class
from ..model.decompose import known_to_be_sound
from ..passes import CODES, Precisions, prepare, to_half
from ..passes.half import HALF_TYPES
from ..plugin.policy import check_forms, requested_forms, requested_forms_in
from ..utils.optional import onnx
from .submodels import Layer, find_layers, layer_alone, with_outputs

__all__ = ["Network", "Sample"]

Sample = Mapping[str, npt.NDArray[Any]]
_RUNS = 5


class Network:
    """A float model without Q/DQ, and the engine to build it for.

    With ``fast_build`` engines are built with the settings that make this fast, where ``settings`` says nothing else: many are
    built, and few of them run more than a few times. For latencies that are measured it is False.
    """

    def __init__(
        self,
        model: str | Path | onnx.ModelProto,
        engine: str = "auto",
        *,
        threads: int | None = None,
        device: str | None = None,
        settings: Mapping[str, Any] | None = None,
        plugins: Mapping[str, str] | None = None,
        fast_build: bool = True,
    ) -> None:
        self.engine = available_class(engine)
        self.model = prepare(model)
        self.layers = find_layers(self.model)
        self.digest = network_digest(self.model)
        self.outputs = tuple(info.name for info in self.model.graph.output)
        self.known = {info.name for info in self.model.graph.input} | {
            name for layer in self.layers for name in layer.outputs
        }
        self.settings = {**(self.engine.fast_build if fast_build else {}), **(settings or {})}
        self.plugins = requested_forms(plugins or {})
        check_forms(self.model, self.engine.name, self.engine.plugin_forms, self.plugins)
        self._options: dict[str, Any] = {"threads": threads, "device": device, "settings": self.settings}
        self._written: tuple[Precisions, onnx.ModelProto] | None = None

    def reference(self, outputs: Sequence[str] = ()) -> Engine:
        """The engine in float32; its outputs are the model's where none are named."""
        return self.build("fp32", with_outputs(self.model, outputs) if outputs else self.model)

    def candidate(self, precisions: Precisions, outputs: Sequence[str] = ()) -> Engine:
        """The engine with precisions; the tensors that it gives are float32."""
        return self.build(precisions.precision, self.written(precisions, outputs))

    def written(self, precisions: Precisions, outputs: Sequence[str] = ()) -> onnx.ModelProto:
        """The model with these precisions, as Cast nodes or Q/DQ: the engine's input."""
        base = self.quantized(precisions)
        return self._in_half(precisions, with_outputs(base, outputs) if outputs else base)

    def alone(self, precisions: Precisions, layer: Layer) -> onnx.ModelProto | None:
        """One layer of the network, in its precision, as a separate model."""
        part = layer_alone(self.quantized(precisions), layer, self.known)
        return None if part is None else self._in_half(precisions, part)

    def build(self, precision: str, model: onnx.ModelProto) -> Engine:
        """An engine of a model that is written already, out of the prepared one."""
        options = BuildOptions(precision, **self._options, plugins=requested_forms_in(model, self.plugins))
        with known_to_be_sound(model):
            return self.engine(model, options)

    def quantized(self, precisions: Precisions) -> onnx.ModelProto:
        """The model with Q/DQ for int8 and fp8; the float model for half precisions, which are written last."""
        if precisions.precision not in CODES:
            return self.model
        if self._written is None or self._written[0] != precisions:
            self._written = (
                precisions,
                precisions.apply(self.model, **self.engine.quantize_options(precisions.precision)),
            )
        return self._written[1]

    def latency_us(self, engine: Engine, sample: Sample) -> float:
        """Shortest time of a few runs, in microseconds."""
        times = []
        with engine.create_context() as context:
            for _ in range(_RUNS + 1):
                started = time.perf_counter()
                context.run(dict(sample))
                times.append(time.perf_counter() - started)
        return 1e6 * float(np.min(times[1:]))

    def _in_half(self, precisions: Precisions, model: onnx.ModelProto) -> onnx.ModelProto:
        if precisions.precision in CODES:
            return model
        narrow = [name for name, layer in precisions.layers.items() if layer.strategy == "half-weights"]
        dtype = HALF_TYPES[precisions.precision]
        return to_half(model, dtype, keep=precisions.pinned(), half_weights=narrow, refuse_overflow=False)
