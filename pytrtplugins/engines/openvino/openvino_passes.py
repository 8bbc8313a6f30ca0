"""What a model goes through before OpenVINO reads it, in this order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...passes import (
    AddedBiases,
    DropRepeatedPairs,
    FactorsApart,
    FloatPads,
    InnerSizes,
    JoinsApart,
    KnownShapes,
    NonzeroBiases,
    PlacesApart,
    ProductsApart,
    ReducesApart,
    RowScalesApart,
    ScalarBounds,
    ScalesApart,
    UnsignedActivations,
)

if TYPE_CHECKING:
    from ...passes import Pass

__all__ = ["openvino_passes"]


def openvino_passes() -> tuple[Pass, ...]:
    """A pass for each error of OpenVINO that another form of the model avoids, and `KnownShapes`, which the others need."""
    return (
        KnownShapes(),
        DropRepeatedPairs(),
        UnsignedActivations(),
        FloatPads(),
        FactorsApart(),
        PlacesApart(),
        ProductsApart(),
        ScalesApart(),
        RowScalesApart(),
        ReducesApart(),
        NonzeroBiases(),
        AddedBiases(),
        InnerSizes(),
        ScalarBounds(),
        JoinsApart(),
    )
