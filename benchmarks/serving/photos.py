"""The shipped detector, photos for it, and what the library finds on them."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from darknet2caffe import read_network, to_onnx
from pytrtplugins import build, load_engine
from pytrtplugins.models import Yolov2
from pytrtplugins.utils.optional import require
from pytrtplugins.vision import decode_image

from .load import Exchange
from .servers import ROOT, post

SHIPPED = ROOT / "samples" / "models" / "yolov2-animals"
SIZE = (768, 576)
_SHOWN = ("chelsea", "astronaut", "coffee", "rocket")


def animals_engine(
    folder: Path, engine: str = "cpu", precision: str = "int8", batch: int | Literal["dynamic"] = 1, **settings: object
) -> Path:
    """Build the detector once; gives its file, with its names beside it."""
    path = folder / f"animals-{precision}-{batch}.engine"
    if not path.exists():
        model = to_onnx(read_network(SHIPPED.with_suffix(".cfg"), SHIPPED.with_suffix(".weights")), batch=batch)
        table = SHIPPED.with_suffix(".cache") if precision == "int8" else None
        built = build(model, engine=engine, precision=precision, calibration=table, progress=False, **settings)  # type: ignore[arg-type]
        path.with_suffix(".names").write_bytes(SHIPPED.with_suffix(".names").read_bytes())
        built.save(path)
    return path


def photos(folder: Path | None) -> list[bytes]:
    """JPEGs: those in a folder, or scikit-image's photos at 768x576.

    Raises:
        FileNotFoundError: the folder has none.
    """
    if folder is not None:
        found = [path.read_bytes() for path in sorted(folder.glob("*.jpg"))]
        if not found:
            raise FileNotFoundError(f"{folder}: no .jpg")
        return found
    data = require("skimage.data", extra="samples", package="scikit-image")
    images = require("PIL.Image", extra="vision", package="pillow")
    made = []
    for name in _SHOWN:
        file = io.BytesIO()
        images.fromarray(getattr(data, name)()).resize(SIZE).save(file, "JPEG", quality=95)
        made.append(file.getvalue())
    return made


def exchanges(engine: Path, jpegs: Sequence[bytes]) -> list[Exchange]:
    """For each photo the request to /v1/detect, and the answer as the library's detector makes it."""
    detector = Yolov2(load_engine(engine), engine.with_suffix(".names"))
    made = []
    for jpeg in jpegs:
        image = decode_image(jpeg, exif=True)
        boxes = [
            {"label": each.name, "class_id": each.class_id, "score": each.score, "box": list(each.xyxy)}
            for each in detector(image)
        ]
        answer = {"width": image.shape[1], "height": image.shape[0], "detections": boxes}
        made.append(Exchange(post("/v1/detect", jpeg, Content_Type="image/jpeg"), json.dumps(answer).encode()))
    return made
