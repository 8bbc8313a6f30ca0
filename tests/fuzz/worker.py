"""Fuzz one target in a process of its own: with atheris, which follows the code's branches, or with damages drawn at random."""

from __future__ import annotations

import logging
import os
import random
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz import limits

__all__ = ["CORPUS", "Task", "begin", "mutated", "seeds"]

CORPUS = Path(__file__).parent / "corpus"
LARGEST_INPUT = 8192
CRASHED = 77
_TOKENS = (b"\0", b"\xff", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"-1", b"0", b"99999999999", b"1e999", b"nan", b"[", b"{",
           b'"', b"\n")  # fmt: skip


@dataclass(frozen=True)
class Task:
    """What a process has to do.

    Attributes:
        name: The target's.
        target: The target.
        folder: Gets ``log``, ``spent``, new inputs under ``found/``, and the input of a crash as ``crash-*``.
        inputs: So many at most; 0: any number.
        seconds: For so long; 0: for ever.
        seed: Of what is drawn.
        atheris: The module, if it is to be used.
    """

    name: str
    target: Callable[[bytes], object]
    folder: Path
    inputs: int
    seconds: int
    seed: int
    atheris: Any = None


def begin(task: Task) -> int:
    """Fork a process that fuzzes, and give its number; its exit code is not 0 if an input ended badly."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = CRASHED
    try:
        log = os.open(task.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.stdout = sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115  # under a test they are others
        _work(task)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _work(task: Task) -> None:
    warnings.simplefilter("ignore")  # of Pillow and NumPy, for damaged files
    logging.disable(logging.WARNING)  # of ours, for the same
    warm = limits.checked(task.target)
    for data in seeds(task.name):
        warm(data)  # loads what is imported late
    limits.limit_address_space()
    run = limits.checked(task.target, task.folder / "spent", alarm=task.atheris is None)
    if task.atheris is None:
        _draw(run, task)
        return
    found = task.folder / "found"
    found.mkdir(exist_ok=True)
    words = [
        sys.argv[0], str(found), str(CORPUS / task.name), f"-seed={task.seed}", f"-max_len={LARGEST_INPUT}",
        f"-timeout={round(4 * limits.MAX_SECONDS)}", f"-artifact_prefix={task.folder}/", "-verbosity=0", "-rss_limit_mb=0",
    ]  # fmt: skip
    words += [f"-runs={task.inputs}"] if task.inputs else []
    words += [f"-max_total_time={task.seconds}"] if task.seconds else []
    task.atheris.Setup(words, run)
    task.atheris.Fuzz()


def _draw(run: Callable[[bytes], None], task: Task) -> None:
    chance, known, start, count = random.Random(task.seed), seeds(task.name), time.monotonic(), 0
    while (not task.inputs or count < task.inputs) and (not task.seconds or time.monotonic() - start < task.seconds):
        run(mutated(chance, known))
        count += 1


def seeds(name: str) -> list[bytes]:
    """The inputs that are kept for a target."""
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]


def mutated(chance: random.Random, known: list[bytes]) -> bytes:
    """One of the inputs, with up to eight damages."""
    data = bytearray(chance.choice(known))
    for _ in range(chance.randint(1, 8)):
        place, end = chance.randint(0, len(data)), chance.randint(0, len(data))
        kind = chance.randrange(6)
        if kind == 0 and place < len(data):
            data[place] ^= 1 << chance.randrange(8)
        elif kind == 1:
            data[place:place] = chance.choice(_TOKENS)
        elif kind == 2:
            del data[place : place + chance.randint(1, 16)]
        elif kind == 3:
            data[place:place] = data[min(place, end) : max(place, end)][:256]
        elif kind == 4:
            other = chance.choice(known)
            data[place:] = other[min(end, len(other)) :]
        elif place < len(data):
            data[place] = chance.randrange(256)
    return bytes(data[:LARGEST_INPUT])
