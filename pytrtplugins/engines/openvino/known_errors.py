"""The table of OpenVINO's known errors, from ONNX's own tests and from comparisons with onnxruntime (docs/operators.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...tensor import SMALL_DTYPES, is_concrete
from ...validation.broadcasting import BROADCAST_SLOPES
from ...validation.pooling import LastWindow, last_windows, rounds_up
from .usage import EMPTY, INFINITE, LONG, NAN, NEGATIVE, ZERO, Usage

__all__ = ["KNOWN_ERRORS", "MOVES", "WHOLE", "KnownError"]


@dataclass(frozen=True)
class KnownError:
    """One row of the table.

    Attributes:
        operators: Types of nodes; none for all types.
        where: Of which of them, for people.
        what: What OpenVINO does.
        applies: Whether a node of these types is one.
        whole: Whether OpenVINO cannot even pass the values on, so that onnxruntime should compute the whole network.
    """

    operators: tuple[str, ...]
    where: str
    what: str
    applies: Callable[[Usage], bool] = lambda usage: True
    whole: bool = False


def _is_real(usage: Usage) -> bool:
    return usage.dtype() in ("float16", "float32", "bfloat16", "float64", "")


WHOLE = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
"""Types of whole numbers that have bytes of their own."""
_LONG = frozenset(("int64", "uint32", "uint64"))
MOVES = frozenset(
    (
        "Cast",
        "CastLike",
        "Concat",
        "Constant",
        "ConstantOfShape",
        "DepthToSpace",
        "DequantizeLinear",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Identity",
        "If",
        "Loop",
        "QuantizeLinear",
        "Reshape",
        "Scan",
        "ScatterElements",
        "ScatterND",
        "Shape",
        "Size",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
        "Where",
    )
)
"""Operators that take whole numbers on as they are; OpenVINO computes all others on them in float32 or 32 bits."""


def _computes_whole_numbers(usage: Usage) -> bool:
    if usage.node.op_type in MOVES:
        return "reduction" in usage.attributes() and usage.dtype() in WHOLE
    return usage.dtype() in WHOLE and not (usage.is_size() and usage.dtype() in ("int32", "int64"))


def _computes_long_numbers(usage: Usage) -> bool:
    return _computes_whole_numbers(usage) and usage.dtype() in _LONG


def _has_no_form_in_32_bits(usage: Usage) -> bool:
    return bool(usage.dtypes() & {"float64", "uint32", "uint64"})


_SMALL = frozenset((*map(str, SMALL_DTYPES), "float6_e2m3fn", "float6_e3m2fn"))


def _has_small_numbers(usage: Usage) -> bool:
    return usage.node.op_type not in ("QuantizeLinear", "DequantizeLinear", "Constant") and bool(
        usage.dtypes() & _SMALL
    )


def _passes_infinities_on(usage: Usage) -> bool:
    return usage.node.op_type in MOVES or usage.node.op_type in ("Add", "Pad", "MaxPool")


def _has_a_zero(*names: str) -> Callable[[Usage], bool]:
    return lambda usage: any(usage.attribute(name, 1) == 0 for name in names)


def _has_scales_of_an_axis(usage: Usage) -> bool:
    return not usage.is_constant(0) and usage.dims(1) not in ((), (1,))


def _strides_over_the_padding(usage: Usage) -> bool:
    kernel = usage.attribute("kernel_shape") or [
        dim for dim in (usage.dims(1) or (0, 0, 0))[2:] if isinstance(dim, int)
    ]
    strides = usage.attribute("strides") or [1]
    padded = any(usage.attribute("pads") or []) or usage.attribute("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    return set(kernel) == {1} and max(strides) > 1 and padded


def _crops_or_computes_its_value(usage: Usage) -> bool:
    return (
        (usage.has(2) and not usage.is_constant(2))
        or usage.reads(NEGATIVE)
        or (usage.has(1) and not usage.is_constant(1))
    )


def _resizes_otherwise(usage: Usage) -> bool:
    aligned = usage.attribute("coordinate_transformation_mode", "half_pixel") == "align_corners" and usage.has(2)
    policy = usage.attribute("keep_aspect_ratio_policy", "stretch")
    return aligned or policy != "stretch" or any(usage.attribute(name, 0) for name in ("antialias", "exclude_outside"))


def _ends_in_the_padding(usage: Usage) -> bool:
    """Whether a pool that rounds up has a window that begins behind the image, which ONNX leaves out."""
    return _may_have(usage, lambda window: window.begins_behind)


def _counts_too_much(usage: Usage) -> bool:
    """Whether an average that counts the padding has a window that ends behind it, since it rounds up."""
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


def _has_one_slope_for_each_channel(usage: Usage) -> bool:
    """Whether slopes of one axis, which ONNX holds against the last, may be as many as there are channels."""
    dims, slopes = usage.dims(), usage.dims(1)
    if usage.facts.opset < BROADCAST_SLOPES or (slopes is not None and (len(slopes) != 1 or slopes == (1,))):
        return False
    if dims is None or slopes is None:
        return True
    return len(dims) > 2 and (dims[1] == slopes[0] or not (is_concrete(dims[1]) and is_concrete(slopes[0])))


def _is_causal_on_other_keys(usage: Usage) -> bool:
    queries, keys = usage.dims(0), usage.dims(1)
    same = queries is not None and keys is not None and len(queries) > 2 and queries[-2] == keys[-2]
    return bool(usage.attribute("is_causal", 0)) and not same


_ATTENTION = {
    "is_causal",
    "kv_num_heads",
    "q_num_heads",
    "qk_matmul_output_mode",
    "scale",
    "softcap",
    "softmax_precision",
}

KNOWN_ERRORS = (
    KnownError(
        ("PRelu",),
        "with a 1-D array of slopes, one for each channel",
        "the slopes are broadcast along the channels instead of the last axis",
        _has_one_slope_for_each_channel,
    ),
    KnownError(
        ("ReduceMax", "ReduceMin"),
        "of floating-point numbers",
        "infinities become the largest finite numbers",
        _is_real,
    ),
    KnownError(("TopK",), "", "equal values come in another order"),
    KnownError(
        ("NonMaxSuppression",),
        "",
        "a box whose overlap equals the threshold is dropped; an empty result becomes one arbitrary box",
    ),
    KnownError(
        ("Resize",),
        "with antialias, exclude_outside, keep_aspect_ratio_policy, or scales and align_corners",
        "these are ignored or computed differently",
        _resizes_otherwise,
    ),
    KnownError(("GridSample",), "of whole numbers", "they are rounded otherwise", lambda usage: not _is_real(usage)),
    KnownError(("RoiAlign",), "", "wrong values with the default number of samples, and outside of the image"),
    KnownError(
        ("MaxPool", "AveragePool", "LpPool"),
        "with ceil_mode and auto_pad, or where a window may begin past the end of the image",
        "the output is too large by one",
        _ends_in_the_padding,
    ),
    KnownError(
        ("AveragePool",),
        "with ceil_mode, padding and count_include_pad, where a window may end behind the padding",
        "what lies behind the padding is counted, too",
        _counts_too_much,
    ),
    KnownError(("DFT",), "", "wrong dims with onesided, and the wrong axis"),
    KnownError(("DynamicQuantizeLinear",), "", "values are rounded differently"),
    KnownError(
        ("QuantizeLinear",),
        "with a scale that is computed",
        "values are rounded differently",
        lambda usage: not usage.is_constant(1),
    ),
    KnownError((), "of float64, uint32 or uint64", "they are kept in 32 bits", _has_no_form_in_32_bits, whole=True),
    KnownError(
        (),
        "of numbers of 2, 4 or 6 bits or float8, unless it quantizes",
        "they are rounded or packed otherwise",
        _has_small_numbers,
        whole=True,
    ),
    KnownError((), "of int64 that are not sizes", "they are kept in 32 bits", _computes_long_numbers, whole=True),
    KnownError(
        (),
        "of whole numbers that are not sizes, unless it moves them",
        "they are computed in float32, exact up to 2^24, or saturate instead of wrapping",
        _computes_whole_numbers,
    ),
    KnownError(
        (),
        "that reads a constant int64 beyond 32 bits",
        "it is cut off",
        lambda usage: usage.node.op_type != "Slice" and usage.reads(LONG),
        whole=True,
    ),
    KnownError(
        (),
        "that reads a constant NaN",
        "NaN is lost in Relu, Clip, Max and Min",
        lambda usage: usage.reads(NAN),
        whole=True,
    ),
    KnownError(
        (),
        "that reads a constant infinity, and neither moves nor adds it",
        "infinities become the largest finite numbers",
        lambda usage: usage.reads(INFINITE) and not _passes_infinities_on(usage),
    ),
    KnownError(
        (),
        "that reads a constant without elements",
        "it is read as a scalar",
        lambda usage: usage.node.op_type != "Resize" and usage.reads(EMPTY),
    ),
    KnownError(
        ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"),
        "with noop_with_empty_axes",
        "values are passed on as they are",
        lambda usage: usage.attribute("noop_with_empty_axes", 0) == 1,
    ),
    KnownError(("RNN",), "with lengths of sequences", "they are ignored", lambda usage: usage.has(4)),
    KnownError(("Expand", "ConstantOfShape"), "to a size of 0", "wrong dims", lambda usage: usage.reads(ZERO)),
    KnownError(("Reshape",), "with allowzero", "zeros copy", lambda usage: usage.attribute("allowzero", 0) == 1),
    KnownError(("HardSigmoid",), "with alpha or beta of 0", "the default is taken", _has_a_zero("alpha", "beta")),
    KnownError(("Selu",), "with alpha or gamma of 0", "the default is taken", _has_a_zero("alpha", "gamma")),
    KnownError(
        ("LRN",), "of even size", "the window lies otherwise", lambda usage: usage.attribute("size", 1) % 2 == 0
    ),
    KnownError(
        ("Pad",),
        "with pads or a value that are computed, or negative pads",
        "wrong values",
        _crops_or_computes_its_value,
    ),
    KnownError(
        ("ConvTranspose",),
        "with output_shape, or auto_pad SAME",
        "the padding lies at the other end, or is missing",
        lambda usage: usage.attribute("output_shape") is not None or usage.attribute("auto_pad", "").startswith("SAME"),
    ),
    KnownError(("Conv",), "of one tap with strides and padding", "the output is too large", _strides_over_the_padding),
    KnownError(("MaxPool",), "whose indices are read", "wrong indices", lambda usage: usage.reads_output(1)),
    KnownError(
        ("Mean",), "of several tensors", "the dims are wrong, or the run does not end", lambda usage: usage.has(1)
    ),
    KnownError(("Compress", "Unique", "OneHot"), "", "wrong values, or the process ends"),
    KnownError(("Range",), "that is no size", "a range of nothing has one number", lambda usage: not usage.is_size()),
    KnownError(
        ("Slice",),
        "with computed axes or steps that are no sizes",
        "the process ends",
        lambda usage: any(usage.has(i) and usage.node.input[i] not in usage.facts.sizes for i in (3, 4)),
    ),
    KnownError(
        ("QuantizeLinear", "DequantizeLinear"),
        "of computed tensors along an axis",
        "wrong dims",
        _has_scales_of_an_axis,
    ),
    KnownError(
        ("Attention",),
        "with a window",
        "the window is ignored",
        lambda usage: any(attribute.name not in _ATTENTION for attribute in usage.node.attribute),
    ),
    KnownError(
        ("Attention",),
        "that is causal, and has more or fewer keys than queries",
        "the mask lies otherwise",
        _is_causal_on_other_keys,
    ),
    KnownError(("LSTM",), "with input_forget", "it is ignored", lambda usage: usage.attribute("input_forget", 0) != 0),
    KnownError(
        ("LSTM", "GRU", "RNN"), "with layout 1", "wrong values", lambda usage: usage.attribute("layout", 0) == 1
    ),
    KnownError(("LSTM",), "with peepholes", "they are ignored", lambda usage: usage.has(7)),
    KnownError(
        ("Dropout",), "whose mask is read", "every element of the mask is false", lambda usage: usage.reads_output(1)
    ),
    KnownError(
        ("Gather", "GatherND"),
        "with computed indices that are not sizes",
        "0 for an index out of range",
        lambda usage: not usage.is_constant(1) and not usage.is_size(),
    ),
    KnownError(
        ("Scatter", "ScatterElements"),
        "with computed indices",
        "memory in front of the array is written for an index below minus its size",
        lambda usage: not usage.is_constant(1),
    ),
    KnownError(("Tile",), "with computed repeats", "wrong values", lambda usage: not usage.is_constant(1)),
    KnownError(
        ("SpaceToDepth",), "with a mode", "the mode is ignored", lambda usage: usage.attribute("mode", "DCR") != "DCR"
    ),
    KnownError(
        ("Softmax", "LogSoftmax", "Hardmax"),
        "before opset 13",
        "only one axis is normalized instead of that axis and all after it",
        lambda usage: usage.facts.opset < 13,
    ),
)
