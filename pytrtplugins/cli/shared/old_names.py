"""Old names of options: they work, are not in ``--help``, and print a warning with the new name."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["accept_old_names", "old_names", "warn"]

log = logging.getLogger(__name__)

_LAST = "0.2"  # the version behind it removes them: docs/reference/releases.md
_RENAMED = (
    ("calibration", "calibration-size", "precision search"),
    ("images", "evaluation-size", "precision search"),
    ("limit", "samples", "compare, precision search"),
    ("mode", "fit", "compare, evaluate, precision search, run, table"),
    ("mode", "calibration-fit", "build, calibrate, convert, equalize, quantize"),
    ("plugin", "plugin-form", "bench, build, calibrate, export-triton, precision search, profile, run, table"),
    ("precision-a", "precision", "compare"),
    ("algorithms", "algorithm", "table"),
    ("batches", "batch", "table"),
    ("engines", "engine", "table"),
    ("images", "image-root", "table"),
    ("precisions", "precision", "table"),
    ("samples", "calibration-size", "table"),
    ("shapes", "shape", "check-plugin"),
    ("host", "cpu-kernels", "export-plugin"),
    ("kind", "instance-kind", "export-triton"),
    ("workers", "cpu", "serve"),
    ("model", "allow-model", "serve-key"),
    ("limit", "fail-above", "data compare"),
    ("photos", "samples", "data compare"),
    ("data", "dataset", "models add"),
    ("run", "pipeline-run", "models add"),
    ("to", "stage", "models add, models promote"),
    ("html", "output", "models show"),
    ("folder", "workdir", "pipeline export"),
    ("force", "rerun", "pipeline run"),
    ("set", "parameter", "pipeline check, pipeline export, pipeline run, pipeline show"),
    ("classes", "names", "shards make"),
    ("decode", "full", "shards check"),
    ("size", "shard-size", "shards make"),
    ("workers", "threads", "shards check, shards make"),
)


@functools.cache
def old_names(command: str) -> Mapping[str, str]:
    """The old names of a command's options, such as ``precision search``, and the new ones, without dashes."""
    return {old: new for old, new, commands in _RENAMED if command in commands.split(", ")}


def warn(command: str, old: str, new: str) -> None:
    """Say that an option has another name now."""
    log.warning("pytrt %s: --%s is called --%s now; the old name works up to version %s", command, old, new, _LAST)


def accept_old_names(command: Any, words: str) -> None:
    """Let a click command accept the old names of its options."""
    names = old_names(words)
    if names:
        command.parse_args = functools.partial(_parse, command.parse_args, words, names)


def _parse(parse: Any, command: str, names: Mapping[str, str], context: Any, words: Sequence[str]) -> Any:
    renamed, seen = list(words), {}
    for place, word in enumerate(words[: words.index("--") if "--" in words else len(words)]):
        option, equals, value = word.partition("=")
        if option.startswith("--") and (old := option[2:]) in names:
            renamed[place] = f"--{names[old]}{equals}{value}"
            seen[old] = names[old]
    result = parse(context, renamed)
    for old, new in seen.items():  # behind the options, of which one may ask for quiet
        warn(command, old, new)
    return result
