"""Fuzz every parser, and print what came of it.

    python -m tests.fuzz [TARGET ...] [--seconds 60] [--inputs N] [--seed N] [--random] [--out build/fuzz]

Each target runs in a process of its own, whose memory and time for one input are limited. Exit code 1 if one crashed;
the inputs that did lie in the folder that is printed, and belong into tests/fuzz/corpus once the defect is mended.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MAX_CRASHES = 3  # of a target, before it is left
ROOT = Path(__file__).parents[2]


def main() -> None:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = sorted(path.name for path in (Path(__file__).parent / "corpus").iterdir())
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(names)}; default: all")
    parser.add_argument("--seconds", type=int, default=0, help="of all targets together; default: 60, or no limit")
    parser.add_argument("--inputs", type=int, default=0, help="of each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--random", action="store_true", help="without atheris, which follows the code's branches")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "fuzz")
    options = parser.parse_args()
    options.targets = options.targets or names
    if unknown := set(options.targets) - set(names):
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    if not options.inputs:
        options.seconds = max(1, (options.seconds or 60) // len(options.targets))
    atheris, modules = _load(options.random)
    limits = modules["limits"]
    engine = f"atheris {importlib.metadata.version('atheris')}" if atheris else "damages drawn at random"
    print(f"seed {options.seed}, Python {platform.python_version()}, {engine}, {_cpu()}")
    print(f"limits of an input: {limits.MAX_SECONDS} s of processor time, {limits.MAX_BYTES >> 20} MiB")
    print(f"{'target':18} {'inputs':>9} {'crashes':>7} {'slowest ms':>10} {'peak MiB':>8} {'seconds':>8}", flush=True)
    total, crashes, start = 0, 0, time.monotonic()
    for name in options.targets:
        spent, failures, took = _run(name, options, atheris, modules)
        total, crashes = total + spent.inputs, crashes + len(failures)
        figures = f"{1000 * spent.seconds:10.1f} {spent.bytes >> 20:8} {took:8.1f}"
        print(f"{name:18} {spent.inputs:9,} {len(failures):7} {figures}", *failures, sep="\n", flush=True)
    print(f"{'all':18} {total:9,} {crashes:7} {'':10} {'':8} {time.monotonic() - start:8.1f}")
    sys.exit(crashes > 0)


def _load(without: bool) -> tuple[Any, dict[str, Any]]:
    """atheris, where it is installed, and this folder's modules, with the package's branches marked for it."""
    atheris = None
    if not without:
        with contextlib.suppress(ImportError):
            atheris = importlib.import_module("atheris")
    marked = atheris.instrument_imports(include=["pytrtplugins", "darknet2caffe"]) if atheris else None
    with contextlib.redirect_stderr(open(os.devnull, "w")), marked or contextlib.nullcontext():
        return atheris, {
            name: importlib.import_module(f"tests.fuzz.{name}") for name in ("limits", "targets", "worker")
        }


def _run(name: str, options: argparse.Namespace, atheris: Any, modules: dict[str, Any]) -> tuple[Any, list[str], float]:
    """Fuzz one target; after a crash it goes on with another seed."""
    Spent, worker = modules["limits"].Spent, modules["worker"]
    folder = options.out / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    whole, failures, start = Spent(), list[str](), time.monotonic()
    for attempt in range(MAX_CRASHES):
        with tempfile.TemporaryDirectory(dir=memory) as temporary:  # a fuzzer ends without removing its own
            tempfile.tempdir = temporary
            left = max(0, options.inputs - whole.inputs)
            task = worker.Task(
                name, modules["targets"].TARGETS[name], folder, left, options.seconds, options.seed + attempt, atheris
            )
            _, status = os.waitpid(worker.begin(task), 0)
            tempfile.tempdir = None
        spent = Spent.read(folder / "spent")
        whole = Spent(whole.inputs + spent.inputs, max(whole.seconds, spent.seconds), max(whole.bytes, spent.bytes))
        if not status:
            break
        text = (folder / "log").read_text(errors="replace")
        told = text[max(0, text.find("=== Uncaught")) :][-2500:]  # by atheris, or by Python
        failures.append(f"status {status}, {folder}\n{told}\n")
        if options.inputs and whole.inputs >= options.inputs:
            break
    return whole, failures, time.monotonic() - start


def _cpu() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
