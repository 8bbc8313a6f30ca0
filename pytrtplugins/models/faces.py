"""Face recognition: compute embeddings of faces, and find the nearest known people."""

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
from ..utils.atomic import write_atomic
from ..utils.override import override
from .image_network import ImageNetwork

__all__ = ["FaceEmbedder", "FaceIndex", "Neighbour"]

_MOST_BYTES = 1 << 30


class FaceEmbedder(ImageNetwork):
    """Computes an embedding of each aligned face.

    Args:
        engine: Of a network with one input (N, 3, H, W) and one output (N, values).
        pixels: Which values the network takes; one of `pytrtplugins.vision.PIXELS`.

    Attributes:
        size: Width and height of the network's input.

    Raises:
        UsageError: the network has another form.
    """

    def __init__(self, engine: Engine, pixels: str = "0..255") -> None:
        super().__init__(engine, pixels)

    @override
    def __call__(self, images: Iterable[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
        """Return embeddings of length 1, (N, values).

        Args:
            images: Aligned faces, (H, W, 3) uint8, RGB; other sizes are stretched to `size`.
        """
        rows = super().__call__(images)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)


@dataclass(frozen=True)
class Neighbour:
    """A known photo that is near an embedding.

    Attributes:
        name: Name of the photo, ``person/photo``.
        cosine: Cosine between the two embeddings; 1 for the same photo.
    """

    name: str
    cosine: float

    @property
    def person(self) -> str:
        """The person's name: the folders of the photo's name."""
        return self.name.rpartition("/")[0] or self.name


class FaceIndex:
    """Index of known faces, searched by the cosine between embeddings.

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
        """Return the number of known photos."""
        return len(self.names)

    def find(self, embedding: npt.NDArray[np.float32], count: int = 5) -> list[Neighbour]:
        """Return the nearest people, the best photo of each, nearest first.

        Raises:
            UsageError: the embedding comes from another network.
        """
        if embedding.shape != self.embeddings.shape[1:]:
            raise UsageError(
                f"face index: embeddings of {self.embeddings.shape[1]} values, found {embedding.shape}: made by another network?"
            )
        cosines = self.embeddings @ embedding
        neighbours: dict[str, Neighbour] = {}
        for row in np.argsort(-cosines, kind="stable"):
            neighbour = Neighbour(self.names[row], float(cosines[row]))
            neighbours.setdefault(neighbour.person, neighbour)
            if len(neighbours) == count:
                break
        return list(neighbours.values())

    def save(self, path: str | Path) -> None:
        """Write names and embeddings into an .npz file, atomically."""
        data = io.BytesIO()
        text = np.frombuffer("\n".join(self.names).encode(), np.uint8)
        np.savez(data, names=text, embeddings=self.embeddings)
        write_atomic(path, data.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> FaceIndex:
        """Read an index that `save` wrote.

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
            text = names.tobytes()
            count = text.count(b"\n") + 1 if text else 0
            if (
                embeddings.ndim != 2 or count != len(embeddings) or not embeddings.shape[1]
            ):  # before each name is a text of its own
                raise UsageError(f"{count:,} names for embeddings {embeddings.shape}")
            return cls(text.decode().split("\n") if text else [], embeddings)
        except (UsageError, UnicodeDecodeError) as error:
            raise FormatError(f"{path}: not an index of faces: {error}", path=path, line=None) from error
