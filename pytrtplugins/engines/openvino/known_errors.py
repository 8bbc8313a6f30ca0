"""The table of OpenVINO's known errors, from ONNX's own tests and from comparisons with onnxruntime (docs/operators.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .conditions import (
    ATTENTION,
    computes_long_numbers,
    computes_whole_numbers,
    counts_too_much,
    crops_or_computes_its_value,
    ends_in_the_padding,
    has_a_zero,
    has_no_form_in_32_bits,
    has_one_slope_for_each_channel,
    has_scales_of_an_axis,
    has_small_numbers,
    is_causal_on_other_keys,
    is_real,
    may_be_out_of_range,
    may_have_other_sizes,
    passes_infinities_on,
    resizes_otherwise,
    strides_over_the_padding,
)
from .usage import EMPTY, INFINITE, LONG, NAN, ZERO, Usage

__all__ = ["KNOWN_ERRORS", "KnownError"]


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


KNOWN_ERRORS = (
    KnownError(
        ("PRelu",),
        "with a 1-D array of slopes, one for each channel",
        "the slopes are broadcast along the channels instead of the last axis",
        has_one_slope_for_each_channel,
    ),
    KnownError(
        ("ReduceMax", "ReduceMin"),
        "of floating-point numbers",
        "infinities become the largest finite numbers",
        is_real,
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
        resizes_otherwise,
    ),
    KnownError(("GridSample",), "of whole numbers", "they are rounded otherwise", lambda usage: not is_real(usage)),
    KnownError(("RoiAlign",), "", "wrong values with the default number of samples, and outside of the image"),
    KnownError(
        ("MaxPool", "AveragePool", "LpPool"),
        "with ceil_mode and auto_pad, or where a window may begin past the end of the image",
        "the output is too large by one",
        ends_in_the_padding,
    ),
    KnownError(
        ("AveragePool",),
        "with ceil_mode, padding and count_include_pad, where a window may end behind the padding",
        "what lies behind the padding is counted, too",
        counts_too_much,
    ),
    KnownError(("DFT",), "", "wrong dims with onesided, and the wrong axis"),
    KnownError(("DynamicQuantizeLinear",), "", "values are rounded differently"),
    KnownError(
        ("QuantizeLinear",),
        "with a scale that is computed",
        "values are rounded differently",
        lambda usage: not usage.is_constant(1),
    ),
    KnownError((), "of float64, uint32 or uint64", "they are kept in 32 bits", has_no_form_in_32_bits, whole=True),
    KnownError(
        (),
        "of numbers of 2, 4 or 6 bits or float8, unless it quantizes",
        "they are rounded or packed otherwise",
        has_small_numbers,
        whole=True,
    ),
    KnownError((), "of int64 that are not sizes", "they are kept in 32 bits", computes_long_numbers, whole=True),
    KnownError(
        (),
        "of whole numbers that are not sizes, unless it moves them",
        "they are computed in float32, exact up to 2^24, or saturate instead of wrapping",
        computes_whole_numbers,
    ),
    KnownError(
        (),
        "that reads a constant int64 beyond 32 bits",
        "it is cut off",
        lambda usage: usage.node.op_type not in ("Constant", "Slice") and usage.reads(LONG),
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
        lambda usage: usage.reads(INFINITE) and not passes_infinities_on(usage),
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
    KnownError(("HardSigmoid",), "with alpha or beta of 0", "the default is taken", has_a_zero("alpha", "beta")),
    KnownError(("Selu",), "with alpha or gamma of 0", "the default is taken", has_a_zero("alpha", "gamma")),
    KnownError(
        ("LRN",), "of even size", "the window lies otherwise", lambda usage: usage.attribute("size", 1) % 2 == 0
    ),
    KnownError(
        ("Pad",),
        "with pads or a value that are computed, or negative pads",
        "wrong values",
        crops_or_computes_its_value,
    ),
    KnownError(
        ("ConvTranspose",),
        "with output_shape, or auto_pad SAME",
        "the padding lies at the other end, or is missing",
        lambda usage: usage.attribute("output_shape") is not None or usage.attribute("auto_pad", "").startswith("SAME"),
    ),
    KnownError(("Conv",), "of one tap with strides and padding", "the output is too large", strides_over_the_padding),
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
        has_scales_of_an_axis,
    ),
    KnownError(
        ("Attention",),
        "with a window",
        "the window is ignored",
        lambda usage: any(attribute.name not in ATTENTION for attribute in usage.node.attribute),
    ),
    KnownError(
        ("Attention",),
        "that is causal, and has more or fewer keys than queries",
        "the mask lies otherwise",
        is_causal_on_other_keys,
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
        "with indices that may be out of range",
        "any number for an index out of range",
        may_be_out_of_range,
    ),
    KnownError(
        ("Scatter", "ScatterElements"),
        "with indices that may be out of range",
        "memory in front of the array is written for an index below minus its size",
        lambda usage: not usage.is_constant(1) or may_be_out_of_range(usage),
    ),
    KnownError(
        ("Einsum",),
        "where axes of one letter may differ in length",
        "numbers that nobody computed",
        may_have_other_sizes,
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
