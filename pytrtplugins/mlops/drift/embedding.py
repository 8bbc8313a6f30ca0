"""Embed photos: compute a vector per photo with a network."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ...engines.base.engine import Engine
from ...errors import UsageError
from ...vision import PIXELS
from ...vision.pixels import image_batches, image_input

__all__ = ["Embedder"]


class Embedder:
    """Computes a vector per photo from an engine's output: its mean over height and width, if it has them.

    Args:
        engine: Of a network that takes images.
        pixels: Which values it takes for pixels, one of `pytrtplugins.vision.PIXELS`; photos are stretched to its input.
        output: Name of the output; empty: the first.

    Attributes:
        output: Its name.

    Raises:
        UsageError: the network takes something else, or has no such output.
    """

    def __init__(self, engine: Engine, pixels: str = "0..1", output: str = "") -> None:
        if pixels not in PIXELS:
            raise UsageError(f"pixels {pixels[:40]!r}: expected one of {', '.join(PIXELS)}.")
        names = [desc.name for desc in engine.outputs]
        if output and output not in names:
            raise UsageError(f"output {output[:80]!r}: expected one of {', '.join(names)}.")
        image_input(engine.inputs)
        self._engine, self._form, self.output = engine, PIXELS[pixels], output or names[0]

    def __call__(self, images: Iterable[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float64]:
        """Vectors of images (H, W, 3) uint8, RGB, which are taken a batch at a time: (N, values).

        Raises:
            UsageError: the output has no row for each image.
        """
        rows = []
        with self._engine.create_context() as context:
            for arrays, count in image_batches(images, self._engine.inputs, self._form):
                output = np.asarray(context.run(arrays)[self.output], np.float64)
                if output.ndim < 2 or len(output) != len(next(iter(arrays.values()))):
                    raise UsageError(f"output {self.output!r}: expected a row for each photo, found {output.shape}.")
                rows.append(output[:count].mean(axis=tuple(range(2, output.ndim))))
        return np.concatenate(rows) if rows else np.zeros((0, 0))
