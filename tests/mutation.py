"""Mutation testing: small errors are put into the code one at a time, and the tests should fail.

``python -m tests.mutation passes --sample 40 --seed 1``, or ``make mutation SAMPLE=40 SEED=1 ONLY=passes``. The errors are those
of cosmic-ray. Each is tried in a process of its own that is forked from one with the libraries loaded, with those tests that run
its line, the shortest first, until one fails or the time is over: 30 seconds and three times what they take without an error.
Nothing is written to the sources.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import importlib
import importlib.machinery
import json
import os
import random
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "mutation"
PACKAGES = {  # name → sources, tests
    "calibration": ("pytrtplugins/calibration", "tests/calibration"),
    "darknet2caffe": ("darknet2caffe", "tests/darknet2caffe"),
    "engine-files": ("pytrtplugins/engines/base/engine_file.py", "tests/engines/base/test_engine_file.py"),
    "fields": (
        "pytrtplugins/plugin/fields.py",
        "tests/plugin/test_fields.py tests/plugin/test_plugin.py tests/plugin/test_onnx_node.py",
    ),
    "passes": ("pytrtplugins/passes", "tests/passes"),
    "vision": ("pytrtplugins/vision", "tests/vision tests/cuda/test_vision.py"),
}
_LIBRARIES = ("numpy", "onnx", "onnx.reference", "onnx_ir", "onnxruntime", "pytest", "yaml", "cv2", "PIL.Image")
_PYTEST = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow", "--timeout", "60")


@dataclass(frozen=True)
class Mutant:
    """One error: a file, the line, cosmic-ray's operator, and which of its places in the file."""

    path: str
    line: int
    operator: str
    occurrence: int

    @property
    def source(self) -> str:
        """The file with the error."""
        from cosmic_ray.mutating import mutate_code
        from cosmic_ray.plugins import get_operator

        found: str = mutate_code((ROOT / self.path).read_text(), get_operator(self.operator)(), self.occurrence)
        return found

    @property
    def change(self) -> str:
        """The line before and after."""
        lines = difflib.unified_diff(
            (ROOT / self.path).read_text().splitlines(), self.source.splitlines(), n=0, lineterm=""
        )
        return " → ".join(line[1:].strip() for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---"))


def mutants(path: Path) -> list[list[Mutant]]:
    """All errors of a file, those of one place together; without those in annotations and texts, which change nothing."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    places: dict[tuple[int, int], list[Mutant]] = defaultdict(list)
    tree = get_ast(path.read_text())
    for name in sorted(operator_names()):
        if "Variable" in name:  # they want arguments
            continue
        operator, occurrence = get_operator(name)(), 0
        for node in ast_nodes(tree):
            for begin, _ in operator.mutation_positions(node):
                places[begin].append(Mutant(str(path.relative_to(ROOT)), begin[0], name, occurrence))
                occurrence += 1
    return [found for _, found in sorted(places.items())]


def meaning(source: str) -> str:
    """Source without annotations, comments and imports for type checkers."""

    class Bare(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                return None
            for name in ("annotation", "returns"):
                if getattr(node, name, None) is not None:
                    setattr(node, name, ast.Constant(value=None))
            return self.generic_visit(node)

    tree = Bare().visit(ast.parse(source))
    return ast.unparse(tree)


def covering(sources: Path, tests: str, name: str) -> tuple[dict[tuple[str, int], set[str]], dict[str, float]]:
    """(file, line) → tests that run it; line 0: tests that run anything of the file; and the seconds that each takes."""
    import coverage

    BUILD.mkdir(parents=True, exist_ok=True)
    data, config, times = (BUILD / f"{name}.{suffix}" for suffix in ("coverage", "rc", "xml"))
    include = f"{sources}/*" if sources.is_dir() else str(sources)
    config.write_text(f"[run]\ninclude = {include}\ndata_file = {data}\n")
    options = ["--cov", "--cov-context=test", "--cov-report=", f"--cov-config={config}", f"--junitxml={times}"]
    command = [sys.executable, "-m", "pytest", *_PYTEST, *options, *tests.split()]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    found: dict[tuple[str, int], set[str]] = defaultdict(set)
    measured = coverage.CoverageData(str(data))
    measured.read()
    for path in measured.measured_files():
        relative = str(Path(path).relative_to(ROOT))
        for line, contexts in measured.contexts_by_lineno(path).items():
            known = {context.partition("|")[0].partition("[")[0] for context in contexts if context}
            found[relative, line] |= known
            found[relative, 0] |= known
    seconds: dict[str, float] = defaultdict(float)
    for case in ElementTree.parse(times).iter("testcase"):
        test = case.attrib["name"].partition("[")[0]
        seconds[case.attrib["classname"].replace(".", "/") + ".py::" + test] += float(case.attrib["time"])
    return found, seconds


def outcome(tests: Sequence[str], mutant: Mutant | None, longest: float) -> str:
    """``"survived"``, ``"caught"`` or ``"time"``, of tests in a forked process."""
    child = os.fork()
    if not child:
        os.setsid()
        code = 70
        try:
            code = _in_child(tests, mutant)
        finally:
            os._exit(code)
    begun = time.monotonic()
    while time.monotonic() - begun < longest:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return "survived" if os.waitstatus_to_exitcode(status) == 0 else "caught"
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "time"


def _in_child(tests: Sequence[str], mutant: Mutant | None) -> int:
    import pytest

    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    if mutant is not None:
        target, source = str(ROOT / mutant.path), mutant.source
        plain = importlib.machinery.SourceFileLoader.get_code

        def get_code(self: Any, fullname: str) -> Any:
            return compile(source, target, "exec") if self.path == target else plain(self, fullname)

        importlib.machinery.SourceFileLoader.get_code = get_code
    return int(pytest.main([*_PYTEST, *tests]))


def sampled(sources: Path, count: int, seed: int) -> tuple[int, Iterator[Mutant]]:
    """The number of places where an error can be made, and errors at some of them, in random order, one at each."""
    files = sorted(sources.rglob("*.py")) if sources.is_dir() else [sources]
    places = [place for path in files for place in mutants(path)]
    chosen = random.Random(seed)
    chosen.shuffle(places)

    def some() -> Iterator[Mutant]:
        left = count
        for place in places:
            if not left:
                return
            mutant = chosen.choice(place)
            try:
                changed = meaning(mutant.source)
            except (
                SyntaxError,
                AttributeError,
            ):  # what cosmic-ray makes of ** before keywords, and of dotted exceptions
                continue
            if changed != meaning((ROOT / mutant.path).read_text()):
                left -= 1
                yield mutant

    return len(places), some()


def run(name: str, count: int, seed: int) -> dict[str, Any]:
    """Try errors in one package; what came of it is printed, returned, and written to build/mutation."""
    sources, tests = ROOT / PACKAGES[name][0], PACKAGES[name][1]
    lines, seconds = covering(sources, tests, name)
    known = sorted(set().union(*lines.values()))
    some = known[:: max(1, len(known) // 10)]
    if outcome(some, None, 600) != "survived":
        raise SystemExit(f"{name}: tests fail in a forked process without any error: {tests}")
    places, chosen = sampled(sources, count, seed)
    counts, left = Counter[str](), []
    for mutant in chosen:
        known_here = lines.get((mutant.path, mutant.line)) or lines.get((mutant.path, 0))
        running = sorted(known_here or some, key=seconds.__getitem__)  # of a file that is only imported, any may fail
        kind = outcome(running, mutant, 30 + 3 * sum(seconds[test] for test in running)) if running else "no test"
        counts[kind] += 1
        if kind in ("survived", "no test"):
            left.append({"where": f"{mutant.path}:{mutant.line}", "change": mutant.change, "why": kind})
            print(f"  {kind}: {mutant.path}:{mutant.line}: {mutant.change}", flush=True)
    tried, caught = sum(counts.values()), counts["caught"] + counts["time"]
    found = {"package": name, "places": places, "seed": seed, "tried": tried, "caught": caught, "left": left}
    (BUILD / f"{name}.json").write_text(json.dumps(found, indent=1))
    print(f"| {name} | {places} | {tried} | {seed} | {caught} | {100 * caught / max(tried, 1):.0f} % |", flush=True)
    return found


def main() -> int:
    """Parse arguments, run."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("package", nargs="*", help=f"which: {', '.join(PACKAGES)} (default: all)")
    parser.add_argument("--sample", type=int, default=40, help="errors for each package; 0: all (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="which of them (default: %(default)s)")
    given = parser.parse_args()
    unknown = [name for name in given.package if name not in PACKAGES]
    if unknown:
        parser.error(f"package: expected one of {', '.join(PACKAGES)}, found {unknown[0]!r}")
    sys.path.insert(0, str(ROOT))
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for library in _LIBRARIES:
        importlib.import_module(library)
    print("| package | places | tried | seed | caught | |\n|---|---:|---:|---:|---:|---:|", flush=True)
    for name in given.package or PACKAGES:
        run(name, given.sample or sys.maxsize, given.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
