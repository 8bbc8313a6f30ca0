"""The files that say what CI and the hooks run, and with which versions, agree."""

import re
from pathlib import Path

import pytest

from tests.matrix import isa_rows, surroundings_rows

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
CONSTRAINTS = (ROOT / ".ci/constraints.txt").read_text("utf-8")


def test_every_constraint_is_a_version_of_a_package():
    lines = [line for line in CONSTRAINTS.splitlines() if not line.startswith("#")]
    assert lines
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.+!]+", line)] == []


def test_every_package_for_development_is_constrained():
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    dev = project.partition("\ndev = [\n")[2].partition("\n]\n")[0]
    wanted = {name.lower() for name in re.findall(r'^    "([\w-]+)>', dev, re.MULTILINE)}
    assert wanted
    assert wanted <= {line.partition("==")[0].lower() for line in CONSTRAINTS.splitlines()}


def test_the_hooks_run_what_make_lint_runs():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    local = next(repo["hooks"] for repo in hooks["repos"] if repo["repo"] == "local")
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert lint
    lines = [line.partition(" >")[0].strip().replace("$(BIN)", ".venv/bin") for line in lint[1].splitlines()]
    commands = [line.removesuffix(" .") for line in lines]
    assert [hook["entry"].removesuffix(" --force-exclude") for hook in local] == commands


def test_the_workflow_has_the_python_of_the_constraints():
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))
    python = re.fullmatch(r"python:([\d.]+)-\w+", workflow["jobs"]["ci"]["container"])
    assert python
    assert f"CPython {python[1]}," in CONSTRAINTS.splitlines()[0]


@pytest.mark.parametrize("row", [*isa_rows(), *surroundings_rows()], ids=lambda row: row.name)
def test_the_rows_of_the_matrix_name_tests_that_are_there(row):
    assert [name for name in (*row.tests, *row.without) if not (ROOT / "tests" / name).exists()] == []
