"""Compare the dims and types that a file declares for its tensors with the inferred ones."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from typing import Any

from ..errors import ModelError
from ..plugin.onnx_node import is_plugin_node
from ..tensor import Dims
from ..utils.optional import onnx
from ..utils.repeated import keep_items
from ..validation.inference import infer_unchanged
from ..validation.operators import standard_domain, standard_opset
from .decompose import add_shapes, inferred_infos
from .proto import copy_of, has_shape, info_dims, infos_of, numpy_type, weight_info, without_data

__all__ = ["check_declared", "infer_without_declared", "take_output_dims", "with_inferred_types"]

_log = logging.getLogger(__name__)


def check_declared(model: onnx.ModelProto) -> onnx.ModelProto:
    """Require that declared dims of outputs and intermediate tensors agree with those that ONNX's rules and plugins infer.

    Dims that onnx's own inference gets wrong may stand in a file, since tools write what it finds: they count as not declared.
    A declared element type does not count where one is inferred: a node gives what it gives, and onnxruntime runs some of these files.

    Args:
        model: The model; it is not changed.

    Returns:
        The model, or a copy in which element types are those that are inferred.
    """
    declared_infos = _declared_infos(model)
    if not declared_infos:
        return model
    light, inferred = _infer_without_claims(model)
    both = [name for name in declared_infos if has_shape(declared_infos, name) and has_shape(inferred, name)]
    pairs = {name: (info_dims(declared_infos[name]), info_dims(inferred[name])) for name in both}
    differing = {name: dims for name, dims in pairs.items() if not _dims_agree(*dims)}
    by_onnx = infos_of(infer_unchanged(light).graph) if differing else {}
    for name, (declared_dims, inferred_dims) in differing.items():
        if not (has_shape(by_onnx, name) and _dims_agree(declared_dims, info_dims(by_onnx[name]))):
            raise _dims_error(name, declared_dims, inferred_dims)
    return _with_types(model, inferred)


def with_inferred_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with wrong declared element types replaced by inferred ones; the same object if none is wrong."""
    return _with_types(model, _infer_without_claims(model)[1]) if _declared_infos(model) else model


def _declared_infos(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """Return the declarations of a model's outputs and intermediate tensors, by name."""
    infos = (*model.graph.value_info, *model.graph.output)
    return {info.name: info for info in infos if info.type.WhichOneof("value") == "tensor_type"}


def _infer_without_claims(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, onnx.ValueInfoProto]]:
    """Return a copy without large weights and without declarations that can be inferred, and what is inferred from it."""
    light = without_data(model)
    unruled = _outputs_without_rules(light)
    keep_items(light.graph.value_info, lambda info: info.name in unruled)
    take_output_dims(light)
    known_infos = {info.name: info for info in light.graph.input} | {
        tensor.name: weight_info(tensor) for tensor in light.graph.initializer
    }
    for info in light.graph.output:
        if info.name in known_infos:
            info.type.CopyFrom(known_infos[info.name].type)
        elif info.name not in unruled and _is_typed(info):
            info.ClearField("type")
    return light, inferred_infos(light)


def _with_types(model: onnx.ModelProto, inferred: Mapping[str, onnx.ValueInfoProto]) -> onnx.ModelProto:
    """Return the model with wrong declared element types replaced by those of ``inferred``; the same object if none is wrong."""

    def has_wrong_type(info: onnx.ValueInfoProto) -> bool:
        if info.name not in inferred or not (_is_typed(info) and _is_typed(inferred[info.name])):
            return False
        return bool(info.type.tensor_type.elem_type != inferred[info.name].type.tensor_type.elem_type)

    if not any(has_wrong_type(info) for info in (*model.graph.value_info, *model.graph.output)):
        return model
    corrected = copy_of(model)
    for info in filter(has_wrong_type, (*corrected.graph.value_info, *corrected.graph.output)):
        tensor, kind = info.type.tensor_type, inferred[info.name].type.tensor_type.elem_type
        _log.warning(
            "tensor %r is declared as %s, and is %s: the file is wrong",
            info.name,
            numpy_type(tensor.elem_type),
            numpy_type(kind),
        )
        tensor.elem_type = kind
    return corrected


def _is_typed(info: onnx.ValueInfoProto) -> bool:
    """Return whether a tensor with an element type is declared."""
    return info.type.WhichOneof("value") == "tensor_type" and bool(info.type.tensor_type.elem_type)


def infer_without_declared(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy with the inferred dims and types of all tensors; declared dims of outputs are ignored."""
    full = copy_of(model)
    take_output_dims(full)
    return add_shapes(full)


def take_output_dims(model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    """Remove the declared dims of outputs that can be inferred, in place.

    Returns:
        Name of an output → its type with the dims that were declared.
    """
    unruled, declared_types = _outputs_without_rules(model), {}
    for info in model.graph.output:
        if info.name not in unruled and has_shape({info.name: info}, info.name):
            declared_types[info.name] = copy_of(info.type)
            info.type.tensor_type.ClearField("shape")
    return declared_types


def _outputs_without_rules(model: onnx.ModelProto) -> set[str]:
    opset = standard_opset(model)
    return {name for node in model.graph.node if not _has_rules(node, opset) for name in node.output}


def _has_rules(node: onnx.NodeProto, opset: int) -> bool:
    """Return whether the dims of a node's outputs can be inferred."""
    return (not standard_domain(node.domain) and _has_standard_rules(node.op_type, opset)) or is_plugin_node(node)


@functools.lru_cache(1024)
def _has_standard_rules(op_type: str, opset: int) -> bool:
    """Return whether ONNX's inference has rules for an operator of ONNX's own."""
    try:
        schema: Any = onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_type_and_shape_inference_function or schema.has_function)


def _dims_agree(declared_dims: Dims, inferred_dims: Dims) -> bool:
    pairs = zip(declared_dims, inferred_dims, strict=False)
    return len(declared_dims) == len(inferred_dims) and not any(
        isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs
    )


def _dims_error(name: str, declared_dims: Dims, inferred_dims: Dims) -> ModelError:
    return ModelError(
        f"tensor {name!r} is declared with the dims ({', '.join(map(str, declared_dims))}), and the nodes before it give "
        f"({', '.join(map(str, inferred_dims))}).\n"
        "Do: export the model again, or take the declared dims away: "
        "for info in [*model.graph.output, *model.graph.value_info]: info.type.tensor_type.ClearField('shape')",
        tensor=name,
        expected=inferred_dims,
        found=declared_dims,
    )
