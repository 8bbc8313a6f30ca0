"""Allowed values of string attributes, which ONNX's text lists and its schemas do not."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["allowed_values"]

_PADDING = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
_SCATTER = ("none", "add", "mul", "max", "min")
_LOSS = ("none", "sum", "mean")
_DIRECTION = ("forward", "reverse", "bidirectional")
_WORDS: Mapping[tuple[str, str], tuple[str, ...]] = {  # (operator, attribute) → the words that ONNX knows, in its order
    **{
        (op, "auto_pad"): _PADDING
        for op in ("AveragePool", "Conv", "ConvInteger", "ConvTranspose", "LpPool", "MaxPool", "QLinearConv")
    },
    **{(op, "direction"): _DIRECTION for op in ("GRU", "LSTM", "RNN")},
    **{(op, "round_mode"): ("up", "down", "nearest") for op in ("Cast", "CastLike")},
    **{(op, "reduction"): _SCATTER for op in ("ScatterElements", "ScatterND")},
    **{(op, "reduction"): _LOSS for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")},
    ("BitShift", "direction"): ("RIGHT", "LEFT"),
    ("CausalConvWithState", "activation"): ("silu", "swish", "none"),
    ("DepthToSpace", "mode"): ("DCR", "CRD"),
    ("Gelu", "approximate"): ("tanh", "none"),
    ("GridSample", "mode"): ("linear", "nearest", "cubic", "bilinear", "bicubic"),
    ("GridSample", "padding_mode"): ("zeros", "border", "reflection"),
    ("ImageDecoder", "pixel_format"): ("RGB", "BGR", "Grayscale"),
    ("LinearAttention", "update_rule"): ("linear", "gated", "delta", "gated_delta"),
    ("Pad", "mode"): ("constant", "reflect", "edge", "wrap"),
    ("Resize", "coordinate_transformation_mode"): (
        "half_pixel",
        "half_pixel_symmetric",
        "pytorch_half_pixel",
        "align_corners",
        "asymmetric",
        "tf_crop_and_resize",
        "tf_half_pixel_for_nn",
    ),
    ("Resize", "keep_aspect_ratio_policy"): ("stretch", "not_larger", "not_smaller"),
    ("Resize", "mode"): ("nearest", "linear", "cubic"),
    ("Resize", "nearest_mode"): ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    ("RoiAlign", "coordinate_transformation_mode"): ("half_pixel", "output_half_pixel"),
    ("RoiAlign", "mode"): ("avg", "max"),
    ("SpaceToDepth", "mode"): ("DCR", "CRD"),
    ("StringNormalizer", "case_change_action"): ("LOWER", "UPPER", "NONE"),
    ("TensorScatter", "mode"): ("linear", "circular"),
    ("TfIdfVectorizer", "mode"): ("TF", "IDF", "TFIDF"),
}
_OF_CONTRIB: Mapping[tuple[str, str], tuple[str, ...]] = {  # the same for operators of onnxruntime's own
    **{
        (op, "auto_pad"): _PADDING
        for op in (
            *(
                "ConvTransposeWithDynamicPads",
                "FusedConv",
                "MaxpoolWithMask",
                "NhwcConv",
                "NhwcFusedConv",
                "NhwcMaxPool",
            ),
            *("QLinearAveragePool", "QLinearConv"),
        )
    },
    **{(op, "direction"): _DIRECTION for op in ("AttnLSTM", "DynamicQuantizeLSTM")},
}
_OF_DOMAINS = {"": _WORDS, "com.microsoft": _OF_CONTRIB}


def allowed_values(op_type: str, domain: str, attribute: str) -> tuple[str, ...]:
    """The allowed values of an operator's string attribute; empty if it has none."""
    return _OF_DOMAINS.get(domain, {}).get((op_type, attribute), ())
