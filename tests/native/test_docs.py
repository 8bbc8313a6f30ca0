"""The programs and commands of docs/how-to/cpp.md and docs/reference/cpp_methods.md run as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytrtplugins import native
from tests.kept_builds import build_once
from tests.pages import ROOT, read, texts

PAGES = ("docs/how-to/cpp.md", "docs/reference/cpp_methods.md")
GUIDE = read(*PAGES)
CPP, PYTHON, COMPILE = texts(PAGES, "cpp"), texts(PAGES, "python"), texts(PAGES, "sh")[1]


@pytest.mark.parametrize(("index", "source", "library"), [(0, "shuffle", "acme"), (1, "twice", "twice")])
def test_a_program_prints_what_the_guide_says(built, tmp_path, index, source, library):
    (tmp_path / f"{source}.cpp").write_text(CPP[index])
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": search, "PYTHONPATH": str(ROOT)}
    command = COMPILE.replace("shuffle.cpp", f"{source}.cpp").replace("libacme", f"lib{library}")
    target = tmp_path / f"lib{library}.so"

    def build(path):
        subprocess.run(command, shell=True, cwd=tmp_path, env=environment, check=True)
        target.replace(path)

    headers = sorted(path for path in native.include_dir().rglob("*") if path.is_file())
    build_once(target, [tmp_path / f"{source}.cpp", *headers, Path(native.__file__)], [command], build)
    done = subprocess.run(
        [sys.executable, "-c", PYTHON[index]],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == re.findall(r"^# (.*)$", PYTHON[index], re.MULTILINE)


def test_every_method_that_the_table_names_is_in_the_header():
    header = (ROOT / "plugins/include/pytrtplugins/plugin.h").read_text()
    table = GUIDE.partition("| C++ | Python")[2].partition("\n\n")[0]
    names = re.findall(r"`(\w+)`", "\n".join(line.split("|")[0] for line in table.split("\n|") if "(free)" not in line))
    assert len(names) == 15
    assert [name for name in names if not re.search(rf"\b{name}\(", header)] == []
