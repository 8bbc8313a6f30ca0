"""docs/how-to/precision.md and docs/how-to/precision_compare.md do what they say."""

import re

import numpy as np
import onnx
import pytest
import yaml

from pytrtplugins.passes import LayerPrecision, Precisions
from tests.pages import Reader, texts
from tests.precision.planted import cancelling, samples

PAGES = ("docs/how-to/precision.md", "docs/how-to/precision_compare.md")
SEARCH, REPORT, COMPARE, BESIDE = (text.strip() for text in texts(PAGES, "sh"))
FOUND, PRINTED, FIRST, OUTPUTS = texts(PAGES, "text")
(PROGRAM,) = texts(PAGES, "python")
(FILE,) = texts(PAGES, "yaml")


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    folder = tmp_path_factory.mktemp("docs")
    onnx.save(cancelling(), folder / "net.onnx")
    (folder / "inputs").mkdir()
    for number, sample in enumerate(samples(cancelling())):
        np.savez(folder / "inputs" / f"{number}.npz", **sample)
    return Reader(folder)


def without_numbers(text):
    """Numbers to three digits: sums differ in their last bits between CPUs."""
    return re.sub(r"\d+\.\d+(e-?\d+)?", lambda found: f"{float(found[0]):.1e}", text)


def test_the_commands_print_what_the_page_shows(reader):
    assert without_numbers(reader.shell(SEARCH)) == without_numbers(FOUND)
    reader.shell(REPORT)
    assert (reader.folder / "precision.html").is_file()
    first, *others = reader.shell(COMPARE, 1).splitlines()
    shown = FIRST.splitlines()
    assert without_numbers(first) == without_numbers(shown[0])
    assert others[-2:] == shown[-2:]
    small = re.compile(r"\d[\de.-]*")  # what rounding leaves differs between CPUs
    assert small.sub("", reader.shell(BESIDE)) == small.sub("", OUTPUTS)


def test_the_program_prints_what_the_page_shows(reader):
    reader.names["samples"] = samples(cancelling())
    assert reader.python(PROGRAM) == PRINTED


def test_the_file_has_the_keys_that_files_have(tmp_path):
    shown = yaml.safe_load(FILE)
    Precisions("fp16", "0", ("add",), {"add": LayerPrecision("fp32", "pin", "why", 1.0, 1.0, 1.0)}).write(
        tmp_path / "p.yaml"
    )
    written = yaml.safe_load((tmp_path / "p.yaml").read_text())
    assert shown.keys() <= written.keys()
    assert shown["layers"]["add"].keys() == written["layers"]["add"].keys()
