"""docs/precision.md does what it says."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml

from pytrtplugins.cli import main
from pytrtplugins.passes import LayerPrecision, Precisions
from tests.precision.planted import cancelling, samples

TEXT = (Path(__file__).parents[2] / "docs" / "precision.md").read_text("utf-8")
SEARCH, REPORT, COMPARE = re.findall(r"^```sh\npytrt (.*?)\n```", TEXT, re.MULTILINE)
FOUND, PRINTED, FIRST = re.findall(r"^```text\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
(PROGRAM,) = re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
(FILE,) = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("docs")
    onnx.save(cancelling(), folder / "net.onnx")
    (folder / "inputs").mkdir()
    for number, sample in enumerate(samples(cancelling())):
        np.savez(folder / "inputs" / f"{number}.npz", **sample)
    return folder


def pytrt(words):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.raises(SystemExit) as ended:
        main(shlex.split(words))
    return ended.value.code or 0, out.getvalue()


def without_numbers(text):
    """Numbers to three digits: sums differ in their last bits between CPUs."""
    return re.sub(r"\d+\.\d+(e-?\d+)?", lambda found: f"{float(found[0]):.1e}", text)


def test_the_commands_print_what_the_page_shows(folder, monkeypatch):
    monkeypatch.chdir(folder)
    code, out = pytrt(SEARCH)
    assert code == 0
    assert without_numbers(out) == without_numbers(FOUND)
    code, _ = pytrt(REPORT)
    assert (code, (folder / "precision.html").is_file()) == (0, True)
    code, out = pytrt(COMPARE)
    assert code == 1
    assert without_numbers(out.splitlines()[0]) == without_numbers(FIRST.strip())


def test_the_program_prints_what_the_page_shows(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    exec(compile(PROGRAM, "docs/precision.md", "exec"), {"samples": samples(cancelling())})
    assert capsys.readouterr().out == PRINTED


def test_the_file_has_the_keys_that_files_have(folder, monkeypatch, tmp_path):
    shown = yaml.safe_load(FILE)
    Precisions("fp16", "0", ("add",), {"add": LayerPrecision("fp32", "pin", "why", 1.0, 1.0, 1.0)}).write(
        tmp_path / "p.yaml"
    )
    written = yaml.safe_load((tmp_path / "p.yaml").read_text())
    assert shown.keys() <= written.keys()
    assert shown["layers"]["add"].keys() == written["layers"]["add"].keys()
