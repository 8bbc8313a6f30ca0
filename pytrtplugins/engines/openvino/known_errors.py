"""The table of OpenVINO's known errors, from ONNX's own tests and from comparisons with onnxruntime (docs/reference/operators.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .conditions import (
    ATTENTION,
    collects_rounds_of_the_run,
    computes_long_numbers,
    computes_whole_numbers,
    counts_too_much,
    crops_or_computes_its_value,
    ends_in_the_padding,
    has_a_zero,
    has_free_dims,
    has_no_form_in_32_bits,
    has_one_slope_for_each_channel,
    has_scales_of_an_axis,
    has_small_numbers,
    is_causal_on_other_keys,
    is_real,
    may_be_out_of_range,
    may_have_other_sizes,
    may_scatter_elsewhere,
    only_ends_slices,
    passes_infinities_on,
    reads_no_elements,
    resizes_otherwise,
    strides_over_the_padding,
)
from .usage import EMPTY, HUGE, INFINITE, LONG, NAN, ZERO, Usage

__all__ = ["KNOWN_ERRORS", "KnownError"]


@dataclass(frozen=True)
class KnownError:
    """One row of the table.

    Attributes:
        operators: Types of nodes; none for all types.
        where: Which of these nodes are affected, in words.
        what: What OpenVINO does.
        applies: Whether a node of these types is one.
        whole: Whether OpenVINO cannot even pass the values on, so that onnxruntime should compute the whole network.
        version: The version of OpenVINO in which it was seen last.
        example: A model that shows it: the name of a form (benchmarks/forms), which may end in "of seed 4", or an opset and a graph
            in ONNX's text, with values of the inputs. tests/engines/openvino/test_known_errors.py runs it on OpenVINO alone.
    """

    operators: tuple[str, ...]
    where: str
    what: str
    applies: Callable[[Usage], bool] = lambda usage: True
    whole: bool = False
    version: str = "2026.4.1"
    example: str = ""


KNOWN_ERRORS = (
    KnownError(
        ("PRelu",),
        "with a 1-D array of slopes, one for each channel",
        "the slopes are broadcast along the channels instead of the last axis",
        has_one_slope_for_each_channel,
        example="PRelu-9/20",
    ),
    KnownError(
        ("ReduceMax", "ReduceMin"),
        "of floating-point numbers",
        "infinities become the largest finite numbers",
        is_real,
        example="17 (float[1, 2] x = {-inf, -inf}) => (float[1] y) { y = ReduceMax<axes = [1], keepdims = 0>(x) }",
    ),
    KnownError(
        ("TopK",),
        "",
        "equal values come in another order",
        example=(
            "17 (float[1, 9] x = {3, 1, 3, 2, 3, 1, 3, 1, 3}) "
            "=> (float[1, 9] v, int64[1, 9] i) <int64[1] k = {9}> { v, i = TopK(x, k) }"
        ),
    ),
    KnownError(
        ("NonMaxSuppression",),
        "",
        "a box whose overlap equals the threshold is dropped; an empty result becomes one arbitrary box",
        example="NonMaxSuppression-10/0",
    ),
    KnownError(
        ("Resize",),
        "with antialias, exclude_outside, keep_aspect_ratio_policy, or scales and align_corners",
        "these are ignored or computed differently",
        resizes_otherwise,
        example=(
            "18 (float[1, 1, 2, 4] x = {1, 2, 3, 4, 5, 6, 7, 8}) "
            '=> (float[1, 1, 1, 2] y) <float[4] s = {1, 1, 0.5, 0.5}> { y = Resize<mode = "linear", antialias = 1>(x, "", s) }'
        ),
    ),
    KnownError(
        ("GridSample",),
        "of whole numbers",
        "they are rounded otherwise",
        lambda usage: not is_real(usage),
        example="GridSample-16/35",
    ),
    KnownError(
        ("RoiAlign",),
        "",
        "wrong values with the default number of samples, and outside of the image",
        example=(
            "17 (float[1, 1, 2, 2] x = {1, 2, 3, 4}, float[1, 4] r = {-3, -3, 1, 1}, int64[1] b = {0}) "
            "=> (float[1, 1, 1, 1] y) { y = RoiAlign<output_height = 1, output_width = 1>(x, r, b) }"
        ),
    ),
    KnownError(
        ("MaxPool", "AveragePool", "LpPool"),
        "with ceil_mode and auto_pad, or where a window may begin past the end of the image",
        "the output is too large by one",
        ends_in_the_padding,
        example="MaxPool-10/29",
    ),
    KnownError(
        ("AveragePool",),
        "with ceil_mode, padding and count_include_pad, where a window may end behind the padding",
        "what lies behind the padding is counted, too",
        counts_too_much,
        example="AveragePool-19/26",
    ),
    KnownError(
        ("DFT",),
        "",
        "wrong dims with onesided, and the wrong axis",
        example="17 (float[1, 4, 1] x = {1, 2, 3, 4}) => (float[1, 3, 2] y) { y = DFT<axis = 1, onesided = 1>(x) }",
    ),
    KnownError(
        ("DynamicQuantizeLinear",),
        "",
        "values are rounded differently",
        example="17 (float[4] x = {0, 1, 2.5, 255}) => (uint8[4] y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear(x) }",
    ),
    KnownError(
        ("QuantizeLinear",),
        "with a scale that is computed",
        "values are rounded differently",
        lambda usage: not usage.is_constant(1),
        example="QuantizeLinear-25/32",
    ),
    KnownError(
        ("QuantizeLinear",),
        "with a scale so large that codes times it may exceed float32",
        "every value becomes the lowest number, or NaN",
        lambda usage: usage.reads(HUGE),
        example=(
            "17 (float[4] x = {0, -4e36, 2e36, -3e38}) => (float[4] y) <float s = {1.4e36}, int8 z = {127}> "
            "{ q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }"
        ),
    ),
    KnownError(
        (),
        "of float64, uint32 or uint64",
        "they are kept in 32 bits",
        has_no_form_in_32_bits,
        whole=True,
        example="Ceil-1/12",
    ),
    KnownError(
        (),
        "of numbers of 2, 4 or 6 bits or float8, unless it quantizes",
        "they are rounded or packed otherwise",
        has_small_numbers,
        whole=True,
        example="ConstantOfShape-23/27",
    ),
    KnownError(
        (),
        "of int64 that are not sizes",
        "they are kept in 32 bits",
        computes_long_numbers,
        whole=True,
        example="17 (int64[1] x = {2147483647}) => (int64[1] y) { y = Add(x, x) }",
    ),
    KnownError(
        (),
        "of whole numbers that are not sizes, unless it moves them",
        "they are computed in float32, exact up to 2^24, or saturate instead of wrapping",
        computes_whole_numbers,
        example="17 (int32[2] x = {16777217, 3}) => (int32[2] y) <int32[1] one = {1}> { y = Div(x, one) }",
    ),
    KnownError(
        (),
        "that reads a constant int64 beyond 32 bits",
        "it is cut off",
        lambda usage: usage.reads(LONG) and not only_ends_slices(usage),
        whole=True,
        example="Constant-19/14",
    ),
    KnownError(
        (),
        "that reads a constant NaN",
        "NaN is lost in Relu, Clip, Max and Min",
        lambda usage: usage.reads(NAN),
        whole=True,
        example="Min-8/11",
    ),
    KnownError(
        (),
        "that reads a constant infinity, and neither moves nor adds it",
        "infinities become the largest finite numbers",
        lambda usage: usage.reads(INFINITE) and not passes_infinities_on(usage),
        example="Mean-6/10",
    ),
    KnownError(
        (),
        "that reads a constant without elements",
        "it is read as a scalar",
        lambda usage: usage.node.op_type != "Resize" and usage.reads(EMPTY),
        example="Erf-13/2",
    ),
    KnownError(
        (),
        "that reads a tensor without elements",
        "it writes outside of memory, or divides by zero (Gather, Expand)",
        reads_no_elements,
        example=(
            "14 (float[1] q = {1}) => (float[0, 2, 8] y, float[1] z) "
            "<float[1, 2, 8] a = {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8}, float[1, 1, 1] b = {1}, "
            "int64[1] from = {0}> "
            "{ u = Slice(b, from, from) y = Sub(a, u) z = Neg(q) }"
        ),
    ),
    KnownError(
        ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"),
        "with noop_with_empty_axes",
        "values are passed on as they are",
        lambda usage: usage.attribute("noop_with_empty_axes", 0) == 1,
        example="18 (float[2] x = {-1, 2}) => (float[2] y) { y = ReduceL1<noop_with_empty_axes = 1>(x) }",
    ),
    KnownError(
        ("ReduceL1", "ReduceLogSum", "ReduceLogSumExp"),
        "from opset 13 on with the attribute axes",
        "all axes are reduced",
        lambda usage: usage.facts.opset >= 13 and bool(usage.attribute("axes")),
        example="13 (float[2, 2] x = {1, 2, 3, 4}) => (float[2, 1] y) { y = ReduceL1<axes = [1]>(x) }",
    ),
    KnownError(
        ("RNN",), "with lengths of sequences", "they are ignored", lambda usage: usage.has(4), example="RNN-14/29"
    ),
    KnownError(
        ("Expand", "ConstantOfShape"),
        "to a size of 0",
        "wrong dims",
        lambda usage: usage.facts.peculiar.get(usage.node.input[-1]) == ZERO,
        example="Expand-13/15",
    ),
    KnownError(
        ("HardSigmoid",),
        "with alpha or beta of 0",
        "the default is taken",
        has_a_zero("alpha", "beta"),
        example="HardSigmoid-6/9",
    ),
    KnownError(
        ("Selu",),
        "with alpha or gamma of 0",
        "the default is taken",
        has_a_zero("alpha", "gamma"),
        example="17 (float[2] x = {-1, 1}) => (float[2] y) { y = Selu<alpha = 0.0>(x) }",
    ),
    KnownError(
        ("LRN",),
        "of even size",
        "the window lies otherwise",
        lambda usage: usage.attribute("size", 1) % 2 == 0,
        example="LRN-1/9",
    ),
    KnownError(
        ("Pad",),
        "with pads or a value that are computed, or negative pads",
        "wrong values",
        crops_or_computes_its_value,
        example="17 (float[2] x = {1, 2}, float v = {7}) => (float[3] y) <int64[2] p = {1, 0}> { y = Pad(x, p, v) }",
    ),
    KnownError(
        ("ConvTranspose",),
        "with output_shape, or auto_pad SAME",
        "the padding lies at the other end, or is missing",
        lambda usage: usage.attribute("output_shape") is not None or usage.attribute("auto_pad", "").startswith("SAME"),
        example="ConvTranspose-11/19",
    ),
    KnownError(
        ("Conv",),
        "of one tap with strides and padding",
        "the output is too large",
        strides_over_the_padding,
        example="Conv-22/22",
    ),
    KnownError(
        ("MaxPool",),
        "whose indices are read",
        "wrong indices",
        lambda usage: usage.reads_output(1),
        example="MaxPool-12/8",
    ),
    KnownError(
        ("Mean",),
        "of several tensors",
        "the dims are wrong, or the run does not end",
        lambda usage: usage.has(1),
        example="Mean-8/19",
    ),
    KnownError(
        ("Compress", "Unique", "OneHot"),
        "",
        "wrong values, or the process ends",
        example="17 (float[3] x = {2, 1, 2}) => (float[n] y) { y = Unique<sorted = 0>(x) }",
    ),
    KnownError(
        ("Range",),
        "that is no size",
        "a range of nothing has one number",
        lambda usage: not usage.is_size(),
        example="17 (int64 a = {3}, int64 b = {1}, int64 d = {1}) => (int64[n] y) { y = Range(a, b, d) }",
    ),
    KnownError(
        ("Loop",),
        "of no round",
        "the process ends",
        lambda usage: usage.has(0) and usage.facts.peculiar.get(usage.node.input[0]) == ZERO,
        example=(
            "17 (float[3] x = {1, 2, 3}) => (float[3] y, float[k, 3] a) <int64 m = {0}> { y, a = Loop<body = "
            "b (int64 i, bool d, float[3] v) => (bool e, float[3] w, float[3] s) "
            "{ e = Identity(d) w = Add(v, v) s = Identity(w) }>(m, , x) }"
        ),
    ),
    KnownError(
        ("Slice",),
        "with computed axes or steps that are no sizes",
        "the process ends",
        lambda usage: any(usage.has(i) and usage.node.input[i] not in usage.facts.sizes for i in (3, 4)),
        example="17 (float[4, 2] x = {1, 2, 3, 4, 5, 6, 7, 8}, int64[1] a = {1}) => (float[n, m] y) "
        "<int64[1] b = {0}, int64[1] e = {1}> { y = Slice(x, b, e, a) }",
    ),
    KnownError(
        ("QuantizeLinear", "DequantizeLinear"),
        "of computed tensors along an axis, or with scales of unknown number",
        "wrong dims",
        has_scales_of_an_axis,
        example="QuantizeLinear-24/8",
    ),
    KnownError(
        ("Attention",),
        "with a window",
        "the window is ignored",
        lambda usage: any(attribute.name not in ATTENTION for attribute in usage.node.attribute),
        example="Attention-25/32",
    ),
    KnownError(
        ("Attention",),
        "that is causal, with past keys, and has more or fewer keys than queries",
        "the mask lies otherwise",
        is_causal_on_other_keys,
        example="Attention-23/27",
    ),
    KnownError(
        ("LSTM",),
        "with input_forget",
        "it is ignored",
        lambda usage: usage.attribute("input_forget", 0) != 0,
        example="LSTM-14/35",
    ),
    KnownError(
        ("LSTM", "GRU", "RNN"),
        "with layout 1",
        "wrong values",
        lambda usage: usage.attribute("layout", 0) == 1,
        example=(
            "14 (float[2, 1, 1] x = {1, 2}) => (float[2, 1, 1, 1] y) <float[1, 1, 1] w = {0.5}, float[1, 1, 1] r = {0.1}> "
            "{ y = RNN<hidden_size = 1, layout = 1>(x, w, r) }"
        ),
    ),
    KnownError(
        ("Gather",),
        "with indices that have no elements",
        "it ends the process",
        lambda usage: 0 in (usage.dims(1) or ()),
        example="Gather-11/27 of seed 1",
    ),
    KnownError(
        ("Loop",),
        "of rounds that only a run counts, with results of each round",
        "without a round they have no dims",
        collects_rounds_of_the_run,
        example="Loop-16/0",
    ),
    KnownError(
        ("Split",),
        "into a number of parts, with free dims",
        "parts of different sizes are refused in the run",
        lambda usage: usage.attribute("num_outputs", 0) > 0 and has_free_dims(usage),
        example="Split-18/8",
    ),
    KnownError(
        ("LSTM", "GRU"),
        "with lengths of sequences and free dims",
        "the lengths are ignored",
        lambda usage: usage.has(4) and has_free_dims(usage),
        example="GRU-22/3 of seed 4",
    ),
    KnownError(("LSTM",), "with peepholes", "they are ignored", lambda usage: usage.has(7), example="LSTM-14/31"),
    KnownError(
        ("Dropout",),
        "whose mask is read",
        "the name of an input that it reads is lost, so that the input is not given",
        lambda usage: usage.reads_output(1),
        example="17 (float[2] x = {1, 2}) => (float[2] y, bool[2] n) { y, m = Dropout(x) n = Not(m) }",
    ),
    KnownError(
        ("Gather", "GatherND"),
        "with indices that may be out of range",
        "any number for an index out of range",
        may_be_out_of_range,
        example="17 (float[2] x = {1, 2}, int64[1] i = {5}) => (float[1] y) { j = Abs(i) y = Gather(x, j) }",
    ),
    KnownError(
        ("Scatter", "ScatterElements"),
        "with indices that may be out of range, or more than an axis has",
        "memory outside of the array is written",
        may_scatter_elsewhere,
        example="17 (float[2] x = {1, 2}, int64[1] i = {-3}, float[1] u = {5}) => (float[2] y) { y = ScatterElements(x, i, u) }",
    ),
    KnownError(
        ("Einsum",),
        "where axes of one letter may differ in length",
        "numbers that nobody computed",
        may_have_other_sizes,
        example=(
            "17 (float[2] x = {1, 2}, int64[2] s = {1, 2}, float[3] z = {1, 2, 3}, int64[2] t = {3, 1}) => (float[1, 1] y) "
            '{ a = Reshape(x, s) b = Reshape(z, t) y = Einsum<equation = "ij,jk->ik">(a, b) }'
        ),
    ),
    KnownError(
        ("Tile",),
        "with computed repeats that are no sizes",
        "it takes negative ones",
        lambda usage: not usage.is_constant(1) and not usage.is_size(),
        example="17 (float[2] x = {1, 2}, int64[1] r = {-1}) => (float[n] y) { y = Tile(x, r) }",
    ),
    KnownError(
        ("Tile",),
        "before opset 6",
        "the axis is ignored",
        lambda usage: usage.has(2),
        example="Tile-1/4",
    ),
    KnownError(
        ("Hardmax",),
        "",
        "of equal numbers the first is not always taken",
        example="Hardmax-11/2",
    ),
    KnownError(
        ("DequantizeLinear",),
        "of 16 or 32 bits with scales of float16",
        "codes become float16 before they are multiplied, and infinite",
        lambda usage: usage.dtype() in ("int16", "uint16", "int32") and usage.dtype(1) == "float16",
        example="DequantizeLinear-25/22",
    ),
    KnownError(
        ("Conv", "ConvTranspose", "CumSum", "Gemm", "MatMul", "PRelu"),
        "of constants alone",
        "quantized ones are folded wrongly, an axis or slopes that do not fit end the process",
        lambda usage: usage.is_constant(0) and usage.is_constant(1),
        example=(
            "13 (float[1] x = {0}) => (float[2, 2] y, float[1] o) <int8[3, 2] a = {-3, -128, 127, 5, -5, 3}, float s = {0.05}, "
            "int8 z = {2}, int8[3, 2] b = {-128, 6, 127, -6, 3, 0}, float t = {0.05}, int8 u = {0}> "
            "{ c = DequantizeLinear(a, s, z) d = DequantizeLinear(b, t, u) y = Gemm<transA = 1>(c, d) o = Relu(x) }"
        ),
    ),
    KnownError(
        ("SpaceToDepth",),
        "with a mode",
        "the mode is ignored",
        lambda usage: usage.attribute("mode", "DCR") != "DCR",
        example=(
            "28 (float[1, 2, 2, 2] x = {1, 2, 3, 4, 5, 6, 7, 8}) "
            '=> (float[1, 8, 1, 1] y) { y = SpaceToDepth<blocksize = 2, mode = "CRD">(x) }'
        ),
    ),
    KnownError(
        ("Softmax", "LogSoftmax"),
        "before opset 13",
        "only one axis is normalized instead of that axis and all after it",
        lambda usage: usage.facts.opset < 13,
        example="11 (float[1, 2, 2] x = {1, 2, 3, 4}) => (float[1, 2, 2] y) { y = Softmax<axis = 1>(x) }",
    ),
)
