"""The table of OpenVINO's known errors, from ONNX's own tests and from comparisons with onnxruntime (docs/operators.md)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...model.proto import info_dims, numpy_type
from ...plugin.onnx_node import node_attributes
from ...tensor import Dims, is_concrete
from ...validation.broadcasting import BROADCAST_SLOPES
from ...validation.pooling import LastWindow, last_windows, rounds_up

if TYPE_CHECKING:
    import onnx

__all__ = ["KNOWN_ERRORS", "Facts", "KnownError", "Usage"]


@dataclass(frozen=True)
class Facts:
    """What is known of a model's tensors.

    Attributes:
        types: Type of each tensor.
        constants: Tensors whose values are known when the model is built.
        sizes: Tensors computed from dims and constants alone.
        read: Tensors that something reads.
        opset: The model's opset.
    """

    types: Mapping[str, onnx.TypeProto]
    constants: Collection[str]
    sizes: Collection[str]
    read: Collection[str]
    opset: int


class Usage:
    """One node, and the facts about its tensors."""

    def __init__(self, node: onnx.NodeProto, facts: Facts) -> None:
        self.node, self.facts = node, facts
        self._attributes: dict[str, Any] | None = None

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's value."""
        if self._attributes is None:
            self._attributes = node_attributes(self.node)
        return self._attributes.get(name, default)

    def has(self, index: int) -> bool:
        """Whether an input is given."""
        return len(self.node.input) > index and bool(self.node.input[index])

    def is_constant(self, index: int) -> bool:
        """Whether an input is known when the model is built."""
        return self.has(index) and self.node.input[index] in self.facts.constants

    def is_size(self) -> bool:
        """Whether the node computes with dims and constants alone."""
        return all(name in self.facts.sizes for name in self.node.input if name)

    def dtype(self) -> str:
        """NumPy's name of the first input's element type; empty where it is not known."""
        found = self.facts.types.get(self.node.input[0]) if self.node.input else None
        kind = found.tensor_type.elem_type if found is not None else 0
        return numpy_type(kind).name if kind else ""

    def dims(self, index: int = 0) -> Dims | None:
        """Dims of an input; None where they are not known."""
        found = self.facts.types.get(self.node.input[index]) if self.has(index) else None
        if found is None or not found.tensor_type.HasField("shape"):
            return None
        holder: Any = type("Info", (), {"name": self.node.input[index], "type": found})
        return info_dims(holder)

    def reads_output(self, index: int) -> bool:
        """Whether something reads an output."""
        return len(self.node.output) > index and self.node.output[index] in self.facts.read


@dataclass(frozen=True)
class KnownError:
    """One row of the table.

    Attributes:
        operators: Types of nodes.
        where: Of which of them, for people.
        what: What OpenVINO does.
        applies: Whether a node of these types is one.
    """

    operators: tuple[str, ...]
    where: str
    what: str
    applies: Callable[[Usage], bool] = lambda usage: True


def _is_real(usage: Usage) -> bool:
    return usage.dtype() in ("float16", "float32", "bfloat16", "float64", "")


def _is_byte(usage: Usage) -> bool:
    return usage.dtype() in ("int8", "uint8")


def _is_signed(usage: Usage) -> bool:
    return usage.dtype() in ("int8", "int16", "int32", "int64")


def _is_whole_data(usage: Usage) -> bool:
    return usage.dtype() in ("int32", "int64") and not usage.is_size()


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
    KnownError(("RoiAlign",), 'with mode "max"', "wrong values", lambda usage: usage.attribute("mode", "avg") == "max"),
    KnownError(
        ("MaxPool", "AveragePool", "LpPool"),
        "with ceil_mode, where a window may begin past the end of the image",
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
    KnownError(
        ("Add", "Sub", "Mul", "Neg", "Abs", "BitShift"),
        "of 8-bit numbers",
        "they saturate instead of wrapping",
        _is_byte,
    ),
    KnownError(("BitShift",), "of signed integers", "they are shifted as if they were unsigned", _is_signed),
    KnownError(
        ("Div", "Mod", "Pow", "ReduceSum", "ReduceMean", "ReduceProd", "ReduceSumSquare", "ReduceL1", "MatMul", "Gemm"),
        "of integers that are not sizes",
        "they are computed in float32, exact up to 2^24",
        _is_whole_data,
    ),
    KnownError(
        ("Attention",),
        "with a window",
        "the window is ignored",
        lambda usage: any(attribute.name not in _ATTENTION for attribute in usage.node.attribute),
    ),
    KnownError(
        ("LSTM", "GRU", "RNN"), "with layout 1", "wrong values", lambda usage: usage.attribute("layout", 0) == 1
    ),
    KnownError(("LSTM",), "with peepholes", "they are ignored", lambda usage: usage.has(7)),
    KnownError(
        ("Dropout",), "whose mask is read", "every element of the mask is false", lambda usage: usage.reads_output(1)
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
