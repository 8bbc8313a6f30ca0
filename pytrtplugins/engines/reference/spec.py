"""What ONNX says of a node: its operator's version. What it does not say is refused.

Names, types and words of attributes, and numbers of inputs and outputs, are checked before: by `pytrtplugins.validation`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from ...errors import BuildError
from ...utils.optional import onnx
from ...validation.operators import standard_domain
from ...validation.words import allowed_values

__all__ = ["check_opsets", "checked_schema", "refusal"]

_ELSEWHERE = 'Do: engine="cpu" or engine="onnxruntime"'


def check_opsets(opsets: Mapping[str, int]) -> None:
    """Require opsets that the installed onnx knows."""
    newest = onnx.defs.onnx_opset_version()
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
        BuildError: there is no such operator, or an attribute is empty that is to be a word.
    """
    domain = standard_domain(node.domain)
    try:
        schema: onnx.defs.OpSchema = onnx.defs.get_schema(node.op_type, opsets.get(domain, 1), domain)
    except onnx.defs.SchemaError as error:
        raise _unknown(node, opsets, where, onnx.defs) from error
    if schema.deprecated:
        raise _unknown(node, opsets, where, onnx.defs)
    for name, value in attributes.items():
        if isinstance(value, str) and not value and allowed_values(node.op_type, domain, name):
            raise refusal(node, f"{where}: {node.op_type} with {name}='' is not known to ONNX")
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
