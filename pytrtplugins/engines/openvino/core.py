"""OpenVINO's core, usable only in the process that first used it: its threads and locks do not survive a fork."""

from __future__ import annotations

from typing import Any

from ...errors import UnavailableError
from ...utils.forks import fork_count
from ...utils.optional import require

__all__ = ["make_core"]

_first: int | None = None  # how many forks lay behind the process that made the first one


def make_core() -> Any:
    """Make a core of OpenVINO's.

    Raises:
        UnavailableError: a parent of this process has used OpenVINO.
    """
    global _first
    openvino = require("openvino", extra="cpu", feature="engine 'cpu'")
    _first = fork_count() if _first is None else _first
    if _first != fork_count():
        raise UnavailableError(
            "engine 'cpu': this process was forked from one that used OpenVINO, whose threads and locks do not survive that: "
            "it would wait for ever.\n"
            'Do: start the process by multiprocessing\'s "spawn", or build with engine="onnxruntime"'
        )
    return openvino.Core()
