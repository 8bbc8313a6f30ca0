"""Who is right where oracles differ, by ONNX's text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from .formulas import LEGACY, NEWEST

if TYPE_CHECKING:
    from .form import Form

__all__ = ["VERDICTS", "Verdict", "verdict"]

_RESIZED = ("float16", "float32", "int8", "int32", "uint8")
"""Types of which onnxruntime resizes images."""
_ORACLES = ("onnxruntime", "onnx.reference", "formula")


def _has_nan(form: Form) -> bool:
    constants = [onnx.numpy_helper.to_array(tensor) for tensor in form.model.graph.initializer]
    return any(np.isnan(array.astype(np.float64)).any() for array in (*form.inputs.values(), *constants))


@dataclass(frozen=True)
class Verdict:
    """One kind of form on which oracles differ.

    Attributes:
        operators: Operators.
        right: The oracle that is right, where it runs the form; or, in other words, why none is: the result is not defined, or the only
            library that runs the form computes something else.
        why: By which sentence of ONNX's text.
        applies: Whether a form is of this kind.
    """

    operators: tuple[str, ...]
    right: str
    why: str
    applies: Callable[[Form], bool] = lambda form: True


def _node(form: Form) -> onnx.NodeProto:
    return next(node for node in form.model.graph.node if node.name == "the_node")


def _attribute(form: Form, name: str, default: Any) -> Any:
    values = (onnx.helper.get_attribute_value(item) for item in _node(form).attribute if item.name == name)
    value = next(values, default)
    return value.decode() if isinstance(value, bytes) else value


def _operand(form: Form, index: int) -> Any:
    """An operand of the node, if it is an input or a constant of the model."""
    names = _node(form).input
    if index >= len(names):
        return None
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in form.model.graph.initializer}
    return form.inputs.get(names[index], constants.get(names[index]))


def _interpolates_whole_numbers(form: Form) -> bool:
    x, default = _operand(form, 0), "linear" if form.operator == "GridSample" else "nearest"
    return x is not None and x.dtype.kind in "iu" and _attribute(form, "mode", default) != "nearest"


def _lengths(form: Form, mode: str, applies: Callable[[int, float], bool]) -> bool:
    """Whether a Resize has a mapping of coordinates, and an axis whose length and length times scale are of a kind."""
    x, scales, sizes = (_operand(form, index) for index in (0, 2, 3))
    if _attribute(form, "coordinate_transformation_mode", "") != mode:
        return False
    if x is None:  # computed
        return True
    lengths = [x.shape[axis] for axis in _attribute(form, "axes", range(x.ndim))]
    if sizes is None or not sizes.size:
        sizes = () if scales is None else [length * scale for length, scale in zip(lengths, scales, strict=False)]
    return any(applies(length, float(new)) for length, new in zip(lengths, sizes, strict=False))


def _whole(form: Form) -> bool:
    x = _operand(form, 0)
    return x is not None and x.dtype.kind in "iu"


def _is_between_lengths(form: Form) -> bool:
    """Whether queries and keys of an attention are of different numbers, or are not known."""
    q, k = _operand(form, 0), _operand(form, 1)
    if q is not None and q.ndim == 5:
        return False
    return q is None or k is None or q.shape[1] != k.shape[2 if k.ndim == 4 else 1]


def _negative_as_power(form: Form) -> bool:
    x, like = _operand(form, 0), _operand(form, 1)
    target = _attribute(form, "to", 0) if form.operator == "Cast" else getattr(like, "dtype", np.dtype(np.float32)).name
    power = target in (onnx.TensorProto.FLOAT8E8M0, "float8_e8m0fnu")
    return power and (x is None or bool((x.astype(np.float64) < 0).any()))


def _gives_products_beside_softcap(form: Form) -> bool:
    has_products = len(_node(form).output) > 3 and _attribute(form, "qk_matmul_output_mode", 0) == 0
    return has_products and _attribute(form, "softcap", 0.0) > 0


def _between_small_codes(form: Form) -> bool:
    like = _operand(form, 1)
    x, target = _operand(form, 0), getattr(like, "dtype", None) if form.operator == "CastLike" else None
    small = target is not None and target.name in ("int4", "uint4", "int2", "uint2")
    return small and x is not None and bool((x.astype(np.float64) % 1 != 0).any())


def _same(form: Form) -> bool:
    return bool(_attribute(form, "auto_pad", "").startswith("SAME"))


def _strides_beyond_windows(form: Form) -> bool:
    kernel = _attribute(form, "kernel_shape", ())
    strides, steps = (_attribute(form, name, [1] * len(kernel)) for name in ("strides", "dilations"))
    reaches = [step * (width - 1) + 1 for step, width in zip(steps, kernel, strict=True)]
    return _same(form) and any(stride > reach for stride, reach in zip(strides, reaches, strict=True))


def _rounds_up_without_pads(form: Form) -> bool:
    return _attribute(form, "auto_pad", "") == "VALID" and bool(_attribute(form, "ceil_mode", 0))


def _dilated(form: Form) -> bool:
    return any(step != 1 for step in _attribute(form, "dilations", ()))


_INTERPOLATED = "undefined: the text does not say how a number between whole ones becomes whole"


def _ends_before_the_first_axis(form: Form) -> bool:
    x = _operand(form, 0)
    return bool(_attribute(form, "end", 0) < -(6 if x is None else x.ndim))


def _old(form: Form) -> bool:
    return form.version <= NEWEST.get(form.operator, 6)


VERDICTS: tuple[Verdict, ...] = (
    Verdict(
        tuple(LEGACY),
        "formula",
        "before opset 7 (softmaxes 13, Concat 4, Tile 6) the operator means something else, which the libraries do not compute",
        _old,
    ),
    Verdict(
        ("Softmax", "LogSoftmax", "Hardmax"),
        "onnxruntime",
        "before opset 13 all axes from `axis` on are one; onnx.reference takes that axis alone",
        _old,
    ),
    Verdict(("Resize", "Upsample", "GridSample"), _INTERPOLATED, "", _interpolates_whole_numbers),
    Verdict(("Erf", "ReduceLogSumExp"), _INTERPOLATED, "", _whole),
    Verdict(
        ("Resize",),
        "without an oracle: onnxruntime leaves axes that count from the end where it keeps aspect ratios, and onnx.reference fails",
        "",
        lambda form: (
            _attribute(form, "keep_aspect_ratio_policy", "stretch") != "stretch"
            and min(_attribute(form, "axes", (0,))) < 0
        ),
    ),
    Verdict(
        ("Resize",),
        "without an oracle: onnx.reference takes length times scale for `length_resized`, and onnxruntime has no such type",
        "",
        lambda form: (
            getattr(_operand(form, 0), "dtype", np.dtype(np.float32)).name not in _RESIZED
            and _lengths(form, "pytorch_half_pixel", lambda length, new: new % 1 != 0)
        ),
    ),
    Verdict(
        ("QLinearMatMul",),
        "without an oracle: onnx.reference rounds products of float8 before it scales them, and onnxruntime has no float8 here",
        "",
        lambda form: any(
            "float8" in getattr(_operand(form, index), "dtype", np.dtype(np.uint8)).name for index in (0, 3)
        ),
    ),
    Verdict(
        ("Resize",),
        "undefined: `length_resized` is the length, by the text, and length times scale by ONNX's own tests of align_corners",
        "",
        lambda form: _lengths(form, "align_corners", lambda length, new: new % 1 != 0),
    ),
    Verdict(
        ("Resize",),
        "without an oracle: with tf_crop_and_resize onnxruntime leaves alone axes that keep their length, and onnx.reference takes "
        "length times scale for `length_resized`",
        "",
        lambda form: _lengths(form, "tf_crop_and_resize", lambda length, new: length == new or new % 1 != 0),
    ),
    Verdict(
        ("MaxPool", "AveragePool", "LpPool"),
        "without an oracle: the libraries do not pad for dilated windows",
        "",
        lambda form: _same(form) and _dilated(form),
    ),
    Verdict(
        ("Clip",),
        "undefined: the bound that is left out is the largest number of float32, whatever the type",
        "",
        lambda form: (
            6 <= form.version < 11
            and len(_node(form).attribute) < 2
            and getattr(_operand(form, 0), "dtype", None) != np.float32
        ),
    ),
    Verdict(
        ("Clip",),
        "undefined: before opset 6 the text does not say what a bound is that is left out",
        "",
        lambda form: form.version < 6 and len(_node(form).attribute) < 2,
    ),
    Verdict(
        ("GlobalMaxPool", "Clip"),
        "formula",
        "one number for each channel; a bound that is left out is the least or the largest finite number of the type",
        _old,
    ),
    Verdict(
        ("MaxPool", "AveragePool", "LpPool"),
        "undefined: with auto_pad SAME and strides beyond the window the formula for the padding is negative; onnxruntime crops by it",
        "",
        _strides_beyond_windows,
    ),
    Verdict(
        ("MaxPool",),
        "without an oracle: under auto_pad VALID with ceil_mode onnxruntime may count more windows, and onnx.reference gives other indices",
        "",
        lambda form: _rounds_up_without_pads(form) and len(_node(form).output) > 1,
    ),
    Verdict(
        ("MaxPool",),
        "onnx.reference",
        "with auto_pad VALID the windows are as many as the formula for VALID says, whatever ceil_mode is; onnxruntime may count more",
        _rounds_up_without_pads,
    ),
    Verdict(
        ("AveragePool", "LpPool"),
        "without an oracle: onnxruntime lets ceil_mode count more windows with auto_pad VALID than the text, and onnx.reference refuses it",
        "",
        _rounds_up_without_pads,
    ),
    Verdict(
        ("MaxPool", "AveragePool", "LpPool", "GlobalMaxPool", "GlobalAveragePool"),
        "onnxruntime",
        "the output has the rank of the input, and its size is that of the operator's formula for auto_pad, pads and ceil_mode; the "
        "padding is not counted unless count_include_pad is set",
    ),
    Verdict(
        ("MaxPool", "AveragePool", "LpPool"),
        "without an oracle: with auto_pad SAME there are ceil(input / stride) places, and onnx.reference computes fewer",
        "",
        _same,
    ),
    Verdict(
        ("AveragePool",),
        "without an oracle: onnx.reference counts the padding, and takes dilated windows for others under VALID",
        "",
        lambda form: form.version < 7 or _attribute(form, "auto_pad", "") == "VALID",
    ),
    Verdict(
        ("CastLike",),
        "undefined: the function body that ONNX gives leaves round_mode out",
        "",
        lambda form: _attribute(form, "round_mode", "up") != "up",
    ),
    Verdict(
        ("LpPool",),
        "without an oracle: onnx.reference takes other rows for dilated windows, and onnxruntime does not run it",
        "",
        _dilated,
    ),
    Verdict(
        ("ConvTranspose",),
        "without an oracle: onnx.reference computes groups otherwise where auto_pad is SAME, and onnxruntime does not run it",
        "",
        lambda form: (
            _same(form) and _attribute(form, "group", 1) > 1 and getattr(_operand(form, 0), "dtype", None) == np.float64
        ),
    ),
    Verdict(
        ("GridSample",),
        "undefined: the text does not say in which type places are computed",
        "",
        lambda form: (
            _attribute(form, "mode", "") == "nearest" and getattr(_operand(form, 1), "dtype", None) == np.float16
        ),
    ),
    Verdict(
        ("QLinearConv",),
        "without an oracle: onnx.reference computes convolutions of two spatial axes alone",
        "",
        lambda form: len(_operand(form, 0).shape) != 4,
    ),
    Verdict(
        ("LRN",), "formula", "the window is from floor((size - 1) / 2) before to ceil((size - 1) / 2) behind a channel"
    ),
    Verdict(
        ("LRN",),
        "without an oracle: onnx.reference takes windows of even sizes for others",
        "",
        lambda form: _attribute(form, "size", 0) % 2 == 0,
    ),
    Verdict(
        ("Shape",),
        "onnxruntime",
        "an end before the first axis is clamped to it, so that no sizes are left; onnx.reference 1.23.2 leaves some",
        _ends_before_the_first_axis,
    ),
    Verdict(
        ("Shape",),
        "without an oracle: onnx.reference does not clamp an end before the first axis",
        "",
        _ends_before_the_first_axis,
    ),
    Verdict(("Loop",), "onnxruntime", "what each round gives is joined along a new first axis"),
    Verdict(
        ("Loop",), "without an oracle: onnx.reference joins what each round gives along the axis that is there", ""
    ),
    Verdict(
        ("Attention",),
        "undefined: a mask of whole numbers has no -inf for what is_causal hides",
        "",
        lambda form: (
            bool(_attribute(form, "is_causal", 0)) and getattr(_operand(form, 3), "dtype", np.dtype(bool)).kind in "iu"
        ),
    ),
    Verdict(
        ("BatchNormalization",),
        "onnxruntime",
        "an inference uses the given mean and variance",
        lambda form: form.version == 9,
    ),
    Verdict(
        ("LSTM", "GRU", "RNN"),
        "onnxruntime",
        "activations, clip, sequence_lens, input_forget and layout are ignored by onnx.reference 1.23.2; PyTorch agrees with onnxruntime "
        "(tests/benchmarks/test_forms.py)",
    ),
    Verdict(
        ("LSTM", "GRU", "RNN"),
        "without an oracle: onnxruntime does not run it, and onnx.reference ignores some of its attributes or inputs",
        "",
        lambda form: (
            len(_node(form).input) > 4
            or any(item.name in ("activations", "clip", "input_forget", "layout") for item in _node(form).attribute)
        ),
    ),
    Verdict(
        ("ReduceMax", "ReduceMin"),
        "undefined: the text does not say what the largest number is where one is NaN",
        "",
        _has_nan,
    ),
    Verdict(
        ("TopK",), "undefined: with sorted=0 equal numbers come in any order", "", lambda form: b"sorted" in form.data
    ),
    Verdict(
        ("Dropout",),
        "undefined: the mask of an inference before opset 12",
        "",
        lambda form: form.version < 12 and b"y1" in form.data,
    ),
    Verdict(
        ("AffineGrid", "Det", "ReduceSumSquare", "LayerNormalization"),
        "onnxruntime",
        "the output has the type of the schema",
    ),
    Verdict(("Unsqueeze",), "onnxruntime", "the order of the axes does not matter"),
    Verdict(
        ("Transpose", "CastLike"),
        "without an oracle: onnxruntime is given inputs of 4-bit codes one in a byte, and reads two",
        "",
        lambda form: any(array.dtype.name in ("int4", "uint4") for array in form.inputs.values()),
    ),
    Verdict(
        ("Cast", "CastLike"),
        "undefined: what negative numbers are as float8_e8m0fnu",
        "",
        _negative_as_power,
    ),
    Verdict(
        ("Attention",),
        "onnxruntime",
        "with qk_matmul_output_mode 0 the products are given as they are; onnx.reference gives them limited by softcap",
        _gives_products_beside_softcap,
    ),
    Verdict(
        ("Attention",),
        "without an oracle: onnx.reference gives products that softcap has limited where qk_matmul_output_mode is 0",
        "",
        _gives_products_beside_softcap,
    ),
    Verdict(
        ("CastLike",),
        "undefined: numbers between two codes of 4 bits are cut by onnx.reference and rounded by onnxruntime; the text does not say",
        "",
        _between_small_codes,
    ),
    Verdict(
        ("Transpose", "OneHot"),
        "onnxruntime",
        "onnx.reference reads 4-bit codes and ranks otherwise than the text",
        lambda form: True,
    ),
    Verdict(
        ("com.microsoft.FusedMatMul", "com.microsoft.TransposeMatMul"),
        "formula",
        "transA changes the last two axes of A, whatever B is; onnxruntime reads A as if they had not changed where B is a vector",
        lambda form: bool(_attribute(form, "transA", 0)) and getattr(_operand(form, 1), "ndim", 0) == 1,
    ),
    Verdict(
        ("com.microsoft.MultiHeadAttention",),
        "undefined: the text does not say which keys a query sees where there are more or fewer of them; onnxruntime's last one sees all",
        "",
        lambda form: bool(_attribute(form, "unidirectional", 0)) and _is_between_lengths(form),
    ),
    Verdict(
        ("com.microsoft.SkipSimplifiedLayerNormalization",),
        "undefined: the text does not say what the mean is of a norm without a mean; onnxruntime gives zeros",
        "",
        lambda form: "y1" in _node(form).output,
    ),
    Verdict(
        ("OneHot",),
        "without an oracle: positions lose their fractions by the text, and keep them in onnx.reference",
        "",
        lambda form: "inside" in form.tags,
    ),
)


def verdict(form: Form, answers: Mapping[str, Any]) -> str:
    """The oracle that is right for a form by the table, or why none is; empty where the table does not speak of it."""
    for row in VERDICTS:
        if form.operator in row.operators and (row.right in answers or row.right not in _ORACLES) and row.applies(form):
            return row.right
    return ""
