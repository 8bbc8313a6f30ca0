"""Attention and what belongs to it."""

from __future__ import annotations

import numpy as np

from ..draft import Draft, Unfit
from .table import builds


@builds("Attention")
def attention(draft: Draft) -> None:
    """With three or four axes, groups of heads, masks of numbers and of truth values, past keys and values."""
    n, heads, groups = draft.one(1, 2), draft.one(1, 2), draft.one(1, 1, 2)
    q, k, size, out = draft.one(1, 2, 3), draft.one(2, 3, 4), draft.one(2, 4), draft.one(2, 4, 3)
    flat = draft.chance(0.4)
    t1, t2 = draft.type_of("T1"), draft.type_of("T2")
    if flat:
        draft.set("q_num_heads", heads * groups)
        draft.set("kv_num_heads", heads)
        draft.read(draft.values((n, q, heads * groups * size), t1))
        draft.read(draft.values((n, k, heads * size), t1))
        draft.read(draft.values((n, k, heads * out), t2))
    else:
        draft.read(draft.values((n, heads * groups, q, size), t1))
        draft.read(draft.values((n, heads, k, size), t1))
        draft.read(draft.values((n, heads, k, out), t2))
    past = draft.chance(0.25) and draft.version < 24
    total = k + (2 if past else 0)
    mask = draft.chance(0.4)
    causal = draft.attribute("is_causal", 0, 1, default=0)
    draft.attribute("scale", 0.5, 1.0)
    draft.attribute("softcap", 0.0, 2.0)
    if draft.has("left_window_size") and draft.chance(0.2):
        draft.set("left_window_size", draft.one(0, 1))
        draft.attribute("right_window_size", 0, 1)
    if mask:
        kind = draft.type_of("U")
        dims = draft.one((q, total), (n, 1, q, total), (1, 1, q, total))
        values = draft.values(dims, kind)
        if kind == np.bool_:
            values[..., 0] = True
        draft.read(values)
    elif past:
        draft.skip()
    if causal and q > total:
        raise Unfit("a row without keys")
    if past:
        draft.read(draft.values((n, heads, 2, size), t1))
        draft.read(draft.values((n, heads, 2, out), t2))
    draft.outputs = ["y0"]
    if past:
        draft.outputs += ["y1", "y2"]
    if draft.chance(0.2):
        draft.attribute("qk_matmul_output_mode", 0, 1, 2, 3)
        draft.outputs = ["y0", *(("y1", "y2") if past else ("", "")), "y3"]
    draft.loose = 8.0


@builds("RotaryEmbedding")
def rotary(draft: Draft) -> None:
    n, heads, length, size = draft.one(1, 2), draft.one(1, 2), draft.one(1, 3), draft.one(4, 8)
    partial = draft.attribute("rotary_embedding_dim", 0, size // 2, default=0)
    width = (partial or size) // 2
    draft.attribute("interleaved", 0, 1)
    if draft.chance():
        draft.tensor((n, heads, length, size))
    else:
        draft.set("num_heads", heads)
        draft.tensor((n, length, heads * size))
    if draft.chance():
        for _ in range(2):
            draft.tensor((5, width), kind="unit")
        draft.read(draft.rng.integers(0, 5, (n, length)).astype(np.int64))
    else:
        for _ in range(2):
            draft.tensor((n, length, width), kind="unit")
        draft.skip()
    draft.loose = 4.0


@builds("LinearAttention")
def linear_attention(draft: Draft) -> None:
    n, heads, length, size = 1, draft.one(1, 2), draft.one(1, 3), draft.one(2, 4)
    rule = draft.attribute("update_rule", "linear", "gated", "delta", "gated_delta", default="gated_delta")
    draft.set("q_num_heads", heads)
    draft.set("kv_num_heads", heads)
    draft.attribute("scale", 0.0, 0.5)
    draft.attribute("chunk_size", 64, 2)
    for _ in range(3):
        draft.tensor((n, length, heads * size), kind="unit")
    if draft.optional("past_state"):
        draft.read(draft.values((n, heads, size, size), draft.type_of("S"), "unit"))
    if "gated" in rule:
        draft.read(-draft.values((n, length, heads), draft.type_of("T"), "positive"))
    else:
        draft.skip()
    if "delta" in rule:
        draft.tensor((n, length, heads), kind="positive")
    else:
        draft.skip()
    draft.results("y1")
    draft.loose = 16.0
