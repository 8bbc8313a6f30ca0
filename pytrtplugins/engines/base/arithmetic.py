"""The precision in which an engine computes, layer by layer, which may differ from the requested one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...model.operator_traits import Trait, operators
from ...model.proto import node_name
from ...passes import CODES
from ...passes.quantize import FLOAT_LAYERS
from ...utils.listing import first_names
from ...utils.optional import onnx
from ...validation.dataflow import walk

__all__ = ["Arithmetic", "arithmetic_of", "float_reasons", "layer_types"]

_LAYERS = operators(Trait.WEIGHTED)
_OF_CODES = operators(Trait.INTEGER) | {"QGemm", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"}
"""Operators of ONNX and of onnxruntime that are defined as sums of codes."""
_NAMES = {
    1: "",
    10: "fp16",
    16: "bf16",
    17: "fp8",
    18: "fp8",
    19: "fp8",
    20: "fp8",
    2: "int8",
    3: "int8",
    21: "int4",
    22: "int4",
}
"""Numbers of onnx.TensorProto.DataType → precision; empty for float32."""
_SHOWN = 3  # layers in a line of text


@dataclass(frozen=True)
class Arithmetic:
    """The precision in which the layers of an engine compute.

    Attributes:
        asked: The precision that the engine was built for.
        precision: The precision of the layers: ``asked``, if at least one layer computes in it, or tensors between them are its codes.
        layers: Precision of each convolution and matrix product by its name. INT8 and FP8 are the precisions of layers whose weights
            are such codes.
        reasons: Why a layer stays in float although INT8 or FP8 was asked for, by its name, where that is known.
        reason: Why ``precision`` is not ``asked``; empty where it is.
    """

    asked: str
    precision: str
    layers: Mapping[str, str] = field(default_factory=dict, repr=False)
    reasons: Mapping[str, str] = field(default_factory=dict, repr=False)
    reason: str = ""

    def __str__(self) -> str:
        """As text: ``fp32``, ``int8 in 80 of 84 layers, fp32 in 'a', 'b', 'c' and 1 more``, or ``int8, which computes in fp32 (...)``."""
        if self.precision != self.asked:
            return f"{self.asked}, which computes in {self.precision} ({self.reason})"
        others = [name for name, precision in self.layers.items() if precision != self.precision]
        if not others:
            return (
                f"{self.asked} in all {len(self.layers):,} layers"
                if self.asked in CODES and self.layers
                else self.asked
            )
        kinds = " and ".join(sorted({self.layers[name] for name in others}))
        share = f"{len(self.layers) - len(others):,} of {len(self.layers):,} layers"
        return f"{self.asked} in {share}, {kinds} in {first_names(others, _SHOWN)}"


def arithmetic_of(model: onnx.ModelProto, requested: str, fallback: str = "", rest: str = "fp32") -> Arithmetic:
    """Say in which precision an engine computes a model.

    Args:
        model: The model as built; its weights may have no values.
        requested: The precision that the engine was built for.
        fallback: Why the engine computes in ``rest`` where the model does not say otherwise; empty where it computes as asked.
        rest: Precision of what is neither INT8, FP8 nor half precision in the model.
    """
    types = layer_types(model)
    typed = any(types.values())
    plain = rest if typed or fallback or requested in CODES else requested
    layers = {name: kind or plain for name, kind in types.items()}
    counts = Counter(kind for kind in types.values() if kind)
    if requested in layers.values() or (requested in CODES and has_codes(model) and counts.keys().isdisjoint(CODES)):
        precision = requested
    else:
        precision = counts.most_common(1)[0][0] if counts else plain
    if precision == requested:
        fallback = ""
    elif not fallback:
        fallback = (
            f"the model was built without {requested.upper()} layers" if requested in CODES else "the model says so"
        )
    return Arithmetic(requested, precision, layers, float_reasons(model) if requested in CODES else {}, fallback)


def layer_types(model: onnx.ModelProto) -> dict[str, str]:
    """The precision of each convolution and matrix product by the model's types, by name; empty if these do not say."""
    types = {weight.name: _NAMES.get(weight.data_type, "") for weight in model.graph.initializer}
    layers = {}
    for node in walk(model.graph.node):
        if node.op_type == "DequantizeLinear":
            codes = next((types[name] for name in (node.input[2:3] or node.input[:1]) if name in types), "int8")
            types[node.output[0]] = codes or "int8"
        elif node.op_type == "Cast":
            to = next((attribute.i for attribute in node.attribute if attribute.name == "to"), 1)
            source = types.get(node.input[0], "")
            types[node.output[0]] = source if source in CODES else _NAMES.get(to) or "fp32"
        elif node.op_type in _LAYERS and node.domain == "":
            layers[node_name(node)] = types.get(node.input[1], "") if len(node.input) > 1 else ""
        elif node.op_type in _OF_CODES:
            layers[node_name(node)] = "int8"
    return layers


def has_codes(model: onnx.ModelProto) -> bool:
    """Whether a model dequantizes anything, be it weights or the tensors between layers."""
    return any(node.op_type == "DequantizeLinear" for node in walk(model.graph.node))


def float_reasons(model: onnx.ModelProto) -> dict[str, str]:
    """Layers that the quantize pass left in float → why, as it notes in the model's metadata."""
    texts = [entry.value for entry in model.metadata_props if entry.key == FLOAT_LAYERS]
    return {str(name): str(why) for name, why in json.loads(texts[-1]).items()} if texts else {}
