"""Download official darknet networks, and check the files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..cuda.cache import user_cache
from ..errors import FormatError, UsageError
from ..utils.fetch import DownloadError, fetch

__all__ = ["NAMES", "Downloaded", "download", "download_folder"]

WEIGHTS_URL = "https://pjreddie.com/media/files"
SOURCE_URL = "https://raw.githubusercontent.com/pjreddie/darknet/master"
_NAMES_OF = {
    "yolov2-voc": "voc.names",
    "yolov2-tiny-voc": "voc.names",
    "yolov2": "coco.names",
    "yolov2-tiny": "coco.names",
    "yolov3-tiny": "coco.names",
}
NAMES = tuple(_NAMES_OF)
_LARGEST = 1 << 31


@dataclass(frozen=True)
class Downloaded:
    """The three files of a downloaded network."""

    cfg: Path
    weights: Path
    names: Path


def download(
    name: str,
    folder: str | Path | None = None,
    *,
    weights_url: str = WEIGHTS_URL,
    source_url: str = SOURCE_URL,
    progress: bool = True,
) -> Downloaded:
    """Download a network of darknet's author, or reuse the files of an earlier download.

    Nothing takes its final name before it is checked: the cfg and the names must be text of their kind, and the weights
    must have darknet's header and exactly the size that the cfg asks for.

    Args:
        name: One of ``yolov2-voc``, ``yolov2-tiny-voc``, ``yolov2``, ``yolov2-tiny``, ``yolov3-tiny``.
        folder: Where the files go; by default the user's cache folder.
        weights_url: Folder of the weights on the network, for a mirror.
        source_url: Folder with darknet's ``cfg`` and ``data`` on the network, for a mirror.
        progress: Show a progress bar where standard error is a terminal.

    Raises:
        UsageError: the name is unknown.
        DownloadError: there is no network, the server does not have the file, or the folder cannot be made.
        FormatError: what came is not what was asked for; WeightsError or CfgError where it is known.
    """
    if name not in _NAMES_OF:
        raise UsageError(f"download {name!r}: unknown network. Known: {', '.join(NAMES)}.", name=name)
    target = download_folder(folder, name)
    files = Downloaded(target / f"{name}.cfg", target / f"{name}.weights", target / _NAMES_OF[name])
    _fetch(f"{source_url}/data/{files.names.name}", files.names, False, files)
    _fetch(f"{source_url}/cfg/{files.cfg.name}", files.cfg, False, files)
    _fetch(f"{weights_url}/{files.weights.name}", files.weights, progress, files)
    return files


def download_folder(folder: str | Path | None, name: str) -> Path:
    """Create and return the folder for a download, by default in the user's cache."""
    target = user_cache() if folder is None else Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DownloadError(
            f"{target}: the folder for {name} cannot be made ({error.strerror}).\n"
            f'Do: give a folder that can be written: download({name!r}, folder="…")',
            folder=target,
        ) from error
    return target


def _fetch(url: str, path: Path, progress: bool, files: Downloaded) -> None:
    if not path.exists():
        fetch(
            url, path, max_bytes=_LARGEST, progress=progress, check=lambda part: _check_contents(part, path, url, files)
        )


def _check_contents(temporary: Path, path: Path, url: str, files: Downloaded) -> None:
    """Raise an error if a downloaded file has other contents than expected, such as a login page."""
    with temporary.open("rb") as file:
        data = file.read(512)
    if data.lstrip()[:1] == b"<":
        raise FormatError(f"{path.name}: {url} gave a web page instead of the file: {data[:60]!r}.", url=url)
    if path == files.names and not 0 < temporary.stat().st_size < 1 << 20:
        raise FormatError(f"{path.name}: {url} gave no list of names ({temporary.stat().st_size:,} bytes).", url=url)
    if path != files.names:
        from darknet2caffe import read_network

        try:
            read_network(temporary if path == files.cfg else files.cfg, temporary if path == files.weights else None)
        except FormatError as error:
            raise type(error)(
                f"{path.name}: what {url} gave cannot be used.\n{error}", url=url, **error.facts
            ) from error
