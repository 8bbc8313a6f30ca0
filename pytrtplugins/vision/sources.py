"""Read the frames of images, videos, cameras and streams, decoded ahead of the caller."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ImageError
from ..utils.optional import require
from ..utils.prefetch import map_ahead, prefetch, threads_for_files
from .device_images import Decoded, DeviceImage, ImageDecoder, decode_in_batches
from .finding import Source, find_sources
from .image import Image, load_image
from .jpeg import Memory, empty

if TYPE_CHECKING:
    import cv2

__all__ = ["Frame", "Sources"]

_USUAL_RATE = 25.0  # frames a second, where a video or a camera tells none
_WHOLE = 0.9  # of the frames that a video's header promises, which may be an estimate
_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Frame:
    """An image, or a frame of a video, camera or stream.

    Fields:
        pixels: (H, W, 3) uint8, RGB; a `DeviceImage` if a device decoded it.
        source: Where it comes from.
        item: Number of the source, from 0, as they were given.
        index: Number of the frame among all frames of all sources, from 0.
        number: Number of the frame in its video, camera or stream, from 0; None for an image.
        rate: Frames a second of the video; 0 for an image.
    """

    pixels: Image | DeviceImage
    source: Source
    item: int = 0
    index: int = 0
    number: int | None = None
    rate: float = 0.0

    @cached_property
    def image(self) -> Image:
        """The pixels in host memory, (H, W, 3) uint8, RGB."""
        return self.pixels.download() if isinstance(self.pixels, DeviceImage) else self.pixels

    @property
    def name(self) -> str:
        """The source's name, with the frame's number for a video."""
        return self.source.name if self.number is None else f"{self.source.name} frame {self.number}"

    @property
    def stem(self) -> str:
        """The source's stem, with the frame's number for a video, from which names of output files are made."""
        return self.source.stem if self.number is None else f"{self.source.stem}-{self.number:06}"


class Sources:
    """Iterable of frames from images, folders, globs, videos, cameras and URLs.

    Images are decoded on all cores, videos in a thread of their own, a few ahead of the frame that is asked for. An image that
    cannot be read does not keep the others from being seen: it is logged as a warning, kept in ``failures``, and raised after the
    last frame.

    Args:
        sources: See `pytrtplugins.vision.finding.find_sources`: paths, folders, globs, URLs, numbers of cameras, ``-``.
        recursive: Look into the subfolders of folders too.
        folders: Where else to look for a plain name.

    Attributes:
        found: Each image, video, camera and stream.
        failures: What could not be read so far, in the last iteration.

    Raises:
        ImageError: a source is missing, or there is none; while iterating, after the last frame: some could not be read.

    Example:
        >>> for frame, found in detector.stream(Sources(["images/", "film.mp4"])):   # doctest: +SKIP
        ...     print(frame.name, *found)
    """

    def __init__(
        self,
        sources: Iterable[str | Path | int],
        *,
        recursive: bool = False,
        folders: Iterable[str | Path] = ("samples",),
    ) -> None:
        self.found = tuple(find_sources(sources, recursive=recursive, folders=folders))
        self.failures: list[ImageError] = []

    def __iter__(self) -> Iterator[Frame]:
        """Yield the frames, in order."""
        return self.frames()

    def __repr__(self) -> str:
        """Return the number of sources of each kind."""
        kinds = [source.kind for source in self.found]
        return f"Sources({', '.join(f'{kind}: {kinds.count(kind)}' for kind in dict.fromkeys(kinds))})"

    def count(self) -> int | None:
        """Return the number of all frames, by the headers of videos; None if it is unknown."""
        counts = [1 if source.kind == "image" else _frame_count(source) for source in self.found]
        return None if 0 in counts else sum(counts)

    def frames(
        self, ahead: int = 1, memory: Memory = empty, decoder: ImageDecoder | None = None
    ) -> Generator[Frame, None, None]:
        """Yield the frames, in order.

        Args:
            ahead: Frames that are decoded ahead beside one for each thread, such as the network's batch.
            memory: As for `load_image`.
            decoder: Decodes JPEG files on a device; None: the host does.
        """
        self.failures = []
        index, decoded_images = 0, self._decode_images(ahead, memory, decoder)
        with closing(decoded_images):
            for item, decoded in enumerate(decoded_images):
                try:
                    if isinstance(decoded, ImageError):
                        raise decoded
                    source = self.found[item]
                    if decoded is not None:
                        yield Frame(decoded, source, item, index)
                        index += 1
                        continue
                    for number, (image, rate) in enumerate(_frames(source, ahead)):
                        yield Frame(image, source, item, index, number, rate)
                        index += 1
                except ImageError as error:
                    self.failures.append(error)
                    if len(self.found) > 1:
                        _log.warning("%s", error)
        self._raise_failures()

    def _decode_images(
        self, ahead: int, memory: Memory, decoder: ImageDecoder | None
    ) -> Generator[Decoded, None, None]:
        """Yield each source's image, or its error; None for videos, cameras and streams."""
        threads, load = threads_for_files(), partial(_load, memory=memory)
        if decoder is None:
            return map_ahead(load, self.found, threads=threads, ahead=threads + ahead)
        return decode_in_batches(
            map(_path_of_image, self.found),
            decoder,
            lambda number: load(self.found[number]),
            threads=threads,
            ahead=ahead,
            memory=memory,
        )

    def _raise_failures(self) -> None:
        if len(self.found) == 1 and self.failures:
            raise self.failures[0]
        if self.failures:
            raise ImageError(
                f"{len(self.failures)} of {len(self.found)} files could not be read:\n"
                + "\n".join(map(str, self.failures)),
                path=self.failures[0].path,
            )


def _path_of_image(source: Source) -> Path | None:
    return source.address if source.kind == "image" and isinstance(source.address, Path) else None


def _load(source: Source, memory: Memory) -> Image | ImageError | None:
    """Return a source's image, or its error; None for a video, camera or stream."""
    if source.kind != "image":
        return None
    try:
        if isinstance(source.address, Path):
            return load_image(source.address, memory=memory)
        with _open_capture(source) as capture:
            return next(_decode_frames(capture, source))
    except ImageError as error:
        return error


def _frames(source: Source, ahead: int) -> Iterator[tuple[Image, float]]:
    """Yield frames with their rate; frames of a camera or stream are not read ahead, so that they are recent."""
    with _open_capture(source) as capture:
        rate = _rate(capture)
        images = prefetch(_decode_frames(capture, source), 1 if source.kind == "live" else max(2, ahead))
        with closing(images):
            for image in images:
                yield image, rate


@contextmanager
def _open_capture(source: Source) -> Iterator[cv2.VideoCapture]:
    cv2 = require("cv2", extra="vision", package="opencv-python-headless", feature="reading videos")
    address = str(source.address) if isinstance(source.address, Path) else source.address
    if isinstance(source.address, Path) and not source.address.is_file():
        raise ImageError(
            f"video {address!r}: no such file. Looked for: {source.address.absolute()}", path=source.address
        )
    capture = cv2.VideoCapture(address)
    try:
        if not capture.isOpened() and not isinstance(source.address, Path):
            kind = "camera" if isinstance(address, int) else "stream"
            raise ImageError(
                f"{kind} {address!r}: OpenCV cannot open it.\nCauses: (1) it is not there; (2) another program has it; (3) this OpenCV "
                "lacks its format (cv2.getBuildInformation() lists what it has).",
                path=None,
            )
        yield capture
    finally:
        capture.release()


def _decode_frames(capture: cv2.VideoCapture, source: Source) -> Iterator[Image]:
    cv2: Any = require("cv2", extra="vision")
    number, promised = 0, capture.get(cv2.CAP_PROP_FRAME_COUNT) if source.kind == "video" else 0
    while True:
        has_frame, frame = capture.read()
        if not has_frame:
            break
        yield np.ascontiguousarray(frame[:, :, ::-1])
        number += 1
    if number == 0:
        path = source.address if isinstance(source.address, Path) else None
        size = f" ({path.stat().st_size:,} bytes)" if path else ""
        raise ImageError(f"video {source.name!r}: OpenCV finds no frame in it{size}.", path=path)
    if number < _WHOLE * promised:
        _log.warning("%s: %d of %d frames could be read; the rest is missing or damaged", source.name, number, promised)


def _rate(capture: cv2.VideoCapture) -> float:
    cv2: Any = require("cv2", extra="vision")
    rate = float(capture.get(cv2.CAP_PROP_FPS))
    return rate if 0 < rate < 1000 else _USUAL_RATE


def _frame_count(source: Source) -> int:
    """Return the number of frames of a video by its header; 0 if it is unknown."""
    if source.kind != "video" or not isinstance(source.address, Path):
        return 0
    cv2: Any = require("cv2", extra="vision", package="opencv-python-headless", feature="reading videos")
    try:
        with _open_capture(source) as capture:
            return max(0, int(capture.get(cv2.CAP_PROP_FRAME_COUNT)))
    except ImageError:
        return 0
