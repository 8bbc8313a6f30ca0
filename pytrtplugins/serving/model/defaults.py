"""Models that need no code of the user: a detector, and any engine with tensors in and out."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from ...engines import build, load_engine
from ...engines.base.detection import Pixels
from ...engines.base.engine import Engine
from ...engines.base.engine_file import is_engine_file
from ...engines.base.run_future import RunFuture
from ...errors import MissingExtraError, ModelError, RequestError, UsageError
from ...models import Yolov2, read_description, read_heads
from ...tensor import DType, SymbolicDim, TensorDesc
from ...utils.optional import require
from ...vision import Detection, Detections
from ...vision.device_images import ImageDecoder, for_device
from .model import Arrays, Model, Request
from .rows import rows_are_independent
from .signature import LARGEST_BATCH, have_batch
from .spec import ModelSpec

__all__ = ["Detector", "Tensors", "default_model", "target_file"]

_log = logging.getLogger(__name__)
_FORMATS = ("json", "image")
_BATCH = 8  # images that a CPU computes together: with more it gains little, and the first waits for the last


class Tensors(Model):
    """Serve any engine: arrays in, arrays out."""

    def __init__(self, engine: Engine | None = None) -> None:
        super().__init__()
        if engine is not None:
            self.engine = engine
            self.context = engine.create_context()
            self.sizes = _sizes(engine)
            if names := read_description(engine.model_without_weights).names:
                self.facts = {"names": list(names)}  # of the extension "classification"
            self._queues = engine.queues_runs

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
    """Serve YOLOv2, or any network with darknet's region or yolo outputs: images in, boxes out.

    Each request is one image of any size; over the Open Inference Protocol it is a tensor ``image``, or a
    file of that name (``BYTES``).

    Args:
        engine: Built or loaded.
        names: Names of the classes, where the model has none.
        max_batch: Most images of a run, where the engine leaves that free. None: the largest size that it was built for, else 8.
        decode: Who decodes JPEG files; see `ModelSpec.decode`.

    Raises:
        UsageError: ``decode="gpu"``, and the engine's device decodes nothing.
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

    def __init__(
        self,
        engine: Engine | None = None,
        names: Path | None = None,
        max_batch: int | None = None,
        decode: str = "auto",
    ) -> None:
        super().__init__()
        if engine is not None:
            self.engine = engine
            self.detector = Yolov2(engine, names, batch=_most_images(engine, max_batch))
            self.max_batch = self.detector.batch
            self.facts = {"names": list(self.detector.names)}
            self._decoder = _decoder(self.detector, decode)
            self.decodes = self._decoder is not None

    def preprocess(self, request: Request) -> Arrays:
        """Decode the image, and keep for the answer what that needs.

        Raises:
            RequestError: the format of the answer is unknown.
        """
        _answers_with_image(request)
        arrays = super().preprocess(request)
        image = request.kept["image"] = arrays["image"]
        request.kept["size"] = image.shape[1], image.shape[0]
        return arrays

    def encoded(self, request: Request) -> Arrays | None:
        """A JPEG file that the engine's device may decode, if the answer needs no pixels.

        Raises:
            RequestError: the format of the answer is unknown.
        """
        header = None if _answers_with_image(request) else for_device(request.body, request.max_image_bytes)
        if header is None or header.progressive:  # nvJPEG's work on those is on the CPU in large part
            return None
        request.kept["size"] = header.upright_size
        return {"jpeg": np.frombuffer(request.body, np.uint8)}

    def predict(self, batch: list[Arrays]) -> list[Arrays] | Future[list[Arrays]]:
        """Detect objects on a batch of images; on a GPU the next batch may start before this one is finished."""
        images = self._decoded(batch)
        if self.detector.context.side_by_side == 1:
            return _outputs(images, self.detector([image for image in images if isinstance(image, np.ndarray)]))
        decoded, size = [image for image in images if image is not None], self.detector.batch
        queued = [self.detector.detect_async(decoded[at : at + size]) for at in range(0, len(decoded), size)]
        return RunFuture(lambda: _outputs(images, (detections for run in queued for detections in run.result())))

    def _decoded(self, batch: list[Arrays]) -> list[Pixels | None]:
        """The decoded images of a batch; None if the device cannot decode a file."""
        files = [item["jpeg"].tobytes() for item in batch if "jpeg" in item]
        decoded = iter(self._decoder.decode(files) if files and self._decoder is not None else ())
        return [next(decoded, None) if "jpeg" in item else item["image"] for item in batch]

    def postprocess(self, outputs: Arrays, request: Request) -> Any:
        """Boxes in pixels as JSON, or drawn on the image."""
        names = self.facts["names"]
        boxes = [
            Detection(names[k], k, score, (x1, y1, x2, y2))
            for k, score, (x1, y1, x2, y2) in zip(
                outputs["classes"].tolist(), outputs["scores"].tolist(), outputs["boxes"].tolist(), strict=True
            )
        ]
        if _answers_with_image(request):
            return _jpeg(Detections(boxes, request.kept["image"]).plot()), "image/jpeg"
        width, height = request.kept["size"]
        return {
            "width": width,
            "height": height,
            "detections": [
                {"label": box.name, "class_id": box.class_id, "score": box.score, "box": list(box.xyxy)}
                for box in boxes
            ],
        }

    def quick(self, request: Request) -> bool:
        """Whether the answer is JSON."""
        return not _answers_with_image(request)

    def close(self) -> None:
        """Release the engine's context."""
        self._decoder = None
        self.detector.close()


def default_model(spec: ModelSpec, device: str | None = None) -> Model:
    """Load the model of an engine file on a device: a `Detector` if the engine has detection outputs.

    Raises:
        UsageError: there is no such file, or it is of another kind.
        PytrtpluginsError: the engine cannot be built or loaded.
    """
    path = target_file(spec.target)
    if path.suffix == ".onnx" and not is_engine_file(path):
        engine = build(path, engine=spec.engine, device=device, progress=False)
    else:
        engine = load_engine(path, device=device)
    model = engine.model_without_weights
    try:
        read_heads(model)
    except ModelError:
        tensors = Tensors(engine)
        tensors.independent_rows = _has_independent_rows(tensors, spec)
        return tensors
    names = path.with_suffix(".names")
    has_names = read_description(model).names is not None
    return Detector(engine, None if has_names or not names.is_file() else names, spec.max_batch, spec.decode)


def _has_independent_rows(model: Tensors, spec: ModelSpec) -> bool:
    """Whether requests can be joined, by a trial run; if that is not possible, by whether ``max_batch`` is set."""
    engine = model.engine
    if not engine.inputs or not have_batch([*engine.inputs, *engine.outputs]):
        return True  # there is no axis along which requests could be joined
    independent = rows_are_independent(engine.inputs, model.context.run, model.sizes)
    if independent is None:
        if spec.max_batch is None:
            _log.warning(
                "%s: requests are computed one by one: a trial could not show that the first axis is a batch. "
                "If it is one, serve the model with --max-batch %d",
                spec.name,
                LARGEST_BATCH,
            )
        return spec.max_batch is not None
    if not independent:
        _log.warning("%s: requests are computed one by one: the answer to a row depends on the other rows", spec.name)
    return independent


def _answers_with_image(request: Request) -> bool:
    """Whether boxes are to be drawn on the image."""
    form = request.query.get("format", "json")
    if form not in _FORMATS:
        raise RequestError(f"format: expected one of {', '.join(_FORMATS)}, found {form[:40]!r}", status=400)
    return form == "image"


def _decoder(detector: Yolov2, decode: str) -> ImageDecoder | None:
    """A decoder on the engine's device, if it is requested, or allowed and available."""
    if decode == "cpu":
        return None
    try:
        return detector.context.create_decoder()
    except (UsageError, MissingExtraError):
        if decode == "gpu":
            raise
        return None


def _most_images(engine: Engine, max_batch: int | None) -> int | None:
    """The batch of a detector; None where the engine has its own: one that is fixed, or sizes with a graph for each."""
    if isinstance(engine.inputs[0].dims[0], int):
        return None
    if engine.batches and (max_batch or 0) <= max(engine.batches):
        return None
    return max_batch or _BATCH


def _outputs(images: Sequence[Pixels | None], detections: Iterable[Detections]) -> list[Arrays]:
    """The detections of each image as arrays; no arrays for missing images."""
    remaining = iter(detections)
    return [{} if image is None else _arrays(next(remaining)) for image in images]


def _arrays(detections: Detections) -> Arrays:
    return {
        "boxes": detections.boxes_xyxy.astype(np.float32),
        "scores": detections.scores.astype(np.float32),
        "classes": detections.class_ids.copy(),
    }


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
    """Batch sizes that an engine was built for, if it has fixed ones."""
    batch_sizes = engine.options.settings.get("batch", ())
    return tuple(batch_sizes) if isinstance(batch_sizes, (list, tuple)) else ()


def _jpeg(image: Any) -> bytes:
    file = io.BytesIO()
    require("PIL.Image", extra="vision", package="pillow", feature="drawing").fromarray(image).save(
        file, format="JPEG", quality=92
    )
    return file.getvalue()
