"""The files that make releases agree with pyproject.toml and with the pages."""

import re
import runpy
from pathlib import Path

import pytest

import pytrtplugins

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
PROJECT = (ROOT / "pyproject.toml").read_text("utf-8")
RELEASES = (ROOT / "docs/reference/releases.md").read_text("utf-8")
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def steps(workflow):
    return [step for job in yaml.safe_load(workflow.read_text("utf-8"))["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_to_commits(workflow):
    uses = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert uses
    assert [action for action in uses if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action)] == []


def test_the_release_has_a_wheel_for_each_python_of_the_classifiers():
    release = "\n".join(step.get("run", "") for step in steps(ROOT / ".github/workflows/release.yml"))
    built = re.findall(r"\bcp3\d+\b", re.findall(r"for tag in (.*);", release)[0])
    assert built == [f"cp{version.replace('.', '')}" for version in re.findall(r"Python :: (3\.\d+)", PROJECT)]


def test_the_release_compares_the_tag_with_the_version():
    script = next(
        step["run"]
        for step in steps(ROOT / ".github/workflows/release.yml")
        if "GITHUB_REF_NAME" in step.get("run", "")
    )
    pattern = re.findall(r"sed -n 's/(.*)/\\1/p' (\S+)\)", script)
    assert pattern == [(r'^__version__ = "\(.*\)"', "pytrtplugins/version.py")]
    python = pattern[0][0].replace(r"\(", "(").replace(r"\)", ")")
    assert re.findall(python, (ROOT / pattern[0][1]).read_text("utf-8"), re.MULTILINE) == [pytrtplugins.__version__]


def test_the_version_is_written_in_one_place():
    files = [
        ROOT / name
        for name in ("CMakeLists.txt", "pyproject.toml", "pytrtplugins/__init__.py", "plugins/cmake/version.cmake")
    ]
    assert [
        file.name for file in files if pytrtplugins.__version__ in re.findall(r"\d+\.\d+\.\d+", file.read_text("utf-8"))
    ] == []


def test_the_stability_table_has_every_public_name():
    table = RELEASES.partition("## Stability")[2].partition("\n## ")[0]
    rows = "\n".join(line.split("|")[1] for line in table.splitlines() if line.startswith("|"))
    named = set(re.findall(r"`(\w+)`", rows))
    assert set(pytrtplugins.__all__) - named == set()
    public = runpy.run_path(str(ROOT / ".ci/docs/public_names.py"))["MODULES"]
    rooms = {name.partition(".")[0] for name in public}
    assert named - set(pytrtplugins.__all__) - rooms == {"darknet2caffe", "pytrt", "_"}


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_the_images_install_extras_that_there_are(name):
    text = (ROOT / f".ci/docker/{name}.Dockerfile").read_text("utf-8")
    (extras,) = re.findall(r"\.whl\)\[([\w,]+)\]", text)
    assert [extra for extra in extras.split(",") if not re.search(rf"^{extra} = \[", PROJECT, re.MULTILINE)] == []


def test_the_images_get_what_the_wheels_are_made_of():
    wanted = re.findall(
        r'"([\w.]+)"', re.findall(r"SOURCES = \((.*?)\)", (ROOT / ".ci/wheels.py").read_text("utf-8"))[0]
    )
    for name in ("cpu", "cuda"):
        lines = (ROOT / f".ci/docker/{name}.Dockerfile.dockerignore").read_text("utf-8").splitlines()
        assert {line[1:] for line in lines if line.startswith("!")} == {*wanted, ".ci/wheels.py"}


def test_the_recipe_asks_for_the_versions_of_pyproject():
    recipe = (ROOT / ".ci/conda/meta.yaml").read_text("utf-8")
    assert f'version = "{pytrtplugins.__version__}"' in recipe
    asked = re.findall(r"^    - ([a-z]+) (>=[\d.]+)$", recipe, re.MULTILINE)
    assert len(asked) >= 8
    known = {
        **dict(re.findall(r'"([a-z]+)(>=[\d.]+)"', PROJECT)),
        "python": re.findall(r'requires-python = "(.*)"', PROJECT)[0],
    }
    assert [line for line in asked if known.get(line[0]) != line[1]] == []
