"""What the tests of builds share."""

from __future__ import annotations

from typing import Any

import onnx

import pytrtplugins as ptp
from pytrtplugins.calibration import CalibrationTable


def build(model: onnx.ModelProto, **options: Any) -> Any:
    return ptp.build(model, engine="tensorrt", **options)


def parsed(tensorrt: Any) -> list[onnx.ModelProto]:
    """The models that the parser will have been given."""
    models: list[onnx.ModelProto] = []
    tensorrt.answers["OnnxParser.parse"] = lambda model: models.append(onnx.ModelProto.FromString(model)) or True
    return models


def table_of(model: onnx.ModelProto, algorithm: str = "EntropyCalibration2") -> CalibrationTable:
    names = [info.name for info in (*model.graph.input, *model.graph.value_info, *model.graph.output)]
    return CalibrationTable(dict.fromkeys(names, 0.01), algorithm)
