"""Build models with TensorRT for RTX, each in a process of its own, keep the results, and write docs/reference/tensorrt_builds.md."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from pytrtplugins.utils.numbers import IntRange

from ..node_tests import Outcome, load_cases, run_cases
from ..pages.builds import summary
from ..pages.machine import about
from ..pages.results import DOCS, publish
from .build import build
from .outcomes import Results, faults, record
from .subjects import Subject, darknet_subjects, node_subject, onnx_subjects

_PACKAGES = ("onnx", "tensorrt-rtx-cu13-libs")
_PRECISIONS = ("fp32", "fp16", "bf16", "int8", "fp8")
_NODES, _DARKNET, _FILES = "ONNX's node tests", "darknet's networks", "ONNX files"
_SECTIONS = {_NODES: "nodes", _DARKNET: "darknet", _FILES: "files"}
_MODULE = "tensorrt_rtx_bindings"


def main() -> int:
    """Parse arguments, build, print or write; 1 if something is there that must not be."""
    options = _arguments()
    if importlib.util.find_spec(_MODULE) is None:
        raise SystemExit(
            f'The package {_MODULE} is not installed in {sys.prefix}.\nDo: pip install "pytrtplugins[rtx]", '
            "or make tensorrt, then .venv-rtx/bin/python -m benchmarks.tensorrt_builds"
        )
    results: dict[str, Results] = {}
    for group, subjects in _subjects(options).items():
        begun = time.perf_counter()
        outcomes = dict(_run(subjects, options))
        results[group] = [(subject, outcomes[id(subject)]) for subject in subjects]
        print(f"{group}: {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
        facts = about(_PACKAGES, shlex.join(["python", "-m", "benchmarks.tensorrt_builds", *sys.argv[1:]]))
        made = {**facts, **record(group, results[group])}
        print(summary(made))
        if options.write:
            publish(made, "tensorrt_builds", _SECTIONS[group], options.docs)
    bad = [line for rows in results.values() for line in faults(rows)]
    print("\n".join(bad), file=sys.stderr)
    return int(bool(bad))


def _subjects(options: argparse.Namespace) -> dict[str, list[Subject]]:
    groups = {
        _NODES: [node_subject(case) for case in load_cases(options.words)] if options.nodes else [],
        _DARKNET: darknet_subjects(options.cfgs, options.precisions),
        _FILES: onnx_subjects(options.onnx, options.precisions),
    }
    return {group: subjects for group, subjects in groups.items() if subjects}


def _run(subjects: list[Subject], options: argparse.Namespace) -> Iterator[tuple[int, Outcome]]:
    """Build each, and give its id: a model is not hashable."""
    for subject, outcome in run_cases(subjects, _build_quietly, options.processes, options.time_limit):
        if options.verbose:
            print(
                f"{subject.name} {subject.precision}: {outcome.kind} {outcome.values or outcome.reason}",
                file=sys.stderr,
            )
        yield id(subject), outcome


def _build_quietly(subject: Subject) -> Outcome:
    """Build in a child process; what TensorRT's libraries print there is dropped."""
    with open(os.devnull, "w") as sink:
        for descriptor in (1, 2):
            os.dup2(sink.fileno(), descriptor)
    return build(subject)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tensorrt_builds", description=__doc__)
    add = parser.add_argument
    add("--nodes", action="store_true", help="build the node tests that ONNX ships")
    add("-k", dest="words", default="", metavar="WORDS", help="only node tests whose name has one of these words")
    add("--cfgs", type=Path, nargs="*", default=[], metavar="PATH", help="darknet cfgs, and folders with such files")
    add("--onnx", type=Path, nargs="*", default=[], metavar="PATH", help="ONNX files, and folders with such files")
    add(
        "--precision",
        dest="precisions",
        nargs="+",
        choices=_PRECISIONS,
        default=[*_PRECISIONS],
        help="of networks (default: all)",
    )
    add("--processes", type=IntRange(1, 1024), default=os.cpu_count(), help="builds at a time (default: %(default)s)")
    add("--time-limit", type=IntRange(1, 36_000), default=600, help="seconds that one may take (default: %(default)s)")
    add("--verbose", action="store_true", help="print what came of each build")
    add("--write", action="store_true", help="keep the results, and write the tables of the page")
    add("--docs", type=Path, default=DOCS, help="folder of the page (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
