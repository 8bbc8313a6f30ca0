"""What the pages name is there: files, tests, targets of make, modules, and headings that links lead to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pages import MADE, ROOT

FOLDERS = (".ci", ".github", "benchmarks", "darknet2caffe", "docs", "plugins", "pytrtplugins", "samples", "tests")
FILES = {
    path.relative_to(ROOT).as_posix()
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*")
    if "__pycache__" not in path.parts and not (folder == "pytrtplugins" and "lib" in path.relative_to(ROOT).parts)
} | {path.name for path in ROOT.iterdir()} | set(FOLDERS)  # fmt: skip
NAMES = {"/" + file for file in FILES}
TESTS = {
    name
    for path in (ROOT / "tests").rglob("*.py")
    for name in [path.stem, *re.findall(r"def (test_\w+)", path.read_text("utf-8"))]
}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "samples").rglob("*.md")),
]
OF_USERS = {
    "CHANGELOG.md": {"pytrt.toml", "symbol.json"},
    "README.md": {"test_shuffle"},
    "docs/reference/cpp_methods.md": {"twice.cpp"},
    "docs/how-to/custom_layer.md": {"mylayers.py", "shuffle.cu", "place.py"},
    "docs/explanation/rooms.md": {"symbol.json"},
    "docs/how-to/fields.md": {"prelu.py", "place.py"},
    "docs/how-to/fields_export.md": {"prelu.cu", "prelu_gpu.py"},
    "docs/reference/format.md": {"x.cache.json", "metadata.json"},
    "docs/index.md": {"pytrt.toml"},
    "docs/how-to/models.md": {"models/NAME/3.json", "models/NAME/history.json", "pytrt.toml"},
    "docs/how-to/mxnet.md": {"model-symbol.json"},
    "docs/how-to/pipeline_runs.md": {"served.json"},
    "docs/reference/public_names.md": {"classes.txt", "symbol.json", "val.txt"},
    "docs/how-to/pipeline_argo.md": {".pytrt/pipelines/NAME/runs/ID.json"},
    "docs/explanation/security.md": {
        *(
            "pytrt.toml",
            "shards.json",
            ".making.json",
            "models/NAME/VERSION.json",
            "models/NAME/history.json",
        ),
        *("plan.json", "params.json", "published.json", "facts.json"),
    },
    "docs/reference/releases.md": {"pytrt.toml"},
    "docs/how-to/serving_config.md": {"pytrt.toml"},
    "docs/how-to/shell.md": {"pytrt.toml"},
    "docs/how-to/shards.md": {
        *("classes.txt", "labels/NAME.txt", "val.txt"),
        *("0001.png", "instances_val2017.json", "labels/0001.txt", "labels/val/0001.txt"),
    },
    "docs/reference/shards_format.md": {
        *("KEY.json", "classes.txt", "shards.json"),
        *("val.txt", "valid.txt", "validation.txt", "test.txt"),
    },
    "docs/how-to/table.md": {"pairs.txt"},
    "docs/explanation/testing.md": {"pytrt.toml"},
    "docs/how-to/tensorrt11.md": {"mylayers.py"},
    "docs/how-to/training.md": {
        *("train.txt", "val.txt", "yolov2-voc.cfg", "curve.png", "model.cfg", "model.names", "model.weights"),
        *("photos/labels/0001.txt", "photos/train.txt", "photos/val.txt"),
    },
    "docs/how-to/training_classifier.md": {"classes.md"},
    "docs/explanation/training_engine.md": {"stages.png", "trace.json"},
    "samples/models/README.md": {"voc12_trainval.txt"},
    "samples/pipeline/README.md": {"classes.txt", "train.txt", "val.txt"},
}
"""What users, or the package itself, would write."""
ENDINGS = "cfg|cpp|cu|h|json|md|names|png|py|toml|txt|weights"
PATH = re.compile(rf"((?:{'|'.join(FOLDERS)})/[\w./-]*\w|[\w./-]+\.(?:{ENDINGS}))(?:::(\w+))?(?:\s.*)?")


def missing(text: str) -> list[str]:
    """What a text that a page shows as code names, and is not there."""
    found = [name for name in re.findall(r"\btest_\w+", text) if name not in TESTS]
    if path := PATH.fullmatch(text):
        found += [path[1]] * (not any(name.endswith("/" + path[1]) for name in NAMES))
        found += [path[2]] * (path[2] is not None and path[2] not in TESTS)
    found += [f"make {name}" for name in re.findall(r"^make ([a-z-]+)", text) if name not in TARGETS]
    for name in re.findall(rf"python -m ((?:{'|'.join(FOLDERS)})[\w.]*)", text):
        place = name.replace(".", "/")
        found += [name] * (f"{place}.py" not in FILES and f"{place}/__main__.py" not in FILES)
    return found


def anchors(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_names_is_there(page):
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    absent = {name for code in re.findall(r"`([^`\n]+)`", text) for name in missing(code)}
    assert absent == OF_USERS.get(page.relative_to(ROOT).as_posix(), set())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if not target.startswith(("http:", "https:")):
            path, _, anchor = target.partition("#")
            led_to = (page.parent / path).resolve() if path else page
            if led_to.relative_to(ROOT).as_posix().removeprefix("docs/") in MADE:
                continue
            assert led_to.exists(), target
            assert not anchor or anchor in anchors(led_to), target


@pytest.mark.parametrize(
    "text",
    ["tests/test_nothing.py", "docs/nothing.md", "test_that_is_not_there", "tests/cli/test_cli.py::test_nothing_there",
     "make nothing", "python -m benchmarks.nothing --write", "tests/nowhere", "nothing.py"],
)  # fmt: skip
def test_what_is_not_there_is_found(text):
    assert missing(text)
