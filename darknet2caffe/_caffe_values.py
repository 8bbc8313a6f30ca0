"""Convert caffe's layers without weights to ONNX operators: elementwise functions and data movement."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from ._caffe_graph import CaffeGraph, CaffeLayer, Value, converts

__all__: list[str] = []

_ENGINE = frozenset(["engine"])
_ELTWISE = {"PROD": "Mul", "SUM": "Add", "MAX": "Max"}


@converts("ReLU", "Sigmoid", "TanH", "ELU", "BNLL")
def _activation(layer: CaffeLayer, graph: CaffeGraph) -> list[Value]:
    (x,), p = layer.bottoms, layer.parameters(f"{layer.type.lower()}_param")
    slope = p.number("negative_slope", 0.0) if layer.type == "ReLU" else 0.0
    attributes = {"alpha": p.number("alpha", 1.0)} if layer.type == "ELU" else {"alpha": slope} if slope else {}
    p.finish(_ENGINE)
    names = {"ReLU": "LeakyRelu" if slope else "Relu", "TanH": "Tanh", "ELU": "Elu", "BNLL": "Softplus"}
    graph.node(names.get(layer.type, layer.type), [x.name], layer.outputs[0], **attributes)
    return [layer.result(x.dims)]


@converts("Power")
def _power(layer: CaffeLayer, graph: CaffeGraph) -> list[Value]:
    """(scale · x + shift) to the power; steps that change nothing are left out."""
    (x,), p, top = layer.bottoms, layer.parameters("power_param"), layer.tops[0]
    values = {name: p.number(name, default) for name, default in (("scale", 1), ("shift", 0), ("power", 1))}
    p.finish()
    operators = {"scale": ("Mul", 1), "shift": ("Add", 0), "power": ("Pow", 1)}
    steps = [(name, *operators[name]) for name, value in values.items() if value != operators[name][1]]
    if not steps:
        graph.node("Identity", [x.name], layer.outputs[0])
    current = x.name
    for name, operator, _ in steps:
        constant = graph.constant(f"{top}.{name}", np.array(values[name], np.float32))
        output = layer.outputs[0] if name == steps[-1][0] else graph.unique(f"{layer.outputs[0]}.{operator.lower()}")
        current = graph.node(operator, [current, constant], output)
    return [layer.result(x.dims)]


@converts("Eltwise", bottoms=None)
def _eltwise(layer: CaffeLayer, graph: CaffeGraph) -> list[Value]:
    """Two by two."""
    p, bottoms, top = layer.parameters("eltwise_param"), layer.bottoms, layer.tops[0]
    kind, coefficients = p.choice("operation", ("PROD", "SUM", "MAX"), "SUM"), p.numbers("coeff")
    p.finish(frozenset(["stable_prod_grad"]))
    if len(bottoms) < 2 or any(bottom.dims != bottoms[0].dims for bottom in bottoms):
        layer.fail(f"it needs two blobs or more, of one shape, found {' and '.join(str(b.dims) for b in bottoms)}")
    if coefficients and (kind != "SUM" or len(coefficients) != len(bottoms)):
        layer.fail(f"{len(coefficients)} coeff of {len(bottoms)} blobs; they belong to operation: SUM")
    names = [bottom.name for bottom in bottoms]
    for number, value in enumerate(coefficients):
        if value != 1:
            constant = graph.constant(f"{top}.coeff{number}", np.array(value, np.float32))
            names[number] = graph.node("Mul", [names[number], constant], graph.unique(f"{top}.times{number}"))
    current = names[0]
    for name in names[1:-1]:
        current = graph.node(_ELTWISE[kind], [current, name], graph.unique(f"{layer.outputs[0]}.partial"))
    graph.node(_ELTWISE[kind], [current, names[-1]], layer.outputs[0])
    return [layer.result(bottoms[0].dims)]


@converts("Concat", bottoms=None)
def _concat(layer: CaffeLayer, graph: CaffeGraph) -> list[Value]:
    p, dims = layer.parameters("concat_param"), [bottom.dims for bottom in layer.bottoms]
    axis = layer.axis(p.integer("axis", p.integer("concat_dim", 1), minimum=-32, maximum=32), len(dims[0]))
    p.finish()
    if any(len(shape) != len(dims[0]) for shape in dims):
        layer.fail(f"blobs of different numbers of axes: {' and '.join(map(str, dims))}")
    if any(shape[:axis] + shape[axis + 1 :] != dims[0][:axis] + dims[0][axis + 1 :] for shape in dims):
        layer.fail(f"blobs that differ in more than axis {axis}: {' and '.join(map(str, dims))}")
    names = [bottom.name for bottom in layer.bottoms]
    if len(names) == 1:
        graph.node("Identity", names, layer.outputs[0])
    else:
        graph.node("Concat", names, layer.outputs[0], axis=axis)
    return [layer.result((*dims[0][:axis], sum(shape[axis] for shape in dims), *dims[0][axis + 1 :]))]


@converts("Slice", tops=None)
def _slice(layer: CaffeLayer, graph: CaffeGraph) -> list[Value]:
    """Slice: one operator for each top that is read."""
    p, (x,) = layer.parameters("slice_param"), layer.bottoms
    axis = layer.axis(p.integer("axis", p.integer("slice_dim", 1), minimum=-32, maximum=32), len(x.dims))
    points, pieces, size = p.integers("slice_point"), len(layer.tops), x.dims[axis]
    p.finish()
    if not points and size % pieces == 0:
        points = [number * size // pieces for number in range(1, pieces)]
    edges = [0, *points, size]
    if len(edges) != pieces + 1 or any(begin >= end for begin, end in itertools.pairwise(edges)):
        layer.fail(f"slice_point {points} does not cut {size} values into {pieces} pieces")
    values = []
    for number, (begin, end) in enumerate(itertools.pairwise(edges)):
        values.append(layer.result((*x.dims[:axis], end - begin, *x.dims[axis + 1 :]), number))
        if layer.wanted[number]:
            limits = {"begin": begin, "end": end, "axis": axis}
            names = [
                graph.constant(f"{layer.tops[number]}.{name}", np.array([value], np.int64))
                for name, value in limits.items()
            ]
            graph.node("Slice", [x.name, *names], layer.outputs[number])
    return values


@converts("Split", tops=None)
@converts("Dropout")
def _identity(layer: CaffeLayer, graph: CaffeGraph) -> list[Value]:
    """Nothing: other names for what is read."""
    layer.parameters("dropout_param").finish(frozenset(["dropout_ratio", "scale_train"]))
    return [layer.bottoms[0]] * len(layer.tops)


@converts("Silence", bottoms=None, tops=0)
def _silence(layer: CaffeLayer, graph: CaffeGraph) -> list[Value]:
    return []


@converts("Reshape")
def _reshape(layer: CaffeLayer, graph: CaffeGraph) -> list[Value]:
    """Reshape: 0 keeps a dim, -1 is inferred; ``axis`` and ``num_axes`` select the replaced dims."""
    p, (x,) = layer.parameters("reshape_param"), layer.bottoms
    shape, rank = p.message("shape"), len(x.dims)
    target, axis = shape.integers("dim", minimum=-1), p.integer("axis", 0, minimum=-32, maximum=32)
    count = p.integer("num_axes", -1, minimum=-1, maximum=32)
    p.finish()
    shape.finish()
    begin = axis if axis >= 0 else rank + axis + 1
    end = rank if count == -1 else begin + count
    if not 0 <= begin <= end <= rank or target.count(-1) > 1:
        layer.fail(f"dims {target} at axis {axis} do not replace any of {x.dims}")
    if any(dim == 0 and begin + place >= rank for place, dim in enumerate(target)):
        layer.fail(f"dim: 0 keeps a dim that {x.dims} has not")
    new_dims = [x.dims[begin + place] if dim == 0 else dim for place, dim in enumerate(target)]
    dims = [*x.dims[:begin], *new_dims, *x.dims[end:]]
    total, known_size = math.prod(x.dims), math.prod(dim for dim in dims if dim != -1)
    if -1 in dims:
        dims[dims.index(-1)] = total // known_size
    if math.prod(dims) != total:
        layer.fail(f"{x.dims} has {total:,} values, which do not fit {dims}")
    written = target if (begin, end) == (0, rank) else dims
    return _reshape_to(layer, graph, written, dims)


@converts("Flatten")
def _flatten(layer: CaffeLayer, graph: CaffeGraph) -> list[Value]:
    p, (x,) = layer.parameters("flatten_param"), layer.bottoms
    begin = layer.axis(p.integer("axis", 1, minimum=-32, maximum=32), len(x.dims))
    end = layer.axis(p.integer("end_axis", -1, minimum=-32, maximum=32), len(x.dims)) + 1
    p.finish()
    if begin >= end:
        layer.fail(f"axes {begin} to {end - 1} are none")
    dims = (*x.dims[:begin], math.prod(x.dims[begin:end]), *x.dims[end:])
    return _reshape_to(layer, graph, dims, dims)


def _reshape_to(layer: CaffeLayer, graph: CaffeGraph, written: Sequence[int], dims: Sequence[int]) -> list[Value]:
    """The values of a layer's one bottom with other dims; ``written`` may have one 0 or -1."""
    constant = graph.constant(f"{layer.tops[0]}.dims", np.array(written, np.int64))
    graph.node("Reshape", [layer.bottoms[0].name, constant], layer.outputs[0])
    return [layer.result(dims)]


@converts("Softmax")
def _softmax(layer: CaffeLayer, graph: CaffeGraph) -> list[Value]:
    p, (x,) = layer.parameters("softmax_param"), layer.bottoms
    axis = layer.axis(p.integer("axis", 1, minimum=-32, maximum=32), len(x.dims))
    p.finish(_ENGINE)
    graph.node("Softmax", [x.name], layer.outputs[0], axis=axis)
    return [layer.result(x.dims)]
