"""Operators that move values, or make them of sizes."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from ..draft import Draft, Unfit, is_float
from .table import builds

_INT64 = np.dtype(np.int64)


@builds("Concat")
def concat(draft: Draft) -> None:
    dims = list(draft.dims(1, 4))
    axis = draft.axis(len(dims)) if draft.version >= 11 else int(draft.rng.integers(len(dims)))
    if draft.version < 4 and len(dims) > 1 and draft.chance():
        axis = 1
    else:
        draft.set("axis", axis)
    dtype = draft.type_of("T")
    for _ in range(draft.one(1, 2, 2, 3)):
        dims[axis] = draft.size()
        draft.read(draft.values(dims, dtype))
    draft.exact = True


@builds("Reshape")
def reshape(draft: Draft) -> None:
    """Zeros that copy, zeros that are zeros, one free size."""
    dims = draft.dims(0, 4)
    count = math.prod(dims)
    target = list(draft.one(dims, (count,), tuple(reversed(dims)), (*dims, 1), (1, *dims)))
    zeros = draft.attribute("allowzero", 0, 1, default=0)
    if count and target and draft.chance():
        target[int(draft.rng.integers(len(target)))] = -1
    elif not zeros and len(target) >= 1 and dims and target[0] == dims[0] and draft.chance(0.6):
        target[0] = 0
    copies_nothing = any(size == 0 and (i >= len(dims) or dims[i] != 0) for i, size in enumerate(target))
    if not zeros and copies_nothing and not (target[0] == 0 and dims and 0 not in target[1:]):
        raise Unfit("a zero that copies nothing")
    if zeros and -1 in target and 0 in target:
        raise Unfit("both")
    draft.tensor(dims)
    if draft.version < 5:
        draft.attribute("consumed_inputs", [0])
        draft.set("shape", target or [1])
    else:
        draft.read(np.array(target, np.int64))
    draft.exact = True


@builds("Transpose")
def transpose(draft: Draft) -> None:
    dims = draft.dims(0, 5)
    draft.attribute("perm", [int(axis) for axis in draft.rng.permutation(len(dims))])
    draft.tensor(dims)
    draft.exact = True


@builds("Squeeze", "Unsqueeze")
def squeeze(draft: Draft) -> None:
    """Axes as an attribute or an input, in any order."""
    dims = list(draft.dims(0, 3))
    rank = len(dims) + draft.one(1, 2)
    axes = [int(axis) for axis in draft.rng.choice(rank, rank - len(dims), replace=False)]
    if draft.name == "Squeeze":
        for axis in sorted(axes):
            dims.insert(axis, 1)
    signed = [axis - rank if draft.has_negative_axes() and draft.chance(0.3) else axis for axis in axes]
    left_out = draft.name == "Squeeze" and draft.chance(0.25)
    draft.tensor(dims)
    if draft.has("axes"):
        if not left_out:
            draft.set("axes", signed)
    elif not left_out:
        draft.read(np.array(signed, np.int64))
    draft.exact = True


@builds("Flatten")
def flatten(draft: Draft) -> None:
    dims = draft.dims(1, 4)
    low = -len(dims) if draft.version >= 11 else 0
    axis = draft.attribute("axis", int(draft.rng.integers(low, len(dims) + 1)), default=1)
    del axis
    draft.tensor(dims)
    draft.exact = True


@builds("Expand")
def expand(draft: Draft) -> None:
    target = list(draft.dims(0, 4))
    own = [1 if draft.chance(0.4) else size for size in target][draft.one(0, 0, 1) :]
    shorter = target[1:] if len(own) == len(target) and target and draft.chance(0.2) else target
    asked = [1 if draft.chance(0.15) and size in own else size for size in shorter]
    draft.tensor(own)
    draft.read(np.array(asked, np.int64))
    draft.exact = True


@builds("Tile")
def tile(draft: Draft) -> None:
    dims = draft.dims(1, 4)
    draft.tensor(dims)
    if draft.version < 6:
        draft.read(np.array([draft.one(1, 2, 3)]).astype(draft.type_of("T")))
        draft.read(np.array([int(draft.rng.integers(len(dims)))]).astype(draft.type_of("T")))
    else:
        draft.read(np.array([draft.one(1, 2, 3, 1, 0) for _ in dims], np.int64))
    draft.exact = True


@builds("Slice")
def slice_(draft: Draft) -> None:
    """Steps and bounds of both signs, beyond the ends, any subset of axes."""
    dims = draft.dims(1, 4)
    axes = [int(axis) for axis in draft.rng.choice(len(dims), int(draft.rng.integers(1, len(dims) + 1)), replace=False)]
    default = draft.chance(0.3)
    if default:
        axes = list(range(len(axes)))
    low = draft.one(0, -1, 1, -2, -100)
    starts = [draft.one(low, 0, 1, -1, -2) for _ in axes]
    ends = [draft.one(2**31 - 1, 2**63 - 1 if draft.version >= 10 else 2**31 - 1, -1, dims[axis], 3) for axis in axes]
    if draft.version < 10:
        draft.set("starts", starts)
        draft.set("ends", ends)
        if not default:
            draft.set("axes", axes)
        draft.tensor(dims)
    else:
        index = draft.type_of("Tind")
        steps = [draft.one(1, 1, 2, 3, -1, -2) for _ in axes]
        for position, step in enumerate(steps):
            if step < 0:
                starts[position] = draft.one(-1, 2**31 - 1, dims[axes[position]])
                ends[position] = draft.one(-(2**31), 0, -100, 1)
        ends = [min(end, np.iinfo(index).max) for end in ends]
        signed = [axis - len(dims) if draft.chance(0.3) else axis for axis in axes]
        draft.tensor(dims)
        draft.read(np.array(starts, index))
        draft.read(np.array(ends, index))
        negative = any(step != 1 for step in steps)
        if default:
            if negative or draft.chance():
                draft.skip()
        else:
            draft.read(np.array(signed, index))
        if negative or draft.chance():
            draft.read(np.array(steps, index))
    draft.exact = True


@builds("Split")
def split(draft: Draft) -> None:
    """Sizes as an attribute or an input, equal parts, parts whose last one is smaller."""
    dims = list(draft.dims(1, 4, filled=True))
    axis = draft.attribute("axis", draft.axis(len(dims)), default=0)
    count = draft.one(1, 2, 3)
    sizes = [draft.size() for _ in range(count)]
    equal = draft.chance(0.4)
    uneven = draft.has("num_outputs") and equal
    if equal:
        sizes = [max(1, sizes[0])] * count
    if uneven and count > 1 and draft.chance():
        sizes[-1] = max(1, sizes[-1] - 1)
        total, part = sum(sizes), -(-sum(sizes) // count)
        sizes = [part] * (count - 1) + [total - part * (count - 1)]
        if sizes[-1] <= 0:
            raise Unfit("an empty last part")
    dims[axis] = sum(sizes)
    draft.tensor(dims)
    if uneven:
        draft.set("num_outputs", count)
    elif not equal or draft.chance():
        if draft.has("split"):
            draft.set("split", sizes)
        else:
            draft.read(np.array(sizes, np.int64) if draft.version >= 13 else np.array(sizes).astype(draft.type_of("T")))
    elif draft.version >= 18:
        draft.read(np.array(sizes, np.int64))
    draft.outputs = [f"y{index}" for index in range(count)]
    draft.exact = True


@builds("Pad")
def pad(draft: Draft) -> None:
    """Pads and value as attributes or inputs, negative pads, a subset of axes."""
    dims = draft.dims(1, 4, filled=True)
    mode = draft.attribute(
        "mode", "constant", "reflect", "edge", *(("wrap",) if draft.version >= 19 else ()), default="constant"
    )
    axes = list(range(len(dims)))
    subset = draft.has_input("axes") and draft.chance(0.4)
    if subset:
        axes = sorted(
            int(axis) for axis in draft.rng.choice(len(dims), int(draft.rng.integers(1, len(dims) + 1)), replace=False)
        )

    def border(axis: int) -> int:
        most = dims[axis] - 1 if mode == "reflect" else dims[axis] if mode == "wrap" else 3
        least = -1 if mode == "constant" and dims[axis] > 2 and draft.chance(0.3) else 0
        return int(draft.rng.integers(least, max(least, min(most, 3)) + 1))

    pads = [border(axis) for _ in range(2) for axis in axes]
    draft.tensor(dims)
    if draft.version < 11:
        draft.set("paddings" if draft.version < 2 else "pads", pads)
        if mode == "constant":
            draft.attribute("value", 0.0, 1.5, -2.0)
    else:
        draft.read(np.array(pads, np.int64))
        if draft.optional("constant_value", 0.6 if mode == "constant" else 0.1):
            draft.read(draft.values(draft.one((), (), (1,)), draft.type_of("T"), "positive"))
        if subset:
            signed = [axis - len(dims) if draft.chance(0.3) else axis for axis in axes]
            draft.read(np.array(signed).astype(draft.type_of("Tind")))
    draft.exact = True


@builds("SpaceToDepth", "DepthToSpace")
def blocks(draft: Draft) -> None:
    block = draft.one(1, 2, 3)
    draft.set("blocksize", block)
    draft.attribute("mode", "DCR", "CRD")
    n, c, h, w = draft.one(1, 2), draft.one(1, 2, 3), draft.one(1, 2, 3), draft.one(2, 3)
    to_depth = draft.name == "SpaceToDepth"
    draft.tensor((n, c, h * block, w * block) if to_depth else (n, c * block * block, h, w))
    draft.exact = True


@builds("CenterCropPad")
def center_crop_pad(draft: Draft) -> None:
    dims = draft.dims(1, 4, filled=True)
    axes = draft.attribute("axes", [draft.axis(len(dims))], default=list(range(len(dims))))
    draft.tensor(dims)
    draft.read(np.array([draft.one(1, 2, 3, 5, 6) for _ in axes]).astype(draft.type_of("Tind")))
    draft.exact = True


@builds("ReverseSequence")
def reverse_sequence(draft: Draft) -> None:
    dims = draft.dims(2, 4, filled=True)
    batch, time = draft.one((0, 1), (1, 0))
    if batch != 1 or draft.chance():
        draft.set("batch_axis", batch)
        draft.set("time_axis", time)
    else:
        batch, time = 1, 0
    draft.tensor(dims)
    draft.read(draft.rng.integers(1, dims[time] + 1, dims[batch]).astype(np.int64))
    draft.exact = True


@builds("Shape", "Size")
def shape(draft: Draft) -> None:
    dims = draft.dims()
    draft.attribute("start", 0, 1, -1, -2, 7)
    draft.attribute("end", 0, 2, -1, 7, -7)
    draft.tensor(dims, "T")
    draft.exact = True


@builds("ConstantOfShape")
def constant_of_shape(draft: Draft) -> None:
    if draft.chance(0.8):
        dtype = draft.type_of("T2")
        draft.set("value", numpy_helper.from_array(draft.values((1,), dtype, draft.one("plain", "edges")), "value"))
    draft.read(np.array(draft.dims(0, 4), np.int64))
    draft.exact = True


@builds("EyeLike")
def eye_like(draft: Draft) -> None:
    draft.attribute("k", 0, 1, -1, 5)
    draft.attribute("dtype", *draft.allowed("T2"))
    draft.tensor(draft.dims(2, 2, filled=True), "T1")
    draft.exact = True


@builds("Range")
def range_(draft: Draft) -> None:
    dtype = draft.type_of("T")
    draft.attribute("stash_type", 1)
    start, limit, step = draft.one((0, 5, 1), (3, 11, 2), (1, 1, 1), (0, 1, 5))
    if not dtype.name.startswith("u") and draft.chance(0.4):
        start, limit, step = draft.one((5, -1, -2), (-3, 4, 3), (4, 5, -1))
    if is_float(dtype) and draft.chance(0.4):
        start, limit, step = draft.one((0.25, 2.0, 0.5), (1.0, -1.0, -0.75))
    for value in (start, limit, step):
        draft.read(np.asarray(value).astype(dtype))


@builds("OneHot")
def one_hot(draft: Draft) -> None:
    """Indices out of range give a row of off values."""
    dims, depth = draft.dims(0, 3), draft.one(1, 3, 4)
    draft.attribute("axis", int(draft.rng.integers(-len(dims) - 1, len(dims) + 1)))
    index = draft.type_of("T1")
    low = 0 if index.name.startswith("u") or draft.version < 11 else -depth
    high = depth if draft.version < 11 or draft.chance() else depth + 2
    draft.read(draft.rng.integers(low, high, dims).astype(index))
    draft.read(np.asarray(depth).astype(draft.type_of("T2")).reshape(draft.one((), (1,))))
    draft.read(draft.values((2,), draft.type_of("T3"), "positive"))
    draft.exact = True


@builds("NonZero")
def non_zero(draft: Draft) -> None:
    draft.tensor(draft.dims(1, 4), kind="ties")
    draft.exact = True


@builds("Compress")
def compress(draft: Draft) -> None:
    dims = draft.dims(1, 3, filled=True)
    axis = draft.attribute("axis", draft.axis(len(dims)))
    length = dims[axis] if axis is not None else math.prod(dims)
    draft.tensor(dims)
    draft.read(draft.rng.random(length - draft.one(0, 0, 1) if length > 1 else length) < 0.6)
    draft.exact = True


@builds("Unique")
def unique(draft: Draft) -> None:
    dims = draft.dims(1, 3, filled=True)
    draft.attribute("axis", draft.axis(len(dims)))
    draft.attribute("sorted", 1)
    draft.tensor(dims, kind="ties")
    draft.results("y1", "y2", "y3")
    draft.exact = True


@builds("Trilu")
def trilu(draft: Draft) -> None:
    draft.attribute("upper", 0, 1)
    draft.tensor(draft.dims(2, 4))
    if draft.optional("k"):
        draft.read(np.asarray(draft.one(0, 1, -1, 3, -5), np.int64).reshape(draft.one((), ())))
    draft.exact = True


@builds("Constant")
def constant(draft: Draft) -> None:
    """Each kind of attribute; the value is added to an input, since a network reads something."""
    kinds = [name for name in ("value", "value_float", "value_floats", "value_int", "value_ints") if draft.has(name)]
    kind = draft.one(*kinds)
    if kind == "value":
        number = draft.one(*draft.allowed("T"))
        dtype = helper.tensor_dtype_to_np_dtype(number)
        draft.set(
            kind, numpy_helper.from_array(draft.values(draft.dims(0, 3), dtype, draft.one("plain", "edges")), "value")
        )
    else:
        values = {
            "value_float": 1.5,
            "value_floats": [0.5, -2.0],
            "value_int": 2**24 + 1,
            "value_ints": [3, -(2**31) - 1],
        }
        draft.set(kind, values[kind])
    draft.exact = True


@builds("MelWeightMatrix")
def mel(draft: Draft) -> None:
    draft.attribute("output_datatype", TensorProto.FLOAT, TensorProto.DOUBLE)
    whole, real = draft.type_of("T1", ("int32", "int64")), draft.type_of("T2")
    for value in (draft.one(4, 8), draft.one(16, 32), 8000):
        draft.read(np.asarray(value).astype(whole))
    draft.read(np.asarray(draft.one(0.0, 100.0)).astype(real))
    draft.read(np.asarray(4000.0).astype(real))
