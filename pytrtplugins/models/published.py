"""The models that this project publishes, and the user's copies of them."""

from __future__ import annotations

import functools
import json
import os
from dataclasses import dataclass
from pathlib import Path

from ..cuda.cache import user_cache
from ..errors import UsageError
from ..utils.fetch import DownloadError, fetch
from .download import download_folder

__all__ = ["URL", "Published", "PublishedFile", "fetch_model", "find_model", "published_models"]

URL = "PYTRT_MODELS_URL"
"""Environment variable: where the files of models are, in the place of the release page: a mirror, or a folder as file:///…"""


@dataclass(frozen=True)
class PublishedFile:
    """A file of a published model.

    Attributes:
        name: Its name.
        bytes: Its size.
        sha256: The digest of its contents.
    """

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Published:
    """A model that this project publishes.

    Attributes:
        name: The model's name.
        about: What it does.
        licence: Under which it may be used.
        url: The page that has its files; None where no release has it yet.
        files: Its files; the first is what `pytrt run` takes.
    """

    name: str
    about: str
    licence: str
    url: str | None
    files: tuple[PublishedFile, ...]


@functools.cache
def published_models() -> dict[str, Published]:
    """Return name → model of all published models, from the list in this package."""
    registry = json.loads(Path(__file__).with_name("registry.json").read_text(encoding="utf-8"))
    return {
        name: Published(name, **{**facts, "files": tuple(PublishedFile(**file) for file in facts["files"])})
        for name, facts in registry.items()
    }


def find_model(name: str, folder: str | Path | None = None) -> Path | None:
    """Return the file of a downloaded model, by default in the user's cache; None if one of its files is missing.

    Raises:
        UsageError: no model has this name.
    """
    model, target = _published_model(name), user_cache() / "models" if folder is None else Path(folder)
    paths = [target / file.name for file in model.files]
    return paths[0] if all(path.is_file() for path in paths) else None


def fetch_model(
    name: str, folder: str | Path | None = None, *, url: str | None = None, progress: bool = True
) -> tuple[Path, ...]:
    """Download the missing files of a published model; each is checked by size and digest before it gets its name.

    Args:
        name: The model's.
        folder: Where they go; by default the folder `models` in the user's cache.
        url: Where they are, in the place of `PYTRT_MODELS_URL` or the release page.
        progress: Show a progress bar where standard error is a terminal.

    Returns:
        The files; the first is the model, which `pytrt run` and `darknet2caffe` take.

    Raises:
        UsageError: no model has this name.
        DownloadError: no release has it yet, a file cannot be fetched, or the folder cannot be made.
        FormatError: what came is another file.
    """
    model = _published_model(name)
    base = url or os.environ.get(URL) or model.url
    if base is None:
        raise DownloadError(
            f"{name}: no release has it yet.\n"
            f"Do: take it from a checkout: pytrt download {name} --url file:///PATH/TO/CHECKOUT/samples/models",
            folder=folder,
        )
    target = download_folder(user_cache() / "models" if folder is None else folder, name)
    paths = tuple(target / file.name for file in model.files)
    for file, path in zip(model.files, paths, strict=True):
        if not path.is_file():
            fetch(f"{base.rstrip('/')}/{file.name}", path, max_bytes=file.bytes, sha256=file.sha256, progress=progress)
    return paths


def _published_model(name: str) -> Published:
    if name not in published_models():
        raise UsageError(
            f"model {name!r}: this project publishes no model with this name. It has: {', '.join(published_models())}."
        )
    return published_models()[name]
