"""Attention of onnxruntime, and the rotation of queries and keys."""

from __future__ import annotations

from importlib.metadata import version

import numpy as np

from ..draft import Draft
from .table import builds_contrib

_RUNS_WITHOUT_BIAS = tuple(map(int, version("onnxruntime").split(".")[:2])) >= (1, 32)
"""Older ones end the process at an Attention without a bias."""


def _mask(draft: Draft, kind: str, n: int, queries: int, keys: int) -> None:
    """Add a mask: lengths, ends and begins, or a 1 for each key that is seen."""
    if kind == "lengths":
        draft.read(draft.rng.integers(1, keys + 1, (n,)).astype(np.int32))
    elif kind == "ends and begins":
        begins = draft.rng.integers(0, keys, (n,))
        ends = [draft.rng.integers(begin + 1, keys + 1) for begin in begins]
        draft.read(np.concatenate([ends, begins]).astype(np.int32))
    else:
        dims = {"keys": (n, keys), "pairs": (n, queries, keys), "square": (n, 1, keys + 2, keys + 2)}[kind]
        seen = (draft.rng.random(dims) < 0.7).astype(np.int32)
        if draft.chance(0.8) or draft.type_of("T3" if draft.has_input("input_scale") else "T") != np.float32:
            seen[..., 0] = 1
        draft.read(seen)


def _numbers(draft: Draft) -> None:
    draft.attribute("unidirectional", 0, 1)
    draft.attribute("scale", 0.5, 1.0, 0.25)
    draft.attribute("mask_filter_value", -10000.0, -3.4e38, -10.0)
    draft.loose = 16.0


def _past(draft: Draft, n: int, heads: int, size: int) -> tuple[int, tuple[int, ...]]:
    """The length of keys and values of past runs, 0 without them, and their dims."""
    length = draft.one(1, 2, 3) if draft.chance(0.3) else 0
    return length, (2, n, heads, length, size)


@builds_contrib("Attention")
def attention(draft: Draft) -> None:
    n, length, width = draft.one(1, 2), draft.one(1, 2, 4), draft.one(3, 4, 8)
    heads, size = draft.one(1, 2, 3), draft.one(2, 4)
    draft.set("num_heads", heads)
    past, past_dims = _past(draft, n, heads, size)
    out = draft.one(size, size, 1, 3) if not past else size
    if out != size or draft.chance(0.2):
        draft.set("qkv_hidden_sizes", [heads * size, heads * size, heads * out])
    columns = heads * (2 * size + out)
    _numbers(draft)
    draft.tensor((n, length, width))
    draft.tensor((width, columns), kind="unit")
    if not _RUNS_WITHOUT_BIAS or draft.chance(0.85):
        draft.tensor((columns,), kind="unit")
    else:
        draft.skip()
    if draft.optional("mask_index"):
        _mask(
            draft, draft.one("lengths", "ends and begins", "keys", "keys", "pairs", "square"), n, length, length + past
        )
    if past:
        draft.tensor(past_dims)
    else:
        draft.skip()
    if draft.optional("attention_bias", 0.3):
        draft.tensor((draft.one(1, n), draft.one(1, heads), length, length + past))
    draft.outputs = ["y0", "y1"] if past or (out == size and draft.chance(0.2)) else ["y0"]
    draft.shape = (n, length, heads * out)


@builds_contrib("QAttention")
def quantized_attention(draft: Draft) -> None:
    """Input and weights are codes, with a scale for all weights, or for each column."""
    n, length, width = draft.one(1, 2), draft.one(1, 2, 4), draft.one(3, 4, 8)
    heads, size = draft.one(1, 2, 3), draft.one(2, 4)
    draft.set("num_heads", heads)
    columns = 3 * heads * size
    scales = draft.one((), (), (1,), (columns,))
    past, past_dims = _past(draft, n, heads, size)
    _numbers(draft)
    draft.tensor((n, length, width), "T1", "edges")
    draft.tensor((width, columns), "T2", "edges", constant=draft.one(True, None))
    draft.tensor((columns,), "T3", "unit")
    half = draft.type_of("T3") == np.float16  # of large scores it has no digits behind the point
    draft.read(np.asarray(draft.one(0.02, 0.05) * (0.125 if half else 1.0)).astype(draft.type_of("T3")))
    draft.read(draft.rng.choice([0.01, 0.02, 0.03], scales).astype(draft.type_of("T3")))
    if draft.optional("mask_index", 0.4):
        _mask(draft, draft.one("lengths", "lengths", "ends and begins", "keys"), n, length, length + past)
    if draft.optional("input_zero_point", 0.7):
        draft.tensor(draft.one((), (1,)), "T1")
    if draft.optional("weight_zero_point", 0.6):
        draft.read(
            np.zeros(scales, draft.type_of("T2")) if draft.chance() else draft.values(scales, draft.type_of("T2"))
        )
    if past:
        draft.tensor(past_dims, "T3")
    draft.outputs = ["y0", "y1"] if past else ["y0"]
    draft.shape = (n, length, heads * size)


@builds_contrib("MultiHeadAttention")
def multi_head(draft: Draft) -> None:
    """Queries, keys and values of three inputs, of two or of one; keys and values of another length, or split into heads."""
    n, length, keys = draft.one(1, 2), draft.one(1, 2, 4), draft.one(1, 3, 4)
    heads, size = draft.one(1, 2, 3), draft.one(2, 4)
    how = draft.one("three", "three", "three", "three", "heads", "keys and values", "packed")
    out = draft.one(size, size, 1, 3) if how == "three" else size
    keys = length if how == "packed" else keys
    draft.set("num_heads", heads)
    past, (_, *past_dims) = _past(draft, n, heads, size) if how == "three" else (0, (0, 0))
    _numbers(draft)
    if how == "packed":
        draft.tensor((n, length, heads, 3, size))
        draft.skip()
        draft.skip()
    else:
        draft.tensor((n, length, heads * size))
        if how == "keys and values":
            draft.tensor((n, keys, heads, 2, size))
            draft.skip()
        elif how == "heads":
            draft.tensor((n, heads, keys, size))
            draft.tensor((n, heads, keys, size))
        else:
            draft.tensor((n, keys, heads * size))
            draft.tensor((n, keys, heads * out))
    if how not in ("keys and values",) and draft.optional("bias", 0.4):
        draft.tensor((heads * (2 * size + out),), kind="unit")
    elif how == "keys and values":
        draft.skip()
    if draft.optional("key_padding_mask", 0.4):
        _mask(draft, draft.one("lengths", "keys", "keys", "pairs"), n, length, keys + past)
    if draft.optional("attention_bias", 0.3):
        draft.tensor((draft.one(1, n), draft.one(1, heads), length, keys + past))
    if past:
        draft.tensor(past_dims)
        draft.tensor((*past_dims[:-1], out))
    if past or draft.chance(0.15):
        draft.outputs = ["y0", "y1", "y2"]
    if draft.chance(0.1):
        draft.types["QK"] = draft.type_of("T")
        draft.outputs = [*[*draft.outputs, "", ""][:3], "y3"]
    draft.shape = (n, length, heads * out)


@builds_contrib("RotaryEmbedding")
def rotary(draft: Draft) -> None:
    n, heads, length, size = draft.one(1, 2), draft.one(1, 2, 3), draft.one(1, 3), draft.one(4, 8)
    partial = draft.attribute("rotary_embedding_dim", 0, size // 2, default=0)
    draft.attribute("interleaved", 0, 1)
    draft.attribute("is_packed_batching", 0)
    draft.attribute("scale", 1.0)
    flat = draft.chance()
    draft.attribute("num_heads", heads, always=bool(partial))
    draft.shape = (n, length, heads * size) if flat else (n, heads, length, size)
    draft.tensor(draft.shape)
    if draft.chance(0.4):
        draft.read(np.array([draft.one(0, 1, 3)], np.int64))
    else:
        draft.read(draft.rng.integers(0, 6, (n, length)).astype(np.int64))
    for _ in range(2):
        draft.tensor((6, (partial or size) // 2), kind="unit", constant=draft.one(True, True, None))
    draft.loose = 4.0
