"""OpenVINO's cores, usable only in the process that first used one: their threads and locks do not survive a fork."""

from __future__ import annotations

import functools
from typing import Any

from ...errors import UnavailableError
from ...utils.forks import fork_count, keep_until_exit
from ...utils.optional import require

__all__ = ["compiling_core", "make_core"]

_first: int | None = None  # how many forks lay behind the process that made the first one


def make_core() -> Any:
    """Make a core of OpenVINO's, to read a model with extensions of its own.

    Raises:
        UnavailableError: a parent of this process has used OpenVINO.
    """
    return _openvino().Core()


def compiling_core() -> Any:
    """Return the core that compiles all models of this process, and is never freed.

    The last model of a core takes OpenVINO's CPU plugin with it, unless the core stays. The plugin's destructor frees the
    executors of models, while a thread that has run one of them and ends still writes to its executor (the destructor
    ``ThreadCleaner`` of its ``thread_local`` objects, in OpenVINO 2026.4): the heap is damaged. `threading.Thread.join` of
    Python 3.12 and older does not wait for these destructors. Executors that stay run the next models.

    Raises:
        MissingExtraError: OpenVINO is not installed.
        UnavailableError: a parent of this process has used OpenVINO.
    """
    return _kept_core(_openvino())


def _openvino() -> Any:
    global _first
    openvino = require("openvino", extra="cpu", feature="engine 'cpu'")
    _first = fork_count() if _first is None else _first
    if _first != fork_count():
        raise UnavailableError(
            "engine 'cpu': this process was forked from one that used OpenVINO, whose threads and locks do not survive that: "
            "it would wait for ever.\n"
            'Do: start the process by multiprocessing\'s "spawn", or build with engine="onnxruntime"'
        )
    return openvino


@functools.cache
def _kept_core(openvino: Any) -> Any:
    core = openvino.Core()
    keep_until_exit(core)
    return core
