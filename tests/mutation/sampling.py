"""Rooms of the package, the errors that are tried in each, and the tests that should notice them."""

from __future__ import annotations

import ast
import math
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

from tests.mutation.covering import Covering, test_files
from tests.mutation.operators import Mutant, is_different, mutants
from tests.mutation.trees import ROOT

NEAR_S, ALL_S, MOST_FILES = 15.0, 45.0, 30
"""Seconds of tests at the place of the code, which run first; of all tests of an error; files that these are from."""


@dataclass(frozen=True)
class Room:
    """A module or folder of the package with one subject."""

    name: str
    path: Path

    @cached_property
    def sources(self) -> list[str]:
        """Its files."""
        files = sorted(self.path.rglob("*.py")) if self.path.is_dir() else [self.path]
        return [path.relative_to(ROOT).as_posix() for path in files]

    @cached_property
    def tests(self) -> list[str]:
        """Test files at the same place in tests/; where there is none, those that name it."""
        return [file for file in test_files() if _nearness(file, self.sources[0]) < 3] or self.users

    @cached_property
    def users(self) -> list[str]:
        """Test files at the same place in tests/, and those that name it."""
        name = ".".join(self.path.relative_to(ROOT).with_suffix("").parts)
        package, _, last = name.rpartition(".")
        named = re.compile(rf"\b{name}\b|\bfrom {package} import .*\b{last}\b" if package else rf"\b{name}\b")
        return [
            file
            for file in test_files()
            if _nearness(file, self.sources[0]) < 3 or named.search((ROOT / file).read_text())
        ]


def rooms() -> dict[str, Room]:
    """Each folder and module of pytrtplugins that has code, and darknet2caffe."""
    places = [ROOT / "darknet2caffe", *sorted((ROOT / "pytrtplugins").iterdir())]
    named = {path.stem: path for path in places if path.suffix == ".py" or any(path.rglob("*.py"))}
    return {
        name: Room(name, path) for name, path in named.items() if name not in ("__init__", "__main__", "__pycache__")
    }


def errors(room: Room) -> dict[str, list[Mutant]]:
    """All errors of a room, by operator."""
    by_operator: dict[str, list[Mutant]] = defaultdict(list)
    for path in room.sources:
        for mutant in mutants(path, (ROOT / path).read_bytes()):
            by_operator[mutant.operator].append(mutant)
    return by_operator


def shares(counts: Mapping[str, int], sample: int) -> dict[str, int]:
    """How many errors each room gets: by the square root of what there is, but three if there are."""
    roots = {name: math.sqrt(count) for name, count in counts.items()}
    factor = sample / max(sum(roots.values()), 1)
    least = {name: min(count, 3, sample) for name, count in counts.items()}
    return {name: min(max(least[name], round(factor * root)), counts[name]) for name, root in roots.items()}


def drawn(by_operator: Mapping[str, list[Mutant]], seed: int, room: str) -> Iterator[Mutant]:
    """Errors of a room in a random order that is a function of the seed, each operator in turn."""
    chosen = random.Random(f"{seed} {room}")
    piles = {name: chosen.sample(found, len(found)) for name, found in sorted(by_operator.items())}
    names = chosen.sample(sorted(piles), len(piles))
    while any(piles.values()):
        for name in names:
            while piles[name]:
                mutant = piles[name].pop()
                if is_different(mutant, (ROOT / mutant.path).read_bytes()):
                    yield mutant
                    break


def chosen_tests(mutant: Mutant, covering: Covering, room: Room) -> list[list[str]]:
    """Tests that may notice an error, those at its place first, in two parts; what takes too long is left out.

    These are the tests that run its line, then others of the file beside it, which may run it in another process. What runs at
    import may be looked at by tests that run nothing of it: there the others of the room follow.
    """
    tests: list[str] = []
    for places in _places(mutant):
        run, others = set[str](), set[str]()
        for path, lines in places.items():
            some, more = covering.tests(path, lines)
            run, others = run | some, others | more
        tests = [*_ordered(run, mutant, covering, room), *_ordered(others - run, mutant, covering, room)]
        if tests:
            break
    else:
        run, _ = covering.tests(mutant.path, covering.lines(mutant.path))
        known = run or {test for file in room.tests for test in covering.files.get(file, ())}
        tests = _ordered(known, mutant, covering, room)
    farthest = 0 if _is_in_function(mutant) else 2
    files = [file for file in covering.files if _nearness(file, mutant.path) <= farthest]
    beside = _ordered({test for file in files for test in covering.files[file]} - set(tests), mutant, covering, room)
    first, used = _within(
        [test for test in tests + beside if _nearness(test, mutant.path) < 2], NEAR_S, covering, set()
    )
    first_half, used = _within([test for test in tests if test not in set(first)], ALL_S / 2, covering, used)
    chosen = {*first, *first_half}
    rest, _ = _within([test for test in beside + tests if test not in chosen], ALL_S / 2, covering, used)
    return [part for part in (first, first_half + rest) if part]


def _within(tests: list[str], limit: float, covering: Covering, files: set[str]) -> tuple[list[str], set[str]]:
    part, seconds, files = list[str](), 0.0, set(files)
    for test in tests:
        file = test.partition("::")[0]
        if file not in files and len(files) >= MOST_FILES:
            continue
        cost = covering.seconds[test] + 0.7 * (file not in files)
        if part and seconds + cost > limit:
            continue
        part.append(test)
        seconds += cost
        files.add(file)
    return part, files


def _ordered(tests: set[str], mutant: Mutant, covering: Covering, room: Room) -> list[str]:
    """The nearest tests first, of these one of each function, of these the shortest."""
    seen: dict[str, int] = defaultdict(int)
    places = {}
    for test in sorted(tests, key=lambda test: (covering.seconds[test], test)):
        function = test.partition("[")[0]
        nearness = min(_nearness(test, mutant.path), 2 if test.partition("::")[0] in room.tests else 3)
        places[test] = (nearness, seen[function], covering.seconds[test], test)
        seen[function] += 1
    return sorted(tests, key=places.__getitem__)


def _nearness(test: str, path: str) -> int:
    """0: the tests of the file; 1: of its folder; 2: of its room; 3: others."""
    source, file = PurePosixPath(path), PurePosixPath(test.partition("::")[0])
    parts = source.parts[1:] if source.parts[0] == "pytrtplugins" else source.parts
    folder = PurePosixPath("tests", *parts[:-1])
    if file.parent == folder and file.stem.startswith(f"test_{source.stem.strip('_')}"):
        return 0
    if len(parts) == 1:  # a module beside the rooms
        return 1 if file.is_relative_to(folder / source.stem) else 3
    if file.is_relative_to(folder):
        return 1
    return 2 if file.is_relative_to(PurePosixPath("tests", parts[0])) else 3


def _places(mutant: Mutant) -> Iterator[dict[str, list[int]]]:
    """Lines whose tests may notice an error: of its statement; of a function with a default; where its name is used."""
    statement = _statements(mutant)[-1]
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):  # a default
        body = [node for node in ast.walk(statement) if isinstance(node, ast.stmt) and node is not statement]
        yield {mutant.path: [line for node in body for line in _head(node)]}
    elif _is_in_function(mutant):  # else it runs at import, in whichever test comes first
        yield {mutant.path: _head(statement)}
    names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    files = [mutant.path, *(path for path in _modules() if any(name in _words(path) for name in names))]
    yield {path: _uses(path, names) for path in files}


def _statements(mutant: Mutant) -> list[ast.stmt]:
    """The statements around an error, the innermost last."""
    nodes = [node for node in ast.walk(_tree(mutant.path)) if isinstance(node, ast.stmt)]
    inside = [node for node in nodes if node.lineno <= mutant.line <= node.end_lineno]
    return sorted(inside, key=lambda node: (node.lineno, -node.end_lineno))


def _is_in_function(mutant: Mutant) -> bool:
    return any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in _statements(mutant)[:-1])


def _uses(path: str, names: set[str]) -> list[int]:
    """Lines of a file that read one of the names, as a variable or an attribute."""
    nodes = [node for node in ast.walk(_tree(path)) if getattr(node, "id", getattr(node, "attr", None)) in names]
    reads = [node for node in nodes if isinstance(node.ctx, ast.Load)]
    return [line for node in reads for line in range(node.lineno, node.end_lineno + 1)]


@cache
def _tree(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_bytes())


@cache
def _modules() -> list[str]:
    return [source for room in rooms().values() for source in room.sources]


@cache
def _words(path: str) -> set[str]:
    return set(re.findall(r"\w+", (ROOT / path).read_text()))


def _head(statement: ast.stmt) -> list[int]:
    """The lines of a statement without those of the statements in it."""
    inner = [
        node.lineno
        for name in ("body", "cases", "handlers")
        for node in getattr(statement, name, ())
        if hasattr(node, "lineno")
    ]
    last = max(min(inner) - 1, statement.lineno) if inner else statement.end_lineno
    return list(range(statement.lineno, last + 1))
