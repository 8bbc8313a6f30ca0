"""Steps from one ONNX model to another."""

from __future__ import annotations

from ..model.ir import to_ir, to_proto
from ._base import Pass, PassResult, run_passes
from .added_biases import AddedBiases
from .bounds import ScalarBounds
from .codes import CODES, Codes
from .constants import PropagateConstants
from .contrib import CONTRIB, WIDE_CODES, write_functions
from .eliminate import Eliminate
from .equalization import CrossLayerEqualization
from .factors_apart import FactorsApart
from .float_pads import FloatPads
from .fold import FoldBatchNorm
from .half import to_half
from .inner_sizes import InnerSizes
from .int8_forms import Int8Forms
from .joins_apart import JoinsApart
from .known_shapes import KnownShapes
from .merge_pads import MergePads
from .nonzero_biases import NonzeroBiases
from .normalize import normalize
from .placement import Placement
from .places_apart import PlacesApart
from .precisions import LayerPrecision, Precisions, layer_names
from .prepare import load_model, of_onnx, prepare
from .products_apart import ProductsApart
from .quantize import Quantize, quantize, quantized_tensors
from .reduces_apart import ReducesApart
from .repairs import REPAIRS, Finding, RepairedModel, repair
from .repeated_pairs import DropRepeatedPairs
from .rounding import AdaptiveRounding
from .row_scales_apart import RowScalesApart
from .scales_apart import ScalesApart
from .training_norms import TrainingNorms
from .unsigned import UnsignedActivations

__all__ = [
    "CODES",
    "CONTRIB",
    "REPAIRS",
    "WIDE_CODES",
    "AdaptiveRounding",
    "AddedBiases",
    "Codes",
    "CrossLayerEqualization",
    "DropRepeatedPairs",
    "Eliminate",
    "FactorsApart",
    "Finding",
    "FloatPads",
    "FoldBatchNorm",
    "InnerSizes",
    "Int8Forms",
    "JoinsApart",
    "KnownShapes",
    "LayerPrecision",
    "MergePads",
    "NonzeroBiases",
    "Pass",
    "PassResult",
    "Placement",
    "PlacesApart",
    "Precisions",
    "ProductsApart",
    "PropagateConstants",
    "Quantize",
    "ReducesApart",
    "RepairedModel",
    "RowScalesApart",
    "ScalarBounds",
    "ScalesApart",
    "TrainingNorms",
    "UnsignedActivations",
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
