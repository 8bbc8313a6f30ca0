"""Operators on codes of 8 bits that onnxruntime's quantizer writes."""

from __future__ import annotations

import numpy as np

from ..draft import Draft, Unfit
from .quantized import _scale
from .table import builds_contrib

_F = np.dtype(np.float32)
_SCALARS = ("QLinearAdd", "QLinearAveragePool", "QLinearMul", "QLinearReduceMean")
"""Operators whose scales onnxruntime takes as scalars alone."""
_STEPS = (0.02, 0.05, 0.11, 0.3)


def _pair(draft: Draft, kind: np.dtype, name: str = "", constant: bool | None = None) -> None:
    """Add a scale and a zero point, which is left out in some draws if ``name`` says the optional input."""
    dims = () if draft.name.rpartition(".")[2] in _SCALARS else draft.one((), (), (), (1,))
    draft.read(np.full(dims, draft.one(*_STEPS), _F), constant=constant)
    if not name or draft.optional(name, 0.7):
        draft.read(draft.values(dims, kind, draft.one("plain", "edges")), constant=constant)


def _codes(draft: Draft, dims: tuple[int, ...], variable: str = "T", name: str = "") -> None:
    """Add codes with their scale and zero point."""
    draft.tensor(dims, variable, "edges")
    _pair(draft, draft.type_of(variable), name)


@builds_contrib("QLinearAdd QLinearMul")
def add(draft: Draft) -> None:
    dims = draft.dims(0, 4, filled=draft.chance(0.9))
    first, second = (
        tuple(1 if draft.chance(0.15) else size for size in dims[draft.one(0, 0, 0, len(dims) // 2) :]) for _ in "ab"
    )
    _codes(draft, first, name="A_zero_point")
    _codes(draft, second, name="B_zero_point")
    _pair(draft, draft.type_of("T"), "C_zero_point")
    draft.shape = np.broadcast_shapes(first, second)


@builds_contrib("QLinearLeakyRelu QLinearSigmoid")
def one(draft: Draft) -> None:
    draft.attribute("alpha", 0.01, 0.2, -0.5)
    draft.shape = draft.dims(0, 4)
    _codes(draft, draft.shape, name="X_zero_point")
    _pair(draft, draft.type_of("T"), "Y_zero_point")


@builds_contrib("QLinearSoftmax")
def softmax(draft: Draft) -> None:
    """Of its opset, which an attribute says: since 13 over one axis, before that over all behind it, too."""
    draft.shape = draft.dims(1, 4, filled=True)
    draft.set("opset", draft.one(9, 11, 12, 13, 13, 13, 17))
    draft.attribute("axis", *range(-len(draft.shape), len(draft.shape)))
    _codes(draft, draft.shape, name="x_zero_point")
    kind = draft.type_of("T")
    draft.read(np.asarray(1 / 256, _F))
    draft.read(np.asarray(np.iinfo(kind).min if draft.chance(0.7) else draft.one(0, 3), kind))


@builds_contrib("QLinearReduceMean")
def reduce_mean(draft: Draft) -> None:
    dims = draft.dims(1, 4, filled=True)
    chosen = sorted({int(axis) for axis in draft.rng.integers(-len(dims), len(dims), draft.one(1, 2))})
    axes = [axis for axis in chosen if axis < 0 or axis - len(dims) not in chosen]
    draft.set("axes", axes)
    draft.set("keepdims", draft.one(0, 1))
    _codes(draft, dims, name="data_zero_point")
    _pair(draft, draft.type_of("T"), "reduced_zero_point")


@builds_contrib("QLinearConcat")
def concat(draft: Draft) -> None:
    """Of tensors with each their scale and zero point."""
    dims = draft.dims(1, 4, filled=True)
    axis = draft.axis(len(dims))
    draft.set("axis", axis)
    kind = draft.type_of("T8")
    _pair(draft, kind)
    sizes = [draft.one(1, 2, 3) for _ in range(draft.one(1, 2, 2, 3))]
    for size in sizes:
        part = [*dims]
        part[axis] = size
        draft.read(draft.values(part, kind, "edges"))
        _pair(draft, kind)
    draft.shape = [*dims]
    draft.shape[axis] = sum(sizes)


@builds_contrib("QLinearWhere")
def where(draft: Draft) -> None:
    """Scales and zero points are constants: onnxruntime ends the process where a scale is one, and its zero point is not."""
    dims = draft.dims(1, 3, filled=True)
    part = draft.one(dims, dims, dims[-1:], (1,))
    draft.read(draft.values(draft.one(dims, part), np.dtype(np.bool_)))
    for shape in (dims, part):
        draft.tensor(shape, "T", "edges")
        _pair(draft, draft.type_of("T"), constant=True)
    _pair(draft, draft.type_of("T"), constant=True)
    draft.shape = dims


def _to_last(dims: tuple[int, ...]) -> tuple[int, ...]:
    return (dims[0], *dims[2:], dims[1])


def _window(draft: Draft, kernel: list[int], *, dilated: bool = True) -> None:
    how = draft.one("pads", "pads", "auto", "none")
    draft.attribute("strides", [draft.one(1, 2) for _ in kernel])
    if how == "pads":
        draft.attribute("pads", [draft.one(0, 1) if k > 1 else 0 for k in (*kernel, *kernel)])
        if dilated:
            draft.attribute("dilations", [draft.one(1, 2) for _ in kernel])
    elif how == "auto":
        draft.attribute("auto_pad", "SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")


@builds_contrib("QLinearAveragePool")
def average_pool(draft: Draft) -> None:
    axes = draft.one(1, 2, 2, 2, 3)
    kernel = [draft.one(1, 2, 3) for _ in range(axes)]
    draft.set("kernel_shape", kernel)
    _window(draft, kernel)
    draft.attribute("ceil_mode", 0, 1)
    draft.attribute("count_include_pad", 0, 1)
    dims = (draft.one(1, 2), draft.one(1, 3), *(k + draft.one(2, 3, 4) for k in kernel))
    last = draft.attribute("channels_last", 0, 1, default=0)
    _codes(draft, _to_last(dims) if last else dims, name="x_zero_point")
    _pair(draft, draft.type_of("T"), "y_zero_point")


@builds_contrib("QLinearGlobalAveragePool")
def global_average_pool(draft: Draft) -> None:
    dims = (draft.one(1, 2), draft.one(1, 3), *draft.dims(1, 3, filled=True))
    last = draft.attribute("channels_last", 0, 1, default=0)
    _codes(draft, _to_last(dims) if last else dims)
    _pair(draft, draft.type_of("T"))


@builds_contrib("NhwcMaxPool")
def max_pool(draft: Draft) -> None:
    kernel = [draft.one(1, 2, 3) for _ in range(draft.one(1, 2, 2, 2, 3))]
    draft.set("kernel_shape", kernel)
    _window(draft, kernel)
    draft.attribute("ceil_mode", 0, 1)
    draft.tensor((draft.one(1, 2), *(2 * k + draft.one(1, 2, 3) for k in kernel), draft.one(1, 3)), "T", "edges")
    draft.exact = True


@builds_contrib("QLinearConv")
def conv(draft: Draft) -> None:
    """Codes of different types, and channels that are innermost."""
    axes = draft.one(1, 2, 2, 2, 3)
    kernel = [draft.one(1, 2, 3) for _ in range(axes)]
    _window(draft, kernel)
    draft.attribute("kernel_shape", kernel)
    group = draft.one(1, 1, 2)
    draft.attribute("group", group, always=group > 1)
    channels, filters = group * draft.one(1, 2, 3), group * draft.one(1, 2, 4)
    last = draft.attribute("channels_last", 0, 1, default=0)
    x, w = draft.type_of("T1"), draft.type_of("T2")
    draft.types["T3"] = x if draft.chance(0.8) else draft.type_of("T3")
    per_channel = draft.one((), (filters,))
    dims = (1, channels, *(2 * k + draft.one(0, 2, 3) for k in kernel))
    draft.read(draft.values(_to_last(dims) if last else dims, x, "edges"))
    _pair(draft, x)
    draft.read(draft.values((filters, channels // group, *kernel), w, "edges"))
    draft.read(_scale(draft, per_channel, _F))
    zero = draft.values((), w) if draft.chance() else np.zeros((), w)
    draft.read(np.broadcast_to(zero, per_channel).copy() if w.name == "uint8" else np.zeros(per_channel, w))
    _pair(draft, draft.type_of("T3"))
    if draft.optional("B"):
        draft.read(draft.rng.integers(-500, 500, (filters,)).astype(np.int32))


@builds_contrib("QGemm")
def gemm(draft: Draft) -> None:
    """The result is codes, or numbers where it has no scale."""
    m, k, n = draft.one(1, 2, 3), draft.one(1, 2, 5), draft.one(1, 3, 4)
    a, b = draft.attribute("transA", 0, 1, default=0), draft.attribute("transB", 0, 1, default=0)
    draft.attribute("alpha", 0.5, 1.0, 2.0)
    columns = draft.one((), (), (1,), (n,))
    draft.shape = (m, n)
    _codes(draft, (k, m) if a else (m, k), "TA")
    draft.tensor((n, k) if b else (k, n), "TB", "edges")
    draft.read(_scale(draft, columns, _F))
    draft.read(draft.values(columns, draft.type_of("TB")) if draft.chance() else np.zeros(columns, draft.type_of("TB")))
    if draft.optional("C", 0.5):
        draft.read(draft.rng.integers(-500, 500, draft.one((m, n), (n,), (1, n), (m, 1), (1,), ())).astype(np.int32))
    draft.types["TY"] = _F
    if draft.optional("y_scale", 0.6):
        draft.read(np.asarray(draft.one(0.1, 0.3, 1.0), _F))
        draft.types["TY"] = draft.type_of("TYZ")
        draft.read(draft.values((), draft.types["TY"]))
    draft.loose = 8.0


def _product(draft: Draft) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Dims of two matrices, and of the scales of the second: of all, or of each column."""
    m, k, n = draft.one(1, 2, 3), draft.one(1, 2, 5), draft.one(1, 3, 4)
    batch = draft.dims(0, 2, filled=True)
    second = draft.one((k, n), (*batch, k, n))
    draft.shape = (*batch, m, n)
    columns = draft.one((), (1,), (n,)) if len(second) == 2 else draft.one((), (1,))
    return (*batch, m, k), second, columns


@builds_contrib("MatMulIntegerToFloat")
def integer_to_float(draft: Draft) -> None:
    first, second, columns = _product(draft)
    draft.tensor(first, "T1", "edges")
    draft.tensor(second, "T2", "edges")
    real = draft.type_of("T3")
    draft.read(np.full(draft.one((), (1,)), draft.one(0.02, 0.05), real))
    draft.read(_scale(draft, columns, real))
    if draft.optional("a_zero_point"):
        draft.tensor((), "T1")
    if draft.optional("b_zero_point"):
        draft.tensor(columns, "T2")
    if draft.optional("bias", 0.4):
        draft.tensor(second[-1:], "T3")
    draft.loose = 8.0


@builds_contrib("DynamicQuantizeMatMul")
def dynamic_product(draft: Draft) -> None:
    """Its numbers become codes on their way, by their least and largest one."""
    first, second, columns = _product(draft)
    draft.tensor(first, "T1", draft.one("plain", "positive"))
    draft.tensor(second, "T2", "edges")
    draft.read(_scale(draft, columns, _F))
    if draft.optional("b_zero_point"):
        draft.tensor(columns, "T2")
    if draft.optional("bias", 0.4):
        draft.tensor(second[-1:], "T1")
    draft.loose = 8.0


@builds_contrib("QuantizeLinear")
def quantize(draft: Draft) -> None:
    dims, scales, real = _linear(draft, "T1")
    if draft.opset < 21 and draft.type_of("T2").name in ("int4", "uint4"):
        raise Unfit("no operator of this opset reads codes of 4 bits")
    draft.read(draft.values(dims, real, "plain"))
    draft.read(_scale(draft, scales, real))
    if draft.chance(0.25):
        draft.types["T2"] = np.dtype(np.uint8)
        draft.skip()
    else:
        small = draft.type_of("T2").name in ("int4", "uint4") or None
        draft.tensor(scales, "T2", draft.one("plain", "edges"), constant=small)


@builds_contrib("DequantizeLinear")
def dequantize(draft: Draft) -> None:
    dims, scales, real = _linear(draft, "T2")
    codes = draft.type_of("T1")
    small = codes.name in ("int4", "uint4") or None  # what stands at the border of a model has whole bytes
    draft.read(draft.values(dims, codes, "edges"), constant=small)
    draft.read(_scale(draft, scales, real))
    if draft.optional("x_zero_point", 0.7):
        zeros = np.zeros(scales, codes) if codes == np.int32 else draft.values(scales, codes)
        draft.read(zeros, constant=small)


def _linear(draft: Draft, real: str) -> tuple[tuple[int, ...], tuple[int, ...], np.dtype]:
    """Dims of the numbers and of the scales, which belong to the tensor or to an axis, and the type of the scales."""
    draft.shape = dims = draft.dims(2, 4, filled=True)
    scales = draft.one((), (), (1,))
    if draft.chance():
        axis = int(draft.rng.integers(-len(dims), len(dims)))
        draft.attribute("axis", axis, always=axis != 1)
        scales = (dims[axis],)
    return dims, scales, draft.type_of(real)
