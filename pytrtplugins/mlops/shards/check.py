"""Check a set of shards: checksums, indexes, photos and boxes; and restore lost indexes."""

from __future__ import annotations

import math
import os
import zlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ...errors import FormatError, ImageError
from ...utils.file_set import tar_members
from ...utils.files import open_regular, regular_size, sha256_hex
from ...utils.numbers import check_int
from ...utils.prefetch import threads_for_files
from ...utils.progress import progress_bar
from ...utils.text_formats import parse_json, shorten
from ...vision.image import MAX_FILE_BYTES, decode_image
from ...vision.labels import Problem
from ...vision.labels.photo import SUFFIXES, read_header
from .index import Index
from .make import MAX_WORKERS
from .manifest import Manifest, ShardFacts
from .writer import make_index

__all__ = ["CheckedShards", "ClassCount", "check_shards"]

_MAX_LABEL_BYTES = 16 << 20
_TOLERANCE = 1e-5  # of shares in float32
_ARRAYS = ("photos", "checksums", "boxes", "box_ends")


@dataclass(frozen=True)
class ClassCount:
    """How often a class occurs.

    Attributes:
        name: Of the class.
        boxes: How many there are.
        photos: With one or more of them.
    """

    name: str
    boxes: int
    photos: int


@dataclass(frozen=True)
class CheckedShards:
    """Contents and problems of a set of shards.

    Attributes:
        folder: Of the set.
        digest: Of the set.
        shards: How many tars.
        photos: How many.
        boxes: Of all of them.
        bytes: Of all tars.
        classes: One row each.
        unlabelled: Photos without a box.
        identical: Photos whose bytes are those of an earlier one.
        turned: Photos that EXIF says are not upright.
        problems: What is wrong, with the file.
        repaired: Indexes that were made anew.
    """

    folder: str
    digest: str
    shards: int
    photos: int
    boxes: int
    bytes: int
    classes: tuple[ClassCount, ...]
    unlabelled: int
    identical: int
    turned: int
    problems: tuple[Problem, ...]
    repaired: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


@dataclass
class _ShardResult:
    """Contents and problems of one shard."""

    photos: int = 0
    turned: int = 0
    contents: list[tuple[int, int]] = field(default_factory=list)  # checksum and size of each photo
    rows: list[npt.NDArray[np.float32]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    repaired: bool = False


def check_shards(
    folder: str | Path,
    *,
    repair: bool = False,
    decode: bool = False,
    workers: int | None = None,
    progress: bool = True,
) -> CheckedShards:
    """Check everything in a set of shards.

    Args:
        folder: Of the set.
        repair: Make indexes that are missing or wrong anew, where their tar is whole.
        decode: Decode every photo as a whole; without it its head is read.
        workers: Threads; None: as many as the process has processors.
        progress: Show a progress bar where standard error is a terminal.

    Raises:
        NoDataError: the folder is no set of shards.
        FormatError: the manifest is damaged.
    """
    folder = Path(folder)
    threads = threads_for_files() if workers is None else check_int("workers", workers, 1, MAX_WORKERS)
    manifest = Manifest.read(folder)
    with progress_bar("check", sum(shard.photos for shard in manifest.shards), progress) as bar:

        def check(shard: ShardFacts) -> _ShardResult:
            return _check_shard(folder, shard, manifest.classes, repair, decode, bar)

        with ThreadPoolExecutor(threads) as pool:
            results = list(pool.map(check, manifest.shards))
    listed = {facts.file for facts in manifest.shards}
    strange = sorted(path.name for path in folder.glob("*.tar") if path.name not in listed)
    strangers = [Problem(name, "a tar that the manifest does not name") for name in strange]
    return _summary(folder, manifest, results, strangers)


def _summary(folder: Path, manifest: Manifest, results: list[_ShardResult], strangers: list[Problem]) -> CheckedShards:
    rows = [boxes for result in results for boxes in result.rows]
    boxes, photos = Counter[int](), Counter[int]()
    for result in rows:
        numbers = result[:, 0].astype(int).tolist()
        boxes.update(numbers)
        photos.update(set(numbers))
    contents = Counter(content for result in results for content in result.contents)
    return CheckedShards(
        folder=str(folder),
        digest=manifest.digest,
        shards=len(manifest.shards),
        photos=sum(result.photos for result in results),
        boxes=sum(map(len, rows)),
        bytes=sum(shard.bytes for shard in manifest.shards),
        classes=tuple(ClassCount(name, boxes[number], photos[number]) for number, name in enumerate(manifest.classes)),
        unlabelled=sum(not len(result) for result in rows),
        identical=sum(count - 1 for count in contents.values()),
        turned=sum(result.turned for result in results),
        problems=(*(problem for result in results for problem in result.problems), *strangers),
        repaired=tuple(shard.index for shard, result in zip(manifest.shards, results, strict=True) if result.repaired),
    )


def _check_shard(
    folder: Path, shard: ShardFacts, classes: tuple[str, ...], repair: bool, decode: bool, bar: Callable[[], object]
) -> _ShardResult:
    """Compare a tar with the manifest, look at its photos, and compare its index with it."""
    result, path = _ShardResult(), folder / shard.file
    try:
        size = regular_size(path, within=folder)
        digest = sha256_hex(path, within=folder) if size == shard.bytes else ""
        if size != shard.bytes:
            result.problems.append(
                Problem(shard.file, f"expected {shard.bytes:,} bytes, found {size:,}: copy it again")
            )
        elif digest != shard.sha256:
            what = f"expected SHA-256 {shard.sha256[:16]}..., found {digest[:16]}...: copy it again"
            result.problems.append(Problem(shard.file, what))
        index = _scan(path, size, classes, decode, result, bar)
    except FileNotFoundError:
        result.problems.append(Problem(shard.file, "the shard is missing: copy it again"))
        return result
    except (FormatError, OSError) as error:
        result.problems.append(Problem(shard.file, str(error).partition("\n")[0]))
        return result
    _check_index(folder / shard.index, index, len(classes), repair and not result.problems, result)
    return result


def _check_index(path: Path, index: Index, classes: int, repair: bool, result: _ShardResult) -> None:
    """Compare an index with its tar; rewrite it if it differs and ``repair`` is on."""
    try:
        stored = Index.read(path, classes, index.tar_bytes)
        same = (stored.tar_bytes, stored.keys) == (index.tar_bytes, index.keys) and all(
            np.array_equal(getattr(stored, name), getattr(index, name)) for name in _ARRAYS
        )
        what = "" if same else "the index differs from the tar"
    except FileNotFoundError:
        what = "the index is missing"
    except (FormatError, OSError) as error:
        what = str(error).partition("\n")[0].removeprefix(f"{path}: ")
    if what and repair:
        index.write(path)
        result.repaired = True
    elif what:
        result.problems.append(Problem(path.name, f"{what}: --repair makes it from the tar, where that is whole"))


def _scan(
    path: Path, size: int, classes: tuple[str, ...], decode: bool, result: _ShardResult, bar: Callable[[], object]
) -> Index:
    """The index of a tar, made from the tar alone."""
    photos, checksums, keys = list[tuple[int, int]](), list[int](), list[str]()
    images: dict[str, tuple[str, int, int]] = {}
    with open_regular(path, within=path.parent) as file:
        for name, offset, length in tar_members(path, within=path.parent):
            folder, _, last = name.rpartition("/")
            stem, _, suffix = last.partition(".")
            key = f"{folder}/{stem}" if folder else stem
            if suffix in SUFFIXES.values():
                images[key] = (name, offset, length)
                continue
            if suffix != "json" or key not in images:
                raise FormatError(f"{name[:200]!r} does not belong to a photo before it")
            image, start, count = images.pop(key)
            data = _read(file, start, count, MAX_FILE_BYTES)
            rows = _boxes(_read(file, offset, length, _MAX_LABEL_BYTES), name, classes, result)
            _look_at(data, image, decode, result)
            keys.append(key)
            photos.append((start, count))
            checksums.append(zlib.crc32(data))
            result.rows.append(rows)
            result.photos += 1
            bar()
    if images:
        raise FormatError(f"{shorten(next(iter(images)))} has no labels beside it")
    result.contents = [(checksum, length) for checksum, (_, length) in zip(checksums, photos, strict=True)]
    return make_index(size, photos, checksums, keys, result.rows)


def _read(file: BinaryIO, offset: int, size: int, max_bytes: int) -> bytes:
    if size > max_bytes:
        raise FormatError(f"a file of {size:,} bytes; expected at most {max_bytes:,}")
    data = os.pread(file.fileno(), size, offset)
    if len(data) < size:
        raise FormatError(f"the tar ends within a file of {size:,} bytes at {offset:,}")
    return data


def _look_at(data: bytes, name: str, decode: bool, result: _ShardResult) -> None:
    """Read the head of a photo, or decode all of it."""
    try:
        photo = read_header(data, name)
        result.turned += photo.turned
        if SUFFIXES.get(photo.format) != name.rpartition(".")[2]:
            result.problems.append(Problem(name, f"its suffix is that of another format than {photo.format}"))
        if decode:
            decode_image(data, name)
    except ImageError as error:
        result.problems.append(Problem(name, str(error).partition("\n")[0].removeprefix(f"photo {name}: ")))


def _boxes(data: bytes, name: str, classes: tuple[str, ...], result: _ShardResult) -> npt.NDArray[np.float32]:
    """Boxes of a photo's .json; if it is unusable, none, and a problem."""
    try:
        facts = parse_json(data, name)
    except FormatError as error:
        result.problems.append(Problem(name, str(error).removeprefix(f"{name}: ")))
        return np.zeros((0, 5), np.float32)
    rows = facts.get("boxes") if isinstance(facts, dict) else None
    names = facts.get("names") if isinstance(facts, dict) else None
    if (
        not isinstance(rows, list)
        or not isinstance(names, list)
        or len(rows) != len(names)
        or not all(map(_is_row, rows))
    ):
        result.problems.append(Problem(name, "expected boxes as lists of 5 numbers, and a name for each"))
        return np.zeros((0, 5), np.float32)
    boxes = np.array(rows, np.float32).reshape(-1, 5)
    for row, label in zip(boxes.tolist(), names, strict=True):
        class_name = classes[int(row[0])] if row[0] in range(len(classes)) else None
        corners = [row[1] - row[3] / 2, row[2] - row[4] / 2, row[1] + row[3] / 2, row[2] + row[4] / 2]
        if class_name is None or class_name != label:
            result.problems.append(Problem(name, f"the class {row[0]:g}, {shorten(label)}, is not one of the set"))
            return np.zeros((0, 5), np.float32)
        if min(row[3:]) <= 0 or min(corners) < -_TOLERANCE or max(corners) > 1 + _TOLERANCE:
            result.problems.append(Problem(name, f"a box without an area, or outside the photo: {shorten(row[1:])}"))
    return boxes


def _is_row(row: Any) -> bool:
    return (
        isinstance(row, list)
        and len(row) == 5
        and all(type(value) in (int, float) and math.isfinite(value) for value in row)
    )
