"""Images from files, folders and videos; and annotated ones back to disk."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..errors import ImageError
from ..utils.files import atomic_path, files_below
from ..utils.optional import require
from ..utils.prefetch import map_ahead
from ..vision import Detection, check_image_path, draw, load_image, save_image

if TYPE_CHECKING:
    import cv2

__all__ = ["ImageWriter", "SourceImage", "find_images", "read_images"]

IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
VIDEO_SUFFIXES = (".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".webm")
DARKNET_DATA = Path("/usr/share/darknet/data")
_MAX_READERS = 16
_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class SourceImage:
    """An image, or a frame of a video.

    Fields:
        path: The file it comes from.
        image: (H, W, 3) uint8, RGB.
        frame: Number of the frame, from 0; None for an image.
        frames_per_second: Of the video; 0 for an image.
    """

    path: Path
    image: npt.NDArray[np.uint8]
    frame: int | None = None
    frames_per_second: float = 0.0

    @property
    def name(self) -> str:
        """The path, with the frame's number for a video."""
        return str(self.path) if self.frame is None else f"{self.path} frame {self.frame}"


def find_images(sources: Iterable[str | Path], folders: Iterable[str | Path] = ("samples",)) -> list[Path]:
    """Turn what a user typed into files.

    Args:
        sources: Images, ``-`` for one on standard input, videos, folders of images (searched with their subfolders), or
            names of well-known images: darknet's (``dog.jpg``) and scikit-image's (``chelsea``, ``astronaut``) are looked
            for where they are installed.
        folders: Where else to look for a plain name.

    Raises:
        ImageError: one is missing (the message says where it was looked for), a folder has no image, or there is no source.
    """
    absolute = [Path(folder).absolute() for folder in folders]
    found = [path for source in sources for path in _find(Path(source), absolute)]
    if not found:
        raise ImageError("no image given.\nDo: give an image, a folder or a video, such as dog.jpg", path=None)
    return found


def read_images(paths: Iterable[Path]) -> Iterator[SourceImage]:
    """Read images and the frames of videos, in order; a few images are read ahead in threads.

    An image that cannot be read does not keep the others from being seen: it is logged as a warning, and named at the end.

    Raises:
        ImageError: after the last image: some could not be read.
    """
    broken: list[ImageError] = []
    count = 0
    threads = min(_MAX_READERS, os.cpu_count() or 1)
    for path, found in map_ahead(_read_image, paths, threads=threads, ahead=threads + 1):
        count += 1
        try:
            if isinstance(found, ImageError):
                raise found
            if found is None:
                yield from _read_video(path)
            else:
                yield found
        except ImageError as error:
            broken.append(error)
            if count > 1:
                _log.warning("%s", error)
    if broken:
        if count == 1:
            raise broken[0]
        raise ImageError(
            f"{len(broken)} of {count} files could not be read:\n" + "\n".join(map(str, broken)), path=broken[0].path
        )


class ImageWriter:
    """Save annotated images: one under the given name, or numbered ones beside it; frames as a video.

    Args:
        output: Where the image goes: ``predictions.png``. Of several files each goes to ``predictions-<its name>.png``,
            and a video to ``predictions-<its name>.mp4``.
        several: Whether there are several files.

    Raises:
        UsageError: the folder of ``output`` does not exist, or its suffix is unknown.
    """

    def __init__(self, output: str | Path, *, several: bool = False) -> None:
        self.output = check_image_path(output)
        self.several = several
        self.written: list[Path] = []
        self._video: cv2.VideoWriter | None = None
        self._files = contextlib.ExitStack()
        self._sizes: tuple[int, int] = (0, 0)

    def write(self, source: SourceImage, detections: Iterable[Detection]) -> Path:
        """Draw the detections on the image and save it; returns the file."""
        image = draw(source.image, detections)
        path = self._target(source)
        if source.frame is None:
            save_image(image, path)
        else:
            self._write_frame(image, path, source)
        if path not in self.written:
            self.written.append(path)
        return path

    def close(self) -> None:
        """Finish the video that is being written."""
        if self._video is not None:
            self._video.release()
            self._video = None
        self._files.close()

    def __enter__(self) -> ImageWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _target(self, source: SourceImage) -> Path:
        stem, suffix = self.output.stem, self.output.suffix if source.frame is None else ".mp4"
        if not self.several:
            return self.output.with_name(stem + suffix)
        path = self.output.with_name(f"{stem}-{source.path.stem}{suffix}")
        if source.frame is None:
            number = 2
            while path in self.written:
                path = self.output.with_name(f"{stem}-{source.path.stem}-{number}{suffix}")
                number += 1
        return path

    def _write_frame(self, image: npt.NDArray[np.uint8], path: Path, source: SourceImage) -> None:
        cv2 = require("cv2", extra="vision", package="opencv-python-headless", feature="writing videos")
        size = image.shape[1], image.shape[0]
        if source.frame == 0 or self._video is None:
            self.close()
            self._sizes = size
            with contextlib.ExitStack() as stack:
                temporary, codec = stack.enter_context(atomic_path(path)), cv2.VideoWriter_fourcc(*"mp4v")
                video = cv2.VideoWriter(str(temporary), codec, source.frames_per_second, size)
                if not video.isOpened():
                    raise ImageError(f"video {str(path)!r}: OpenCV cannot write it.", path=path)
                self._video, self._files = video, stack.pop_all()
        self._video.write(np.ascontiguousarray(image[:, :, ::-1]))


def _find(source: Path, folders: Sequence[Path]) -> list[Path]:
    if source.is_file() or str(source) == "-":
        return [source]
    if source.is_dir():
        files, others = files_below(source, IMAGE_SUFFIXES)
        if not files:
            raise ImageError(
                f"folder {str(source)!r}: no images: looked for {' '.join(IMAGE_SUFFIXES)} in it and its subfolders, "
                f"found {others:,} other files.",
                path=source,
            )
        return files
    candidates = _candidates(source, folders)
    for candidate in candidates:
        if candidate.is_file():
            return [candidate]
    if source.exists():
        raise ImageError(f"image {str(source)!r}: expected a regular file or a folder, found neither.", path=source)
    looked = "\n".join(f"  {candidate}" for candidate in candidates)
    raise ImageError(
        f"image {str(source)!r}: no such file. Looked for:\n{looked}\n"
        "Do: give the path of an image, try chelsea (pip install scikit-image), or apt-get install darknet for dog.jpg",
        path=source,
        candidates=tuple(candidates),
    )


def _candidates(source: Path, folders: Sequence[Path]) -> list[Path]:
    """Where a file that is not where the user says may be: only plain names are looked for elsewhere."""
    here = [source.absolute()]
    if len(source.parts) != 1:
        return here
    here += [folder / source for folder in (*folders, DARKNET_DATA)]
    spec = importlib.util.find_spec("skimage")  # its images are found without importing it
    for folder in spec.submodule_search_locations or () if spec else ():
        names = [source.name] if source.suffix else [f"{source.name}.png", f"{source.name}.jpg"]
        here += [Path(folder) / "data" / name for name in names]
    return list(dict.fromkeys(here))


def _read_image(path: Path) -> tuple[Path, SourceImage | ImageError | None]:
    """An image, or what is wrong with it; None for a video."""
    if path.suffix.lower() in VIDEO_SUFFIXES:
        return path, None
    try:
        return path, SourceImage(path, load_image(path))
    except ImageError as error:
        return path, error


def _read_video(path: Path) -> Iterator[SourceImage]:
    cv2 = require("cv2", extra="vision", package="opencv-python-headless", feature="reading videos")
    capture = cv2.VideoCapture(str(path))
    try:
        rate = float(capture.get(cv2.CAP_PROP_FPS))
        rate = rate if 0 < rate < 1000 else 25.0
        number = 0
        while True:
            more, frame = capture.read()
            if not more:
                break
            yield SourceImage(path, np.ascontiguousarray(frame[:, :, ::-1]), number, rate)
            number += 1
    finally:
        capture.release()
    if number == 0:
        raise ImageError(
            f"video {str(path)!r}: OpenCV finds no frame in it ({path.stat().st_size:,} bytes).", path=path
        )
