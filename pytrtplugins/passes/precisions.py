"""The precision of each layer: a file, and the model made from it and a float model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ..calibration.table import CalibrationTable
from ..errors import CalibrationTableError, FormatError, UsageError
from ..model.ir import rewrite
from ..model.proto import node_name
from ..utils.atomic import write_atomic
from ..utils.listing import some_names
from ..utils.optional import onnx, require
from ..utils.text_formats import read_yaml, shorten
from .codes import CODES
from .half import HALF_TYPES, to_half
from .prepare import in_opset_of_precision
from .quantize import Quantize

__all__ = ["LayerPrecision", "Precisions", "layer_names"]

FORMAT = 1
_BASES = (*HALF_TYPES, *CODES)
_STRATEGIES = ("pin", "half-weights", "per-channel", "calibrator")


@dataclass(frozen=True)
class LayerPrecision:
    """The precision of one layer, and the reason.

    Attributes:
        precision: ``"fp32"``, or the network's own where only the strategy is another.
        strategy: ``"pin"``: in float32. ``"half-weights"``: in float32, its constants stored in half. ``"per-channel"``: codes
            with a scale for each output channel of its weights. ``"calibrator"``: codes with other scales of its inputs.
        reason: Why, in words.
        error_before: The layer's error without this; 1 is the tolerance.
        error_after: Its error with it.
        latency_us: What it costs in a run.
    """

    precision: str
    strategy: str = "pin"
    reason: str = ""
    error_before: float | None = None
    error_after: float | None = None
    latency_us: float | None = None


@dataclass(frozen=True)
class Precisions:
    """The precisions of a network, layer by layer: the contents of ``precision.yaml``.

    Attributes:
        precision: That of all layers that are not named: ``"fp16"``, ``"bf16"``, ``"int8"`` or ``"fp8"``.
        network: Digest of the prepared model; see `pytrtplugins.engines.calibrate.network_digest`.
        names: Names of all its layers.
        layers: Name of a layer → what is other about it.
        scales: For int8 and fp8: tensor → scale of int8.
        algorithm: What chose most of the scales.
        per_tensor: Likewise: whether the weights of a layer share one scale.
        facts: What else the search noted: tolerance, engine, seed, errors, latencies.
    """

    precision: str
    network: str
    names: tuple[str, ...]
    layers: Mapping[str, LayerPrecision] = field(default_factory=dict)
    scales: Mapping[str, float] = field(default_factory=dict)
    algorithm: str = "EntropyCalibration2"
    per_tensor: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.precision not in _BASES:
            raise UsageError(f"precision: expected {', '.join(_BASES)}, found {shorten(self.precision)}")
        known_names = set(self.names)
        unknown = [name for name in self.layers if name not in known_names]
        if unknown:
            raise UsageError(f"precisions: the network has no layer {shorten(unknown[0])}", name=unknown[0])
        for name, layer in self.layers.items():
            if layer.strategy not in _STRATEGIES or layer.precision not in ("fp32", self.precision):
                raise UsageError(
                    f"precisions: layer {shorten(name)}: expected precision fp32 or {self.precision}, and a strategy of "
                    f"{', '.join(_STRATEGIES)}; found {shorten(layer.precision)} and {shorten(layer.strategy)}",
                    name=name,
                )

    def pinned(self) -> tuple[str, ...]:
        """Names of the layers that compute in float32."""
        return tuple(name for name, layer in self.layers.items() if layer.precision == "fp32")

    def apply(self, model: onnx.ModelProto, **options: Any) -> onnx.ModelProto:
        """Write a prepared float model with these precisions: Cast nodes, or Q/DQ nodes.

        Args:
            model: It is not changed.
            options: Further options of `quantize` that an engine needs.

        Raises:
            PrecisionError: a weight of a layer in float16 is beyond it.
            CalibrationTableError: scales are missing.
        """
        if self.precision not in CODES:
            narrow = [name for name, layer in self.layers.items() if layer.strategy == "half-weights"]
            return to_half(model, HALF_TYPES[self.precision], keep=self.pinned(), half_weights=narrow)
        others = [name for name, layer in self.layers.items() if layer.strategy == "per-channel"]
        shared = [name for name in self.names if name not in others] if self.per_tensor else []
        table = CalibrationTable(self.scales, self.algorithm)
        run = Quantize(table, exclude=self.pinned(), per_tensor=shared, precision=self.precision, **options)
        return rewrite(in_opset_of_precision(model, self.precision), run)

    def check_fits(self, model: onnx.ModelProto, digest: str, path: str | Path = "precisions") -> None:
        """Check that the file was made for this network.

        Args:
            model: A prepared model.
            digest: Its digest.
            path: Where the precisions came from, for the message.

        Raises:
            FormatError: with ``.only_in_file`` and ``.only_in_network``.
        """
        if digest == self.network:
            return
        layer_list = layer_names(model)
        only_in_file = tuple(name for name in self.names if name not in layer_list)
        only_in_network = tuple(name for name in layer_list if name not in self.names)
        names = (
            f"Only in the file: {some_names(only_in_file)}. Only in the network: {some_names(only_in_network)}."
            if only_in_file or only_in_network
            else f"All {len(layer_list):,} names of layers agree: the weights or attributes differ."
        )
        raise FormatError(
            f"{path} was made for another network (file: model {self.network[:8]}; this network: model {digest[:8]}).\n{names}\n"
            f"Do: pytrt precision search MODEL --precision {self.precision} -o {path}",
            path=path,
            only_in_file=only_in_file,
            only_in_network=only_in_network,
        )

    def write(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""
        yaml = require("yaml", extra="onnx", package="pyyaml", feature="precision files")
        values = {"format": FORMAT, **asdict(self)}
        values["layers"] = {
            name: {key: value for key, value in layer.items() if value is not None and value != ""}
            for name, layer in values["layers"].items()
        }
        values["names"] = list(self.names)
        text = yaml.safe_dump(_plain(values), sort_keys=False, allow_unicode=True, width=120)
        write_atomic(path, text.encode())

    @classmethod
    def read(cls, path: str | Path) -> Precisions:
        """Read a file.

        Raises:
            FormatError: it is damaged, or of another format version; ``.path`` says which.
            FileNotFoundError: there is no such file.
        """
        values = read_yaml(path, error=_unusable)
        try:
            if not isinstance(values, dict) or values.get("format") != FORMAT:
                actual_format = (
                    shorten(values.get("format")) if isinstance(values, dict) else repr(type(values).__name__)
                )
                raise UsageError(f"expected format {FORMAT}, found {actual_format}")
            return cls._from_values(values)
        except (UsageError, TypeError, ValueError, KeyError, OverflowError) as error:
            raise _unusable(f"{path}: not a usable precision file: {error}", path=path) from error

    @classmethod
    def _from_values(cls, values: dict[str, Any]) -> Precisions:
        field_names = {item.name for item in fields(cls)}
        unknown = [key for key in values if key not in field_names | {"format"}]
        if unknown:
            raise UsageError(f"unknown key {shorten(unknown[0])}")
        kinds = {"layers": dict, "scales": dict, "facts": dict, "names": list, "network": str, "precision": str,
                 "per_tensor": bool, "algorithm": str}  # fmt: skip
        for key, kind in kinds.items():
            if key in values and not isinstance(values[key], kind):
                raise UsageError(f"{key}: expected {kind.__name__}, found {shorten(values[key])}")
        arguments = {key: value for key, value in values.items() if key != "format"}
        missing = [key for key in ("precision", "network", "names") if key not in values]
        if missing:
            raise UsageError(f"the key {missing[0]!r} is missing")
        for name in arguments["names"]:
            if isinstance(name, (dict, list)):
                raise UsageError(f"names: expected a text, found {shorten(name)}")
        for name, scale in arguments.get("scales", {}).items():
            if not isinstance(scale, (int, float)):
                raise UsageError(f"scales: {shorten(name)}: expected a number, found {shorten(scale)}")
        arguments["names"] = tuple(str(name) for name in arguments["names"])
        arguments["layers"] = {str(name): _layer(name, layer) for name, layer in arguments.get("layers", {}).items()}
        arguments["scales"] = {str(name): float(scale) for name, scale in arguments.get("scales", {}).items()}
        try:
            CalibrationTable(arguments["scales"])
        except CalibrationTableError as error:
            raise UsageError(str(error)) from error
        return cls(**arguments)


def _unusable(problem: str, *, path: str | Path, **facts: object) -> FormatError:
    return FormatError(
        f"{problem}.\nDo: pytrt precision search MODEL --precision fp16 -o {path}", path=Path(path), **facts
    )


def _layer(name: object, values: object) -> LayerPrecision:
    """A layer's entry in a file."""
    types = {
        item.name: str if item.name in ("precision", "strategy", "reason") else float for item in fields(LayerPrecision)
    }
    if not isinstance(values, dict) or "precision" not in values:
        raise UsageError(f"layer {shorten(name)}: expected its precision and strategy, found {shorten(values)}")
    for key, value in values.items():
        if key not in types:
            raise UsageError(f"layer {shorten(name)}: unknown key {shorten(key)}")
        if types[key] is str and not isinstance(value, str):
            raise UsageError(f"layer {shorten(name)}: {key}: expected a text, found {shorten(value)}")
        if types[key] is float and not isinstance(value, (int, float, type(None))):
            raise UsageError(f"layer {shorten(name)}: {key}: expected a number, found {shorten(value)}")
    return LayerPrecision(**values)


def layer_names(model: onnx.ModelProto) -> tuple[str, ...]:
    """Names of the layers of a model in their order, constants left out."""
    return tuple(node_name(node) for node in model.graph.node if node.op_type != "Constant")


def _plain(value: Any) -> Any:
    """Values for YAML's safe dumper; numbers are rounded to significant digits, scales to float32's."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, (int, str)):
        return value
    number = float(value)
    return number if not math.isfinite(number) else float(f"{number:.9g}")  # 9 digits hold a float32
