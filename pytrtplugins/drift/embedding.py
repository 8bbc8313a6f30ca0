"""Photos as vectors: what a network makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from ..engines.base.engine import Engine
from ..errors import UsageError
from ..vision import PIXELS
from ..vision.pixels import image_input

__all__ = ["Embedder"]

_BATCH = 8  # photos of a run, where the network's batch is free


class Embedder:
    """An engine's output as a vector for each photo: the mean over all places, where the output has height and width.

    Args:
        engine: Of a network that takes images.
        pixels: Which values it takes for pixels, one of `pytrtplugins.vision.PIXELS`; photos are stretched to its input.
        output: Name of the output; empty: the first.

    Raises:
        UsageError: the network takes something else, or has no such output.
    """

    def __init__(self, engine: Engine, pixels: str = "0..1", output: str = "") -> None:
        if pixels not in PIXELS:
            raise UsageError(f"pixels {pixels[:40]!r}: expected one of {', '.join(PIXELS)}.")
        names = [desc.name for desc in engine.outputs]
        if output and output not in names:
            raise UsageError(f"output {output[:80]!r}: expected one of {', '.join(names)}.")
        self._engine, self._form, self._output = engine, PIXELS[pixels], output or names[0]
        self._input, self._size, self._batch = image_input(engine.inputs)

    @property
    def name(self) -> str:
        """Of the output."""
        return self._output

    def __call__(self, images: Iterable[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float64]:
        """Vectors of images (H, W, 3) uint8, RGB, which are taken a batch at a time: (N, values)."""
        with self._engine.create_context() as context:
            rows = []
            for batch in self._batches(images):
                count, fill = len(batch), self._batch or len(batch)
                arrays = {self._input: self._form([*batch, *[batch[-1]] * (fill - count)], self._size)}
                found = np.asarray(context.run(arrays)[self._output], np.float64)[:count]
                rows.append(
                    found.mean(axis=tuple(range(2, found.ndim))) if found.ndim > 2 else found.reshape(count, -1)
                )
        return np.concatenate(rows) if rows else np.zeros((0, 0))

    def _batches(self, images: Iterable[npt.NDArray[np.uint8]]) -> Iterator[list[npt.NDArray[np.uint8]]]:
        waiting: list[npt.NDArray[np.uint8]] = []
        for image in images:
            waiting.append(image)
            if len(waiting) == (self._batch or _BATCH):
                yield waiting
                waiting = []
        if waiting:
            yield waiting
