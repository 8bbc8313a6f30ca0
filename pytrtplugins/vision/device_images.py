"""Images decoded on a device, which stay in its memory until they are downloaded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ..errors import ImageError
from ..utils.prefetch import map_ahead, prefetch
from .image import MAX_BYTES, Image, decode_image, read_image_file, read_usual_header
from .jpeg import JpegHeader, Memory

__all__ = ["DeviceImage", "ImageDecoder", "decode_in_batches", "for_device"]

_MOST_IMAGES, _MOST_BYTES = 32, 256 << 20  # of a batch
_LONGEST_SIDE = 32767
_BATCHES_AHEAD = 2


class DeviceImage(ABC):
    """An image in a device's memory: (H, W, 3) uint8, RGB, upright.

    Attributes:
        shape: (H, W, 3).
    """

    shape: tuple[int, int, int]

    @property
    def size(self) -> int:
        """Size in bytes."""
        height, width, channels = self.shape
        return height * width * channels

    @abstractmethod
    def copy_to(self, memory: Any, stream: Any) -> None:
        """Queue a copy to device memory; keep the image alive until the copy has finished."""

    @abstractmethod
    def download(self) -> Image:
        """Return a copy in host memory."""


class ImageDecoder(Protocol):
    """Decoder of JPEG files on a device."""

    def decode(self, files: Sequence[bytes]) -> list[DeviceImage | None]:
        """Decode files, and wait for the end; None for each file that the device cannot decode."""


@dataclass(frozen=True)
class _Jpeg:
    """A JPEG file to decode on the device.

    Fields:
        path: Of the file.
        data: What is in it.
        bytes: Size of the decoded pixels in bytes.
    """

    path: Path
    data: bytes
    bytes: int


Decoded = Image | DeviceImage | ImageError | None


def decode_in_batches(
    paths: Iterable[Path | None],
    decoder: ImageDecoder,
    other: Callable[[int], Decoded],
    *,
    threads: int,
    ahead: int,
    memory: Memory,
) -> Generator[Decoded, None, None]:
    """Read files in threads, and decode them on a device in batches ahead of the caller, in a thread of its own.

    What is not a usual JPEG file is decoded on the host, and so is what the device refuses: then its error is the host's.

    Args:
        paths: Of the images; None for what ``other`` reads.
        decoder: The device's.
        other: Gives the image with a number, from 0, whose path is None.
        threads: That read files.
        ahead: Files that are read ahead, beside one for each thread and a batch.
        memory: As for `load_image`.

    Returns:
        For each path its image, or what is wrong with it.
    """

    def read(numbered: tuple[int, Path | None]) -> _Jpeg | Decoded:
        number, path = numbered
        return other(number) if path is None else _read(path, memory)

    with ExitStack() as stack:
        ahead += threads + _MOST_IMAGES
        files = stack.enter_context(closing(map_ahead(read, enumerate(paths), threads=threads, ahead=ahead)))
        batches = map(partial(_decode_batch, decoder, memory), _batches(files))
        for batch in stack.enter_context(closing(prefetch(batches, _BATCHES_AHEAD))):
            yield from batch


def for_device(data: bytes, max_bytes: int = MAX_BYTES) -> JpegHeader | None:
    """Return the header of a JPEG file if a device may decode it; None if the host must decode or refuse it."""
    header = read_usual_header(data, max_bytes)
    return header if header is not None and max(header.width, header.height) <= _LONGEST_SIDE else None


def _read(path: Path, memory: Memory) -> _Jpeg | Image | ImageError:
    try:
        data = read_image_file(path)
        header = for_device(data)
        if header is not None:
            return _Jpeg(path, data, header.width * header.height * 3)
        return decode_image(data, path, memory=memory)
    except ImageError as error:
        return error


def _batches(files: Iterable[_Jpeg | Decoded]) -> Iterator[list[_Jpeg | Decoded]]:
    batch, size = list[_Jpeg | Decoded](), 0
    for file in files:
        file_bytes = file.bytes if isinstance(file, _Jpeg) else 0
        if batch and (len(batch) == _MOST_IMAGES or size + file_bytes > _MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file_bytes
    if batch:
        yield batch


def _decode_batch(decoder: ImageDecoder, memory: Memory, batch: list[_Jpeg | Decoded]) -> list[Decoded]:
    jpegs = [file for file in batch if isinstance(file, _Jpeg)]
    decoded = iter(decoder.decode([file.data for file in jpegs]) if jpegs else ())
    return [_decode_on_host_if_none(file, next(decoded), memory) if isinstance(file, _Jpeg) else file for file in batch]


def _decode_on_host_if_none(file: _Jpeg, image: DeviceImage | None, memory: Memory) -> Decoded:
    try:
        return decode_image(file.data, file.path, memory=memory) if image is None else image
    except ImageError as error:
        return error
