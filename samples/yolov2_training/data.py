"""What YOLOv2 takes from the photos: the shapes of their boxes for anchors, and letterboxed images to measure on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pytrtplugins.errors import ImageError, NoDataError
from pytrtplugins.mlops.shards import Example
from pytrtplugins.utils.prefetch import map_ahead, threads_for_files
from pytrtplugins.vision.image import decode_image
from pytrtplugins.vision.labels.photo import read_header
from training.batch import Pool
from training.data import Records

__all__ = ["box_shapes", "kmeans_anchors", "letterbox_images"]

_MOST_SHAPES = 4096  # photos whose boxes the anchors are of


def box_shapes(data: Records, *, skip_bad: bool = False) -> npt.NDArray[np.float32]:
    """Widths and heights of boxes as shares of their photo's longer side, of a few thousand photos spread over the set.

    Args:
        data: The set.
        skip_bad: Leave out photos that are no images.

    Returns:
        (M, 2).

    Raises:
        ImageError: a photo is no image.
    """
    numbers = range(0, len(data), -(-len(data) // _MOST_SHAPES))
    shapes = map_ahead(lambda n: _shapes(data.read(n), skip_bad), numbers, threads=threads_for_files(), ahead=64)
    return np.concatenate(list(shapes))


def _shapes(photo: Example, skip_bad: bool) -> npt.NDArray[np.float32]:
    try:
        width, height = _upright_size(photo)
    except ImageError as error:
        if skip_bad:
            return np.zeros((0, 2), np.float32)
        reason = str(error).split("\nDo:")[0]
        raise ImageError(
            f"{photo.key} does not decode: {reason}\nDo: take it out of the set, or give --skip-bad", key=photo.key
        ) from error
    return photo.boxes[:, 3:] * np.array((width, height), np.float32) / max(width, height)


def _upright_size(photo: Example) -> tuple[int, int]:
    """Width and height in pixels of the upright photo; for a damaged head `decode_image` has the error."""
    try:
        header = read_header(photo.image, photo.key)
        return header.width, header.height
    except ImageError:
        height, width = decode_image(photo.image, photo.key).shape[:2]
        return width, height


def kmeans_anchors(shapes: npt.NDArray[np.float32], *, cells: int, count: int = 5, rounds: int = 100) -> Tensor:
    """Box shapes in cells of a letterboxed grid, clustered with 1 - IoU as distance, as in the YOLOv2 paper.

    Args:
        shapes: From :func:`box_shapes`.
        cells: Of the grid's side, at the size that the network is trained at.
        count: Of anchors.
        rounds: Of k-means.

    Returns:
        (count, 2) widths and heights in cells, smallest first, on the CPU.

    Raises:
        NoDataError: there are fewer boxes than anchors.
    """
    if len(shapes) < count:
        raise NoDataError(f"training data: {len(shapes)} boxes, too few for {count} anchors.\nDo: look at the labels")
    sizes = torch.from_numpy(shapes * cells)
    spread = torch.linspace(0.1, 0.9, count).mul(len(sizes) - 1).long()
    centres = sizes[sizes.prod(1).argsort()][spread]
    for _ in range(rounds):
        overlap = torch.minimum(sizes[:, None], centres).prod(2)
        near = (overlap / (sizes.prod(1)[:, None] + centres.prod(1) - overlap)).argmax(1)
        centres = torch.stack([sizes[near == i].mean(0) if (near == i).any() else centres[i] for i in range(count)])
    return centres[centres.prod(1).argsort()]


def letterbox_images(images: Pool, size: int) -> Tensor:
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
