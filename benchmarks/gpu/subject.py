"""The network, its images, and what every runner has to find on them."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

import pytrtplugins as ptp
from darknet2caffe import read_network, to_onnx, write_darknet
from pytrtplugins.calibration import CalibrationTable, MinMaxCalibrator
from pytrtplugins.engines import availability, calibrate
from pytrtplugins.engines.registry import availability_of
from pytrtplugins.models.heads import read_heads
from pytrtplugins.passes import prepare
from pytrtplugins.vision import Head, nms

CFG = Path("/usr/share/darknet/cfg/yolov2-voc.cfg")
SIZE = (416, 416)
BATCHES = (1, 8, 32)
SLOW = "reference"
"""The engine on NumPy."""
TOLERANCE = {"FP32": 1e-4, "TF32": 5e-3, "FP16": 5e-3, "INT8": 0.15, "FP8": 0.25}
"""Of the head, relative L2; INT8 and FP8, which rounds values to 4 bits, of random weights: a check that the right network ran."""


@dataclass(frozen=True, eq=False)
class Subject:
    """What is raced.

    Attributes:
        folder: With yolov2-voc.cfg and .weights, darknet's files.
        model: The network as ONNX, with plugin nodes, for any batch.
        one: The same for one image.
        table: Scales for INT8.
        images: As many as the largest batch, (N, 3, H, W) float32 in 0..1.
        head: The region layer's values for them, from a CPU.
        layer: What decodes them.
        threshold: Score that some boxes exceed, none of them by a hair.
    """

    folder: Path
    model: onnx.ModelProto
    one: onnx.ModelProto
    table: CalibrationTable = field(repr=False)
    images: np.ndarray = field(repr=False)
    head: np.ndarray = field(repr=False)
    layer: Head
    threshold: float

    def boxes(self, head: np.ndarray) -> np.ndarray:
        """Rows of image, class, score, and the box in 0..1, after suppression, the best first in each image."""
        boxes, scores = self.layer.decode(np.asarray(head, np.float32).reshape(-1, *self.head.shape[1:]), SIZE)
        rows = []
        for image, (places, values) in enumerate(zip(boxes, scores, strict=True)):
            kept = nms(places, np.where(values > self.threshold, values, 0).astype(np.float32))
            rows += [(image, k, kept[b, k], *places[b]) for b, k in np.argwhere(kept)]
        return np.array(sorted(rows, key=lambda row: (row[0], -row[2])), np.float32).reshape(-1, 7)

    def same_boxes(self, head: np.ndarray) -> bool:
        """Whether a head of the first images gives the same boxes as the CPU's: classes, scores and corners."""
        found, wanted = self.boxes(head), self.boxes(self.head[: np.size(head) // self.head[0].size])
        return found.shape == wanted.shape and all(_is_in(row, wanted) for row in found)


def make_subject(folder: Path) -> Subject:
    """Draw weights and images, calibrate, and compute the head on the CPU.

    Raises:
        FileNotFoundError: there is no cfg.
    """
    cfg = Path(os.environ.get("BENCHMARK_CFG", CFG))
    if not cfg.exists():
        raise FileNotFoundError(f"{cfg} is missing (apt-get install darknet, or set BENCHMARK_CFG)")
    network = read_network(cfg).with_random_weights(seed=0)
    write_darknet(network, folder / "yolov2-voc.cfg", folder / "yolov2-voc.weights")
    coarse = np.random.default_rng(1).random((max(BATCHES), 3, 13, 13), dtype=np.float32)
    images = np.ascontiguousarray(np.kron(coarse, np.ones((1, 1, 32, 32), np.float32)))
    one = prepare(to_onnx(network))
    batches = [{"data": image[None]} for image in images[:4]]
    table = calibrate(one, MinMaxCalibrator(batches), engine=calibration_engine(), progress=False)
    head, layer = heads(one, images), read_heads(one)[0]
    model = prepare(to_onnx(network, batch="dynamic"))
    return Subject(folder, model, one, table, images, head, layer, threshold(layer.decode(head, SIZE)[1]))


def cpu_engine() -> str:
    """The first engine that is here and computes on the CPU."""
    return next(each.name for each in availability() if not each.reason and each.name != "cuda")


def calibration_engine() -> str:
    """The first engine that computes on the CPU; engine ``cuda`` where that is NumPy, which takes seconds for an image."""
    name = cpu_engine()
    return "cuda" if name == SLOW and availability_of("cuda").reason == "" else name


def heads(model: onnx.ModelProto, images: np.ndarray) -> np.ndarray:
    """The region layer's values for images, computed on the CPU: by an engine, or by PyTorch where that is NumPy."""
    name = cpu_engine()
    if name == SLOW and importlib.util.find_spec("torch") is not None:
        return heads_by_torch(model, images)
    with ptp.build(model, engine=name).create_context() as context:
        return np.concatenate([next(iter(context.run({"data": image[None]}).values())) for image in images])


def heads_by_torch(model: onnx.ModelProto, images: np.ndarray) -> np.ndarray:
    """The same by PyTorch, in float32."""
    import torch

    from .torch_net import TorchNet

    with torch.inference_mode():
        return TorchNet(model).eval()(torch.from_numpy(images)).numpy()


def threshold(scores: np.ndarray, least: int = 100, most: int = 400) -> float:
    """The middle of the widest gap between the best scores, so that rounding moves no box over it."""
    best = np.sort(scores.ravel())[::-1][least:most].astype(np.float64)
    at = int(np.argmax(best[:-1] - best[1:]))
    return float(best[at] + best[at + 1]) / 2


def _is_in(row: np.ndarray, rows: Sequence[np.ndarray] | np.ndarray) -> bool:
    same = np.asarray(rows)
    same = same[(same[:, 0] == row[0]) & (same[:, 1] == row[1])]
    return bool(np.isclose(same[:, 2:], row[2:], rtol=1e-3, atol=1e-3).all(1).any())
