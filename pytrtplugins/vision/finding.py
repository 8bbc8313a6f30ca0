"""The user's words → images, videos, cameras and streams."""

from __future__ import annotations

import glob
import importlib.util
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from ..errors import ImageError
from ..utils.files import check_path, files_below, read_stdin

__all__ = ["IMAGE_SUFFIXES", "VIDEO_SUFFIXES", "Source", "find_sources"]

IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
VIDEO_SUFFIXES = (".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".webm")
DARKNET_DATA = Path("/usr/share/darknet/data")
_URL = re.compile(r"(?:https?|rtsps?|rtmp)://", re.IGNORECASE)
_MAX_LIST_BYTES = 64 << 20
_PLAIN = re.compile(r"[^\w.-]+")  # what the name of a file made for a stream does not have


@dataclass(frozen=True)
class Source:
    """One image, video, camera or stream.

    Fields:
        address: A file's path, a URL, or a camera's number.
        kind: ``"image"``; ``"video"``, which ends; or ``"live"``, which may not.

    Example:
        >>> Source("rtsp://door.example:554/hall.sdp", "live").stem
        'hall'
    """

    address: Path | str | int
    kind: Literal["image", "video", "live"]

    @property
    def name(self) -> str:
        """As the user knows it."""
        return f"camera {self.address}" if isinstance(self.address, int) else str(self.address)

    @property
    def stem(self) -> str:
        """What files made for it are called: the file's name without its suffix."""
        if isinstance(self.address, Path):
            return self.address.stem
        if isinstance(self.address, int):
            return f"camera-{self.address}"
        parts = urlsplit(self.address)
        return _PLAIN.sub("-", Path(parts.path).stem or parts.hostname or "stream").strip("-.") or "stream"

    @property
    def suffix(self) -> str:
        """Of the file's name, in lower case; empty where there is none."""
        if isinstance(self.address, int):
            return ""
        return Path(urlsplit(self.address).path if isinstance(self.address, str) else self.address).suffix.lower()


def find_sources(
    sources: Iterable[str | Path | int], *, recursive: bool = False, folders: Iterable[str | Path] = ("samples",)
) -> list[Source]:
    """Find what a user means.

    Args:
        sources: Images and videos; folders of them; globs such as ``"images/*.jpg"``; URLs (http, https, rtsp, rtsps, rtmp);
            numbers of cameras; ``-`` for paths on standard input, one a line; names of well-known images: darknet's
            (``dog.jpg``) and scikit-image's (``chelsea``, ``astronaut``) are looked for where they are installed.
        recursive: Look into the subfolders of folders too.
        folders: Where else to look for a plain name.

    Raises:
        ImageError: one is missing (the message says where it was looked for), a folder or glob has no image and no video, or
            there is no source. Paths on standard input are not looked for yet.
    """
    absolute = [Path(folder).absolute() for folder in folders]
    found = [each for source in sources for each in _find(source, recursive, absolute)]
    if not found:
        raise ImageError("no image given.\nDo: give an image, a folder or a video, such as dog.jpg", path=None)
    return found


def _find(source: str | Path | int, recursive: bool, folders: Sequence[Path]) -> list[Source]:
    if isinstance(source, int):
        return [Source(source, "live")]
    if str(source) == "-":
        return list(_listed(read_stdin(_MAX_LIST_BYTES, error=ImageError)))
    if isinstance(source, str) and _URL.match(source):
        return [_at_url(source)]
    path = Path(source)
    check_path(path, error=ImageError)
    if path.is_file():
        return [_file(path)]
    if path.is_dir():
        return _in_folder(path, recursive)
    if glob.has_magic(str(source)) and not path.exists():
        return _matching(str(source))
    return [_file(_look_for(path, folders))]


def _file(path: Path) -> Source:
    return Source(path, "video" if path.suffix.lower() in VIDEO_SUFFIXES else "image")


def _at_url(url: str) -> Source:
    suffix = Source(url, "live").suffix
    return Source(url, "image" if suffix in IMAGE_SUFFIXES else "video" if suffix in VIDEO_SUFFIXES else "live")


def _listed(data: bytes) -> Iterator[Source]:
    for line in data.decode(errors="surrogateescape").splitlines():
        if line.strip():
            yield _at_url(line.strip()) if _URL.match(line.strip()) else _file(Path(line))


def _in_folder(folder: Path, recursive: bool) -> list[Source]:
    files, others = files_below(folder, IMAGE_SUFFIXES + VIDEO_SUFFIXES, recursive=recursive)
    if not files:
        deeper = not recursive and any(path.is_dir() for path in folder.iterdir())
        where = "it and its subfolders" if recursive else "it"
        raise ImageError(
            f"folder {str(folder)!r}: no images or videos: looked for {' '.join(IMAGE_SUFFIXES + VIDEO_SUFFIXES)} in {where}, "
            f"found {others:,} other files." + ("\nDo: --recursive also searches its subfolders" if deeper else ""),
            path=folder,
        )
    return [_file(path) for path in files]


def _matching(pattern: str) -> list[Source]:
    paths = sorted(Path(path) for path in glob.glob(pattern, recursive=True))
    found = [path for path in paths if path.is_file() and path.suffix.lower() in IMAGE_SUFFIXES + VIDEO_SUFFIXES]
    if not found:
        raise ImageError(
            f"glob {pattern!r}: no images or videos: it matches {len(paths):,} other files and folders.",
            path=Path(pattern),
        )
    return [_file(path) for path in found]


def _look_for(path: Path, folders: Sequence[Path]) -> Path:
    candidates = _candidates(path, folders)
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    if path.exists():
        raise ImageError(f"image {str(path)!r}: expected a regular file or a folder, found neither.", path=path)
    looked = "\n".join(f"  {candidate}" for candidate in candidates)
    raise ImageError(
        f"image {str(path)!r}: no such file. Looked for:\n{looked}\n"
        "Do: give the path of an image, try chelsea (pip install scikit-image), or apt-get install darknet for dog.jpg",
        path=path,
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
