"""Read samples of a network's inputs from folders and files, one image each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ...calibration import ImageBatches
from ...errors import NoDataError, UsageError
from ...models import YoloData
from ...tensor import TensorDesc
from ...utils.array_files import MAX_BYTES, read_npz
from ...utils.data_yaml import DATA_YAML
from ...utils.files import sha256_hex
from ...utils.text_formats import shorten
from ...vision import letterbox

__all__ = ["ArrayFiles", "is_labelled", "read_samples"]

Sample = dict[str, npt.NDArray[Any]]
Item = TypeVar("Item")


class ArrayFiles:
    """A folder's .npz files as calibration batches, one file each, read on demand.

    Args:
        folder: Searched with its subfolders.
        limit: Use the first files only.
    """

    def __init__(self, folder: Path, limit: int | None = None) -> None:
        self._folder, self._files = folder, sorted(folder.rglob("*.npz"))[:limit]

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[Sample]:
        return (read_npz(path, error=UsageError) for path in self._files)

    def digest(self) -> str:
        """Digest of the files' names and contents; equal digests give equal calibration tables."""
        lines = (f"{path.relative_to(self._folder)}\0{sha256_hex(path)}\n" for path in self._files)
        return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def read_samples(
    data: Sequence[Path], inputs: Sequence[TensorDesc], *, limit: int, seed: int, mode: str, split: str = "train.txt"
) -> list[Sample]:
    """Inputs from a folder of .npz files, of images, or from labelled images in the YOLO layout: ``limit`` of them, chosen by the seed.

    Labelled data may be several folders and tars; ``split`` is the list of their images. Where the network's batch is fixed, a sample
    is one image, as often as that.

    Raises:
        NoDataError: there is nothing usable.
        UsageError: the arrays of a file do not fit the network.
    """
    arrays = sorted(data[0].rglob("*.npz")) if len(data) == 1 and data[0].is_dir() else []
    if arrays:
        chosen = _choose(arrays, limit, seed)
        return [_arrays(path, inputs) for path in chosen]
    name, size, count = _image_input(inputs)
    if is_labelled(data):
        labelled = YoloData(data)
        images = _choose(labelled.images(split), limit, seed)
        pixels = (np.asarray(letterbox(labelled.image(image), size, mode=mode).data, np.float32) for image in images)
        return [{name: np.stack([image] * count)} for image in pixels]
    batches = ImageBatches(data[0], size, batch=1, mode=mode, input_name=name, limit=limit, shuffle_seed=seed)
    return [{name: np.repeat(batch[name], count, axis=0)} for batch in batches]


def is_labelled(data: Sequence[Path]) -> bool:
    """Whether paths are labelled images in the YOLO layout, rather than a folder of images or arrays."""
    return len(data) > 1 or data[0].is_file() or any((data[0] / name).is_file() for name in ("classes.txt", *DATA_YAML))


def _choose(items: Sequence[Item], limit: int, seed: int) -> list[Item]:
    """Draw ``count`` items, in their order."""
    if not items:
        raise NoDataError("no samples were found")
    order = np.random.default_rng(seed).permutation(len(items))[:limit]
    return [items[index] for index in sorted(order)]


def _arrays(path: Path, inputs: Sequence[TensorDesc]) -> Sample:
    arrays = read_npz(path, error=UsageError)
    names = [desc.name for desc in inputs]
    if set(arrays) != set(names):
        raise UsageError(f"{path}: expected arrays for the inputs {names}, found {shorten(sorted(arrays), 200)}")
    needed = sum(arrays[desc.name].size * desc.dtype.numpy.itemsize for desc in inputs)
    if needed > MAX_BYTES:
        raise UsageError(
            f"{path}: its arrays take {needed:,} bytes in the types of the network; the limit is {MAX_BYTES:,}"
        )
    return {desc.name: np.asarray(arrays[desc.name], desc.dtype.numpy) for desc in inputs}


def _image_input(inputs: Sequence[TensorDesc]) -> tuple[str, tuple[int, int], int]:
    """Name of the image input, width and height of its images, and its fixed batch."""
    dims = inputs[0].dims if len(inputs) == 1 else ()
    if len(dims) != 4 or not isinstance(dims[2], int) or not isinstance(dims[3], int):
        raise UsageError(
            "images fit a network with one input of dims (N, 3, H, W); this one has "
            f"{', '.join(map(str, inputs))}.\nDo: give a folder of .npz files with an array for each input"
        )
    return inputs[0].name, (dims[3], dims[2]), dims[0] if isinstance(dims[0], int) else 1
