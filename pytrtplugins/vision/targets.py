"""Choose and check the output files of annotated images and videos before anything is computed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from ..errors import UsageError
from ..utils.atomic import check_target
from .finding import Source
from .image import SUFFIXES
from .video import CODECS, check_video_path

__all__ = ["free_name", "plan_targets"]


def plan_targets(output: str | Path, sources: Sequence[Source]) -> list[Path]:
    """Return the output file of each source.

    Args:
        output: A file, whose suffix says what is written, for one source; of several, each goes to ``STEM-ITS_NAME.SUFFIX``.
            Or a folder (a path without a suffix, or one that exists), which is made: each source keeps its name there, images
            that cannot be written in their own format become .png, videos .mp4.
        sources: What is looked at.

    Raises:
        UsageError: the suffix is unknown, or that of an image for a video or the other way; the folder does not exist or is
            no folder; a source would be overwritten.
    """
    output = Path(output)
    if output.suffix and not output.is_dir():
        targets = _file_targets(check_target(output, "output", (*SUFFIXES, *CODECS)), sources)
    else:
        targets = _folder_targets(output, sources)
    source_files = {source.address.resolve() for source in sources if isinstance(source.address, Path)}
    for target in targets:
        if target.resolve() in source_files:
            raise UsageError(
                f"output {str(target)!r}: the image itself would be overwritten.\nDo: --output another folder or name",
                path=target,
            )
        if target.suffix.lower() in CODECS:
            check_video_path(target)
    return targets


def free_name(path: Path, taken: Collection[Path]) -> Path:
    """Return the path, with a number after its stem if it is taken."""
    return next(name for name in _numbered_paths(path) if name not in taken)


def _numbered_paths(path: Path) -> Iterator[Path]:
    yield path
    number = 2
    while True:
        yield path.with_name(f"{path.stem}-{number}{path.suffix}")
        number += 1


def _file_targets(output: Path, sources: Sequence[Source]) -> list[Path]:
    is_video = output.suffix.lower() in CODECS
    for source in sources:
        if (source.kind == "image") == is_video:
            kind_text, suffix_example = ("an image", ".png") if is_video else ("a video", ".mp4")
            raise UsageError(
                f"output {str(output)!r}: {source.name} is {kind_text}, which cannot be written to a file {output.suffix}.\n"
                f"Do: --output {output.with_suffix(suffix_example).name}, or a folder, "
                f"--output {output.stem}/, for images and videos together",
                path=output,
            )
    if len(sources) == 1:
        return [output]
    targets: dict[Path, None] = {}
    for source in sources:
        targets[free_name(output.with_name(f"{output.stem}-{source.stem}{output.suffix}"), targets)] = None
    return list(targets)


def _folder_targets(folder: Path, sources: Sequence[Source]) -> list[Path]:
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"output {str(folder)!r}: expected a folder, or a file with a suffix.", path=folder)
    folder.mkdir(parents=True, exist_ok=True)
    targets: dict[Path, None] = {}
    for source in sources:
        suffixes, default_suffix = (SUFFIXES, ".png") if source.kind == "image" else (CODECS, ".mp4")
        suffix = source.suffix if source.suffix in suffixes else default_suffix
        targets[free_name(folder / f"{source.stem}{suffix}", targets)] = None
    return list(targets)
