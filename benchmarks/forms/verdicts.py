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


def _has_nan(form: Form) -> bool:
    constants = [onnx.numpy_helper.to_array(tensor) for tensor in form.model.graph.initializer]
    return any(np.isnan(array.astype(np.float64)).any() for array in (*form.inputs.values(), *constants))


@dataclass(frozen=True)
class Verdict:
    """One kind of form on which oracles differ.

    Attributes:
        operators: Operators.
        right: The oracle that is right; or, beginning with ``undefined``, why no result is.
        why: By which sentence of ONNX's text.
        applies: Whether a form is of this kind.
    """

    operators: tuple[str, ...]
    right: str
    why: str
    applies: Callable[[Form], bool] = lambda form: True


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
    Verdict(
        ("MaxPool", "AveragePool", "LpPool", "GlobalMaxPool", "GlobalAveragePool"),
        "onnxruntime",
        "the output has the rank of the input, and its size is that of the operator's formula for auto_pad, pads and ceil_mode; "
        "the padding is not counted unless count_include_pad is set",
    ),
    Verdict(
        ("LRN",), "formula", "the window is from floor((size - 1) / 2) before to ceil((size - 1) / 2) behind a channel"
    ),
    Verdict(("Loop",), "onnxruntime", "what each round gives is joined along a new first axis"),
    Verdict(
        ("BatchNormalization",),
        "onnxruntime",
        "an inference uses the given mean and variance",
        lambda form: form.version == 9,
    ),
    Verdict(
        ("LSTM", "GRU", "RNN"),
        "onnxruntime",
        "activations, clip, sequence_lens, input_forget and layout are ignored by onnx.reference",
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
    Verdict(("Clip",), "onnxruntime", "a bound that is left out is the largest finite number of the type"),
    Verdict(
        ("Transpose", "OneHot"),
        "onnxruntime",
        "onnx.reference reads 4-bit codes and ranks otherwise than the text",
        lambda form: True,
    ),
)


def verdict(form: Form, answers: Mapping[str, Any]) -> str:
    """The oracle that is right for a form by the table; empty where the table does not speak of it."""
    for row in VERDICTS:
        if (
            form.operator in row.operators
            and row.applies(form)
            and (row.right in answers or row.right.startswith("undefined"))
        ):
            return row.right
    return ""
