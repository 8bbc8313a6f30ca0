"""Find images, videos, cameras and streams by paths, folders, globs, URLs and camera numbers."""

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
        """The path or URL, or ``camera 0``."""
        return f"camera {self.address}" if isinstance(self.address, int) else str(self.address)

    @property
    def stem(self) -> str:
        """The file's name without its suffix, from which names of output files are made."""
        if isinstance(self.address, Path):
            return self.address.stem
        if isinstance(self.address, int):
            return f"camera-{self.address}"
        parts = urlsplit(self.address)
        return _PLAIN.sub("-", Path(parts.path).stem or parts.hostname or "stream").strip("-.") or "stream"

    @property
    def suffix(self) -> str:
        """The file's suffix in lower case; empty if there is none."""
        if isinstance(self.address, int):
            return ""
        return Path(urlsplit(self.address).path if isinstance(self.address, str) else self.address).suffix.lower()


def find_sources(
    sources: Iterable[str | Path | int], *, recursive: bool = False, folders: Iterable[str | Path] = ("samples",)
) -> list[Source]:
    """Find the images, videos, cameras and streams that the arguments of a user name.

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
    search_folders = [Path(folder).absolute() for folder in folders]
    matches = [match for source in sources for match in _find_source(source, recursive, search_folders)]
    if not matches:
        raise ImageError("no image given.\nDo: give an image, a folder or a video, such as dog.jpg", path=None)
    return matches


def _find_source(source: str | Path | int, recursive: bool, folders: Sequence[Path]) -> list[Source]:
    if isinstance(source, int):
        return [Source(source, "live")]
    if str(source) == "-":
        return list(_sources_of_list(read_stdin(_MAX_LIST_BYTES, error=ImageError)))
    if isinstance(source, str) and _URL.match(source):
        return [_url_source(source)]
    path = Path(source)
    check_path(path, error=ImageError)
    if path.is_file():
        return [_file_source(path)]
    if path.is_dir():
        return _folder_sources(path, recursive)
    if glob.has_magic(str(source)) and not path.exists():
        return _glob_sources(str(source))
    return [_file_source(_find_file(path, folders))]


def _file_source(path: Path) -> Source:
    return Source(path, "video" if path.suffix.lower() in VIDEO_SUFFIXES else "image")


def _url_source(url: str) -> Source:
    suffix = Source(url, "live").suffix
    return Source(url, "image" if suffix in IMAGE_SUFFIXES else "video" if suffix in VIDEO_SUFFIXES else "live")


def _sources_of_list(data: bytes) -> Iterator[Source]:
    for line in data.decode(errors="surrogateescape").splitlines():
        if line.strip():
            yield _url_source(line.strip()) if _URL.match(line.strip()) else _file_source(Path(line))


def _folder_sources(folder: Path, recursive: bool) -> list[Source]:
    files, others = files_below(folder, IMAGE_SUFFIXES + VIDEO_SUFFIXES, recursive=recursive)
    if not files:
        has_subfolders = not recursive and any(path.is_dir() for path in folder.iterdir())
        search_text = "it and its subfolders" if recursive else "it"
        raise ImageError(
            f"folder {str(folder)!r}: no images or videos: looked for {' '.join(IMAGE_SUFFIXES + VIDEO_SUFFIXES)} in {search_text}, "
            f"found {others:,} other files."
            + ("\nDo: --recursive also searches its subfolders" if has_subfolders else ""),
            path=folder,
        )
    return [_file_source(path) for path in files]


def _glob_sources(pattern: str) -> list[Source]:
    paths = sorted(Path(path) for path in glob.glob(pattern, recursive=True))
    files = [path for path in paths if path.is_file() and path.suffix.lower() in IMAGE_SUFFIXES + VIDEO_SUFFIXES]
    if not files:
        raise ImageError(
            f"glob {pattern!r}: no images or videos: it matches {len(paths):,} other files and folders.",
            path=Path(pattern),
        )
    return [_file_source(path) for path in files]


def _find_file(path: Path, folders: Sequence[Path]) -> Path:
    candidates = _candidate_paths(path, folders)
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    if path.exists():
        raise ImageError(f"image {str(path)!r}: expected a regular file or a folder, found neither.", path=path)
    candidate_lines = "\n".join(f"  {candidate}" for candidate in candidates)
    raise ImageError(
        f"image {str(path)!r}: no such file. Looked for:\n{candidate_lines}\n"
        "Do: give the path of an image, try chelsea (pip install scikit-image), or apt-get install darknet for dog.jpg",
        path=path,
        candidates=tuple(candidates),
    )


def _candidate_paths(source: Path, folders: Sequence[Path]) -> list[Path]:
    """Return the paths at which to look for a file; only a plain name is looked for in other folders."""
    paths = [source.absolute()]
    if len(source.parts) != 1:
        return paths
    paths += [folder / source for folder in (*folders, DARKNET_DATA)]
    spec = importlib.util.find_spec("skimage")  # its images are found without importing it
    for folder in spec.submodule_search_locations or () if spec else ():
        names = [source.name] if source.suffix else [f"{source.name}.png", f"{source.name}.jpg"]
        paths += [Path(folder) / "data" / name for name in names]
    return list(dict.fromkeys(paths))
