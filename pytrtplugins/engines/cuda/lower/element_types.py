"""Element types of operands, compared with those that operators are defined for: kernels are generated for any type that is asked for."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ....errors import BuildError
from ....model.proto import node_name
from ....utils.optional import require

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["check_element_types"]


def check_element_types(model: ir.Model) -> None:
    """Require that inputs that have the type of the result have one that ONNX lists for the operator in any opset.

    Types of sizes, indices and conditions are left out: other libraries run these in more types than ONNX lists.

    Raises:
        BuildError: one has another.
    """
    opset = model.opset_imports.get("", 0)
    for node in model.graph.all_nodes():
        if node.domain not in ("", "ai.onnx"):
            continue
        places, types = _types_of_result(node.op_type, opset)
        for place in places:
            value = node.inputs[place] if place < len(node.inputs) else None
            if value is None or value.dtype is None or _onnx_name(value.dtype) in types:
                continue
            raise BuildError(
                f"engine 'cuda' cannot compute node {node_name(node)!r} ({node.op_type}): its input {value.name!r} is "
                f"{value.dtype.numpy().name}, which {node.op_type} is not defined for.\nDo: put a Cast before and behind the node",
                engine="cuda",
                op=node.op_type,
                node=node_name(node),
                tensor=value.name,
            )


def _onnx_name(dtype: ir.DataType) -> str:
    """A type as schemas write it."""
    return f"tensor({dtype.name.lower()})"


@functools.lru_cache(4096)
def _types_of_result(op_type: str, opset: int) -> tuple[tuple[int, ...], frozenset[str]]:
    """The inputs that have the type of an operator's first result, and the types that it may have."""
    defs = require("onnx.defs", extra="onnx")
    if not defs.has(op_type, opset, ""):
        return (), frozenset()
    own = defs.get_schema(op_type, opset, "")
    if not own.outputs or "(" in own.outputs[0].type_str or not own.outputs[0].is_homogeneous:
        return (), frozenset()
    variable = own.outputs[0].type_str
    places = tuple(index for index, item in enumerate(own.inputs) if item.type_str == variable)
    versions = (version for version in range(1, defs.onnx_opset_version() + 1) if defs.has(op_type, version, ""))
    schemas = (defs.get_schema(op_type, version, "") for version in versions)
    constraints = [item for schema in schemas for item in schema.type_constraints if item.type_param_str == variable]
    return places, frozenset(name for item in constraints for name in item.allowed_type_strs)
