"""Conditions on nodes, for the rows of `known_errors`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...model.operator_traits import Trait, operators
from ...tensor import SMALL_DTYPES, is_concrete
from ...validation.broadcasting import BROADCAST_SLOPES
from ...validation.pooling import LastWindow, last_windows, rounds_up
from .usage import NEGATIVE, Usage

__all__ = [
    "ATTENTION",
    "MOVES",
    "WHOLE",
    "collects_rounds_of_the_run",
    "computes_long_numbers",
    "computes_whole_numbers",
    "counts_too_much",
    "crops_or_computes_its_value",
    "ends_in_the_padding",
    "has_a_zero",
    "has_free_dims",
    "has_no_form_in_32_bits",
    "has_one_slope_for_each_channel",
    "has_other_factors",
    "has_scales_of_an_axis",
    "has_small_numbers",
    "is_causal_on_other_keys",
    "is_real",
    "may_be_out_of_range",
    "may_have_other_sizes",
    "may_scatter_elsewhere",
    "only_ends_slices",
    "passes_infinities_on",
    "reads_no_elements",
    "resizes_otherwise",
    "strides_over_the_padding",
]


def is_real(usage: Usage) -> bool:
    """Whether the first input has floating-point numbers, or an unknown type."""
    return usage.dtype() in ("float16", "float32", "bfloat16", "float64", "")


WHOLE = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
"""Types of whole numbers that have bytes of their own."""
_LONG = frozenset(("int64", "uint32", "uint64"))
MOVES = (
    operators(Trait.MOVES) | operators(Trait.SUBGRAPHS) | operators(Trait.READS_SHAPE)
    | operators(Trait.RETYPES) | {"Concat", "Constant", "ConstantOfShape", "ScatterElements", "ScatterND", "Where"}
)  # fmt: skip
"""Operators that take whole numbers on as they are; OpenVINO computes all others on them in float32 or 32 bits."""


def computes_whole_numbers(usage: Usage) -> bool:
    """Whether the node does arithmetic on whole numbers that are not sizes."""
    if usage.node.op_type in MOVES:
        return "reduction" in usage.attributes() and usage.dtype() in WHOLE
    if usage.dtype() not in WHOLE or _is_exact(usage):
        return False
    return not (usage.is_size() and usage.dtype() in ("int32", "int64"))


_EXACT = operators(Trait.TRUTH | Trait.BROADCASTS) | operators(Trait.ARITHMETIC) - {"Div"} | {"CumSum"}
_FLOAT32 = 1 << 24


def _is_exact(usage: Usage) -> bool:
    """Whether float32 represents all numbers of the node exactly."""
    if usage.node.op_type == "MaxPool" and usage.dtype() in ("int8", "uint8"):
        return True
    names = (*usage.node.input, *usage.node.output)
    return (
        usage.node.op_type in _EXACT
        and usage.dtype() in ("int32", "int64")
        and all(usage.facts.bounds.is_within(name, _FLOAT32) for name in names)
    )


def computes_long_numbers(usage: Usage) -> bool:
    """Whether the node computes on numbers that do not fit into int32."""
    return computes_whole_numbers(usage) and usage.dtype() in _LONG


def has_no_form_in_32_bits(usage: Usage) -> bool:
    """Whether it reads or gives tensors of types that OpenVINO narrows."""
    return bool(usage.dtypes() & {"float64", "uint32", "uint64"})


_SMALL = frozenset((*map(str, SMALL_DTYPES), "float6_e2m3fn", "float6_e3m2fn"))


def has_small_numbers(usage: Usage) -> bool:
    """Whether it reads or gives tensors of less than 8 bits or of float8, and does more than quantize."""
    return usage.node.op_type not in ("QuantizeLinear", "DequantizeLinear", "Constant") and bool(
        usage.dtypes() & _SMALL
    )


def passes_infinities_on(usage: Usage) -> bool:
    """Whether the node keeps infinities that it reads."""
    return usage.node.op_type in MOVES or usage.node.op_type in ("Add", "Pad", "MaxPool")


def only_ends_slices(usage: Usage) -> bool:
    """Whether a node is a Slice, or a Constant that only Slices read as indices: OpenVINO clamps out-of-range ends."""
    name = usage.node.output[0]
    return usage.node.op_type == "Slice" or (
        usage.node.op_type == "Constant" and usage.facts.readers.get(name, {"Slice"}) == {"Slice"}
    )


def has_a_zero(*names: str) -> Callable[[Usage], bool]:
    """Make the condition that one of these attributes is 0."""
    return lambda usage: any(usage.attribute(name, 1) == 0 for name in names)


def has_scales_of_an_axis(usage: Usage) -> bool:
    """Whether it (de)quantizes a computed tensor with more than one scale, or any with a number of scales that is not known."""
    computed = [usage.dims(index) for index in (1, 2) if usage.has(index) and not usage.is_constant(index)]
    unknown = any(dims is None or not all(map(is_concrete, dims)) for dims in computed)
    return unknown or (usage.dims(1) not in ((), (1,)) and not usage.is_constant(0))


def strides_over_the_padding(usage: Usage) -> bool:
    """Whether a convolution with a 1x1 kernel has strides and padding."""
    kernel = usage.attribute("kernel_shape") or [
        dim for dim in (usage.dims(1) or (0, 0, 0))[2:] if isinstance(dim, int)
    ]
    strides = usage.attribute("strides") or [1]
    padded = any(usage.attribute("pads") or []) or usage.attribute("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    return set(kernel) == {1} and max(strides) > 1 and padded


def crops_or_computes_its_value(usage: Usage) -> bool:
    """Whether a Pad has negative pads, or reads pads or a value that are computed."""
    return (
        (usage.has(2) and not usage.is_constant(2))
        or usage.reads(NEGATIVE)
        or (usage.has(1) and not usage.is_constant(1))
    )


def resizes_otherwise(usage: Usage) -> bool:
    """Whether a Resize has options that OpenVINO ignores or computes differently."""
    aligned = usage.attribute("coordinate_transformation_mode", "half_pixel") == "align_corners" and usage.has(2)
    policy = usage.attribute("keep_aspect_ratio_policy", "stretch")
    return aligned or policy != "stretch" or any(usage.attribute(name, 0) for name in ("antialias", "exclude_outside"))


def ends_in_the_padding(usage: Usage) -> bool:
    """Whether a pool with ceil_mode has a window that begins after the image, which ONNX omits."""
    return _may_have(usage, lambda window: window.begins_behind)


def counts_too_much(usage: Usage) -> bool:
    """Whether an AveragePool that counts the padding has a window that ends after it, because of ceil_mode."""
    counted = usage.attribute("count_include_pad", 0) and any(usage.attribute("pads", []))
    return bool(counted) and _may_have(usage, lambda window: window.ends_behind)


def _may_have(usage: Usage, kind: Callable[[LastWindow], bool]) -> bool:
    """Whether a pool that rounds up has such a last window on an axis, or its sizes are found out when it runs."""
    if usage.attribute("ceil_mode", 0) and usage.attribute("auto_pad", "NOTSET") not in ("", "NOTSET"):
        return True
    if not rounds_up(usage.node):
        return False
    windows = last_windows(usage.node, usage.facts.types)
    return windows is None or any(map(kind, windows))


def has_one_slope_for_each_channel(usage: Usage) -> bool:
    """Whether 1-D slopes, which ONNX broadcasts along the last axis, may match the number of channels."""
    dims, slopes = usage.dims(), usage.dims(1)
    if usage.facts.opset < BROADCAST_SLOPES or (slopes is not None and (len(slopes) != 1 or slopes == (1,))):
        return False
    if dims is None or slopes is None:
        return True
    return len(dims) > 2 and (dims[1] == slopes[0] or not (is_concrete(dims[1]) and is_concrete(slopes[0])))


def is_causal_on_other_keys(usage: Usage) -> bool:
    """Whether an Attention with past keys is causal, and has as many queries as keys only by chance."""
    queries, keys = usage.dims(0), usage.dims(1)
    same = queries is not None and keys is not None and len(queries) > 2 and queries[-2] == keys[-2]
    return bool(usage.attribute("is_causal", 0)) and usage.has(4) and not same


ATTENTION = {
    "is_causal",
    "kv_num_heads",
    "q_num_heads",
    "qk_matmul_output_mode",
    "scale",
    "softcap",
    "softmax_precision",
}


def reads_no_elements(usage: Usage) -> bool:
    """Whether an input is known at build time to be empty; Resize uses one for an omitted input."""
    places = range(len(usage.node.input))
    return usage.node.op_type != "Resize" and any(0 in (usage.dims(index) or ()) for index in places)


def may_scatter_elsewhere(usage: Usage) -> bool:
    """Whether a ScatterElements may write outside its data: indices out of range, or more indices than the axis is long."""
    dims, places = usage.dims(), usage.dims(1)
    if not usage.is_constant(1) or may_be_out_of_range(usage) or dims is None or places is None:
        return True
    axis = usage.attribute("axis", 0) % len(dims)
    pairs = list(zip(places, dims, strict=True))
    del pairs[axis]
    return not all(isinstance(place, int) and isinstance(dim, int) and place <= dim for place, dim in pairs)


def may_be_out_of_range(usage: Usage) -> bool:
    """Whether indices may lie outside the axes that they count along; 0 and -1 do so in tensors without elements alone.

    GatherND's have an axis; a number without one ends the process.
    """
    if usage.node.op_type == "GatherND" and usage.dims(1) == ():
        return True
    index_range = usage.facts.ranges.get(usage.node.input[1])
    if index_range is None and (usage.is_exact_size() or usage.is_lookup()):
        return False
    if index_range is not None and index_range[0] >= -1 and index_range[1] <= 0:
        return False
    first, count = _indexed_axes(usage)
    return count == 0 or not usage.facts.bounds.lie_in(usage.node.input[1], count, usage.node.input[0], first)


def _indexed_axes(usage: Usage) -> tuple[int, int]:
    """The first of the axes that the indices of a Gather or Scatter count along, and their number; 0 where it is not known."""
    dims = usage.dims()
    if not dims:
        return 0, 0
    if usage.node.op_type != "GatherND":
        return usage.attribute("axis", 0) % len(dims), 1
    counts = usage.dims(1)
    return usage.attribute("batch_dims", 0), counts[-1] if counts and isinstance(counts[-1], int) else 0


def has_free_dims(usage: Usage) -> bool:
    """Whether not all dims of the first input are known."""
    dims = usage.dims()
    return dims is None or not all(map(is_concrete, dims))


def collects_rounds_of_the_run(usage: Usage) -> bool:
    """Whether a Loop has scan outputs and a number of iterations that is computed at run time."""
    states = len(usage.node.input) - 2
    computed = any(usage.has(index) and not usage.is_constant(index) for index in (0, 1))
    return computed and len(usage.node.output) > states


def may_have_other_sizes(usage: Usage) -> bool:
    """Whether axes of Einsum with the same letter are not known to be as long as each other."""
    sizes: dict[str, Any] = {}
    terms = usage.attribute("equation", "").replace(" ", "").partition("->")[0].split(",")
    for index, term in enumerate(terms):
        dims = usage.dims(index)
        if dims is None or len(dims) != len(term) or "." in term:
            return any(not isinstance(dim, int) for i in range(len(terms)) for dim in usage.dims(i) or (None,))
        if any(sizes.setdefault(letter, dim) != dim for letter, dim in zip(term, dims, strict=True)):
            return True
    return False


def has_other_factors(usage: Usage) -> bool:
    """Whether the factors may not match the last axes of the tensor that they multiply."""
    dims, factors = usage.dims(), usage.dims(1)
    if not dims or not factors or len(factors) > len(dims):
        return True
    pairs = zip(dims[len(dims) - len(factors) :], factors, strict=True)
    return any(factor != 1 and (not isinstance(dim, int) or dim != factor) for dim, factor in pairs)
