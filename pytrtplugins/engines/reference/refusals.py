"""Operators that ``onnx.reference`` computes wrongly or inconsistently, and that are refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model.operator_traits import RECURRENT, Trait, operators
from ...utils.optional import onnx, require
from .spec import refusal

__all__ = ["check_delegable"]

_RANDOM = "its result is random, so it cannot be an oracle"
_TEXT = "text is not computed here"
_REFUSED = {  # operator → why
    **dict.fromkeys(operators(Trait.RANDOM), _RANDOM),
    **dict.fromkeys(("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit"), _TEXT),
    "ImageDecoder": "files inside tensors are not decoded here",
    "SequenceMap": "a graph that runs over a sequence is not computed here",
}
_VALUES: dict[str, dict[str, tuple[Any, ...]]] = {  # attributes that onnx.reference ignores → values without effect
    "GRU": {"activations": (), "activation_alpha": (), "activation_beta": (), "clip": ()},
    "LSTM": {"activations": (), "activation_alpha": (), "activation_beta": (), "clip": (), "input_forget": (0,)},
    "RNN": {"clip": ()},
    "TreeEnsemble": {"post_transform": (0,)},
}
_INPUTS = dict.fromkeys(RECURRENT, (4,))  # inputs that onnx.reference ignores: sequence_lens
_UNVERSIONED = {  # (operator, version): onnx.reference has one implementation, and what came later changes nothing there
    ("CastLike", 19), ("CastLike", 21), ("CastLike", 23), ("GRU", 7), ("GatherND", 11), ("LSTM", 7), ("OptionalHasElement", 15),
    ("Range", 11), ("SpaceToDepth", 13),
}  # fmt: skip
_CHANGED = {("PRelu", 6)}  # the same signature as later, another meaning: its slopes lie along the channels


def check_delegable(
    node: onnx.NodeProto, schema: onnx.defs.OpSchema, attributes: Mapping[str, Any], where: str
) -> None:
    """Require that ``onnx.reference`` computes a node as ONNX defines it."""
    reason = _REFUSED.get(node.op_type, "") if schema.domain in ("", "ai.onnx.ml") else ""
    for name, known in _VALUES.get(node.op_type, {}).items():
        value = attributes.get(name)
        if value is None or value in known or _is_default(node.op_type, name, value):
            continue
        reason = f"onnx.reference does not read {name}={value!r}"
    if any(index < len(node.input) and node.input[index] for index in _INPUTS.get(node.op_type, ())):
        reason = "onnx.reference does not read sequence_lens"
    if node.op_type == "Dropout":
        reason = "with training_mode it is random"
    gives_products = node.op_type == "Attention" and len(node.output) > 3 and bool(node.output[3])
    if gives_products and attributes.get("softcap") and not attributes.get("qk_matmul_output_mode"):
        reason = "onnx.reference gives products that softcap has limited"
    do = 'engine="onnxruntime" or engine="cpu"'
    if not reason and not _versioned(schema):
        version = f"another meaning than version {schema.since_version}"
        reason = f"onnx.reference computes a later version of it, with {version}"
        do = "onnx.version_converter.convert_version(model, 18)"
    if reason:
        raise refusal(node, f"{where}: {node.op_type} is not computed here: {reason}.\nDo: {do}")


def _is_default(op_type: str, name: str, value: Any) -> bool:
    """Whether it says what is computed anyway: the usual activations, once for each direction."""
    usual = RECURRENT[op_type].activations if op_type in RECURRENT else ()
    return name == "activations" and bool(usual) and tuple(value) in (usual, usual * 2)


def _versioned(schema: onnx.defs.OpSchema) -> bool:
    """Whether ``onnx.reference`` has this version of the operator, or none was ever different.

    It keeps a class for each version of some operators, and one class of the others. What has no class is computed by ONNX's own
    function for it, which has the version's meaning.
    """
    if schema.domain != "" or (schema.name, schema.since_version) in _UNVERSIONED:
        return True
    newest = onnx.defs.get_schema(schema.name, onnx.defs.onnx_opset_version(), "")
    if (schema.name, schema.since_version) in _CHANGED:
        return False
    if _signature(schema) == _signature(newest):
        return True
    implementation = _implementation(schema)
    return implementation is None or implementation != _implementation(newest)


def _implementation(schema: onnx.defs.OpSchema) -> str | None:
    """Name of the class that computes it; None: its function does, or nothing does."""
    load = require("onnx.reference.ops", extra="onnx").load_op
    try:
        found = load("", schema.name, schema.since_version)
    except Exception:  # of several kinds; building the node tells which
        return None
    return str(found.__name__) if isinstance(found, type) else None


def _signature(schema: onnx.defs.OpSchema) -> Any:
    attributes = {name: item.default_value.SerializeToString() for name, item in schema.attributes.items()}
    return [item.name for item in schema.inputs], attributes, len(schema.outputs)
