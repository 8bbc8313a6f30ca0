"""Calibration batches from image files, with the preprocessing of run time."""

from __future__ import annotations

import hashlib
import logging
import os
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import ImageError, NoDataError, UsageError
from ..utils.data_yaml import PARTS
from ..utils.file_set import FileSet
from ..utils.files import files_below, sha256_hex
from ..utils.numbers import check_int

__all__ = ["ImageBatches"]

_LONGEST_SIDE, MAX_IMAGES = 1 << 14, 4096
_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
_log = logging.getLogger(__name__)


class ImageBatches:
    """Lazily read batches of images; can be iterated any number of times.

    Order is that of the relative paths, or shuffled with a seed: the same files give the same batches everywhere.

    Args:
        source: A folder, searched with its subfolders for bmp, jpg, png, tif and webp files; or a list of files; or a data.yaml of Roboflow
            or Ultralytics, whose images of ``train`` count.
        size: (width, height) of the network's input, in pixels; None: taken from the network that is calibrated.
        batch: Images in a batch, 1 to 4,096; the last batch may have fewer.
        mode: How images are fitted into the size; see ``pytrtplugins.vision.letterbox``. The grey bars of letterboxed
            images make spikes in the histograms of the first layers, behind which `EntropyCalibrator` cuts: on the first
            shipped model it cost 0.05 of mAP50, with ``"stretch"`` 0.006. Min-max and percentile do not mind bars:
            give them ``"letterbox"``, what the network sees at run time (0.001 there).
        input_name: Name of the network's input; None: taken from the network, else ``data``.
        limit: Use that many images at most, the first ones after shuffling.
        shuffle_seed: Shuffle with this seed; None: do not.
        on_error: What to do with an image that cannot be read: ``"raise"``, since a table made from fewer images is
            another table; or ``"skip"``, which logs a warning.

    Raises:
        NoDataError: there is no image; ``.path`` says where, ``.suffixes`` what was looked for.
        UsageError: size, batch, limit or on_error make no sense.

    Example:
        ``MinMaxCalibrator(ImageBatches("images/", size=(416, 416), batch=8), cache="yolov2.cache")``
    """

    def __init__(
        self,
        source: str | Path | Iterable[str | Path],
        size: tuple[int, int] | None = None,
        batch: int = 8,
        *,
        mode: str = "stretch",
        input_name: str | None = None,
        limit: int | None = None,
        shuffle_seed: int | None = None,
        on_error: str = "raise",
    ) -> None:
        _check_arguments(size, batch, limit, on_error)
        self.size = size
        self.batch = batch
        self.mode = mode
        self.input_name = input_name
        self.on_error = on_error
        self._default_size: tuple[int, int] | None = None
        self._default_name = "data"
        self._digest = ""
        files = _find_images(source)
        if shuffle_seed is not None:
            random.Random(shuffle_seed).shuffle(files)
        self._files = files[:limit]

    @property
    def paths(self) -> tuple[Path, ...]:
        """The image files, in the order of the batches."""
        return tuple(path for _, path in self._files)

    def set_default_input(self, name: str, dims: Sequence[object]) -> None:
        """Set the name and (width, height) of the network's input, used if the constructor got none.

        Its dims are (N, 3, H, W); free ones are anything but an int.
        """
        self._default_name = name
        if len(dims) == 4 and isinstance(dims[2], int) and isinstance(dims[3], int):
            self._default_size = (dims[3], dims[2])

    def digest(self) -> str:
        """Return a digest of names, contents and preprocessing; equal digests mean equal batches. Reads every file once."""
        if not self._digest:
            digest = hashlib.sha256(repr((self.mode, self.size)).encode())
            for name, path in self._files:
                digest.update(f"{name}\0{sha256_hex(path)}\n".encode("utf-8", "surrogateescape"))
            self._digest = digest.hexdigest()
        return self._digest

    def __len__(self) -> int:
        """Return the number of batches; with ``on_error="skip"`` there may be fewer."""
        return -(-len(self._files) // self.batch)

    def __iter__(self) -> Iterator[dict[str, npt.NDArray[np.float32]]]:
        size = self.size or self._default_size
        if size is None:
            raise UsageError(
                "ImageBatches: the size of the network's input is not known: it was not given, and the network leaves it free.\n"
                "Do: ImageBatches(..., size=(416, 416)); for a network that does not read images, a list of {input: array}, "
                "or pytrt calibrate with a folder of .npz files, which have an array for each input"
            )
        name = self.input_name or self._default_name
        rows: list[npt.NDArray[np.float32]] = []
        for path in self.paths:
            row = self._load(path, size)
            if row is not None:
                rows.append(row)
            if len(rows) == self.batch:
                yield {name: np.stack(rows)}
                rows = []
        if rows:
            yield {name: np.stack(rows)}

    def __repr__(self) -> str:
        return f"ImageBatches({len(self._files)} images, size={self.size}, batch={self.batch}, mode={self.mode!r})"

    def _load(self, path: Path, size: tuple[int, int]) -> npt.NDArray[np.float32] | None:
        from .. import vision  # OpenCV is needed here only

        try:
            image = vision.load_image(path)
        except (ImageError, OSError) as error:
            if self.on_error == "skip":
                _log.warning("calibrating without %s: %s", path, error)
                return None
            raise ImageError(
                f"{path}: {error}\nA calibration table made without this image would be another one.\n"
                'Do: remove the file, or ImageBatches(..., on_error="skip")',
                path=path,
            ) from error
        data: npt.NDArray[np.float32] = np.asarray(vision.letterbox(image, size, mode=self.mode).data, np.float32)
        return data


def _check_arguments(size: tuple[int, int] | None, batch: int, limit: int | None, on_error: str) -> None:
    if size is not None:
        if len(size) != 2:
            raise UsageError(f"ImageBatches: size: expected (width, height), found {size}.")
        for side in size:
            check_int("ImageBatches: size", side, 1, _LONGEST_SIDE)
    check_int("ImageBatches: batch", batch, 1, MAX_IMAGES)
    if limit is not None:
        check_int("ImageBatches: limit", limit, 1, sys.maxsize)
    if on_error not in ("raise", "skip"):
        raise UsageError(f"ImageBatches: on_error: expected 'raise' or 'skip', found {on_error!r}.")


def _find_images(source: str | Path | Iterable[str | Path]) -> list[tuple[str, Path]]:
    """Return name (for order and digest) and path of every image, sorted by name; a list keeps its order."""
    if not isinstance(source, (str, Path)):
        paths = [Path(path) for path in source]
        if not paths:
            raise NoDataError("ImageBatches: no images: the list of files is empty.", path=None, suffixes=_SUFFIXES)
        return [(path.name, path) for path in paths]
    folder = Path(source)
    if folder.suffix.lower() in (".yaml", ".yml") and os.path.isfile(folder):
        return _described_images(folder)
    if os.path.isfile(folder):
        return [(folder.name, folder)]
    if not os.path.isdir(folder):
        raise NoDataError(f"{folder}: expected a folder of images, found nothing.", path=folder, suffixes=_SUFFIXES)
    files, others = files_below(folder, _SUFFIXES)
    if not files:
        raise NoDataError(
            f"{folder}: no images: looked for {' '.join(_SUFFIXES)} in the folder and its subfolders, "
            f"found {others:,} files with other names.",
            path=folder,
            suffixes=_SUFFIXES,
        )
    return sorted((path.relative_to(folder).as_posix(), path) for path in files)


def _described_images(file: Path) -> list[tuple[str, Path]]:
    """Return name and path of the images of ``train`` in a data.yaml, or of ``val`` if it has no ``train``."""
    from ..vision.labels.parts import part_photos
    from ..vision.labels.photo_files import PhotoFiles

    files = FileSet(file)
    part = next((part for part in PARTS if files.description and part in files.description.parts), PARTS[0])
    return sorted((name, files.path(name)) for name in part_photos(files, PhotoFiles(files), part))
