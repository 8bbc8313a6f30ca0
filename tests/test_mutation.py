"""The errors that mutation testing puts into the code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests import mutation


def test_what_changes_nothing_is_no_error():
    plain = "def f(x: int | None = 1) -> float:\n    # why\n    y: int = x + 1\n    return y\n"
    assert mutation.meaning(plain) == mutation.meaning(plain.replace("int | None", "int & None").replace("# why", ""))
    assert mutation.meaning(plain) != mutation.meaning(plain.replace("x + 1", "x - 1"))
    imports = "if TYPE_CHECKING:\n    import onnx\n"
    assert mutation.meaning(imports + plain) == mutation.meaning(imports.replace("if", "if not") + plain)


def test_every_place_of_a_file_has_errors_on_its_line():
    pytest.importorskip("cosmic_ray")
    path = mutation.ROOT / "pytrtplugins/vision/nms.py"
    places = mutation.mutants(path)
    assert len(places) > 10
    lines = path.read_text().splitlines()
    for place in places[::5]:
        mutant = place[0]
        changed = mutant.source.splitlines()
        ast.parse(mutant.source)
        different = [number for number, (a, b) in enumerate(zip(lines, changed, strict=False), 1) if a != b]
        assert different[:1] == [mutant.line] or len(changed) != len(lines)


def test_the_packages_and_their_tests_are_there():
    for sources, tests in mutation.PACKAGES.values():
        assert (mutation.ROOT / sources).exists()
        assert all((mutation.ROOT / Path(test)).exists() for test in tests.split())
