"""Element types of operands: operators that ONNX defines for fractions alone do not compute with whole numbers."""

from __future__ import annotations

import functools

from ....errors import BuildError
from ....model.proto import node_name
from ....utils.optional import ir, onnx

__all__ = ["check_element_types"]


def check_element_types(model: ir.Model) -> None:
    """Require fractions where an input has the type of the result, and ONNX lists fractions alone for the operator in every opset.

    Their constants and attributes would be made whole numbers. Sums and means have none.

    Raises:
        BuildError: an input has whole numbers or truth values.
    """
    opset = model.opset_imports.get("", 0)
    for node in model.graph.all_nodes():
        if node.domain not in ("", "ai.onnx"):
            continue
        for place in _fractions(node.op_type, opset):
            value = node.inputs[place] if place < len(node.inputs) else None
            if value is None or value.dtype is None or value.dtype.numpy().kind not in "iub":
                continue
            raise BuildError(
                f"engine 'cuda' cannot compute node {node_name(node)!r} ({node.op_type}): its input {value.name!r} is "
                f"{value.dtype.numpy().name}, and {node.op_type} computes with fractions.\nDo: put a Cast before and behind the node",
                engine="cuda",
                op=node.op_type,
                node=node_name(node),
                tensor=value.name,
            )


@functools.lru_cache(4096)
def _fractions(op_type: str, opset: int) -> tuple[int, ...]:
    """The inputs that have the type of an operator's first result, where this is a fraction in every opset."""
    newest = onnx.defs.onnx_opset_version()
    if op_type in _SUMS or not onnx.defs.has(op_type, newest, ""):
        return ()
    own = onnx.defs.get_schema(
        op_type, opset if onnx.defs.has(op_type, opset, "") else newest, ""
    )  # the engine takes later ones, too
    if not own.outputs or "(" in own.outputs[0].type_str or not own.outputs[0].is_homogeneous:
        return ()
    variable = own.outputs[0].type_str
    versions = (version for version in range(1, newest + 1) if onnx.defs.has(op_type, version, ""))
    schemas = (onnx.defs.get_schema(op_type, version, "") for version in versions)
    constraints = [item for schema in schemas for item in schema.type_constraints if item.type_param_str == variable]
    types = {name for item in constraints for name in item.allowed_type_strs}
    if not types <= _FRACTIONS:
        return ()
    return tuple(index for index, item in enumerate(own.inputs) if item.type_str == variable)


_SUMS = ("Mean", "Sum")
_FRACTIONS = frozenset(("tensor(bfloat16)", "tensor(double)", "tensor(float)", "tensor(float16)"))
