"""Operators on single elements, of one tensor or of several that broadcast."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from ..draft import Draft, Unfit, element_type, is_float, is_whole
from .table import builds

_UNIT = {"Acos", "Asin", "Atanh"}
_POSITIVE = {"Log", "Sqrt", "Acosh"}
_OF_FEW_DIGITS = {"Cosh", "Sinh", "Exp", "Tan", "Det", "Mish", "Gelu", "Erf", "HardSigmoid", "Pow"}


@builds(
    "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity",
    "IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus",
    "Softsign Sqrt Swish Tan Tanh ThresholdedRelu BitwiseNot",
)
def unary(draft: Draft) -> None:
    """One tensor; constants of float are drawn at 0, at negative values and above 1."""
    for name in ("alpha", "beta", "gamma", "bias", "lambd"):
        draft.attribute(name, 0.0, 0.5, 1.0, -0.3, 2.0)
    draft.attribute("approximate", "none", "tanh")
    draft.attribute("detect_negative", 0, 1)
    draft.attribute("detect_positive", 0, 1)
    draft.attribute("consumed_inputs", [0])
    dtype = draft.type_of_input(0)
    kind = "wild" if draft.chance(0.4) else "plain"
    if draft.name in _UNIT:
        kind = "unit"
    if draft.name in _POSITIVE:
        kind = "positive" if draft.chance(0.7) else "plain"
    if draft.name == "Celu" and draft.attributes.get("alpha") == 0.0:
        raise Unfit("divides by alpha")
    if draft.name in ("Shrink", "Abs", "Neg", "Sign") and is_whole(dtype):
        kind = "plain" if draft.chance(0.7) else "edges"
        if draft.name == "Shrink":
            kind = "plain"
            draft.attributes["bias"] = float(draft.one(0, 1, 2))
            if dtype.name.startswith("u"):
                draft.attributes["lambd"] = 2.0
    draft.exact = draft.name in (
        "Identity",
        "Neg",
        "Abs",
        "Not",
        "Ceil",
        "Floor",
        "Round",
        "Sign",
        "BitwiseNot",
        "IsNaN",
        "IsInf",
    )
    draft.loose = 4.0 if draft.name in _OF_FEW_DIGITS else 1.0
    draft.read(draft.values(draft.dims(), dtype, kind))


def _second_dims(draft: Draft, dims: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Dims of two tensors that broadcast: equal, a scalar, fewer axes, ones on either side."""
    first, second = list(dims), list(dims)
    for axis in range(len(dims)):
        if draft.chance(0.25):
            second[axis] = 1
        elif draft.chance(0.12):
            first[axis] = 1
    cut = draft.one(0, 0, 0, 1, 2, len(dims))
    shorter = tuple(second[min(cut, len(second)) :])
    return (tuple(first), shorter) if draft.chance(0.8) else (shorter, tuple(first))


def _legacy(draft: Draft) -> bool:
    """Dims of an operator before opset 7, which broadcasts only with an attribute, from an axis on."""
    if not draft.has("broadcast"):
        return False
    draft.attribute("consumed_inputs", [0, 0])
    dims = draft.dims(1, 4, filled=True)
    second = dims
    if draft.chance(0.7):
        draft.set("broadcast", 1)
        begin = int(draft.rng.integers(len(dims)))
        end = int(draft.rng.integers(begin, len(dims) + 1))
        second = dims[begin:end]
        if end != len(dims) or draft.chance():
            if not second:
                raise Unfit("an axis of a scalar")
            draft.set("axis", begin)
        if draft.chance(0.2):
            second = ()
            draft.attributes.pop("axis", None)
    _operands(draft, dims, second)
    return True


def _operands(draft: Draft, first: tuple[int, ...], second: tuple[int, ...]) -> None:
    dtype = draft.type_of_input(0)
    other = draft.type_of_input(1)
    kind = "plain"
    if is_float(dtype) and draft.chance(0.3):
        kind = "wild"
    if is_whole(dtype) and draft.chance(0.35):
        kind = "edges"
    if draft.name == "Div" or draft.name == "Mod":
        a, b = draft.values(first, dtype, kind), draft.values(second, other, "positive")
        if draft.name == "Mod":
            fmod = draft.attribute("fmod", 0, 1, default=0)
            if is_float(dtype) and not fmod:
                draft.set("fmod", 1)
            a = draft.values(first, dtype, "plain" if is_float(dtype) else kind)
        if is_whole(other) and not other.name.startswith("u") and draft.chance(0.5):
            b = np.asarray(-b).astype(other)
        if np.any(b.astype(np.float64) == 0):
            raise Unfit("division by 0")
    elif draft.name == "Pow":
        a = draft.values(first, dtype, "positive" if draft.chance() else "plain")
        b = draft.values(second, other, "plain")
        if is_whole(other):
            b = np.abs(np.clip(b.astype(np.int64), -3, 3)).astype(other)
        if is_whole(dtype):
            b = np.abs(np.round(b.astype(np.float64))).clip(0, 3).astype(other)
        if is_float(dtype) and is_float(other) and np.any(a.astype(np.float64) < 0):
            b = np.round(b.astype(np.float64)).astype(other)
    elif draft.name == "BitShift":
        draft.attribute("direction", "LEFT", "RIGHT")
        a, b = draft.values(first, dtype, kind), draft.values(second, other)
        b = np.minimum(b, np.asarray(7, b.dtype))
    else:
        if draft.name in ("Add", "Sub", "Mul") and kind == "edges":
            kind = "edges" if draft.chance() else "plain"
        a, b = draft.values(first, dtype, kind), draft.values(second, other, kind if draft.chance() else "plain")
        if draft.name not in ("Add", "Sub", "Mul", "PRelu") and a.size and b.size and draft.chance():
            flat = b.reshape(-1)
            flat[: len(flat) // 2 + 1] = np.resize(a.reshape(-1), len(flat))[: len(flat) // 2 + 1].astype(
                b.dtype
            )  # equal values
    draft.read(a)
    draft.read(b)


@builds(
    "Add Sub Mul Div Pow Mod And Or Xor Equal Less Greater LessOrEqual GreaterOrEqual BitShift BitwiseAnd BitwiseOr",
    "BitwiseXor SwiGLU",
)
def binary(draft: Draft) -> None:
    """Two tensors that broadcast, before opset 7 by attributes."""
    draft.loose = 4.0 if draft.name in _OF_FEW_DIGITS else 1.0
    if draft.name == "SwiGLU":
        draft.attribute("alpha", 0.5, 1.0, 1.7)
        dims = draft.dims(1, 4)
        _operands(draft, dims, dims)
    elif not _legacy(draft):
        _operands(draft, *_second_dims(draft, draft.dims()))


@builds("PRelu")
def prelu(draft: Draft) -> None:
    """Slopes: one number, one for each channel (before opset 7 without further axes), or such as broadcast to the first tensor."""
    draft.attribute("consumed_inputs", [0, 0])
    dims = draft.dims(2, 4, filled=True)
    dtype = draft.type_of("T")
    if draft.version < 7:
        slopes: tuple[int, ...] = (dims[1],) if draft.chance(0.7) else (1,)
    else:
        slopes = draft.one((1,), dims, (dims[1],) + (1,) * (len(dims) - 2), (dims[-1],), dims[1:], ())
    draft.read(draft.values(dims, dtype, "edges" if is_whole(dtype) and draft.chance() else "plain"))
    draft.read(draft.values(slopes, dtype))


@builds("Max", "Min", "Sum", "Mean")
def variadic(draft: Draft) -> None:
    """One to four tensors that broadcast from opset 8 on."""
    draft.attribute("consumed_inputs", [0])
    dims = draft.dims(0, 4)
    dtype = draft.type_of("T")
    kind = draft.one("plain", "edges" if is_whole(dtype) else "wild")
    for _ in range(draft.one(1, 2, 2, 3, 4)):
        each = _second_dims(draft, dims)[1] if draft.opset >= 8 else dims
        draft.read(draft.values(each, dtype, kind))


@builds("Where")
def where(draft: Draft) -> None:
    """A condition and two tensors, which broadcast."""
    dims = draft.dims()
    dtype = draft.type_of("T")
    draft.tensor(_second_dims(draft, dims)[1], "B")
    kind = draft.one("plain", "wild")
    for _ in range(2):
        draft.read(draft.values(_second_dims(draft, dims)[1], dtype, kind))
    draft.exact = True


@builds("Clip")
def clip(draft: Draft) -> None:
    """Bounds as attributes, or as inputs of which either may be left out."""
    dtype = draft.type_of("T")
    low, high = draft.one((-1.0, 1.0), (0.0, 6.0), (1.0, 2.0), (2.0, -1.0))
    if draft.version < 11:
        draft.attribute("consumed_inputs", [0])
        if low <= high:
            draft.attribute("min", low)
            draft.attribute("max", high)
        draft.tensor(draft.dims(), kind=draft.one("plain", "wild"))
        return
    if dtype.name.startswith("u"):
        low, high = abs(low), abs(high)
    draft.read(draft.values(draft.dims(), dtype, draft.one("plain", "wild", "edges")))
    for name, value in (("min", low), ("max", high)):
        if draft.optional(name, 0.65):
            draft.read(np.asarray(value, np.float64).astype(dtype))
    draft.exact = True


_FP8 = ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0", "float4e2m1")


def _target_types(draft: Draft, variable: str) -> list[int]:
    return [number for number in draft.allowed(variable) if number]


@builds("Cast", "CastLike")
def cast(draft: Draft) -> None:
    """From each type to each; numbers that the target cannot hold are drawn only for floats."""
    source = draft.type_of("T1")
    targets = _target_types(draft, "T2")
    number = int(draft.one(*targets))
    target = helper.tensor_dtype_to_np_dtype(number)
    kind = "plain"
    if is_float(target) and draft.chance(0.4):
        kind = "wild" if is_float(source) else "edges"
    if target == np.bool_ and draft.chance():
        kind = "wild"
    values = draft.values(draft.dims(), source, kind)
    if (is_whole(target) or target.name in _FP8) and values.size and target != np.bool_:
        wide = values.astype(np.float64)
        if not np.all(np.isfinite(wide)) or (target.name.startswith("u") and wide.min(initial=0) <= -1):
            values = np.abs(np.nan_to_num(wide)).clip(0, 3).astype(source)
    if is_whole(source) and is_whole(target) and draft.chance(0.4) and target.itemsize > 1:
        values = draft.values(values.shape, source, "edges")
    draft.read(values)
    if draft.name == "Cast":
        names = {value: name for name, value in TensorProto.DataType.items()}
        draft.set("to", names[number] if draft.version < 6 else number)
    else:
        draft.read(draft.values((1,), target, "positive"))
    draft.attribute("saturate", 0, 1)
    draft.attribute("round_mode", "up", "down", "nearest")
    draft.exact = True


@builds("BitCast")
def bit_cast(draft: Draft) -> None:
    """To a type of as many bits."""
    source = draft.type_of("T1")
    sizes = [
        number
        for text in next(c.allowed_type_strs for c in draft.schema.type_constraints if c.type_param_str == "T2")
        if (number := element_type(text)) and helper.tensor_dtype_to_np_dtype(number).itemsize == source.itemsize
    ]
    draft.set("to", int(draft.one(*sizes)))
    draft.read(draft.values(draft.dims(), source))
    draft.exact = True


@builds("Dropout")
def dropout(draft: Draft) -> None:
    """In inference, where it changes nothing."""
    draft.attribute("consumed_inputs", [0])
    draft.attribute("ratio", 0.0, 0.5, 0.9)
    draft.attribute("seed", 3)
    draft.attribute("is_test", 1, always=True)
    draft.tensor(draft.dims())
    if draft.optional("ratio"):
        draft.read(np.asarray(draft.one(0.0, 0.3, 0.9)).astype(draft.type_of("T1")))
    if draft.optional("training_mode"):
        draft.read(np.asarray(False), constant=True)
    draft.results("y1")
    if draft.version < 12 and len(draft.outputs) > 1 and draft.version < 10:
        draft.outputs = ["y0"]  # the mask of an inference is not said to be anything
    draft.exact = True
