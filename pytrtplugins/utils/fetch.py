"""Download files: limited in size, checked before they get their names, resumed after a broken transfer."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import FormatError, PytrtpluginsError, UsageError
from ..version import __version__
from .file_lock import take_lock
from .files import sha256_hex
from .inside import open_inside
from .progress import ProgressBar, progress_bar

__all__ = ["DownloadError", "fetch"]

_SCHEMES = ("https", "http", "file")
_CHUNK_BYTES = 1 << 16
_TIMEOUT_S = 30
_ATTEMPTS = 10  # of which each but the last must have brought something


class DownloadError(PytrtpluginsError, OSError):
    """A file could not be downloaded; ``.url`` is its address, ``.folder`` its target folder."""


def fetch(
    url: str,
    path: Path,
    *,
    max_bytes: int,
    sha256: str = "",
    check: Callable[[Path], object] | None = None,
    progress: bool = True,
) -> None:
    """Download a file, unless it exists.

    With a digest the file may come in parts: what broke off is kept beside it, as ``NAME.part``, and the next attempt asks for the rest.

    Args:
        url: https, http or file.
        path: What it will be; its folder exists.
        max_bytes: A longer one is refused, before it is read where the server says its size.
        sha256: What the contents must have; without it nothing is known of them.
        check: Looks at the file before it gets its name, and raises what it finds.
        progress: Show a progress bar where standard error is a terminal.

    Raises:
        UsageError: the URL has another scheme.
        FormatError: what came is too long, or has another digest.
    """
    import http.client  # here, as urllib below, since they take long to import, and most commands fetch nothing

    if url.partition(":")[0] not in _SCHEMES:
        raise UsageError(
            f"{url[:200]}: expected a URL that begins with {', '.join(f'{scheme}:' for scheme in _SCHEMES)}.", url=url
        )
    part = path.with_name(f"{path.name}.part")
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
    handle = open_inside(part, flags, within=path.parent, error=UsageError)
    with os.fdopen(handle, "ab") as file, progress_bar(path.name, None, progress, in_bytes=True) as bar:
        take_lock(file.fileno())  # another process may be fetching the same file
        if path.exists():
            part.unlink(missing_ok=True)
            return
        try:
            _download_missing_part(url, file, max_bytes, bool(sha256), bar)
            file.flush()
            os.fsync(file.fileno())
            if sha256 and (digest := sha256_hex(part, within=path.parent)) != sha256:
                raise FormatError(
                    f"{path.name}: {url} gave another file: expected SHA-256 {sha256}, found {digest}.", url=url
                )
            if check is not None:
                check(part)
            part.replace(path)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, PytrtpluginsError) or not sha256 or not file.tell():
                part.unlink(missing_ok=True)
            if isinstance(error, PytrtpluginsError):
                raise
            again = "run it again, which continues where it stopped; or " if part.exists() else ""
            raise DownloadError(
                f"{path.name}: cannot be fetched from {url} ({_cause(error)}).\n"
                "Causes: (1) this machine has no network, or needs a proxy (HTTPS_PROXY); (2) the server is down or the file moved.\n"
                f"Do: {again}download it on another machine, and put it at {path}",
                url=url,
                folder=path.parent,
            ) from error


def _download_missing_part(url: str, file: BinaryIO, max_bytes: int, in_parts: bool, bar: ProgressBar) -> None:
    """Download the missing part of a file; try again as long as each attempt receives some bytes."""
    import http.client
    import urllib.error

    for attempts_left in reversed(range(_ATTEMPTS)):
        if not in_parts:
            file.truncate(0)
        before = file.seek(0, os.SEEK_END)
        try:
            _append(url, file, max_bytes, bar)
            return
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and before:
                return  # all of it is here; its digest tells whether it is right
            raise
        except (OSError, http.client.HTTPException):
            if not (in_parts and attempts_left and file.tell() > before):
                raise


def _append(url: str, file: BinaryIO, max_bytes: int, bar: ProgressBar) -> None:
    import http.client
    import urllib.request

    start = file.tell()
    headers = {"User-Agent": f"pytrtplugins/{__version__}"} | ({"Range": f"bytes={start}-"} if start else {})
    with contextlib.closing(
        urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT_S)
    ) as answer:
        if url.startswith("https:") and not answer.url.startswith("https:"):
            raise FormatError(f"{url}: leads to {answer.url[:200]}, which is not encrypted.", url=url)
        if start and not (answer.headers.get("Content-Range") or "").startswith(f"bytes {start}-"):
            file.truncate(0)  # the server gives all of it
            start = 0
        length = answer.headers.get("Content-Length")
        total = start + int(length) if length else None
        if (total or 0) > max_bytes:
            raise FormatError(f"{url}: expected at most {max_bytes:,} bytes, the server has {total:,}.", url=url)
        bar.begin(total)
        bar(start)
        _copy(answer, file, max_bytes - start, bar, url)
    if total is not None and file.tell() != total:
        raise http.client.IncompleteRead(b"", total - file.tell())


def _copy(answer: Any, file: BinaryIO, most: int, bar: ProgressBar, url: str) -> None:
    while block := answer.read(_CHUNK_BYTES):
        most -= len(block)
        if most < 0:
            raise FormatError(f"{url}: longer than it may be.", url=url)
        file.write(block)
        bar(len(block))


def _cause(error: BaseException) -> str:
    import http.client
    import urllib.error

    if isinstance(error, urllib.error.HTTPError):
        return f"the server says {error.code} {error.reason}"
    if isinstance(error, http.client.IncompleteRead):
        return f"it broke off {error.expected:,} bytes before its end"
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return f"{type(error).__name__}: {error}"
