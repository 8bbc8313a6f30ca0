"""What ONNX says of a node: its operator's version, and the words that attributes may be. What it does not say is refused.

Names and types of attributes, and numbers of inputs and outputs, are checked before: by `pytrtplugins.validation`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...errors import BuildError
from ...utils.optional import require
from ...validation.operators import standard_domain

if TYPE_CHECKING:
    import onnx

__all__ = ["check_opsets", "checked_schema", "refusal"]

_ELSEWHERE = 'Do: engine="cpu" or engine="onnxruntime"'
_PADDING = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
_SCATTER = ("none", "add", "mul", "min", "max")
_LOSS = ("none", "mean", "sum")
_DIRECTION = ("forward", "reverse", "bidirectional")
_WORDS = {  # (operator, attribute) → the words that ONNX knows
    **{
        (op, "auto_pad"): _PADDING
        for op in ("AveragePool", "Conv", "ConvInteger", "ConvTranspose", "LpPool", "MaxPool", "QLinearConv")
    },
    **{(op, "direction"): _DIRECTION for op in ("GRU", "LSTM", "RNN")},
    **{(op, "reduction"): _SCATTER for op in ("ScatterElements", "ScatterND")},
    **{(op, "reduction"): _LOSS for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")},
    ("BitShift", "direction"): ("LEFT", "RIGHT"),
    ("DepthToSpace", "mode"): ("DCR", "CRD"),
    ("Gelu", "approximate"): ("none", "tanh"),
    ("GridSample", "mode"): ("linear", "nearest", "cubic", "bilinear", "bicubic"),
    ("GridSample", "padding_mode"): ("zeros", "border", "reflection"),
    ("Pad", "mode"): ("constant", "reflect", "edge", "wrap"),
    ("Resize", "coordinate_transformation_mode"): (
        "half_pixel",
        "half_pixel_symmetric",
        "pytorch_half_pixel",
        "align_corners",
        "asymmetric",
        "tf_crop_and_resize",
        "tf_half_pixel_for_nn",
    ),
    ("Resize", "keep_aspect_ratio_policy"): ("stretch", "not_larger", "not_smaller"),
    ("Resize", "mode"): ("nearest", "linear", "cubic"),
    ("Resize", "nearest_mode"): ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    ("RoiAlign", "coordinate_transformation_mode"): ("half_pixel", "output_half_pixel"),
    ("RoiAlign", "mode"): ("avg", "max"),
    ("SpaceToDepth", "mode"): ("DCR", "CRD"),
    ("TensorScatter", "mode"): ("linear", "circular"),
}


def check_opsets(opsets: Mapping[str, int]) -> None:
    """Require opsets that the installed onnx knows.

    Raises:
        BuildError: one of ONNX's domains has a newer version.
    """
    newest = require("onnx.defs", extra="onnx", feature="engine 'reference'").onnx_opset_version()
    if opsets.get("", 1) > newest:
        raise BuildError(
            f"engine 'reference': the model has opset {opsets['']}, the installed onnx knows {newest}.\n"
            "Do: pip install --upgrade onnx",
            expected=newest,
            found=opsets[""],
        )


def refusal(node: onnx.NodeProto, text: str) -> BuildError:
    """The error of a node that is not computed here."""
    return BuildError(text, node=node.name, op_type=node.op_type)


def checked_schema(
    node: onnx.NodeProto, opsets: Mapping[str, int], attributes: Mapping[str, Any], where: str
) -> onnx.defs.OpSchema:
    """The schema of a node's operator in the model's opset.

    Raises:
        BuildError: there is no such operator, or an attribute is a word that ONNX does not know.
    """
    defs = require("onnx.defs", extra="onnx", feature="engine 'reference'")
    domain = standard_domain(node.domain)
    try:
        schema: onnx.defs.OpSchema = defs.get_schema(node.op_type, opsets.get(domain, 1), domain)
    except defs.SchemaError as error:
        raise _unknown(node, opsets, where, defs) from error
    if schema.deprecated:
        raise _unknown(node, opsets, where, defs)
    for name, value in attributes.items():
        words = _WORDS.get((node.op_type, name), ()) if domain == "" else ()
        if words and value not in words:
            raise refusal(
                node, f"{where}: {node.op_type} with {name}={value!r} is not known to ONNX; it knows {', '.join(words)}"
            )
    return schema


def _unknown(node: onnx.NodeProto, opsets: Mapping[str, int], where: str, defs: Any) -> BuildError:
    domain = standard_domain(node.domain)
    known = {schema.name for schema in defs.get_all_schemas() if schema.domain == ""}
    near = difflib.get_close_matches(node.op_type, known, n=3)
    version = f" in opset {opsets.get(domain, 1)}" if node.op_type in known and domain == "" else ""
    return refusal(
        node,
        f"{where}: operator {node.domain + '::' if node.domain else ''}{node.op_type} is not known{version}"
        + (f"; near: {', '.join(near)}" if near and not version else "")
        + f".\n{_ELSEWHERE}, or write it as a plugin: @plugin(namespace=...)",
    )
