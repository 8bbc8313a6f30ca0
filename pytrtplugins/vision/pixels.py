"""Convert images to the normalized input batches of a network."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..tensor import TensorDesc
from ..utils.optional import require

__all__ = ["PIXELS", "Pixels", "image_batches", "image_input"]

_BATCH = 8  # images of a run, where the network's batch is free

Triple = tuple[float, float, float]


@dataclass(frozen=True)
class Pixels:
    """Normalization of pixels: (value - mean) / deviation, in each channel of RGB.

    Attributes:
        mean: Mean of each channel, in 0..255.
        deviation: Standard deviation of each channel, in 0..255.
    """

    mean: Triple = (0.0, 0.0, 0.0)
    deviation: Triple = (1.0, 1.0, 1.0)

    def __call__(self, images: Sequence[npt.NDArray[np.uint8]], size: tuple[int, int]) -> npt.NDArray[np.float32]:
        """Return images as one normalized batch.

        Args:
            images: (H, W, 3) uint8, RGB, each of its own size.
            size: Width and height of the result.

        Returns:
            (N, 3, height, width) float32; other sizes are stretched to it (bilinear).
        """
        resized = [image if image.shape[1::-1] == size else _resize(image, size) for image in images]
        values = np.stack(resized).astype(np.float32)
        scaled = (values - np.array(self.mean, np.float32)) / np.array(self.deviation, np.float32)
        return np.ascontiguousarray(scaled.transpose(0, 3, 1, 2))


PIXELS = {
    "0..1": Pixels(deviation=(255.0, 255.0, 255.0)),
    "0..255": Pixels(),
    "-1..1": Pixels((127.5, 127.5, 127.5), (127.5, 127.5, 127.5)),
    "imagenet": Pixels((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
}
"""Usual forms by name; ``imagenet`` are the means and deviations that torchvision's networks are trained with, times 255."""


def image_input(inputs: Sequence[TensorDesc]) -> tuple[str, tuple[int, int], int | None]:
    """Return name, (width, height) and batch of a network's only input; batch None if it is free.

    Raises:
        UsageError: it does not take images (N, 3, H, W) of one size.
    """
    if len(inputs) == 1 and len(inputs[0].dims) == 4:
        batch, channels, height, width = inputs[0].dims
        if channels == 3 and isinstance(height, int) and isinstance(width, int):
            return inputs[0].name, (width, height), batch if isinstance(batch, int) else None
    inputs_text = ", ".join(f"{desc.name} ({', '.join(map(str, desc.dims))})" for desc in inputs)
    raise UsageError(f"expected a network with one input (N, 3, H, W), and H and W that are fixed; found {inputs_text}")


def image_batches(
    images: Iterable[npt.NDArray[np.uint8]], inputs: Sequence[TensorDesc], form: Pixels, batch: int | None = None
) -> Iterator[tuple[dict[str, npt.NDArray[np.float32]], int]]:
    """Yield input batches of a network, each with the number of its images.

    Where the batch is fixed, by the network or the caller, the last image of the last batch is repeated.

    Args:
        images: (H, W, 3) uint8, RGB, each of its own size; taken a batch at a time.
        inputs: What the network takes.
        form: How pixels become numbers.
        batch: Images of each batch, where the network leaves that free; None: up to 8.

    Raises:
        UsageError: the network does not take images of one size.
    """
    name, size, fixed_batch = image_input(inputs)
    batch = fixed_batch or batch
    remaining = iter(images)
    while batch_images := list(itertools.islice(remaining, batch or _BATCH)):
        padding = (batch or len(batch_images)) - len(batch_images)
        yield {name: form([*batch_images, *batch_images[-1:] * padding], size)}, len(batch_images)


def _resize(image: npt.NDArray[np.uint8], size: tuple[int, int]) -> npt.NDArray[np.uint8]:
    cv2 = require("cv2", extra="vision", package="opencv-python-headless", feature="resizing images")
    resized: Any = cv2.resize(image, size, interpolation=cv2.INTER_LINEAR)
    return resized  # type: ignore[no-any-return]
