"""The files of an export, written whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from ...errors import UsageError
from . import compose, kserve, kubernetes, ray, triton
from .content import Files
from .deployment import Deployment

__all__ = ["KINDS", "export"]

KINDS: Mapping[str, Callable[[Deployment], Files]] = {
    "ray": ray.files,
    "kserve": kserve.files,
    "triton": triton.files,
    "k8s": kubernetes.files,
    "compose": compose.files,
}
"""What can be exported: a name, and what makes its files."""


def export(kind: str, deployment: Deployment, folder: str | Path, *, force: bool = False) -> tuple[Path, ...]:
    """Write the files of a deployment, all of them or none.

    Args:
        kind: One of `KINDS`.
        deployment: What is deployed.
        folder: Where; it is made if need be.
        force: Whether files that are there may be replaced.

    Returns:
        The files, in their order.

    Raises:
        UsageError: the kind is unknown, the deployment cannot be had there, or files are there already.
        PytrtpluginsError: a model cannot be read.
    """
    if kind not in KINDS:
        raise UsageError(f"kind: expected {', '.join(KINDS)}; found {kind[:40]!r}")
    folder = Path(folder)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=_nearest(folder)) as staged:
        made = KINDS[kind](deployment)
        for path, source in made.items():
            place = Path(staged, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(source, Path):
                shutil.copyfile(source, place)
            elif isinstance(source, str):
                place.write_text(source, "utf-8")
            else:
                source(place)
        found = sorted(each.relative_to(staged) for each in Path(staged).rglob("*") if each.is_file())
        there = [each for each in found if (folder / each).exists()]
        if there and not force:
            raise UsageError(
                f"{folder / there[0]} is there already{f', and {len(there) - 1} others' if len(there) > 1 else ''}.\n"
                "Do: name another folder, or --force to replace them"
            )
        if folders := [folder / each for each in found if (folder / each).is_dir()]:
            raise UsageError(
                f"{folders[0]}: expected a file to write, found a folder.\nDo: name another folder, or rm -r {folders[0]}"
            )
        for each in found:
            (folder / each).parent.mkdir(parents=True, exist_ok=True)
        for each in found:
            os.replace(Path(staged, each), folder / each)
    return tuple(folder / each for each in found)


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest above it that is there: on the same file system."""
    return next(each for each in (folder.absolute(), *folder.absolute().parents) if each.is_dir())
