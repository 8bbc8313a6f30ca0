"""ONNX's rules for the dims of operands, by operator: which dims must agree, and the dims of the outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ....model.operator_traits import RECURRENT, Trait, operators
from ....utils import optional
from .dims import fused_dims
from .operand_dims import (
    Dims,
    MisfitError,
    Operands,
    UnknownDimsError,
    broadcast,
    broadcast_onto,
    require,
    require_inside,
    require_length,
    require_steps,
)
from .rewrite import DOMAIN, has_rows, weight_dims

__all__ = ["RULES"]

Rule = Callable[[Operands], Sequence[Dims | None]]
"""A node's operands → dims of its outputs, None where the rule does not say; raises `MisfitError`."""


# -- elementwise -------------------------------------------------------------------------------------------------------


def _elementwise(o: Operands) -> Sequence[Dims | None]:
    """Operators whose inputs broadcast to the output."""
    if "axis" in o.node.attributes or "broadcast" in o.node.attributes:  # before opset 7
        raise UnknownDimsError
    return [broadcast(*(o[index] for index in range(len(o.inputs))))]


def _same(o: Operands) -> Sequence[Dims | None]:
    """Operators whose output has the dims of the first input."""
    return [o[0]]


def _bit_cast(o: Operands) -> Sequence[Dims | None]:
    x, kind = o.node.inputs[0], optional.ir.DataType
    to = kind(o.number("to", 0))
    if x is None or x.dtype is None:
        raise UnknownDimsError
    require(
        x.dtype.bitwidth == to.bitwidth,
        f"values of {x.dtype.bitwidth} bits cannot be read as {to.bitwidth} bits",
    )
    return [o[0]]


def _prelu(o: Operands) -> Sequence[Dims | None]:
    if o.version >= 7:
        broadcast_onto(o[1], o[0], "slope")
    return [o[0]]


def _quantized(o: Operands) -> Sequence[Dims | None]:
    """QuantizeLinear, DequantizeLinear: scales along an axis are as many as its indices."""
    if not o.number("block_size", 0) and len(o[1]) == 1 and o[1] != (1,):
        length = o[0][o.axis(1, len(o[0]))]
        require_length(o, (1, 2), length, "the indices of its axis")
    return [o[0]]


# -- moves -------------------------------------------------------------------------------------------------------------


def _same_count(o: Operands) -> Sequence[Dims | None]:
    """Reshape, Flatten, Squeeze, Unsqueeze: the output has as many elements as the input."""
    dims, result = o[0], o.outputs[0]
    if o.node.op_type == "Reshape" and o.has(1):
        return [_reshape_dims(o, dims, [int(size) for size in o.array(1).ravel()])]
    if result is not None:
        require(math.prod(dims) == math.prod(result), f"{math.prod(dims)} elements cannot have the dims {result}")
    return [None]


def _reshape_dims(o: Operands, dims: Dims, sizes: list[int]) -> Dims:
    """Dims of a Reshape's output, from those of the input and the values of ``shape``."""
    if not o.number("allowzero", 0):
        require(all(size or place < len(dims) for place, size in enumerate(sizes)), f"no axis for a 0 in {sizes}")
        sizes = [size or dims[place] for place, size in enumerate(sizes)]
    known_count, count = math.prod(size for size in sizes if size != -1), math.prod(dims)
    fits = known_count == count if -1 not in sizes else (count % known_count == 0 if known_count else count == 0)
    require(fits and sizes.count(-1) <= 1, f"{count} elements cannot have the dims {sizes}")
    return tuple(size if size != -1 else count // known_count if known_count else 0 for size in sizes)


def _transpose(o: Operands) -> Sequence[Dims | None]:
    rank = len(o[0])
    order = o.node.attributes.get_ints("perm", range(rank)[::-1])
    require(sorted(order) == list(range(rank)), f"perm {list(order)} of a tensor of rank {rank}")
    return [tuple(o[0][axis] for axis in order)]


def _expand(o: Operands) -> Sequence[Dims | None]:
    return [broadcast(o[0], tuple(int(size) for size in o.array(1).ravel()))]


def _tile(o: Operands) -> Sequence[Dims | None]:
    repeats = [int(count) for count in o.array(1).ravel()]
    require(len(repeats) == len(o[0]), f"{len(repeats)} repeats for {len(o[0])} axes")
    return [tuple(size * count for size, count in zip(o[0], repeats, strict=True))]


def _concat(o: Operands) -> Sequence[Dims | None]:
    axis, parts = o.axis(1, len(o[0])), [o[index] for index in range(len(o.inputs))]
    others = {(*dims[:axis], *dims[axis + 1 :]) if len(dims) > axis else None for dims in parts}
    require(len(others) == 1, f"dims other than that of axis {axis} differ")
    return [(*o[0][:axis], sum(dims[axis] for dims in parts), *o[0][axis + 1 :])]


def _split(o: Operands) -> Sequence[Dims | None]:
    axis = o.axis(0, len(o[0]))
    results, length = o.outputs, o[0][axis]
    split = o.node.attributes.get_ints("split", None)
    sizes = split if split is not None else o.array(1).tolist() if o.has(1) else None
    if sizes is None and all(dims is not None and len(dims) == len(o[0]) for dims in results):
        sizes = [dims[axis] for dims in results if dims is not None]
    if sizes is None:
        raise UnknownDimsError
    require(sum(sizes) == length, f"sizes {list(sizes)} of parts of an axis of {length}")
    return [(*o[0][:axis], size, *o[0][axis + 1 :]) for size in sizes]


def _depth_to_space(o: Operands) -> Sequence[Dims | None]:
    s = o.number("blocksize", 1)
    require(len(o[0]) == 4 and o[0][1] % s**2 == 0, f"blocks of {s} x {s} in the dims {o[0]}")
    n, c, h, w = o[0]
    return [(n, c // s**2, h * s, w * s)]


def _space_to_depth(o: Operands) -> Sequence[Dims | None]:
    s = o.number("blocksize", 1)
    require(len(o[0]) == 4 and o[0][2] % s == 0 and o[0][3] % s == 0, f"blocks of {s} x {s} in the dims {o[0]}")
    n, c, h, w = o[0]
    return [(n, c * s**2, h // s, w // s)]


def _top_k(o: Operands) -> Sequence[Dims | None]:
    axis = o.axis(-1, len(o[0]))
    count = int(o.array(1).reshape(())) if o.has(1) else o.number("k", 0)
    require(0 <= count <= o[0][axis], f"k is {count} for an axis of {o[0][axis]} values")
    return [(*o[0][:axis], count, *o[0][axis + 1 :])] * 2


# -- indices -----------------------------------------------------------------------------------------------------------


def _gather(o: Operands) -> Sequence[Dims | None]:
    axis = o.axis(0, len(o[0]))
    require_inside(o, o[0][axis])
    return [(*o[0][:axis], *o[1], *o[0][axis + 1 :])]


def _along_axis(o: Operands) -> Sequence[Dims | None]:
    """GatherElements, ScatterElements: indices lie within the data along all axes but one."""
    axis = o.axis(0, len(o[0]))
    same_rank = len(o[0]) == len(o[1])
    inside = same_rank and all(a >= b for place, (a, b) in enumerate(zip(o[0], o[1], strict=True)) if place != axis)
    require(inside, f"indices of the dims {o[1]} into values of the dims {o[0]} along axis {axis}")
    require_inside(o, o[0][axis])
    if o.node.op_type == "GatherElements":
        return [o[1]]
    require(o[1] == o[2], f"updates of the dims {o[2]} for indices of the dims {o[1]}")
    return [o[0]]


def _slice_dims(o: Operands, batch: int) -> Dims:
    """Dims of the slice of the data that one index of GatherND or ScatterND addresses, after ``batch`` batch axes."""
    require(
        len(o[1]) > batch and o[0][:batch] == o[1][:batch],
        f"the batch axes of {o[0]} and {o[1]} differ: the first {batch}",
    )
    depth = o[1][-1]
    require(0 < depth <= len(o[0]) - batch, f"indices of {depth} values into {len(o[0]) - batch} axes")
    for place in range(depth):
        require_inside(o, o[0][batch + place], place)
    return o[0][batch + depth :]


def _gather_nd(o: Operands) -> Sequence[Dims | None]:
    return [(*o[1][:-1], *_slice_dims(o, o.number("batch_dims", 0)))]


def _scatter_nd(o: Operands) -> Sequence[Dims | None]:
    expected = (*o[1][:-1], *_slice_dims(o, 0))
    require(o[2] == expected, f"updates of the dims {o[2]}, expected {expected}")
    return [o[0]]


# -- sums --------------------------------------------------------------------------------------------------------------


def _product_dims(a: Dims, b: Dims) -> Dims:
    """Dims of a matrix product of two tensors, as numpy.matmul has them."""
    require(bool(a) and bool(b), "a matrix product of a tensor without axes")
    left, right = (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b
    require(left[-1] == right[-2], f"a matrix product of rows of {left[-1]} values with columns of {right[-2]}")
    outer = broadcast(left[:-2], right[:-2])
    return (*outer, *left[-2:-1][: len(a) > 1], *right[-1:][: len(b) > 1])


def _matmul(o: Operands) -> Sequence[Dims | None]:
    return [_product_dims(o[0], o[3 if o.node.op_type == "QLinearMatMul" else 1])]


def _gemm(o: Operands) -> Sequence[Dims | None]:
    a, b = (o[0][::-1] if o.number("transA", 0) else o[0]), (o[1][::-1] if o.number("transB", 0) else o[1])
    require(len(a) == len(b) == 2, "Gemm of tensors that are not matrices")
    result = _product_dims(a, b)
    if o.has(2) and o.version >= 7:
        broadcast_onto(o[2], result, "C")
    return [result]


def _convolution(o: Operands) -> Sequence[Dims | None]:
    """Conv and its like: the filters fit the channels, the bias fits the filters; the caller infers the dims of the output."""
    x, w = o[0], o[{"QLinearConv": 3}.get(o.node.op_type, 1)]
    group = o.number("group", 1)
    require(len(x) == len(w) > 2, f"filters of the dims {w} on an image of the dims {x}")
    require(x[1] == w[1] * group, f"filters for {w[1]} x {group} channels on an image of {x[1]}")
    require(w[0] % group == 0, f"{w[0]} filters in {group} groups")
    place = {"Conv": 2, "QLinearConv": 8, "DeformConv": 3}.get(o.node.op_type)  # of its bias
    if place is not None:
        _require_bias(o, place, w[0])
    return [None]


def _require_bias(o: Operands, place: int, filters: int) -> None:
    """Require that an input, a bias, has one axis with a value for each filter."""
    require_length(o, (place,), filters, "the filters")
    if o.has(place):
        require(len(o[place]) == 1, f"a bias of the dims {o[place]}, expected one axis")


def _transposed_convolution(o: Operands) -> Sequence[Dims | None]:
    x, w = o[0], o[1]
    require(len(x) == len(w) > 2, f"filters of the dims {w} on an image of the dims {x}")
    require(x[1] == w[0] and w[0] % o.number("group", 1) == 0, f"filters for {w[0]} channels on an image of {x[1]}")
    _require_bias(o, 2, w[1] * o.number("group", 1))
    return [None]


def _batch_norm(o: Operands) -> Sequence[Dims | None]:
    if o.number("spatial", 1):
        require_length(o, range(1, 5), o[0][1] if len(o[0]) > 1 else 1, "the channels")
    return [o[0]]


def _group_norm(o: Operands) -> Sequence[Dims | None]:
    channels, groups = o[0][1], o.number("num_groups", 1)
    require(channels % groups == 0, f"{channels} channels in {groups} groups")
    require_length(
        o, (1, 2), groups if o.version < 21 else channels, "the groups" if o.version < 21 else "the channels"
    )
    return [o[0]]


def _instance_norm(o: Operands) -> Sequence[Dims | None]:
    require_length(o, (1, 2), o[0][1], "the channels")
    return [o[0]]


def _layer_norm(o: Operands) -> Sequence[Dims | None]:
    o.axis(-1, len(o[0]))
    for index in (1, 2):
        if o.has(index):
            broadcast_onto(o[index], o[0], f"input {index}")
    return [o[0]]


def _reverse_sequence(o: Operands) -> Sequence[Dims | None]:
    require_length(o, (1,), o[0][o.axis(1, len(o[0]), "batch_axis")], "the sequences")
    require_steps(o, o[0][o.axis(0, len(o[0]), "time_axis")])
    return [o[0]]


def _recurrent(o: Operands) -> Sequence[Dims | None]:
    """RNN, GRU, LSTM."""
    gates = RECURRENT[o.node.op_type].gates
    require(len(o[0]) == len(o[1]) == len(o[2]) == 3, "sequences, W and R have three axes")
    time, batch = (1, 0) if o.number("layout", 0) else (0, 1)
    directions, hidden = o[1][0], o[2][2]
    expected: dict[int, Dims] = {
        1: (directions, gates * hidden, o[0][2]),
        2: (directions, gates * hidden, hidden),
        3: (directions, 2 * gates * hidden),
        4: (o[0][batch],),
        5: (o[0][0], directions, hidden) if time else (directions, o[0][1], hidden),
        7: (directions, 3 * hidden),
    }
    expected[6] = expected[5]
    for index, dims in expected.items():
        if index < len(o.inputs) and o.has(index):
            require(o[index] == dims, f"input {index} of the dims {o[index]}, expected {dims}")
    return [None]


# -- nodes of this engine ----------------------------------------------------------------------------------------------


def _fused_convolution(o: Operands) -> Sequence[Dims | None]:
    w, group = weight_dims(o.node), o.number("group", 1)
    axis = -1 if has_rows(o.node) else 1
    require(o[0][axis] == w[1] * group, f"filters for {w[1]} x {group} channels on {o[0][axis]}")
    require(w[0] % group == 0, f"{w[0]} filters in {group} groups")
    _require_bias(o, 2, w[0])
    dims = fused_dims(o.node)
    result = tuple(dims[0]) if dims else None
    plain = not any(o.number(name, 0) for name in ("pool", "reorg", "blocks"))
    if o.has(3) and plain and result is not None:
        require(math.prod(o[3]) == math.prod(result), f"a residual of the dims {o[3]}, expected {result}")
    return [result]


def _fused_recurrent(o: Operands) -> Sequence[Dims | None]:
    """The engine's ``Recurrent``: lengths and initial states fit the sequences."""
    results = fused_dims(o.node)
    if results is None:
        raise UnknownDimsError
    y, states, _ = results
    for index, dims in ((3, (y[0 if o.number("layout", 0) else 2],)), (4, states), (5, states)):
        if o.has(index):
            require(o[index] == tuple(dims), f"input {index} of the dims {o[index]}, expected {tuple(dims)}")
    return [tuple(dims) for dims in results][: len(o.node.outputs)]


def _fused_attention(o: Operands) -> Sequence[Dims | None]:
    q, k, v = o[0], o[1], o[2]  # k is transposed
    keys = o[3][-1] if k[-1] == 1 and o.has(3) and o[3] else k[-1]  # what is added repeats the scores of one key
    require(q[-1] == k[-2] and keys == v[-2], f"queries {q}, transposed keys {k} and values {v}")
    try:
        dims = fused_dims(o.node)
    except ValueError as error:
        raise MisfitError(str(error)) from error
    return [tuple(dims[0]) if dims else None]


RULES: dict[tuple[str, str], Rule] = {
    **dict.fromkeys((("", name) for name in operators(Trait.BROADCASTS)), _elementwise),
    **dict.fromkeys((("", name) for name in operators(Trait.KEEPS_DIMS) - operators(Trait.RANDOM)), _same),
    **dict.fromkeys(((DOMAIN, name) for name in ("Gelu", "GeluTanh", "Mish", "QuickGelu", "Swish")), _same),
    **dict.fromkeys((("", name) for name in operators(Trait.KEEPS_ORDER) - {"Identity"}), _same_count),
    **dict.fromkeys((("", name) for name in ("GatherElements", "Scatter", "ScatterElements")), _along_axis),
    **dict.fromkeys((("", name) for name in ("MatMul", "MatMulInteger", "QLinearMatMul")), _matmul),
    **dict.fromkeys((("", name) for name in operators(Trait.CONVOLUTION)), _convolution),
    **dict.fromkeys((("", name) for name in RECURRENT), _recurrent),
    **dict.fromkeys((("", name) for name in ("LayerNormalization", "RMSNormalization")), _layer_norm),
    **dict.fromkeys((("", name) for name in ("DequantizeLinear", "QuantizeLinear")), _quantized),
    ("", "BatchNormalization"): _batch_norm,
    ("", "BitCast"): _bit_cast,
    ("", "Concat"): _concat,
    ("", "ConvTranspose"): _transposed_convolution,
    ("", "DepthToSpace"): _depth_to_space,
    ("", "Expand"): _expand,
    ("", "Gather"): _gather,
    ("", "GatherND"): _gather_nd,
    ("", "Gemm"): _gemm,
    ("", "GroupNormalization"): _group_norm,
    ("", "InstanceNormalization"): _instance_norm,
    ("", "PRelu"): _prelu,
    ("", "ReverseSequence"): _reverse_sequence,
    ("", "ScatterND"): _scatter_nd,
    ("", "SpaceToDepth"): _space_to_depth,
    ("", "Split"): _split,
    ("", "Tile"): _tile,
    ("", "TopK"): _top_k,
    ("", "Transpose"): _transpose,
    (DOMAIN, "Attention"): _fused_attention,
    (DOMAIN, "Conv"): _fused_convolution,
    (DOMAIN, "Recurrent"): _fused_recurrent,
}
"""Domain and operator → its rule."""
