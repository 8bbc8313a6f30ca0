"""Run a network on images in batches."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ..engines.base.engine import Engine
from ..errors import UsageError
from ..vision.pixels import PIXELS, image_batches, image_input

__all__ = ["ImageNetwork"]


class ImageNetwork:
    """Runs images through a network in batches, and gives a row of values for each.

    Args:
        engine: Of a network with one input (N, 3, H, W) and one output (N, …).
        pixels: Which values the network takes; one of `pytrtplugins.vision.PIXELS`.
        batch: Images of every run, where the network leaves that free; None: up to 8.

    Attributes:
        size: Width and height of the network's input.

    Raises:
        UsageError: the network has another form.
    """

    def __init__(self, engine: Engine, pixels: str, batch: int | None = None) -> None:
        if pixels not in PIXELS:
            raise UsageError(f"pixels {pixels[:40]!r}: expected one of {', '.join(PIXELS)}")
        _, self.size, _ = image_input(engine.inputs)
        if len(engine.outputs) != 1:
            names = ", ".join(desc.name for desc in engine.outputs)
            raise UsageError(f"expected a network with one output, found {len(engine.outputs)}: {names}")
        self._form, self._inputs, self._output = PIXELS[pixels], engine.inputs, engine.outputs[0].name
        self._batch = batch
        self._context = engine.create_context()

    def __call__(self, images: Iterable[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
        """Return the flat output of each image, (N, values). Images are read a batch at a time.

        Args:
            images: (H, W, 3) uint8, RGB; other sizes are stretched to `size`.
        """
        rows = []
        for arrays, count in image_batches(images, self._inputs, self._form, self._batch):
            outputs = np.asarray(self._context.run(arrays)[self._output], np.float32)
            rows.append(outputs.reshape(len(outputs), -1)[:count].copy())
        return np.concatenate(rows) if rows else np.zeros((0, 0), np.float32)

    def close(self) -> None:
        """Release the context."""
        self._context.close()
