"""The passes before calibration and quantization: the form whose tensor names a calibration table speaks of."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .._optional import require
from ..decompose import infer_shapes
from ..errors import ModelError
from ._base import to_ir, to_proto
from .eliminate import Eliminate
from .fold import FoldBatchNorm

if TYPE_CHECKING:
    import onnx

__all__ = ["load_model", "prepare"]


def load_model(model: str | Path | onnx.ModelProto) -> onnx.ModelProto:
    """Read an ONNX file, or take a model as it is.

    Raises:
        ModelError: the file is no ONNX model.
        FileNotFoundError: there is no such file.
    """
    onnx = require("onnx", extra="onnx", feature="reading ONNX models")
    if not isinstance(model, (str, Path)):
        return model
    path = Path(model)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected an ONNX model")
    try:
        loaded = onnx.load(path)
    except Exception as error:  # protobuf raises types of its own
        raise ModelError(
            f"{path}: not an ONNX model ({error}).\nDo: darknet2caffe CFG WEIGHTS -o {path}", path=path
        ) from error
    if not loaded.graph.node:
        raise ModelError(f"{path}: the model has no nodes.\nDo: darknet2caffe CFG WEIGHTS -o {path}", path=path)
    return loaded  # type: ignore[no-any-return]


def prepare(model: str | Path | onnx.ModelProto) -> onnx.ModelProto:
    """Fold batch norms, eliminate what does nothing, and add all shapes. The same model gives the same names.

    Args:
        model: Path or model; it is not changed.

    Raises:
        ModelError: it is no ONNX model, or its shapes contradict each other.
        RegistryError: it has a plugin that is not registered.
    """
    ir_model = to_ir(load_model(model))
    for step in (FoldBatchNorm(), Eliminate()):
        step(ir_model)
    return infer_shapes(to_proto(ir_model))
