"""The class tree that ``tree=`` names: one line per class, with its name and its parent's index."""

from __future__ import annotations

import os
import re
from pathlib import Path

from pytrtplugins.errors import FormatError
from pytrtplugins.utils.files import read_regular

from ..cfg import Section

__all__ = ["read_tree"]

_SHOWN = 300  # characters of a path in a message
_NUMBER = re.compile(r"-?[0-9]{1,9}")
MAX_FILE_BYTES = 16 << 20  # 9k.tree has 135 kB


def read_tree(section: Section, classes: int) -> tuple[int, ...]:
    """The parent of each class, -1 for a root; empty where the section names no tree (src/tree.c, read_tree).

    A path that is not absolute is looked for beside the cfg, in the folder above it, and in the working directory,
    which is where darknet looks.

    Raises:
        CfgError: the file is missing, is not a tree, or has another number of classes.
    """
    option = section.option("tree")
    if option is None:
        return ()
    folder = Path(section.path).parent
    candidates = [folder / option.value, folder.parent / option.value, Path(option.value)]
    path = next((place for place in candidates if os.path.isfile(place)), None)
    if path is None:
        section.fail(
            f"tree={option.value[:_SHOWN]}: there is no such file",
            option.line,
            "put it beside the .cfg, or write its whole path",
        )
    try:
        data = read_regular(path, MAX_FILE_BYTES)
    except (OSError, FormatError) as error:
        section.fail(
            f"tree={option.value[:_SHOWN]} cannot be read: {getattr(error, 'strerror', None) or error}", option.line
        )
    lines = data.decode("utf-8", errors="replace").splitlines()
    parents: list[int] = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        text = words[1] if len(words) > 1 else "-1"
        if not words or not _NUMBER.fullmatch(text) or not -1 <= int(text) < len(parents):
            section.fail(
                f"tree={option.value}: line {number} is {line[:40]!r}, expected a name and the number of its parent, -1 or"
                f" below {len(parents)}",
                option.line,
            )
        parents.append(int(text))
    if len(parents) != classes or parents[0] != -1:
        section.fail(f"tree={option.value} has {len(parents):,} classes, the layer {classes:,}", option.line)
    return tuple(parents)
