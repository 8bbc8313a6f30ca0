"""Models that need no code: a detector, and tensors in and out of any engine."""

from __future__ import annotations

import io
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engines import build, load_engine
from ..engines.base.engine_file import is_engine_file
from ..errors import ModelError, RequestError, UsageError
from ..models import Yolov2, read_description, read_heads
from ..tensor import DType, SymbolicDim, TensorDesc
from ..utils.optional import require
from ..vision import Detection, Detections
from .model import Arrays, Model, Request

if TYPE_CHECKING:
    from ..engines.base.engine import Engine
    from .spec import ModelSpec

__all__ = ["Detector", "Tensors", "default_model", "target_file"]

_FORMATS = ("json", "image")


class Tensors(Model):
    """Any engine: arrays in, arrays out.

    Args:
        engine: Built or loaded.
    """

    def __init__(self, engine: Engine | None = None) -> None:
        super().__init__()
        if engine is not None:
            self.engine = engine
            self.context = engine.create_context()
            self.sizes = _sizes(engine)
            self._queues = engine.name == "cuda"  # others start a thread for each run that is queued

    def preprocess(self, request: Request) -> Arrays:
        """Refuse: nothing is known of what the tensors mean."""
        raise RequestError(
            "this model takes tensors: POST /v2/models/NAME/infer; only a detector takes images", status=415
        )

    def predict(self, batch: Arrays) -> Arrays | Future[Arrays]:
        """Run the network."""
        return self.context.run_async(batch) if self._queues else self.context.run(batch)

    def close(self) -> None:
        """Release the engine's context."""
        self.context.close()


class Detector(Model):
    """A YOLOv2, or any network whose outputs are darknet's region or yolo layers: images in, boxes out.

    Each request is one image of any size; over the Open Inference Protocol it is a tensor ``image``, or a
    file of that name (``BYTES``).

    Args:
        engine: Built or loaded.
        names: Names of the classes, where the model has none.
        max_batch: Images of a run, where the engine leaves that free.
    """

    detects = True
    file_input = "image"
    stacked = False
    inputs = (TensorDesc("image", (SymbolicDim("height"), SymbolicDim("width"), 3), DType.UINT8),)
    outputs = (
        TensorDesc("boxes", (SymbolicDim("found"), 4), DType.FLOAT32),
        TensorDesc("scores", (SymbolicDim("found"),), DType.FLOAT32),
        TensorDesc("classes", (SymbolicDim("found"),), DType.INT64),
    )

    def __init__(self, engine: Engine | None = None, names: Path | None = None, max_batch: int | None = None) -> None:
        super().__init__()
        if engine is not None:
            self.engine = engine
            batch = None if isinstance(engine.inputs[0].dims[0], int) else max_batch
            self.detector = Yolov2(engine, names, batch=batch)
            self.max_batch = self.detector.batch
            self.facts = {"names": list(self.detector.names)}

    def preprocess(self, request: Request) -> Arrays:
        """Decode the image, and keep it for the answer.

        Raises:
            RequestError: the format of the answer is unknown.
        """
        form = request.query.get("format", "json")
        if form not in _FORMATS:
            raise RequestError(f"format: expected one of {', '.join(_FORMATS)}, found {form[:40]!r}", status=400)
        arrays = super().preprocess(request)
        request.kept["image"] = arrays["image"]
        return arrays

    def predict(self, batch: list[Arrays]) -> list[Arrays]:
        """Find objects on a batch of images."""
        return [
            {
                "boxes": found.boxes_xyxy.astype(np.float32),
                "scores": found.scores.astype(np.float32),
                "classes": found.class_ids.copy(),
            }
            for found in self.detector([item["image"] for item in batch])
        ]

    def postprocess(self, outputs: Arrays, request: Request) -> Any:
        """Boxes in pixels as JSON, or drawn on the image."""
        image, names = request.kept["image"], self.facts["names"]
        found = [
            Detection(names[k], k, score, (x1, y1, x2, y2))
            for k, score, (x1, y1, x2, y2) in zip(
                outputs["classes"].tolist(), outputs["scores"].tolist(), outputs["boxes"].tolist(), strict=True
            )
        ]
        if request.query.get("format") == "image":
            return _jpeg(Detections(found, image).plot()), "image/jpeg"
        height, width = image.shape[:2]
        return {
            "width": width,
            "height": height,
            "detections": [
                {"label": each.name, "class_id": each.class_id, "score": each.score, "box": list(each.xyxy)}
                for each in found
            ],
        }

    def close(self) -> None:
        """Release the engine's context."""
        self.detector.close()


def default_model(spec: ModelSpec) -> Model:
    """Load the model of a file: a detector where the engine's model is one.

    Raises:
        UsageError: there is no such file, or it is of another kind.
        PytrtpluginsError: the engine cannot be built or loaded.
    """
    path = target_file(spec.target)
    if path.suffix == ".onnx" and not is_engine_file(path):
        engine = build(path, engine=spec.engine, device=spec.device, progress=False)
    else:
        engine = load_engine(path)
    model = engine.model_without_weights
    try:
        read_heads(model)
    except ModelError:
        return Tensors(engine)
    names = path.with_suffix(".names")
    said = read_description(model).names is not None
    return Detector(engine, None if said or not names.is_file() else names, spec.max_batch)


def target_file(target: str) -> Path:
    """The file of an engine or an ONNX model.

    Raises:
        UsageError: there is no such file, or it is of another kind.
    """
    path = Path(target)
    if not path.is_file():
        raise UsageError(
            f"{target}: no such file. Looked for: {path.absolute()}\nDo: pytrt build MODEL.onnx -o {target}",
            path=path,
        )
    if path.suffix != ".onnx" and not is_engine_file(path):
        raise UsageError(
            f"{target}: expected an engine, an ONNX model or module:Class.\n"
            f"Do: pytrt build {target} -o {path.with_suffix('.engine')}, and serve that",
            path=path,
        )
    return path


def _sizes(engine: Engine) -> tuple[int, ...]:
    """Batches that an engine was built for, where it says so."""
    given = engine.options.settings.get("batch", ())
    return tuple(given) if isinstance(given, (list, tuple)) else ()


def _jpeg(image: Any) -> bytes:
    file = io.BytesIO()
    require("PIL.Image", extra="vision", package="pillow", feature="drawing").fromarray(image).save(
        file, format="JPEG", quality=92
    )
    return file.getvalue()
