"""The page for the first five minutes runs as it stands, and the site's list of pages is complete."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.pages import MADE, NOTEBOOKS, ROOT, SHELL, Reader, read, texts

PROGRAMS = texts("docs/start/start.md", "python")
COMMANDS = [line for block in texts("docs/start/start.md", *SHELL) for line in block.splitlines()]


def test_the_programs_run_one_behind_the_other():
    """In a process of their own: nothing else has been imported there."""
    pytest.importorskip("openvino")
    done = subprocess.run([sys.executable, "-c", "".join(PROGRAMS)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [line.rsplit(maxsplit=1) for line in done.stdout.splitlines()[-3:]]
    assert [row[0] for row in rows] == [f"{name} (2, 8, 4, 4)" for name in ("reference", "onnxruntime", "cpu")]
    assert len({round(float(row[1]), 3) for row in rows}) == 1


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("pytrt ") and "doctor" not in line])
def test_the_commands_run(line, tmp_path):
    data = Path(pytest.importorskip("skimage").__file__).parent / "data"
    shutil.copy(data / "chelsea.png", tmp_path / "cat.png")
    printed = Reader(tmp_path).shell(line.replace("dog.jpg", "cat.png").replace("samples/", f"{ROOT}/samples/"))
    assert ("cat" if " run " in line else "region") in printed.lower()


NAV = yaml.safe_load((ROOT / ".ci" / "docs" / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
SECTIONS: dict[str, list[str]] = {name: pages for part in NAV if isinstance(part, dict) for name, pages in part.items()}
SHORT = [page for name in ("Start", "How to", "Explanation") for page in SECTIONS[name]]


def test_every_page_has_its_place_in_the_site():
    named = {page for pages in SECTIONS.values() for page in pages} | {page for page in NAV if isinstance(page, str)}
    assert named == {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")} | MADE


@pytest.mark.parametrize("page", SHORT)
def test_a_page_that_is_read_fits_on_two_screens_and_begins_with_a_sentence(page):
    """Reference and lab notes are looked up, and may be longer."""
    title, empty, first, *rest = read(f"docs/{page}").splitlines()
    assert title.startswith("# ")
    assert not empty
    assert first[0].isupper() or first[0] in "`["
    assert len(rest) <= 122


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_have_no_outputs_in_git(path):
    """`make docs` executes them, and the site shows what they print."""
    notebook = json.loads(path.read_text("utf-8"))
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell for cell in cells if cell["outputs"] or cell["execution_count"]] == []
