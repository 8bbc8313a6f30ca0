"""Write the files of an export, all or none."""

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
    with tempfile.TemporaryDirectory(prefix=".export-", dir=_nearest_existing(folder)) as staged:
        contents = KINDS[kind](deployment)
        for path, source in contents.items():
            place = Path(staged, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(source, Path):
                shutil.copyfile(source, place)
            elif isinstance(source, str):
                place.write_text(source, "utf-8")
            else:
                source(place)
        written_paths = sorted(
            path_below.relative_to(staged) for path_below in Path(staged).rglob("*") if path_below.is_file()
        )
        existing = [path_below for path_below in written_paths if (folder / path_below).exists()]
        if existing and not force:
            raise UsageError(
                f"{folder / existing[0]} is there already{f', and {len(existing) - 1} others' if len(existing) > 1 else ''}.\n"
                "Do: name another folder, or --force to replace them"
            )
        if folders := [folder / path_below for path_below in written_paths if (folder / path_below).is_dir()]:
            raise UsageError(
                f"{folders[0]}: expected a file to write, found a folder.\nDo: name another folder, or rm -r {folders[0]}"
            )
        for path_below in written_paths:
            (folder / path_below).parent.mkdir(parents=True, exist_ok=True)
        for path_below in written_paths:
            os.replace(Path(staged, path_below), folder / path_below)
    return tuple(folder / path_below for path_below in written_paths)


def _nearest_existing(folder: Path) -> Path:
    """The nearest existing folder at or above a path, which is on the same file system."""
    return next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.is_dir())
