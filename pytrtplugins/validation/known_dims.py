"""Correct dims that ONNX's own shape inference (1.23) gets wrong, by the text of the operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ..utils.optional import onnx
from .dataflow import downstream
from .operators import has_schema, standard_opset

__all__ = ["HIDDEN", "correct_dims", "declare_dims", "wrong_dims"]

HIDDEN = "pytrtplugins.hidden"
"""A domain of operators that inference passes over."""
_Dims = list[Any]
"""An int, a name, or None for each axis; ``COMPUTED`` where a value of the run says it."""
COMPUTED = "?"
_Constants = Mapping[str, Any]
_MOST_AXES = 8


def wrong_dims(model: onnx.ModelProto) -> dict[int, dict[str, _Dims]]:
    """Index of each node of the main graph with wrongly inferred dims → output → right dims, None if unknown.

    Nodes behind one of them are left out: what they read is not known yet.
    """
    if not any(node.op_type in _RULES for node in model.graph.node):
        return {}
    types = {info.name: info.type.tensor_type for info in _infos(model.graph)}
    dims = {name: _dims(kind) for name, kind in types.items() if kind.HasField("shape")}
    constants = dict(_constants(model.graph))
    dims.update((tensor.name, list(tensor.dims)) for tensor in model.graph.initializer)
    corrections: dict[int, dict[str, _Dims]] = {}
    behind: set[str] = set()
    opset = standard_opset(model)
    for index, node in enumerate(model.graph.node):
        if node.op_type in _RULES and not has_schema(node, opset):
            continue  # of a later opset, or nobody's: its inputs were not checked
        if not behind.isdisjoint(node.input) or (node.input[:1] and node.input[0] not in dims):
            continue
        wrong = {}
        for name, right in _right_dims(node, dims, constants):
            if name in dims and _contradict(dims[name], right, dims[node.input[0]]):
                wrong[name] = right
        if wrong:
            corrections[index] = {name: wrong.get(name, dims.get(name)) or [] for name in node.output if name in dims}
            behind = downstream(model.graph.node, [*behind, *node.output])
    return corrections


def _right_dims(node: onnx.NodeProto, dims: Mapping[str, _Dims], constants: _Constants) -> Iterator[tuple[str, _Dims]]:
    """Outputs for which there is a rule, and their dims."""
    for place, rule in _RULES.get(node.op_type, {}).items() if node.domain in ("", "ai.onnx") else ():
        if len(node.output) <= place or not node.output[place]:
            continue
        try:
            right = rule(node, dims, constants)
        except (ArithmeticError, LookupError, TypeError, ValueError):  # another number of axes than the operator takes
            continue
        if right is not None:
            yield node.output[place], right


def correct_dims(
    node: onnx.NodeProto,
    types: Mapping[str, onnx.TypeProto],
    data: Mapping[str, onnx.TensorProto],
    inferred: Mapping[str, onnx.TypeProto],
) -> None:
    """Correct the inferred dims of one node in place; ``types`` and ``data`` are those of what it reads, as far as they are known."""
    if node.op_type not in _RULES:
        return
    dims = {name: _dims(kind.tensor_type) for name, kind in types.items() if kind.tensor_type.HasField("shape")}
    if node.input[0] not in dims:
        return
    for name, right in _right_dims(node, dims, dict(_small_values(data))):
        kind = inferred[name].tensor_type if name in inferred else None
        if kind is not None and kind.HasField("shape") and _contradict(_dims(kind), right, dims[node.input[0]]):
            _write(kind, right)


def _write(kind: onnx.TypeProto.Tensor, dims: _Dims) -> None:
    kind.shape.Clear()
    for dim in dims:
        added = kind.shape.dim.add()
        if isinstance(dim, int):
            added.dim_value = dim
        elif dim not in (None, COMPUTED):
            added.dim_param = dim


def declare_dims(model: onnx.ModelProto, inferred: onnx.ModelProto, outputs: Iterable[Mapping[str, _Dims]]) -> None:
    """Write dims of tensors, whose element types were inferred, into a model, and import the domain `HIDDEN`."""
    right = {name: dims for item in outputs for name, dims in item.items()}
    if not right:
        return
    if all(item.domain != HIDDEN for item in model.opset_import):
        model.opset_import.add(domain=HIDDEN, version=1)
    outputs_by_name = {info.name: info for info in model.graph.output}
    for info in _infos(inferred.graph):
        if info.name in right:
            target = outputs_by_name[info.name] if info.name in outputs_by_name else model.graph.value_info.add()
            target.CopyFrom(info)
            _write(target.type.tensor_type, right[info.name])


def _contradict(inferred: _Dims, right: _Dims, x: _Dims) -> bool:
    return len(inferred) != len(right) or any(
        (isinstance(a, int) and isinstance(b, int) and a != b)
        or (b is None and a == 0)
        or (b == COMPUTED and a is not None and a == x[axis])
        for axis, (a, b) in enumerate(zip(inferred, right, strict=True))
    )


def _infos(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from (*graph.input, *graph.value_info, *graph.output)


def _dims(kind: onnx.TypeProto.Tensor) -> _Dims:
    return [
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None if dim.HasField("dim_param") else None
        for dim in kind.shape.dim
    ]


def _constants(graph: onnx.GraphProto) -> Iterator[tuple[str, Any]]:
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    tensors |= {
        node.output[0]: item.t
        for node in graph.node
        if node.op_type == "Constant"
        for item in node.attribute
        if item.name == "value"
    }
    return _small_values(tensors)


def _small_values(tensors: Mapping[str, onnx.TensorProto]) -> Iterator[tuple[str, Any]]:
    """Known whole numbers, and short float32 vectors, by tensor name."""
    from onnx import numpy_helper

    for name, tensor in tensors.items():
        if tensor.external_data:
            continue
        if tensor.data_type in (6, 7) and list(tensor.dims) in ([], [1]):
            array = numpy_helper.to_array(tensor)
            if array.size == 1:
                yield name, int(array.reshape(()))
        elif tensor.data_type == 1 and len(tensor.dims) == 1 and tensor.dims[0] <= _MOST_AXES:
            yield name, numpy_helper.to_array(tensor)


def _int_constant(node: onnx.NodeProto, index: int, constants: _Constants) -> int | None:
    """An input's constant whole number; None if it is not constant."""
    return constants.get(node.input[index]) if _has(node, index) else None


def _has(node: onnx.NodeProto, index: int) -> bool:
    return len(node.input) > index and bool(node.input[index])


def _int_attribute(node: onnx.NodeProto, name: str, default: int) -> int:
    """A node's integer attribute."""
    return next((int(item.i) for item in node.attribute if item.name == name), default)


def _dft(node: onnx.NodeProto, dims: Mapping[str, _Dims], constants: _Constants) -> _Dims | None:
    """A length that is computed in the run is taken for the input's."""
    if not _has(node, 1) or node.input[1] in constants:
        return None
    x = dims[node.input[0]]
    result = [*x[:-1], 1 if _int_attribute(node, "inverse", 0) and _int_attribute(node, "onesided", 0) else 2]
    if _has(node, 2):
        axis = _int_constant(node, 2, constants)
        axes = range(len(x) - 1) if axis is None else [axis]
    else:
        axes = [_int_attribute(node, "axis", 1), _int_attribute(node, "axis", -2)]  # before opset 20, and from it on
    for axis in axes:
        result[axis] = COMPUTED
    return result


def _stft(node: onnx.NodeProto, dims: Mapping[str, _Dims], constants: _Constants) -> _Dims | None:
    """STFT: ONNX counts one frame too many."""
    x, step, length = dims[node.input[0]], _int_constant(node, 1, constants), _int_constant(node, 3, constants)
    if length is None and _has(node, 2) and not _has(node, 3):
        length = dims[node.input[2]][0]
    if len(x) not in (2, 3):
        return None
    is_known = isinstance(x[1], int) and step and isinstance(length, int)
    frames = (x[1] - length) // step + 1 if is_known else None
    bins = None if not isinstance(length, int) else length // 2 + 1 if _int_attribute(node, "onesided", 1) else length
    return [x[0], frames, bins, 2]


def _attention(node: onnx.NodeProto, dims: Mapping[str, _Dims], constants: _Constants) -> _Dims | None:
    """Attention: ONNX loses the last of three axes of the queries."""
    q, v = dims[node.input[0]], dims.get(node.input[2])
    heads, groups = _int_attribute(node, "q_num_heads", 0), _int_attribute(node, "kv_num_heads", 0)
    if len(q) != 3 or v is None or len(v) != 3 or not heads or not groups:
        return None
    return [q[0], q[1], v[2] // groups * heads if isinstance(v[2], int) else None]


def _attention_products(node: onnx.NodeProto, dims: Mapping[str, _Dims], constants: _Constants) -> _Dims | None:
    """Attention's second output, queries x keys: a row per query, a column per key, past keys first."""
    q, k = dims[node.input[0]], dims.get(node.input[1])
    heads = _int_attribute(node, "q_num_heads", 0) if len(q) == 3 else q[1]
    if k is None or len(k) != len(q) or not heads:
        return None
    past = dims.get(node.input[4], [None] * 4)[2] if _has(node, 4) else 0
    is_known = isinstance(k[-2], int) and isinstance(past, int)
    return [q[0], heads, q[-2], k[-2] + past if is_known else None]


def _resize(node: onnx.NodeProto, dims: Mapping[str, _Dims], constants: _Constants) -> _Dims | None:
    """Sizes are rounded in double: 7/11 in float32, times 11, is 7 in float32, as onnxruntime computes it, and there 6.9999999."""
    x, result = dims[node.input[0]], [*dims[node.input[0]]]
    place = 1 if len(node.input) < 3 else 2  # before opset 11 there is no region
    scales = constants.get(node.input[place]) if _has(node, place) else _floats(node, "scales")
    axes = next((list(item.ints) for item in node.attribute if item.name == "axes"), range(len(x)))
    by_region = any(item.s == b"tf_crop_and_resize" for item in node.attribute)
    if by_region or not isinstance(scales, np.ndarray) or len(scales) != len(axes):
        return None
    for axis, scale in zip(axes, scales, strict=True):
        size = np.float32(x[axis]) * scale if isinstance(x[axis], int) else np.float32(np.nan)
        result[axis] = int(size) if np.isfinite(size) else x[axis] if scale == 1 else None
    return result


def _floats(node: onnx.NodeProto, name: str) -> Any:
    return next((np.array(item.floats, np.float32) for item in node.attribute if item.name == name), None)


def _conv_transpose(node: onnx.NodeProto, dims: Mapping[str, _Dims], constants: _Constants) -> _Dims | None:
    """ConvTranspose: ONNX ignores ``output_shape`` if there is no kernel_shape."""
    sizes = next((list(item.ints) for item in node.attribute if item.name == "output_shape"), [])
    x, weights = dims[node.input[0]], dims.get(node.input[1])
    if weights is None or len(weights) != len(x) or len(sizes) != len(x) - 2:
        return None
    channels = weights[1] * _int_attribute(node, "group", 1) if isinstance(weights[1], int) else None
    return [x[0], channels, *sizes]


_Rule = Callable[["onnx.NodeProto", Mapping[str, _Dims], _Constants], "_Dims | None"]
_RULES: dict[str, dict[int, _Rule]] = {
    "Attention": {0: _attention, 3: _attention_products},
    "ConvTranspose": {0: _conv_transpose},
    "DFT": {0: _dft},
    "Resize": {0: _resize},
    "STFT": {0: _stft},
    "Upsample": {0: _resize},
}
"""Operator → place of an output → its dims."""
