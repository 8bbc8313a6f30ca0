"""Measure how near boxes are to darknet's with different resizes, and what each costs: the table of docs/reference/darknet.md."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

from darknet2caffe import read_network, to_onnx
from darknet2caffe.cfg import parse_cfg
from pytrtplugins.engines import Engine, build
from pytrtplugins.models import YoloData, Yolov2, evaluate
from pytrtplugins.utils.numbers import IntRange
from pytrtplugins.vision import Detection, letterbox, load_image

from .gpu.clock import wall
from .networks import ROOT

Pixels = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

NETWORKS = ("yolo-fastest-1.1", "yolo-fastest-1.1-xl")
SCORE, OVERLAP = 0.3, 0.45
SAME = 0.5  # IoU from which two boxes of a class are of the same object
ROUNDS = 5


def by_opencv(kind: int) -> Callable[[Pixels, int, int], Floats]:
    """A resize of OpenCV's."""

    def resize(image: Pixels, width: int, height: int) -> Floats:
        resized = cv2.resize(image, (width, height), interpolation=kind)
        return (resized.transpose(2, 0, 1) / np.float32(255)).astype(np.float32)

    return resize


def by_pillow(image: Pixels, width: int, height: int) -> Floats:
    """Pillow's bilinear filter, which widens where the image shrinks."""
    resized = np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))
    return (resized.transpose(2, 0, 1) / np.float32(255)).astype(np.float32)


@dataclass(frozen=True)
class Resize:
    """A way to resize: a mode of `letterbox`, or another function in the place of OpenCV's."""

    name: str
    mode: str
    function: Callable[[Pixels, int, int], Floats] | None = None

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Let `letterbox` resize so."""
        if self.function is None:
            yield
            return
        with mock.patch("pytrtplugins.vision.letterbox._resize_opencv", self.function):
            yield


RESIZES = (
    Resize('darknet\'s (`mode="darknet"`)', "darknet"),
    Resize('OpenCV, area averages (`mode="letterbox"`)', "letterbox"),
    Resize("OpenCV, bilinear", "letterbox", by_opencv(cv2.INTER_LINEAR)),
    Resize("Pillow, bilinear", "letterbox", by_pillow),
)


@dataclass(frozen=True)
class Subject:
    """A network, its engine, and what darknet finds with it on each photo."""

    name: str
    engine: Engine
    names: Path
    photos: Sequence[Pixels]
    expected: Sequence[Sequence[Detection]]


def subject(name: str, shared: Path, photos: Sequence[Pixels]) -> Subject:
    """Load a network of the pretrained ones here and in libdarknet."""
    from tests.oracles.libdarknet import LibDarknet

    cfg = shared / "data" / "pretrained" / f"{name}.cfg"
    weights = cfg.with_suffix(".weights")
    # Debian's darknet does not know nms_kind
    plain = parse_cfg(cfg.read_text().replace("nms_kind=greedynms", "nms_kind=default"), str(cfg))
    engine = build(to_onnx(read_network(plain, weights)), engine="cpu")
    library, expected = LibDarknet(), []
    with library.load(cfg, weights) as network:
        for photo in photos:
            with library.quiet():
                rows = network.image_rows(photo, SCORE, OVERLAP)
            limits = [*photo.shape[1::-1]] * 2
            expected.append(
                [Detection("", int(row[0]), float(row[1]), tuple(np.clip(row[2:], 0, limits).tolist())) for row in rows]
            )
    return Subject(name, engine, cfg.with_name("coco.names"), photos, expected)


@dataclass(frozen=True)
class Nearness:
    """Boxes beside darknet's.

    Attributes:
        distances: Of each pair of boxes of one object: the largest difference of a corner's x or y, in pixels of the photo.
        scores: The differences of their scores.
        missing: How many of darknet's boxes have no pair.
        added: How many boxes have none among darknet's.
    """

    distances: npt.NDArray[np.float64]
    scores: npt.NDArray[np.float64]
    missing: int
    added: int


def nearness(detections: Sequence[Sequence[Detection]], expected: Sequence[Sequence[Detection]]) -> Nearness:
    """Compare the boxes of all photos: each of darknet's with the nearest one of its class that is left."""
    distances, scores, missing, added = [], [], 0, 0
    for ours, theirs in zip(detections, expected, strict=True):
        left = list(ours)
        for box in sorted(theirs, key=lambda box: -box.score):
            pair = max(
                (each for each in left if each.class_id == box.class_id), key=lambda each: iou(each, box), default=None
            )
            if pair is None or iou(pair, box) < SAME:
                missing += 1
                continue
            left.remove(pair)
            distances.append(np.abs(np.subtract(pair.xyxy, box.xyxy)).max())
            scores.append(abs(pair.score - box.score))
        added += len(left)
    return Nearness(np.array(distances), np.array(scores), missing, added)


def iou(a: Detection, b: Detection) -> float:
    """Intersection over union."""
    (ax1, ay1, ax2, ay2), (bx1, by1, bx2, by2) = a.xyxy, b.xyxy
    inside = max(0.0, min(ax2, bx2) - max(ax1, bx1)) * max(0.0, min(ay2, by2) - max(ay1, by1))
    return inside / ((ax2 - ax1) * (ay2 - ay1) + (bx2 - bx1) * (by2 - by1) - inside)


def milliseconds(resize: Resize, photos: Sequence[Pixels], size: tuple[int, int]) -> float:
    """Of fitting a photo into the input: the lowest mean of a few rounds."""

    def fit() -> None:
        for photo in photos:
            letterbox(photo, size, resize.mode)

    with resize.used():
        return 1000 * min(wall(fit) for _ in range(ROUNDS)) / len(photos)


def row(resize: Resize, tested: Subject, data: YoloData) -> str:
    """A row of the table."""
    with resize.used(), Yolov2(tested.engine, tested.names, mode=resize.mode) as detector:
        detections = [detector(photo, score_threshold=SCORE, iou_threshold=OVERLAP) for photo in tested.photos]
        map50 = evaluate(detector, data, progress=False).map50
        size = detector.size
    near = nearness(detections, tested.expected)
    pixels = [f"{np.percentile(near.distances, share):.2f}" for share in (50, 90, 100)]
    figures = [*pixels, f"{np.median(near.scores):.4f}", f"{near.missing}, {near.added}", f"{map50:.4f}",
               f"{milliseconds(resize, tested.photos, size):.1f}"]  # fmt: skip
    return f"| {tested.name} | {resize.name} | {' | '.join(figures)} |"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared", help="folder with data/ (%(default)s)")
    parser.add_argument(
        "--samples", type=IntRange(0, 1000), default=64, help="photos of coco-small beside darknet's own (%(default)s)"
    )
    arguments = parser.parse_args()
    data = YoloData(arguments.shared / "data" / "coco-small")
    photos = [load_image(path) for path in sorted((arguments.shared / "data" / "darknet-photos").glob("*.jpg"))]
    photos += [data.image(name) for name in data.images("val.txt")[: arguments.samples]]
    tested = [subject(name, arguments.shared, photos) for name in NETWORKS]
    boxes = ", ".join(f"{sum(map(len, each.expected))} of {each.name}" for each in tested)
    print(f"{len(photos)} photos, on which darknet has {boxes} with a score above {SCORE}\n")
    columns = ("network", "resize", "median", "90 %", "largest", "score", "missing, added", "mAP50", "ms")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for each in tested:
        for resize in RESIZES:
            print(row(resize, each, data), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
