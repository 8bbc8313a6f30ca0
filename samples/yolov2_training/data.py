"""Images and boxes: from a folder or tars in the YOLO layout to uint8 tensors that stay on the device."""

from __future__ import annotations

import io
import random
import tarfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from pytrtplugins.errors import ImageError, NoDataError

__all__ = ["Images", "Source", "hold_back", "kmeans_anchors", "letterbox_images", "load_images"]

SIDE = 352  # longer side of a stored image, in pixels
NO_BOX = -1.0  # class id of an unused row of Images.boxes


class Source:
    """The files of a data set: ``images/``, ``labels/``, ``classes.txt`` and lists such as ``train.txt``.

    Args:
        paths: Folders or tars (compressed or not); together they make one set, so a set may come in parts.

    Raises:
        NoDataError: A path does not exist.
    """

    def __init__(self, paths: Iterable[str | Path]) -> None:
        self._files: dict[str, bytes | Path] = {}
        for path in map(Path, paths):
            if path.is_dir():
                self._files |= {p.relative_to(path).as_posix(): p for p in path.rglob("*") if p.is_file()}
            elif path.is_file():
                with tarfile.open(path) as tar:
                    members = [m for m in tar if m.isfile()]
                    self._files |= {str(PurePosixPath(m.name)): tar.extractfile(m).read() for m in members}  # type: ignore[union-attr]
            else:
                raise NoDataError(f"training data {path}: no such folder or tar.\nDo: give --data an existing path")

    def read(self, name: str) -> bytes:
        """One file's bytes."""
        try:
            found = self._files[name]
        except KeyError:
            raise NoDataError(
                f"training data: {name} is missing; {len(self._files)} files were found.\n"
                "Do: give --data a folder (or tars) with images/, labels/, classes.txt and train.txt"
            ) from None
        return found if isinstance(found, bytes) else found.read_bytes()

    def lines(self, name: str) -> list[str]:
        """A text file's lines, without blank ones."""
        return [line.strip() for line in self.read(name).decode().splitlines() if line.strip()]

    def boxes(self, image: str) -> npt.NDArray[np.float32]:
        """The image's label file: rows of class, centre x, centre y, width, height in 0..1."""
        rows = [line.split() for line in self.lines(f"labels/{PurePosixPath(image).stem}.txt")]
        return np.array(rows, np.float32).reshape(-1, 5)


@dataclass(frozen=True)
class Images:
    """Decoded images with their boxes.

    Fields:
        pixels: (N, side, side, 3) uint8, each image in the upper left corner, grey around.
        size: (N, 2) float32, width and height in pixels.
        boxes: (N, most, 5) float32: class, x1, y1, x2, y2 in pixels; class -1 where there is no box.
    """

    pixels: Tensor
    size: Tensor
    boxes: Tensor

    def __len__(self) -> int:
        return len(self.pixels)


def hold_back(names: Sequence[str], share: float, seed: int = 1) -> tuple[list[str], list[str]]:
    """Split names into (training, development), the same way each time: by a shuffle with a fixed seed."""
    shuffled = sorted(names)
    random.Random(seed).shuffle(shuffled)
    count = round(share * len(shuffled))
    return shuffled[count:], shuffled[:count]


def load_images(source: Source, names: Sequence[str], device: torch.device, *, side: int = SIDE) -> Images:
    """Decode the named images once, shrink what is larger than ``side``, and put them on the device.

    Raises:
        ImageError: An image cannot be decoded.
        NoDataError: The list of names is empty.
    """
    if not names:
        raise NoDataError("training data: the list of images is empty.\nDo: look at train.txt")
    with ThreadPoolExecutor(16) as pool:
        images = list(pool.map(lambda name: _decode(source, name, side), names))
    rows = [source.boxes(name) for name in names]
    pixels = np.full((len(names), side, side, 3), 127, np.uint8)
    boxes = np.full((len(names), max(1, *map(len, rows)), 5), NO_BOX, np.float32)
    size = np.array([image.shape[1::-1] for image in images], np.float32)
    for i, (image, row) in enumerate(zip(images, rows, strict=True)):
        pixels[i, : image.shape[0], : image.shape[1]] = image
        centre, half = row[:, 1:3] * size[i], row[:, 3:] * size[i] / 2
        boxes[i, : len(row)] = np.concatenate([row[:, :1], centre - half, centre + half], 1)
    return Images(*(torch.from_numpy(array).to(device) for array in (pixels, size, boxes)))


def _decode(source: Source, name: str, side: int) -> npt.NDArray[np.uint8]:
    try:
        image = Image.open(io.BytesIO(source.read(name))).convert("RGB")
    except (UnidentifiedImageError, OSError) as error:
        raise ImageError(f"{name}: not a readable image ({error}).\nDo: remove it from the list", path=name) from error
    if max(image.size) > side:
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
    return np.asarray(image)


def kmeans_anchors(images: Images, *, cells: int = 13, count: int = 5, rounds: int = 100) -> Tensor:
    """Box shapes in cells of a letterboxed grid, clustered with 1 - IoU as distance, as in the YOLOv2 paper.

    Returns:
        (count, 2) widths and heights in cells, smallest first, on the CPU.
    """
    scale = cells / images.size.amax(1)[:, None, None]
    shapes = ((images.boxes[..., 3:] - images.boxes[..., 1:3]) * scale)[images.boxes[..., 0] >= 0].cpu()
    spread = torch.linspace(0.1, 0.9, count).mul(len(shapes) - 1).long()
    centres = shapes[shapes.prod(1).argsort()][spread]
    for _ in range(rounds):
        overlap = torch.minimum(shapes[:, None], centres).prod(2)
        near = (overlap / (shapes.prod(1)[:, None] + centres.prod(1) - overlap)).argmax(1)
        centres = torch.stack([shapes[near == i].mean(0) if (near == i).any() else centres[i] for i in range(count)])
    return centres[centres.prod(1).argsort()]


def letterbox_images(images: Images, size: int) -> Tensor:
    """Images scaled to fit and centred on grey, (N, 3, size, size) in 0..1, as a detector sees them."""
    inputs = torch.full((len(images), 3, size, size), 0.5, device=images.pixels.device)
    for i, (w, h) in enumerate(images.size.long().tolist()):
        new_w, new_h = round(w * size / max(w, h)), round(h * size / max(w, h))
        x, y = (size - new_w) // 2, (size - new_h) // 2
        image = images.pixels[i, :h, :w].permute(2, 0, 1)[None].float() / 255
        inputs[i, :, y : y + new_h, x : x + new_w] = torch.nn.functional.interpolate(
            image, (new_h, new_w), mode="bilinear", antialias=new_w < w
        )[0]
    return inputs
