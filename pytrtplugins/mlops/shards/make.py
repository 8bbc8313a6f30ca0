"""Make a set of shards of photos and labels; continues after an interruption."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import FormatError, NoDataError, UsageError
from ...utils.atomic import remove_abandoned
from ...utils.file_set import FileSet
from ...utils.files import locked_folder, regular_size
from ...utils.inside import holder
from ...utils.journal import Journal
from ...utils.name_list import read_class_names, read_name_list
from ...utils.numbers import check_int, check_share
from ...utils.prefetch import threads_for_files
from ...utils.progress import progress_bar
from ...vision.labels import Annotations, Problem, read_labels
from ...vision.labels.annotations import PHOTO_SUFFIXES
from ...vision.labels.photo import check_exif
from .job import BadPhotosError, ShardJob, write_shard
from .manifest import NAME, Manifest, ShardFacts
from .plan import PlannedShard, held_back, plan_photos, plan_shards

__all__ = ["MAX_WORKERS", "SHARD_BYTES", "SIDES", "TURNED", "Made", "MadeSet", "make_shards"]

SHARD_BYTES = (1 << 20, 1 << 36)
"""The smallest and the largest size of a shard."""
SIDES = (16, 16_384)
"""The smallest and the largest side of a photo, in pixels, that can be asked for."""
TURNED = "photos that EXIF says are not upright"
"""A key of `Made.changed`."""
MAX_WORKERS = 256
"""Threads."""
_JOURNAL = ".making.json"
_OURS = re.compile(r"shard-\d{5}\.(tar|index\.npz)")
_MAX_LIST_BYTES = 256 << 20
_SHOWN = 10  # problems in a message
_ALL = "all"  # the list that names every photo
_TRAINING, _OTHERS = "train", ("val", "valid", "validation", "test")  # parts of a set, by the names of their lists
_LIST_FOLDERS = ("", "ImageSets/Main/")  # VOC has its lists in the second


@dataclass(frozen=True)
class MadeSet:
    """One finished set of shards.

    Attributes:
        folder: Where it lies.
        photos: How many it holds.
        boxes: Of all of them.
        shards: How many tars.
        kept: How many of them an interrupted run had finished.
        bytes: Of all tars.
        digest: Of the set.
    """

    folder: str
    photos: int
    boxes: int
    shards: int
    kept: int
    bytes: int
    digest: str


@dataclass(frozen=True)
class Made:
    """The result of `make_shards`.

    Attributes:
        labels: Format of the labels.
        classes: Names, in the order of their numbers.
        sets: One; or the one for training and the one that is held back.
        changed: How many boxes were cut or left out, and other things of which there is a number, by what they are.
        skipped: Photos that cannot be used, with the reasons.
    """

    labels: str
    classes: tuple[str, ...]
    sets: tuple[MadeSet, ...]
    changed: dict[str, int]
    skipped: tuple[Problem, ...]


def make_shards(
    source: str | Path | Iterable[str | Path],
    output: str | Path,
    *,
    labels: str = "auto",
    classes: str | Path | Sequence[str] | None = None,
    drop_others: bool = False,
    listed: str | Path | Sequence[str] | None = None,
    size: int = 256 << 20,
    longest_side: int | None = None,
    hold_back: float = 0.0,
    exif: str | None = None,
    strict: bool = False,
    skip_bad: bool = False,
    force: bool = False,
    workers: int | None = None,
    progress: bool = True,
) -> Made:
    """Make shards of photos and their labels. The same command continues after any interruption.

    Args:
        source: A folder, an uncompressed tar, or a data.yaml, which names folders; or several that together make one set.
        output: Folder of the set; with ``hold_back`` of two sets, ``train`` and ``held-back``.
        labels: Format of the labels: one of `FORMATS`; ``auto``: what the files show.
        classes: Names of the classes in the order of their numbers, or a file with one a line. None: as the labels have them.
        drop_others: Leave out boxes of classes that are not among ``classes``, which are refused otherwise.
        listed: The photos to take, by files or stems, or a file of the set or of the disk with one a line, or a part that
            a data.yaml has, such as ``train``; ``all``: every photo. None: every photo, unless a list of the set, such as
            val.txt, keeps some for measurements.
        size: Bytes of a shard, about.
        longest_side: Make larger photos smaller, and turn those upright that EXIF says are not, as JPEG. None: photos stay as they are.
        hold_back: Share of the photos for a second set, 0 to 1, chosen by a hash of their names.
        exif: What the labels are drawn on: the photo as it is ``shown``, turned as EXIF says; or its pixels as they are ``stored``. None:
            the sizes in the labels say it; photos that EXIF turns are refused where they do not. The boxes in shards are those of the
            photo as it is shown.
        strict: Refuse boxes that extend beyond their photo; otherwise they are cut.
        skip_bad: Leave out photos that cannot be used, which are refused otherwise.
        force: Replace a set that is finished.
        workers: Threads; None: as many as the process has processors.
        progress: Show a progress bar where standard error is a terminal.

    Raises:
        NoDataError: a path does not exist, or there are no photos or labels.
        FormatError: photos or labels cannot be used; ``.problems`` lists them.
        UsageError: an argument is wrong, ``output`` holds a finished set, the disk is full, or a list of the set, such as val.txt,
            keeps some photos for measurements, and no list was chosen.
        OSError: the folder cannot be written.
    """
    check_int("size", size, *SHARD_BYTES)
    check_share("hold_back", hold_back)
    if longest_side is not None:
        check_int("longest_side", longest_side, *SIDES)
    threads = threads_for_files() if workers is None else check_int("workers", workers, 1, MAX_WORKERS)
    files, output = FileSet(source), Path(output)
    names = None if classes is None else read_class_names(classes)
    annotations = read_labels(
        files,
        labels=labels,
        classes=names,
        drop_others=drop_others,
        listed=_selection(files, listed),
        exif=check_exif(exif),
    )
    if listed is None:
        _check_undivided(files, annotations, names)
    photos, problems, changed = plan_photos(files, annotations.photos)
    problems = [*annotations.problems, *problems]
    _refuse(problems, skip_bad)
    _check_changed(changed, strict)
    if not photos:
        raise NoDataError(
            f"data {files.name!r}: no photo with {annotations.format} labels.\nDo: look at docs/how-to/shards.md",
            path=files.name,
        )
    parts = {output: photos}
    if hold_back:
        parts = {output / "train": [], output / "held-back": []}
        for photo in photos:
            parts[output / ("held-back" if held_back(photo.key, hold_back) else "train")].append(photo)
    output.mkdir(parents=True, exist_ok=True)
    for folder in parts:
        with holder(folder / NAME, output, error=UsageError, make=True):  # it is made, and no link
            _check_free(folder, force)
    total = changed + annotations.left_out
    facts = {
        "labels": annotations.format,
        "longest_side": longest_side,
        "exif": exif,
        "changed": dict(sorted(total.items())),
    }
    sets, skipped = [], list(problems)
    for folder, part in parts.items():
        job = ShardJob(files, folder, annotations.classes, longest_side, skip_bad, exif)
        made_set, late, turned = _make_set(job, plan_shards(files, part, size), facts, problems, threads, progress)
        sets.append(made_set)
        skipped += late
        total += turned
    return Made(annotations.format, annotations.classes, tuple(sets), dict(total), tuple(skipped))


def _make_set(
    job: ShardJob,
    shards: list[PlannedShard],
    facts: dict[str, Any],
    known_problems: list[Problem],
    threads: int,
    progress: bool,
) -> tuple[MadeSet, list[Problem], Counter[str]]:
    with _alone(job.folder):
        (job.folder / NAME).unlink(missing_ok=True)  # it is no set until it is whole
        journal = Journal(job.folder / _JOURNAL, job.identity)
        finished = {shard.file for shard in shards if _is_done(job, shard, journal)}
        _check_space(job, [shard for shard in shards if shard.file not in finished])
        _write_shards(job, [shard for shard in shards if shard.file not in finished], journal, threads, progress)
        results = [journal.get(_entry(shard), _never) for shard in shards]
        late = [Problem(**problem) for result in results for problem in result["problems"]]
        turned = Counter({TURNED: sum(result["turned"] for result in results)})
        skipped = [f"{problem.file}: {problem.what}" for problem in (*known_problems, *late)]
        manifest = Manifest(
            job.classes,
            tuple(ShardFacts(**result["shard"]) for result in results),
            {**facts, "changed": {**facts["changed"], **turned}, "skipped": skipped},
        )
        _clear(job.folder, manifest)
        manifest.write(job.folder)
        journal.close()
    counts = [sum(getattr(shard, name) for shard in manifest.shards) for name in ("photos", "boxes", "bytes")]
    made_set = MadeSet(str(job.folder), counts[0], counts[1], len(shards), len(finished), counts[2], manifest.digest)
    return made_set, late, turned


def _write_shards(job: ShardJob, shards: list[PlannedShard], journal: Journal, threads: int, progress: bool) -> None:
    """Write the shards with several threads; what is finished is kept in the journal at once."""
    stop, lock, problems = threading.Event(), threading.Lock(), list[Problem]()

    def write(shard: PlannedShard) -> list[Problem]:
        """Write one; gives what keeps it from being written."""
        try:
            result = write_shard(job, shard, stop, bar)
        except BadPhotosError as bad:
            return bad.problems
        with lock:
            journal.get(_entry(shard), lambda: result)
        return []

    with progress_bar("shards", sum(len(shard.photos) for shard in shards), progress) as bar:
        pool = ThreadPoolExecutor(threads, thread_name_prefix="pytrtplugins-shards")
        try:
            for future in as_completed([pool.submit(write, shard) for shard in shards]):
                problems += future.result()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise UsageError(
                f"{job.folder}: the disk is full ({error.strerror}); {len(journal):,} shards are finished, and stay.\n"
                "Do: make room, and run the same command again, which continues from there",
                path=job.folder,
            ) from error
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
    _refuse(sorted(problems, key=str), skip_bad=False)


def _selection(files: FileSet, listed: str | Path | Sequence[str] | None) -> str | Sequence[str] | None:
    """A list of the set, or a part of a data.yaml, by its name; else the names in a file on disk."""
    if not isinstance(listed, (str, Path)):
        return listed
    name = str(listed)
    if name == _ALL:
        return None
    if name in files or (files.description is not None and files.description.part(name)):
        return name
    return read_name_list(listed, max_bytes=_MAX_LIST_BYTES)


def _check_undivided(files: FileSet, labelled: Annotations, classes: Sequence[str] | None) -> None:
    """Refuse a set with a list such as val.txt that reserves photos for measurement: they would be trained on, too."""
    parts = () if files.description is None else tuple(files.description.parts)
    choices = [parts, *([f"{folder}{part}.txt" for part in (_TRAINING, *_OTHERS)] for folder in _LIST_FOLDERS)]
    for training, *others in filter(None, choices):
        for name in (other for other in others if other in parts or (other in files and not _is_label(other, files))):
            selection = name if name in parts else files.lines(name, _MAX_LIST_BYTES)
            listed_photos = read_labels(
                files, labels=labelled.format, classes=classes, drop_others=True, listed=selection
            ).photos
            if 0 < len(listed_photos) < len(labelled.photos):
                choice = training if training in files or training in parts else name
                raise UsageError(
                    f"data {files.name!r}: {name} names {len(listed_photos):,} of the {len(labelled.photos):,} photos; "
                    "without a list they would be in one set with the others.\n"
                    f"Do: add --list {choice} for what it names, or --list {_ALL} for every photo",
                    path=files.name,
                    listed=name,
                )


def _is_label(name: str, files: FileSet) -> bool:
    """Whether a text belongs to a photo of the same name, as darknet's labels do."""
    return any(name.removesuffix(".txt") + suffix in files for suffix in PHOTO_SUFFIXES)


def _refuse(problems: list[Problem], skip_bad: bool) -> None:
    if not problems or skip_bad:
        return
    lines = [f"  {str(problem)[:300]}" for problem in problems[:_SHOWN]]
    more = [f"  and {len(problems) - _SHOWN:,} more"] if len(problems) > _SHOWN else []
    raise FormatError(
        "\n".join([f"{len(problems):,} photos or labels cannot be used:", *lines, *more])
        + "\nDo: correct them, and run the same command again; --skip-bad leaves them out",
        problems=tuple(problems),
    )


def _check_changed(changed: Mapping[str, int], strict: bool) -> None:
    wrong = {what: count for what, count in changed.items() if count}
    if strict and wrong:
        listed = ", ".join(f"{count:,} {what}" for what, count in wrong.items())
        raise FormatError(
            f"boxes that are not within their photos: {listed}.\nDo: correct the labels; without --strict they are cut",
            changed=wrong,
        )


def _check_free(folder: Path, force: bool) -> None:
    if os.path.lexists(folder / NAME) and not force:
        raise UsageError(
            f"{folder}: holds a finished set of shards.\nDo: give another folder with -o; --force replaces the set",
            path=folder,
        )


def _check_space(job: ShardJob, shards: list[PlannedShard]) -> None:
    """Refuse at once what the disk cannot hold."""
    if job.longest_side is not None:
        return
    needed = sum(job.files.state(photo.file)[0] + 1024 for shard in shards for photo in shard.photos)
    free = shutil.disk_usage(job.folder).free
    if needed > free:
        raise UsageError(
            f"{job.folder}: the shards take {needed:,} bytes, the disk has {free:,} left.\n"
            "Do: give a folder on another disk with -o, or --longest-side",
            path=job.folder,
            needed=needed,
        )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Refuse a second process that writes the same set."""
    with locked_folder(folder, wait=False) as is_held:
        if not is_held:
            raise UsageError(
                f"{folder}: another process writes this set.\nDo: wait for it, or give another folder with -o",
                path=folder,
            )
        yield


def _is_done(job: ShardJob, shard: PlannedShard, journal: Journal) -> bool:
    """Whether an interrupted run finished a shard with the same photos and labels, and its file exists."""
    if _entry(shard) not in journal:
        return False
    result = journal.get(_entry(shard), _never)
    facts = ShardFacts(**{**result["shard"], "file": shard.file})
    try:
        regular_size(job.folder / facts.index, within=job.folder)
        is_complete = regular_size(job.folder / facts.file, within=job.folder) == facts.bytes
    except FileNotFoundError:
        is_complete = False
    if result["problems"] and not job.skip_bad:
        is_complete = False
    if not is_complete:
        journal.forget(_entry(shard))
    return is_complete


def _entry(shard: PlannedShard) -> str:
    return f"{shard.file} {shard.digest}"


def _never() -> Any:
    raise AssertionError("the journal has it")


def _clear(folder: Path, manifest: Manifest) -> None:
    """Remove shards of an earlier plan, and files of killed writers."""
    listed = {name for shard in manifest.shards for name in (shard.file, shard.index)}
    for path in folder.iterdir():
        if _OURS.fullmatch(path.name) and path.name not in listed:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
    remove_abandoned(folder)
