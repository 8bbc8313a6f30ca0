"""The networks whose accuracy is measured, and the images that they are calibrated with and judged on."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from darknet2caffe import read_network, to_onnx
from pytrtplugins.models import YoloData
from pytrtplugins.passes import prepare
from pytrtplugins.vision import letterbox

if TYPE_CHECKING:
    import onnx

ROOT = Path(__file__).parents[1]
NAMES = ("yolov2-animals", "yolo-fastest-xl")
CALIBRATION = "voc12-animals"


@dataclass(frozen=True)
class Network:
    """A network and the images that it is judged on."""

    name: str
    cfg: Path
    classes: Path
    data: Path
    mode: str

    @property
    def images(self) -> YoloData:
        """The labelled images."""
        return YoloData(self.data)


def network(name: str, shared: Path) -> Network:
    """The network of a name."""
    models, data = ROOT / "samples" / "models", shared / "data"
    if name == "yolov2-animals":
        return Network(name, models / f"{name}.cfg", models / f"{name}.names", data / "voc12-animals", "letterbox")
    if name == "yolo-fastest-xl":
        folder = data / "pretrained"
        return Network(name, folder / "yolo-fastest-1.1-xl.cfg", folder / "coco.names", data / "coco-small", "stretch")
    raise SystemExit(f"network {name!r}: expected one of {', '.join(NAMES)}")


@functools.cache
def float_model(name: str, shared: Path) -> onnx.ModelProto:
    """Its prepared model."""
    found = network(name, shared)
    return prepare(to_onnx(read_network(found.cfg, found.cfg.with_suffix(".weights"))))


def input_of(model: onnx.ModelProto) -> tuple[str, tuple[int, int]]:
    """Name, and (width, height), of a model's input."""
    info = model.graph.input[0]
    dims = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
    return info.name, (dims[3], dims[2])


def samples(
    data: YoloData, images: list[str], size: tuple[int, int], name: str, mode: str
) -> Iterator[dict[str, np.ndarray]]:
    """Images as a network's inputs, one a batch."""
    for image in images:
        yield {name: np.asarray(letterbox(data.image(image), size, mode=mode).data, np.float32)[None]}


def calibration_images(shared: Path, count: int) -> tuple[YoloData, list[str]]:
    """The first images of the shuffled list of those to calibrate with: fewer are the beginning of more."""
    data = YoloData(shared / "data" / CALIBRATION)
    listed = data.images("train.txt")
    return data, [listed[index] for index in np.random.default_rng(0).permutation(len(listed))[:count]]
