"""The passes before OpenVINO reads a model, in order."""

from __future__ import annotations

from ...passes import Pass
from ..host.unsigned import UnsignedActivations
from .rewrites.added_biases import AddedBiases
from .rewrites.barrier_after_matmul import BarrierAfterMatMul
from .rewrites.barrier_before_conv import BarrierBeforeConv
from .rewrites.barrier_before_quantize import BarrierBeforeQuantize
from .rewrites.bounds import ScalarBounds
from .rewrites.inner_sizes import InnerSizes
from .rewrites.joins_apart import JoinsApart
from .rewrites.keep_pads_in_float import KeepPadsInFloat
from .rewrites.known_shapes import KnownShapes
from .rewrites.nonzero_biases import NonzeroBiases
from .rewrites.reduces_apart import ReducesApart
from .rewrites.repeated_pairs import DropRepeatedPairs
from .rewrites.row_scales_apart import RowScalesApart
from .rewrites.scales_apart import ScalesApart

__all__ = ["openvino_passes"]


def openvino_passes() -> tuple[Pass, ...]:
    """A pass for each error of OpenVINO that another form of the model avoids, and `KnownShapes`, which the others need."""
    return (
        KnownShapes(),
        DropRepeatedPairs(),
        UnsignedActivations(),
        KeepPadsInFloat(),
        BarrierBeforeQuantize(),
        BarrierBeforeConv(),
        BarrierAfterMatMul(),
        ScalesApart(),
        RowScalesApart(),
        ReducesApart(),
        NonzeroBiases(),
        AddedBiases(),
        InnerSizes(),
        ScalarBounds(),
        JoinsApart(),
    )
