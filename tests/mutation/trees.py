"""Copies of the checkout in which tests run, each in a process that is forked from one with the libraries loaded."""

from __future__ import annotations

import compileall
import contextlib
import os
import py_compile
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "mutation"
PACKAGES = ("darknet2caffe", "pytrtplugins")
LIBRARIES = (
    "numpy",
    "onnx",
    "onnx.reference",
    "onnx_ir",
    "onnxruntime",
    "pytest",
    "yaml",
    "cv2",
    "PIL.Image",
)
"""What is imported before processes are forked: large libraries that start no thread."""
PYTEST = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov", "-m", "not slow", "--timeout", "60")


@dataclass(frozen=True)
class Task:
    """What a forked process does in a tree, and how long it may take."""

    subject: Any
    seconds: float
    body: Callable[[Path], int]
    """Called with the tree in the forked process; gives the exit status."""
    prepare: Callable[[Path], object] = bool
    """Called with the tree in this process, before the fork."""
    restore: Callable[[Path], object] = bool
    """Called with the tree in this process, when the forked process has ended."""


@dataclass(frozen=True)
class Ended:
    """A task whose process has ended."""

    task: Task
    tree: Path
    status: int | None
    """The exit status; None if its time was over."""
    seconds: float


def make_tree(number: int) -> Path:
    """Copy the files of the checkout, and what was compiled for the package, to build/mutation/tree-number.

    Bytecode there is bound to the text of a file and not to its time, since errors are written within one second.
    """
    tree = BUILD / f"tree-{number}"
    shutil.rmtree(tree, ignore_errors=True)
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout.decode().split("\0")
    compiled = [path.relative_to(ROOT) for suffix in ("so", "pyd") for path in ROOT.glob(f"pytrtplugins/*.{suffix}")]
    libraries = [path.relative_to(ROOT) for path in ROOT.glob("pytrtplugins/lib/**/*") if path.is_file()]
    for path in {*map(Path, filter(None, listed)), *compiled, *libraries}:
        if (ROOT / path).is_file():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, tree / path, follow_symlinks=False)
    for package in PACKAGES:
        checked = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(tree / package, quiet=2, invalidation_mode=checked, stripdir=tree, prependdir=tree)
    return tree


def run_tasks(tasks: Iterable[Task], trees: list[Path]) -> Iterator[Ended]:
    """Run each task in a forked process, one process for each tree. What is given uses the tree until the next is asked for."""
    free, waiting = deque(trees), iter(tasks)
    running: dict[int, tuple[Task, Path, float]] = {}
    more = True
    try:
        while more or running:
            while more and free:
                task = next(waiting, None)
                if task is None:
                    more = False
                    break
                tree = free.popleft()
                task.prepare(tree)
                running[_fork(task, tree)] = task, tree, time.monotonic()
            time.sleep(0.02)
            for child, (task, tree, begun) in list(running.items()):
                ended, status = os.waitpid(child, os.WNOHANG)
                seconds = time.monotonic() - begun
                if not ended and seconds < task.seconds:
                    continue
                _kill_group(child)  # also what the tests left behind
                if not ended:
                    os.waitpid(child, 0)
                del running[child]
                task.restore(tree)
                free.append(tree)
                yield Ended(task, tree, os.waitstatus_to_exitcode(status) if ended else None, seconds)
    finally:
        for child, (task, tree, _) in running.items():
            _kill_group(child)
            task.restore(tree)


def _fork(task: Task, tree: Path) -> int:
    child = os.fork()
    if child:
        return child
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    status = 70
    try:
        with open(BUILD / f"{tree.name}.log", "w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        os.chdir(tree)
        os.environ["PYTHONPATH"] = str(tree)
        sys.path[:] = [str(tree), *(path for path in sys.path if path not in ("", str(ROOT)))]
        for name in [name for name in sys.modules if name.partition(".")[0] in (*PACKAGES, "tests", "benchmarks")]:
            del sys.modules[name]
        status = task.body(tree)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _kill_group(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
