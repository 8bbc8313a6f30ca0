"""Function bodies of attention layers, and of the embeddings before them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .fused import embedding
from .node import ContribNode, NotWritableError, ints
from .quantized import dequantized

__all__ = ["ATTENTION"]

_LOWEST = {"float": -3.4028234663852886e38, "float16": -65504.0, "bfloat16": -3.3895313892515355e38}


def _attention(node: ContribNode, mask: int = 3, past: int = 4, bias: int = 5, projection: str = "") -> str:
    """Attention, whose weights compute queries, keys and values from one input."""
    if node.attribute("do_rotary", 0) or node.attribute("past_present_share_buffer", 0):
        raise NotWritableError("it rotates queries, or shares the memory of past and present")
    node.check_rank(1, 2)
    width = node.dims(1)[-1]
    sizes = node.attribute("qkv_hidden_sizes", None) or [width // 3] * 3
    if not width or sum(sizes) != width:
        raise NotWritableError("the width of its weights is not known")
    if node.gives(1) and sizes[1] != sizes[2]:
        raise NotWritableError("it gives keys and values of different widths as one tensor")
    heads = node.attribute("num_heads")
    projection = (
        projection
        or f"""product = MatMul (x0, x1)
        projected = {"Add (product, x2)" if node.has(2) else "Identity (product)"}"""
    )
    return f"""
        {projection}
        {ints("sizes", sizes)}
        q3, k3, v3 = Split <axis = -1> (projected, sizes)
        {_heads("q", heads)}
        {_heads("k", heads, "k_new")}
        {_heads("v", heads, "v_new")}
        {_concat_past(node, past)}
        {_core(node, sizes[0] // heads, mask, bias)}"""


def _quantized_attention(node: ContribNode) -> str:
    """QAttention: input and weights are codes."""
    projection = f"""{dequantized(node, "x", 0, 3, 6)}
        {dequantized(node, "w", 1, 4, 7, axis=-1)}
        product = MatMul (x, w)
        projected = Add (product, x2)"""
    return _attention(node, mask=5, past=8, bias=-1, projection=projection)


def _multi_head_attention(node: ContribNode) -> str:
    """MultiHeadAttention, whose queries, keys and values are three inputs, each with its part of the bias."""
    if not (node.has(1) and node.has(2)) or node.has(8) or node.has(9) or node.gives(3):
        raise NotWritableError(
            "its queries, keys and values are packed, or it has a buffer of past keys, or it gives its scores"
        )
    heads, width = node.attribute("num_heads"), node.dims(0)[-1]
    if len(node.dims(0)) != 3 or not width:
        raise NotWritableError("its queries are packed, or their width is not known")
    key_is_split = len(node.dims(1)) == 4
    length, keys = node.dims(0)[1], node.dims(1)[2 if key_is_split else 1]
    if node.attribute("unidirectional", 0) and length and keys and length != keys:
        raise NotWritableError(
            f"it has {length} queries and {keys} keys, and a query sees the keys up to its own place"
        )
    parts = [
        _add_bias(node, "q", 0, 0, width) + "\n" + _heads("q", heads),
        "k_new = Identity (x1)"
        if key_is_split
        else _add_bias(node, "k", 1, width, 2 * width) + "\n" + _heads("k", heads, "k_new"),
        "v_new = Identity (x2)"
        if key_is_split
        else _add_bias(node, "v", 2, 2 * width, 2**31 - 1) + "\n" + _heads("v", heads, "v_new"),
    ]
    joined = [
        f"{name} = Concat <axis = 2> (x{past}, {name}_new)" if node.has(past) else f"{name} = Identity ({name}_new)"
        for name, past in (("k", 6), ("v", 7))
    ]
    presents = [f"y{index} = Identity ({name})" for index, name in ((1, "k"), (2, "v")) if node.gives(index)]
    return "\n".join((*parts, *joined, *presents, _core(node, width // heads, 4, 5)))


def _add_bias(node: ContribNode, name: str, index: int, begin: int, end: int) -> str:
    if not node.has(3):
        return f"{name}3 = Identity (x{index})"
    return f"""{ints(f"{name}_begin", [begin])}
        {ints(f"{name}_end", [end])}
        {name}_bias = Slice (x3, {name}_begin, {name}_end)
        {name}3 = Add (x{index}, {name}_bias)"""


def _heads(name: str, heads: int, result: str = "") -> str:
    """[batch, length, width] → [batch, heads, length, width of a head]."""
    return f"""{ints(f"{name}_shape", [0, 0, heads, -1])}
        {name}_split = Reshape ({name}3, {name}_shape)
        {result or name} = Transpose <perm = [0, 2, 1, 3]> ({name}_split)"""


def _concat_past(node: ContribNode, past: int) -> str:
    """Concatenate past keys and values, which are halves of one tensor, with those of this run."""
    joined = "k = Identity (k_new)\nv = Identity (v_new)"
    if node.has(past):
        joined = f"""first = Constant <value = int64 {{0}}> ()
            second = Constant <value = int64 {{1}}> ()
            k_past = Gather (x{past}, first)
            v_past = Gather (x{past}, second)
            k = Concat <axis = 2> (k_past, k_new)
            v = Concat <axis = 2> (v_past, v_new)"""
    if not node.gives(1):
        return joined
    return f"""{joined}
        {ints("front", [0])}
        k_half = Unsqueeze (k, front)
        v_half = Unsqueeze (v, front)
        y1 = Concat <axis = 0> (k_half, v_half)"""


def _core(node: ContribNode, head_size: int, mask: int, bias: int) -> str:
    """Attention proper: from ``q``, ``k`` and ``v``, split into heads, to ``y0``."""
    scale = node.attribute("scale", 0.0) or head_size**-0.5
    masked = _apply_mask(node, mask) if node.has(mask) else "masked = Identity (scaled)"
    return f"""
        k_turned = Transpose <perm = [0, 1, 3, 2]> (k)
        scores = MatMul (q, k_turned)
        {node.number("scale", scale, _float_input(node))}
        scaled = Mul (scores, scale)
        {masked}
        {f"biased = Add (masked, x{bias})" if bias > 0 and node.has(bias) else "biased = Identity (masked)"}
        {_causal(node) if node.attribute("unidirectional", 0) else "seen = Identity (biased)"}
        shares = Softmax <axis = -1> (seen)
        mixed = MatMul (shares, v)
        rows = Transpose <perm = [0, 2, 1, 3]> (mixed)
        {ints("flat_shape", [0, 0, -1])}
        y0 = Reshape (rows, flat_shape)"""


def _apply_mask(node: ContribNode, mask: int) -> str:
    """Add the mask filter's value where a mask is not 1, or after the length of a sequence."""
    dims = node.dims(mask)
    axes = {2: [1, 2], 3: [1]}.get(len(dims))
    if len(dims) == 1:
        batch = node.dims(0)[0]
        if dims[0] != batch:
            raise NotWritableError(
                f"its mask has {dims[0] or 'a free number of'} numbers, and the batch is {batch or 'free'}"
            )
        axes = [1, 2]
        keeps = f"""{ints("three", [3])}
            {ints("four", [4])}
            score_shape = Shape (scaled)
            keys_1 = Slice (score_shape, three, four)
            keys = Squeeze (keys_1)
            zero = Constant <value = int64 {{0}}> ()
            one = Constant <value = int64 {{1}}> ()
            places = Range (zero, keys, one)
            {ints("last", [-1])}
            lengths_int = Cast <to = 7> (x{mask})
            lengths = Unsqueeze (lengths_int, last)
            keeps = Less (places, lengths)"""
    else:
        keeps = f"""mask_int = Cast <to = 6> (x{mask})
            nothing = Constant <value = int32 {{0}}> ()
            keeps = Greater (mask_int, nothing)"""
    if axes is None:
        raise NotWritableError(f"its mask has {len(dims)} axes")
    return f"""{keeps}
        {node.number("kept", 0.0, _float_input(node))}
        {node.number("dropped", node.attribute("mask_filter_value", -10000.0), _float_input(node))}
        penalty = Where (keeps, kept, dropped)
        {ints("mask_axes", axes)}
        penalties = Unsqueeze (penalty, mask_axes)
        masked = Add (scaled, penalties)"""


def _causal(node: ContribNode) -> str:
    """Mask for causal attention: a query sees keys up to its own position; the first query follows the past keys."""
    return f"""shape = Shape (biased)
        {ints("c2", [2])}
        {ints("c3", [3])}
        {ints("c4", [4])}
        queries_1 = Slice (shape, c2, c3)
        all_1 = Slice (shape, c3, c4)
        queries = Squeeze (queries_1)
        all = Squeeze (all_1)
        new_shape = Shape (k_new)
        new_1 = Slice (new_shape, c2, c3)
        new = Squeeze (new_1)
        from = Constant <value = int64 {{0}}> ()
        by = Constant <value = int64 {{1}}> ()
        key_places = Range (from, all, by)
        begin = Sub (all, new)
        end = Add (begin, queries)
        query_row = Range (begin, end, by)
        {ints("behind", [1])}
        query_places = Unsqueeze (query_row, behind)
        later = Greater (key_places, query_places)
        {node.number("lowest", _LOWEST[node.dtype(_float_input(node))], _float_input(node))}
        seen = Where (later, lowest, biased)"""


def _float_input(node: ContribNode) -> int:
    """An input of the type in which the layer computes: QAttention's bias, else the first."""
    return 2 if node.dtype(0) in ("int8", "uint8") else 0


def _quantized_embedding(node: ContribNode) -> str:
    """QEmbedLayerNormalization, whose tables are int8 codes."""
    tables = [
        ("words", 2, 8, 13),
        ("positions", 3, 9, 14),
        ("segments", 4, 10, 15),
        ("gamma", 5, 11, 16),
        ("beta", 6, 12, 17),
    ]
    floats = [dequantized(node, *table) for table in tables if node.has(table[1])]
    return "\n".join((*floats, embedding(node, "segments", "positions", "words", "gamma", "beta", -1)))


ATTENTION: Mapping[str, Callable[[ContribNode], str]] = {
    "Attention": _attention,
    "MultiHeadAttention": _multi_head_attention,
    "QAttention": _quantized_attention,
    "QEmbedLayerNormalization": _quantized_embedding,
}
