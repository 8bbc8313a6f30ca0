"""Passes: steps from one ONNX model to another."""

from __future__ import annotations

from ..model.ir import to_ir, to_proto
from ._base import Pass, PassResult, run_passes
from .codes import CODES, Codes
from .constants import PropagateConstants
from .contrib import CONTRIB, WIDE_CODES, write_functions
from .eliminate import Eliminate
from .equalization import CrossLayerEqualization
from .fold import FoldBatchNorm
from .half import to_half
from .int8_forms import Int8Forms
from .merge_pads import MergePads
from .normalize import normalize
from .placement import Placement
from .precisions import LayerPrecision, Precisions, layer_names
from .prepare import load_model, of_onnx, prepare
from .quantize import Quantize, quantize, quantized_tensors
from .repairs import REPAIRS, Finding, RepairedModel, repair
from .rounding import AdaptiveRounding
from .training_norms import TrainingNorms

__all__ = [
    "CODES",
    "CONTRIB",
    "REPAIRS",
    "WIDE_CODES",
    "AdaptiveRounding",
    "Codes",
    "CrossLayerEqualization",
    "Eliminate",
    "Finding",
    "FoldBatchNorm",
    "Int8Forms",
    "LayerPrecision",
    "MergePads",
    "Pass",
    "PassResult",
    "Placement",
    "Precisions",
    "PropagateConstants",
    "Quantize",
    "RepairedModel",
    "TrainingNorms",
    "layer_names",
    "load_model",
    "normalize",
    "of_onnx",
    "prepare",
    "quantize",
    "quantized_tensors",
    "repair",
    "run_passes",
    "to_half",
    "to_ir",
    "to_proto",
    "write_functions",
]
