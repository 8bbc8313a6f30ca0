"""Face recognition: images → embeddings → the same person, or the nearest people."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..engines.base.engine import Engine
from ..errors import FormatError, UsageError
from ..utils.array_files import read_npz
from ..utils.files import write_atomic
from ..vision.pixels import PIXELS, image_input

__all__ = ["FaceEmbedder", "FaceIndex", "Neighbour"]

_BATCH = 8
_MOST_BYTES = 1 << 30


class FaceEmbedder:
    """Makes an embedding of each aligned face.

    Args:
        engine: Of a network with one input (N, 3, H, W) and one output (N, values).
        pixels: Which values the network takes; one of `pytrtplugins.vision.PIXELS`.

    Attributes:
        size: Width and height of the network's input.

    Raises:
        UsageError: the network has another form.
    """

    def __init__(self, engine: Engine, pixels: str = "0..255") -> None:
        if pixels not in PIXELS:
            raise UsageError(f"pixels {pixels[:40]!r}: expected one of {', '.join(PIXELS)}")
        self._name, self.size, self._batch = image_input(engine.inputs)
        if len(engine.outputs) != 1:
            raise UsageError(f"face network: expected one output, found {len(engine.outputs)}")
        self._form, self._output, self._context = PIXELS[pixels], engine.outputs[0].name, engine.create_context()

    def __call__(self, images: Iterable[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
        """Embeddings of length 1, (N, values).

        Args:
            images: Aligned faces, (H, W, 3) uint8, RGB; other sizes are stretched to `size`.
        """
        waiting: list[npt.NDArray[np.uint8]] = []
        found: list[npt.NDArray[np.float32]] = []
        step = self._batch or _BATCH
        for image in images:
            waiting.append(image)
            if len(waiting) == step:
                found.append(self._run(waiting))
                waiting = []
        if waiting:
            found.append(self._run(waiting))
        rows = np.concatenate(found) if found else np.zeros((0, 0), np.float32)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)

    def close(self) -> None:
        """Free the context."""
        self._context.close()

    def _run(self, images: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
        missing = (self._batch or len(images)) - len(images)
        batch = self._form([*images, *[images[-1]] * missing], self.size)
        rows = np.asarray(self._context.run({self._name: batch})[self._output], np.float32)
        return rows.reshape(len(batch), -1)[: len(images)].copy()


@dataclass(frozen=True)
class Neighbour:
    """Someone that is known.

    Attributes:
        name: Of the photo, ``person/photo``.
        cosine: Between the two embeddings; 1 for the same photo.
    """

    name: str
    cosine: float

    @property
    def person(self) -> str:
        """Who it is."""
        return self.name.rpartition("/")[0] or self.name


class FaceIndex:
    """Known faces, searched by the cosine between embeddings.

    Args:
        names: Of the photos, ``person/photo``.
        embeddings: (N, values) float32, rows of length 1.

    Raises:
        UsageError: there are more names than rows, or fewer.
    """

    def __init__(self, names: Sequence[str], embeddings: npt.NDArray[np.float32]) -> None:
        if embeddings.ndim != 2 or len(names) != len(embeddings):
            raise UsageError(f"face index: {len(names)} names for embeddings {embeddings.shape}")
        self.names, self.embeddings = tuple(names), np.ascontiguousarray(embeddings, np.float32)

    def __len__(self) -> int:
        """How many photos are known."""
        return len(self.names)

    def find(self, embedding: npt.NDArray[np.float32], count: int = 5) -> list[Neighbour]:
        """The nearest people, the best photo of each, the nearest first.

        Raises:
            UsageError: the embedding comes from another network.
        """
        if embedding.shape != self.embeddings.shape[1:]:
            raise UsageError(
                f"face index: embeddings of {self.embeddings.shape[1]} values, found {embedding.shape}: made by another network?"
            )
        cosines = self.embeddings @ embedding
        found: dict[str, Neighbour] = {}
        for place in np.argsort(-cosines, kind="stable"):
            each = Neighbour(self.names[place], float(cosines[place]))
            found.setdefault(each.person, each)
            if len(found) == count:
                break
        return list(found.values())

    def save(self, path: str | Path) -> None:
        """Write names and embeddings into an .npz file, whole or not at all."""
        data = io.BytesIO()
        text = np.frombuffer("\n".join(self.names).encode(), np.uint8)
        np.savez(data, names=text, embeddings=self.embeddings)
        write_atomic(path, data.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> FaceIndex:
        """Read what `save` wrote.

        Raises:
            FormatError: it is another file.
        """
        arrays = read_npz(path, max_bytes=_MOST_BYTES)
        names, embeddings = arrays.get("names"), arrays.get("embeddings")
        if names is None or embeddings is None or names.dtype != np.uint8 or embeddings.dtype != np.float32:
            raise FormatError(
                f"{path}: not an index of faces: it has {', '.join(arrays) or 'nothing'}", path=path, line=None
            )
        try:
            return cls(names.tobytes().decode().split("\n") if names.size else [], embeddings)
        except (UsageError, UnicodeDecodeError) as error:
            raise FormatError(f"{path}: not an index of faces: {error}", path=path, line=None) from error
