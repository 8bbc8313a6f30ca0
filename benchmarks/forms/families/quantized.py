"""Codes and their scales."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from ..draft import Draft, Unfit, is_whole
from .table import builds

_WHOLE = ("int8", "uint8", "int16", "uint16", "int32", "int4", "uint4", "int2", "uint2")


def _scale(draft: Draft, dims: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return draft.rng.choice([0.02, 0.05, 0.11, 0.013], dims).astype(dtype)


def _granularity(draft: Draft, dims: tuple[int, ...]) -> tuple[int, ...]:
    """Dims of scales: for the tensor, for an axis, for blocks of an axis; sets axis and block_size."""
    how = draft.one("tensor", "axis", "blocks" if draft.has("block_size") else "axis")
    if how == "tensor" or not draft.has("axis") or len(dims) < 1:
        return draft.one((), (), (1,)) if len(dims) != 1 or dims[0] != 1 else ()
    axis = int(draft.rng.integers(-len(dims), len(dims)))
    if axis != 1 or draft.chance():
        draft.set("axis", axis)
    if how == "axis":
        return (dims[axis],)
    size = dims[axis]
    block = draft.one(*(b for b in (1, 2, 3, 4) if b <= size))
    draft.set("block_size", block)
    scales = list(dims)
    scales[axis] = -(-size // block)
    return tuple(scales)


@builds("QuantizeLinear")
def quantize(draft: Draft) -> None:
    dims = draft.dims(2, 4, filled=True)
    source = draft.type_of_input(0)
    draft.read(draft.values(dims, source, "plain"))
    scales = _granularity(draft, dims)
    scale_type = (
        source if draft.schema.inputs[1].type_str == draft.schema.inputs[0].type_str else draft.type_of_input(1)
    )
    if is_whole(scale_type):
        scale_type = np.dtype(np.float32)
    draft.read(_scale(draft, scales, scale_type))
    target = draft.type_of_input(2)
    if draft.optional("y_zero_point", 0.75):
        whole = target.name in _WHOLE
        draft.read(draft.values(scales, target, "plain") if whole else np.zeros(scales, target))
        if draft.has("output_dtype") and draft.chance(0.2):
            draft.set("output_dtype", helper.np_dtype_to_tensor_dtype(target))
    elif draft.has("output_dtype") and draft.chance(0.6):
        draft.set("output_dtype", helper.np_dtype_to_tensor_dtype(target))
    draft.attribute("saturate", 0, 1)
    if draft.has("precision"):
        draft.attribute("precision", TensorProto.FLOAT)


@builds("DequantizeLinear")
def dequantize(draft: Draft) -> None:
    dims = draft.dims(2, 4, filled=True)
    source = draft.type_of_input(0)
    draft.read(draft.values(dims, source, "edges" if source.name in _WHOLE else "plain"))
    scales = _granularity(draft, dims)
    draft.read(_scale(draft, scales, draft.type_of_input(1)))
    if draft.optional("x_zero_point", 0.7):
        zero = source.name == "int32" or source.name not in _WHOLE
        draft.read(np.zeros(scales, source) if zero else draft.values(scales, source))
    if draft.has("output_dtype") and draft.chance(0.3):
        draft.attribute("output_dtype", *draft.allowed("T3"))


@builds("DynamicQuantizeLinear")
def dynamic(draft: Draft) -> None:
    draft.tensor(draft.dims(1, 4, filled=True), "T1", draft.one("plain", "positive"))
    draft.outputs = ["y0", "y1", "y2"]


@builds("QLinearConv")
def qlinear_conv(draft: Draft) -> None:
    axes = draft.one(1, 2, 2, 3)
    kernel = [draft.one(1, 2, 3) for _ in range(axes)]
    strides = draft.attribute("strides", [draft.one(1, 2) for _ in kernel])
    del strides
    if draft.chance(0.7):
        draft.attribute("pads", [draft.one(0, 1, 2) for _ in range(2 * axes)])
    elif draft.chance():
        draft.set("auto_pad", draft.one("SAME_UPPER", "SAME_LOWER", "VALID"))
    draft.attribute("kernel_shape", kernel)
    group = draft.one(1, 1, 2)
    if group > 1:
        draft.set("group", group)
    channels, filters = group * draft.one(1, 2, 3), group * draft.one(1, 2, 4)
    x, w, y = (draft.type_of(name) for name in ("T1", "T2", "T3"))
    per_channel = (filters,) if draft.chance(0.5) else ()
    draft.read(draft.values((1, channels, *(k + draft.one(0, 2, 4) for k in kernel)), x, "edges"))
    draft.read(_scale(draft, (), np.dtype(np.float32)))
    draft.read(draft.values((), x))
    draft.read(draft.values((filters, channels // group, *kernel), w, "edges"))
    draft.read(_scale(draft, per_channel, np.dtype(np.float32)))
    zero = draft.values((), w) if draft.chance() else np.zeros((), w)
    draft.read(np.broadcast_to(zero, per_channel).copy() if w.name == "uint8" else np.zeros(per_channel, w))
    draft.read(np.asarray(draft.one(0.1, 0.3), np.float32))
    draft.read(draft.values((), y))
    if draft.optional("B"):
        draft.read(draft.rng.integers(-100, 100, (filters,)).astype(np.int32))


@builds("QLinearMatMul")
def qlinear_matmul(draft: Draft) -> None:
    m, k, n = draft.one(1, 2, 3), draft.one(1, 2, 4), draft.one(1, 3)
    batch = draft.dims(0, 1, filled=True)
    a, b, y = (draft.type_of(name) for name in ("T1", "T2", "T3"))
    real = draft.type_of("TS") if draft.version >= 21 else np.dtype(np.float32)
    columns = (n,) if draft.chance(0.3) and not batch else ()
    draft.read(draft.values((*batch, m, k), a, "plain" if "float" in a.name else "edges"))
    draft.read(_scale(draft, (), real))
    draft.read(np.zeros((), a) if "float" in a.name else draft.values((), a))
    draft.read(draft.values((*batch, k, n), b, "plain" if "float" in b.name else "edges"))
    draft.read(_scale(draft, columns, real))
    draft.read(np.zeros(columns, b))
    draft.read(np.asarray(draft.one(0.1, 0.3)).astype(real))
    draft.read(np.zeros((), y) if "float" in y.name else draft.values((), y))
    if any("float" in each.name for each in (a, b, y)) and draft.chance(0.8):
        raise Unfit("FP8 products are few")
