"""What onnxruntime's optimizer fuses from floating-point operators."""

from __future__ import annotations

import numpy as np

from ..draft import Draft
from .table import builds, builds_contrib

_CONV_ACTIVATIONS = {
    "Relu": (),
    "Tanh": (),
    "Sigmoid": (),
    "LeakyRelu": (0.01, 0.2),
    "Clip": (),
    "HardSigmoid": (),
}
_GEMM_ACTIVATIONS = {
    "Relu": "",
    "Sigmoid": "",
    "Tanh": "",
    "Softplus": "",
    "Softsign": "",
    "LeakyRelu": "alpha",
    "Elu": "alpha",
    "ThresholdedRelu": "alpha",
    "HardSigmoid": "alpha beta",
    "Selu": "alpha gamma",
}
"""Activation functions → the numbers that they have."""


def _numbers(draft: Draft, kind: str) -> None:
    """Add numbers of `shape`, a large one among them: errors in half precision are relative to it."""
    values = draft.values(draft.shape or (), draft.type_of("T"), kind)
    values[(slice(0, 1),) * values.ndim] = 4
    draft.read(values)
    draft.loose = 4.0


@builds_contrib("Gelu QuickGelu")
def gelu(draft: Draft) -> None:
    draft.shape = draft.dims()
    draft.attribute("alpha", 1.702, 1.0, 0.5, -1.0)
    _numbers(draft, draft.one("plain", "wild") if draft.name.endswith(".Gelu") else "plain")


@builds_contrib("BiasGelu FastGelu")
def bias_gelu(draft: Draft) -> None:
    draft.shape = draft.dims(1, 4)
    _numbers(draft, "plain")
    if not draft.has_input("bias") or draft.optional("bias"):
        draft.tensor(draft.shape[-1:])


@builds_contrib("SkipLayerNormalization SkipSimplifiedLayerNormalization")
def skip_norm(draft: Draft) -> None:
    """The second summand may lack the batch, or have one of 1."""
    n, length, width = draft.one(1, 2, 3), draft.one(1, 3, 4), draft.one(1, 4, 8, 7)
    draft.shape = draft.one((n, length, width), (n, length, width), (length, width))
    dims = draft.shape if len(draft.shape) == 2 else draft.one(draft.shape, (1, length, width), (length, width))
    draft.attribute("epsilon", 1e-12, 1e-5, 1e-2)
    draft.tensor(draft.shape)
    draft.tensor(dims)
    draft.tensor((width,))
    for name in ("beta", "bias"):
        if draft.optional(name):
            draft.tensor((width,))
    if draft.chance(0.5):
        draft.outputs = ["y0", "", "", "y3"]
    elif draft.chance(0.15):
        draft.outputs = ["y0", *draft.one(("y1",), ("y1", "y2"), ("", "y2"), ("y1", "y2", "y3"))]
    draft.loose = 32.0 if width == 1 else 8.0


def _norm_axis(draft: Draft) -> tuple[int, ...]:
    """Dims of factors: of the axes from ``axis`` on, which is the last unless it is said."""
    draft.shape = draft.dims(1, 4, filled=True)
    axis = draft.attribute("axis", *range(-len(draft.shape), len(draft.shape)), default=-1)
    draft.attribute("epsilon", 1e-5, 1e-2, 1e-6)
    draft.attribute("stash_type", 1)
    draft.loose = 16.0
    return tuple(draft.shape[axis:])


@builds("SimplifiedLayerNormalization")
def simplified_norm(draft: Draft) -> None:
    """Numbers and factors are of two types."""
    dims = _norm_axis(draft)
    kind = draft.type_of("T")
    draft.types["V"] = kind if draft.chance(0.85) else draft.type_of("V")
    draft.tensor(draft.shape or ())
    draft.tensor(dims, "V")
    if draft.chance(0.15):
        draft.types["U"] = np.dtype(np.float32)
        draft.outputs = ["y0", "y1"]


@builds_contrib("EmbedLayerNormalization QEmbedLayerNormalization")
def embedding(draft: Draft) -> None:
    """Tables of words, places and segments; codes in the quantized form."""
    n, length, width = draft.one(1, 2), draft.one(1, 3, 5), draft.one(4, 6)
    segments, quantized = draft.chance(0.6), draft.has_input("gamma_scale")
    codes = draft.type_of("T2") if quantized else draft.type_of("T")
    draft.shape = (n, length, width)
    draft.attribute("epsilon", 1e-12, 1e-5)
    draft.attribute("mask_index_type", 0, 1)
    draft.read(draft.rng.integers(0, 7, (n, length)).astype(np.int32))
    draft.read(draft.rng.integers(0, 2, (n, length)).astype(np.int32)) if segments else draft.skip()
    draft.tensor((7, width), "T2" if quantized else "T", constant=True)
    draft.tensor((6, width), "T2" if quantized else "T", constant=True)
    draft.read(draft.values((2, width), codes), constant=True) if segments else draft.skip()
    for _ in range(2):
        draft.tensor((width,), "T2" if quantized else "T", constant=True)
    mask = draft.optional("mask")
    if mask:
        lengths = draft.rng.integers(0, length + 1, (n, 1))
        draft.read((np.arange(length) < lengths).astype(np.int32))
    if not quantized and draft.optional("position_ids"):
        draft.read(draft.rng.integers(0, 6, draft.one((n, length), (1, length))).astype(np.int32))
    for zero in (False, True) if quantized else ():
        for table in range(5):
            if table == 2 and not segments:
                draft.skip()
            elif zero:
                draft.read(draft.values((), codes), constant=True)
            else:
                draft.read(np.asarray(draft.one(0.02, 0.05, 0.11), np.float32), constant=True)
    draft.outputs = ["y0", "y1"] if quantized else draft.one(["y0", "y1"], ["y0", "y1", "y2"])
    draft.loose = 16.0


@builds_contrib("FusedConv NhwcFusedConv")
def fused_conv(draft: Draft) -> None:
    """Convolutions, what is added to them, and an activation function with its numbers."""
    last = draft.name.endswith("NhwcFusedConv")
    axes = 2 if last else draft.one(1, 2, 2, 2, 3)
    kernel = [draft.one(1, 2, 3) for _ in range(axes)]
    group = draft.one(1, 1, 2, 3)
    draft.attribute("group", group, always=group > 1)
    channels, filters = group * draft.one(1, 2), group * draft.one(1, 2, 3)
    n, sizes = draft.one(1, 2), [k + draft.one(2, 3, 4) for k in kernel]
    draft.attribute("kernel_shape", kernel)
    strides = draft.attribute("strides", [draft.one(1, 2) for _ in kernel], default=[1] * axes)
    dilations = [1] * axes
    pads = [0] * 2 * axes
    how = draft.one("none", "pads", "pads", "auto")
    if how == "pads":
        pads = draft.attribute("pads", [draft.one(0, 1, 2) for _ in range(2 * axes)], default=pads)
        dilations = draft.attribute("dilations", [draft.one(1, 2) for _ in kernel], default=dilations)
    same = how == "auto" and draft.attribute("auto_pad", "SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET", default="")
    spans = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    if str(same).startswith("SAME"):
        places = [-(-size // stride) for size, stride in zip(sizes, strides, strict=True)]
    else:
        places = [
            (size + pads[i] + pads[i + axes] - spans[i]) // stride + 1
            for i, (size, stride) in enumerate(zip(sizes, strides, strict=True))
        ]
    places = [max(0, size) for size in places]
    activation = draft.attribute("activation", *_CONV_ACTIVATIONS, default="", always=draft.chance(0.7))
    numbers = {
        "LeakyRelu": [draft.one(0.01, 0.2)],
        "Clip": draft.one([-0.5, 0.5], [0.0, 6.0]),
        "HardSigmoid": draft.one([0.2, 0.5], [0.3, 0.4]),
    }
    if activation in numbers:
        draft.set("activation_params", numbers[activation])
    shape, result = (n, channels, *sizes), (n, filters, *places)
    weights = (filters, channels // group, *kernel)
    if last:
        shape, result, weights = ((each[0], *each[2:], each[1]) for each in (shape, result, weights))
    draft.shape = result
    draft.tensor(shape)
    draft.tensor(weights, kind="unit")
    if draft.optional("B"):
        draft.tensor((filters,))
    if draft.optional("Z", 0.35):
        draft.tensor(result)
    draft.loose = 8.0


@builds_contrib("FusedGemm")
def fused_gemm(draft: Draft) -> None:
    m, k, n = draft.one(1, 2, 3), draft.one(1, 2, 5), draft.one(1, 3, 4)
    draft.type_of("T", ("float32", "float16", "float64"))
    draft.attribute("alpha", 0.5, 1.0, 2.0)
    draft.attribute("beta", 0.5, 1.0, 2.0)
    a, b = draft.attribute("transA", 0, 1, default=0), draft.attribute("transB", 0, 1, default=0)
    activation = draft.attribute("activation", *_GEMM_ACTIVATIONS, always=draft.chance(0.9))
    _activation_numbers(draft, activation)
    draft.shape = (m, n)
    draft.tensor((k, m) if a else (m, k))
    draft.tensor((n, k) if b else (k, n))
    if draft.optional("C", 0.6):
        draft.tensor(draft.one((m, n), (n,), (1, n), (m, 1), (1,), ()))
    draft.loose = 8.0


def _activation_numbers(draft: Draft, activation: str | None) -> None:
    values = {"alpha": (0.2, 0.5), "beta": (0.4, 0.6), "gamma": (1.05, 2.0)}
    for name in _GEMM_ACTIVATIONS.get(activation or "", "").split():
        draft.set(f"activation_{name}", draft.one(*values[name]))


@builds_contrib("FusedMatMul TransposeMatMul FusedMatMulActivation")
def fused_matmul(draft: Draft) -> None:
    """Operands whose last axes, or whose first and inner ones, change places before the product."""
    m, k, n = draft.one(1, 2, 3), draft.one(1, 2, 5), draft.one(1, 3, 4)
    ranks = draft.one((2, 2), (3, 3), (4, 4), (3, 2), (2, 3), (1, 2), (2, 1), (3, 3))
    batch = [draft.one(1, 2, 3) for _ in range(2)]
    operands = []
    for name, rank, dims in (("A", ranks[0], [m, k]), ("B", ranks[1], [k, n])):
        last = draft.attribute(f"trans{name}", 0, 1, default=0)
        outer = draft.has("transBatchA") and rank > 2 and ranks[0] == ranks[1]
        outer = outer and draft.attribute(f"transBatch{name}", 0, 1, default=0)
        if rank == 1:
            operands.append([k])
            continue
        if last:
            dims = dims[::-1]
        dims = batch[: rank - 2] + dims
        operands.append([dims[-2], *dims[:-2], dims[-1]] if outer else dims)
    draft.attribute("alpha", 0.125, 1.0, 2.0, -1.0)
    if draft.has("activation"):
        _activation_numbers(draft, draft.attribute("activation", "Relu", "Sigmoid", "LeakyRelu", "Tanh", "Elu"))
    for dims in operands:
        draft.tensor(dims)
    draft.loose = 8.0
