"""Formulas of onnxruntime's attention: `scaled_dot_product_attention` of PyTorch, in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .code_formulas import dequantize
from .fused_formulas import Attributes, Formula, Operands, by_torch, wide

__all__ = ["ATTENTION"]


def _scores_mask(attributes: Attributes, mask: Any, n: int, queries: int, keys: int, past: int) -> Any:
    """What is added to scores: the filter's value where the mask has no 1, and minus infinity behind a causal query.

    The first query stands where the keys of past runs end.
    """
    added = np.zeros((n, 1, queries, keys))
    if mask is not None:
        places = np.arange(keys)
        if mask.ndim == 1 and mask.size == n:
            seen = (places < mask[:, None])[:, None, None]
        elif mask.ndim == 1 and mask.size == 2 * n:
            seen = ((places < mask[:n, None]) & (places >= mask[n:, None]))[:, None, None]
        elif mask.ndim in (2, 3):
            seen = (mask > 0).reshape(n, 1, -1, keys)
        else:
            raise NotImplementedError
        added = added + np.where(seen, 0.0, attributes.get("mask_filter_value", -10000.0))
    if attributes.get("unidirectional"):
        added = np.where(np.arange(keys) > past + np.arange(queries)[:, None], -np.inf, added)
    return added


def _attended(attributes: Attributes, q: Any, k: Any, v: Any, mask: Any, bias: Any, past: Any) -> Any:
    """From queries, keys and values, split into heads, to rows of all heads: `scaled_dot_product_attention` of PyTorch."""
    n, heads, queries, size = q.shape
    length = 0 if past is None else past.shape[-2]
    added = _scores_mask(attributes, mask, n, queries, k.shape[2], length) + (0 if bias is None else wide(bias))
    added = np.broadcast_to(added, (n, heads, queries, k.shape[2]))
    if np.isneginf(added).all(-1).any():
        raise NotImplementedError  # a query without keys
    scale = attributes.get("scale", 0.0) or size**-0.5
    rows = by_torch("scaled_dot_product_attention", q, k, v, added, scale=scale)
    return np.swapaxes(rows, 1, 2).reshape(n, queries, -1)


def _split(x: Any, heads: int) -> Any:
    return np.swapaxes(x.reshape(*x.shape[:2], heads, -1), 1, 2)


def _attention(attributes: Attributes, operands: Operands) -> Sequence[Any]:
    x, weights, bias, mask, past, added = (*operands, *[None] * 6)[:6]
    projected = wide(x) @ wide(weights) + (0 if bias is None else wide(bias))
    heads, width = attributes["num_heads"], projected.shape[-1]
    sizes = attributes.get("qkv_hidden_sizes", [width // 3] * 3)
    q, k, v = (_split(part, heads) for part in np.split(projected, np.cumsum(sizes)[:2], -1))
    if past is not None:
        k, v = np.concatenate([wide(past)[0], k], 2), np.concatenate([wide(past)[1], v], 2)
    dtype = x.dtype if bias is None else bias.dtype
    present = np.stack([k, v]).astype(dtype) if k.shape == v.shape else None
    return _attended(attributes, q, k, v, mask, added, past).astype(dtype), present


def _quantized_attention(attributes: Attributes, operands: Operands) -> Sequence[Any]:
    x, w, bias, x_scale, w_scale, mask, x_zero, w_zero, past = (*operands, *[None] * 9)[:9]
    x, w = dequantize(x, x_scale, x_zero), dequantize(w, w_scale, w_zero)
    return _attention(attributes, [x, w, bias, mask, past])


def _multi_head(attributes: Attributes, operands: Operands) -> Sequence[Any]:
    q, k, v, bias, mask, added, past_k, past_v = (*operands, *[None] * 8)[:8]
    dtype, heads = q.dtype, attributes["num_heads"]
    if q.ndim == 5:
        q, k, v = (q[:, :, :, index].reshape(*q.shape[:2], -1) for index in range(3))
    elif k.ndim == 5:
        k, v = (k[:, :, :, index].reshape(*k.shape[:2], -1) for index in range(2))
    parts = [*map(wide, (q, k, v))]
    if bias is not None:
        width = q.shape[-1]
        pieces = np.split(wide(bias), [width, 2 * width])
        parts = [part + piece if part.ndim == 3 else part for part, piece in zip(parts, pieces, strict=True)]
    q, k, v = (part if part.ndim == 4 else _split(part, heads) for part in parts)
    if past_k is not None:
        k, v = np.concatenate([wide(past_k), k], 2), np.concatenate([wide(past_v), v], 2)
    result = _attended(attributes, q, k, v, mask, added, past_k)
    return result.astype(dtype), k.astype(dtype), v.astype(dtype)


ATTENTION: Mapping[str, Formula] = {
    "Attention": _attention,
    "MultiHeadAttention": _multi_head,
    "QAttention": _quantized_attention,
}
"""Operator → its formula."""
