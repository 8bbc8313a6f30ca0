"""What the tests of TensorRT for RTX share: a build, with its layers and warnings."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

import pytrtplugins as ptp
from benchmarks.tensorrt_builds.build import recorded
from benchmarks.tensorrt_builds.layer_list import Layer

from .conftest import SUBSTRATE

needs_rtx = pytest.mark.skipif(SUBSTRATE != "rtx", reason="for TensorRT for RTX. Do: make test-tensorrt")
ENGINE = "tensorrt_rtx"


class RtxBuild(NamedTuple):
    """An engine, and the layers that the builder lists."""

    engine: Any
    layers: tuple[Layer, ...]

    def plugins(self) -> list[Layer]:
        return [layer for layer in self.layers if layer.kind == "custom_layer"]

    def plugin(self, node: str = "plugin") -> Layer:
        (layer,) = [layer for layer in self.plugins() if node in layer.nodes]
        return layer


def build_on_rtx(model: Any, precision: str = "fp32", **options: Any) -> RtxBuild:
    """Build a model; a message of TensorRT's at the level WARNING or higher is a failure."""
    with recorded() as log:
        engine = ptp.build(model, engine=ENGINE, precision=precision, progress=False, **options)
    assert log.warnings == []
    assert log.layers
    return RtxBuild(engine, log.layers)


def types(tensors: Any) -> list[str]:
    return [tensor.dtype for tensor in tensors]
