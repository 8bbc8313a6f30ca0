"""Images with one label each, in folders or in an .npz file."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import FormatError, NoDataError
from ...utils.array_files import read_npz
from ...utils.files import files_below, sha256_hex
from ...vision import load_image
from ...vision.finding import IMAGE_SUFFIXES
from .verification import Pairs, pairs_of

__all__ = ["SUFFIXES", "LabelledImages"]

SUFFIXES = (*IMAGE_SUFFIXES, ".pgm")
"""Of files that are images of people or classes."""
_NUMBER = re.compile(r"(\d+)")


class LabelledImages:
    """Images with one label each: people with their photos, or classes with their examples.

    Args:
        source: A folder with a folder of images for each label; or an .npz file of arrays (H, W, 3) or (H, W), uint8, named
            ``label/image``.

    Attributes:
        names: ``label/image``, in natural order: ``s2/1`` before ``s10/1``.
        labels: The labels, in natural order.

    Raises:
        NoDataError: there is no image.
        FormatError: the file has other arrays.
    """

    def __init__(self, source: str | Path) -> None:
        self.source = Path(source)
        self._arrays: dict[str, npt.NDArray[Any]] = {}
        if os.path.isdir(self.source):
            files, _ = files_below(self.source, SUFFIXES)
            paths = [path.relative_to(self.source).as_posix() for path in files]
            names = [name for name in paths if "/" in name]
        elif os.path.isfile(self.source):
            self._arrays = read_npz(self.source)
            names = list(self._arrays)
            for name in names:
                _check_array(self.source, name, self._arrays[name])
        else:
            raise NoDataError(
                f"images {str(source)!r}: no such folder or file. Looked for: {self.source.absolute()}",
                path=self.source,
            )
        if not names:
            raise NoDataError(
                f"images {str(source)!r}: expected a folder for each label, with images in it "
                f"({' '.join(SUFFIXES)}), found none.",
                path=self.source,
            )
        self._set(names)

    def _set(self, names: Sequence[str]) -> None:
        self.names = tuple(sorted(names, key=_natural))
        self.labels = tuple(sorted({_label(name) for name in self.names}, key=_natural))

    def __len__(self) -> int:
        """How many images there are."""
        return len(self.names)

    @property
    def numbers(self) -> npt.NDArray[np.int64]:
        """(N,): the number of each image's label in `labels`."""
        number = {label: index for index, label in enumerate(self.labels)}
        return np.array([number[_label(name)] for name in self.names], np.int64)

    @property
    def pairs(self) -> Pairs:
        """All pairs of different images.

        Raises:
            UsageError: there are too many images, or all pairs are of one kind.
        """
        return Pairs(*pairs_of(self.numbers))

    def image(self, name: str) -> npt.NDArray[np.uint8]:
        """An image as (H, W, 3) uint8, RGB.

        Raises:
            ImageError: it cannot be read.
        """
        if name not in self._arrays:
            return load_image(self.source / name)
        array = self._arrays[name]
        return array if array.ndim == 3 else np.repeat(array[:, :, None], 3, axis=2)

    def split(self, share: float) -> tuple[LabelledImages, LabelledImages]:
        """Split by labels: the first ``share`` of the labels, and the rest, so that no label is in both.

        Raises:
            NoDataError: one of them would be empty.
        """
        count = round(len(self.labels) * share)
        if not 0 < count < len(self.labels):
            raise NoDataError(
                f"images {str(self.source)!r}: {len(self.labels)} labels cannot be divided at {share:g}",
                path=self.source,
            )
        first = set(self.labels[:count])
        return self._part([name for name in self.names if _label(name) in first]), self._part(
            [name for name in self.names if _label(name) not in first]
        )

    def digest(self) -> str:
        """Digest of names and contents; equal digests mean equal images."""
        if self._arrays:
            hasher = hashlib.sha256("\n".join(self.names).encode())
            hasher.update(sha256_hex(self.source).encode())
        else:
            hasher = hashlib.sha256()
            for name in self.names:
                hasher.update(f"{name}\0{sha256_hex(self.source / name)}\n".encode("utf-8", "surrogateescape"))
        return hasher.hexdigest()

    def _part(self, names: Sequence[str]) -> LabelledImages:
        part = object.__new__(LabelledImages)
        part.source, part._arrays = self.source, self._arrays
        part._set(names)
        return part


def _label(name: str) -> str:
    return name.rpartition("/")[0]


def _natural(name: str) -> list[tuple[int, int, str]]:
    """A key that puts numbers within names into their order."""
    parts = _NUMBER.split(name)
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts if part]


def _check_array(path: Path, name: str, array: npt.NDArray[Any]) -> None:
    image = array.dtype == np.uint8 and (array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 3)) and array.size
    if not image or "/" not in name:
        raise FormatError(
            f"{path}: expected arrays uint8 (H, W, 3) or (H, W), named label/image, found {name!r}: {array.dtype} {array.shape}",
            path=path,
            line=None,
        )
