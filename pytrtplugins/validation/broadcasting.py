"""Check that slopes of PRelu broadcast to the input: ONNX's inference does not, and OpenVINO broadcasts along the channels."""

from __future__ import annotations

from ..errors import ModelError
from ..utils.optional import onnx
from .dataflow import walk, walk_with_facts
from .operators import node_text, standard_domain, standard_opset
from .tensors import dims_text

__all__ = ["BROADCAST_SLOPES", "check_slopes"]

BROADCAST_SLOPES = 7
"""The first opset in which slopes of PRelu broadcast; before it they lie along the channels."""
_Dims = tuple[int | str, ...]


def check_slopes(model: onnx.ModelProto) -> None:
    """Check that slopes of PRelu broadcast to the dims of the input, where the model has both."""
    if standard_opset(model) >= BROADCAST_SLOPES and any(node.op_type == "PRelu" for node in walk(model.graph.node)):
        for node, dims in walk_with_facts(model.graph, lambda tensor: tuple(tensor.dims), _declared_dims):
            if node.op_type == "PRelu" and not standard_domain(node.domain) and {*node.input} <= dims.keys():
                _check_slope(node, dims[node.input[0]], dims[node.input[1]])


def _declared_dims(declared: onnx.TypeProto.Tensor) -> _Dims | None:
    if not declared.HasField("shape"):
        return None
    return tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in declared.shape.dim)


def _check_slope(node: onnx.NodeProto, dims: _Dims, slope: _Dims) -> None:
    pairs = zip(reversed(slope), reversed(dims), strict=False)
    fits = all(size == 1 or isinstance(size, str) or isinstance(dim, str) or size == dim for size, dim in pairs)
    if fits and len(slope) <= len(dims):
        return
    channels = (*slope, *(1,) * (len(dims) - 2))
    along = len(slope) == 1 and len(dims) > 2 and slope[0] == dims[1]
    raise ModelError(
        f"{node_text(node)}: the slope {node.input[1][:200]!r} has dims {dims_text(slope)}, which do not broadcast to those of "
        f"{node.input[0][:200]!r}, {dims_text(dims)}: ONNX holds the last axis against the last (unidirectional broadcasting).\n"
        + (
            f"Do: pytrt repair MODEL.onnx -o FIXED.onnx, which reshapes the slope to {dims_text(channels)}: one for each channel"
            if along
            else "Do: export the model again"
        ),
        node=node.name,
        expected=dims,
        found=slope,
    )
