"""docs/how-to/fields.md, docs/how-to/fields_data.md and docs/how-to/fields_export.md: their programs and commands run as they stand."""

import re
import shutil

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from pytrtplugins import native  # noqa: E402
from tests.export.conftest import builds_kept  # noqa: E402
from tests.model.networks import network, node  # noqa: E402
from tests.pages import SHELL, Reader, texts  # noqa: E402

PAGES = ("docs/how-to/fields.md", "docs/how-to/fields_data.md", "docs/how-to/fields_export.md")
PYTHON = texts(PAGES, "python")
COMMANDS = texts(PAGES, *SHELL)


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    path = tmp_path_factory.mktemp("fields")
    (path / "prelu.py").write_text(PYTHON[0], "utf-8")
    np.save(path / "slope.npy", np.array([0.25, 0.5]))
    return Reader(path)


@pytest.mark.parametrize("line", COMMANDS[0].splitlines())
def test_a_layer_with_weights_is_checked_as_the_page_says(reader, line):
    assert re.search(r"PRelu\(slope=array\(float32, shape=\([23],\)\)\): ok", reader.shell(line))


def test_the_values_of_a_node_become_fields_as_the_page_says(reader):
    for tensor, extra in (("model.act.slope", ""), ("onnx::PRelu_31", PYTHON[2])):
        weight = onnx.numpy_helper.from_array(np.full((3, 1, 1), 0.25, np.float32), tensor)
        model = network([node("PRelu", f"x {tensor}", "y", "/prelu")], ("N", 3, 4, 4))
        model.graph.initializer.append(weight)
        onnx.save(model, reader.folder / "model.onnx")
        lines = PYTHON[1].splitlines(keepends=True)
        text = "".join(extra if extra and line.startswith("graph.replace") else line for line in lines)
        (reader.folder / "place.py").write_text(text, "utf-8")
        reader.shell("python place.py")
        (found,) = onnx.load(reader.folder / "edited.onnx").graph.node
        assert (found.domain, list(found.input)) == ("acme", ["x"])
        assert onnx.numpy_helper.to_array(found.attribute[0].t).tolist() == [[[0.25]]] * 3


def test_a_check_on_own_data_runs_as_the_page_says(reader):
    (reader.folder / "rows.py").write_text(PYTHON[4], "utf-8")
    np.save(reader.folder / "table.npy", np.arange(12.0).reshape(4, 3))
    program, command = COMMANDS[1].splitlines()
    assert reader.shell(program) == ""
    assert "Rows(): ok" in reader.shell(command)


def test_the_decomposition_of_the_page_passes_its_check(reader):
    (reader.folder / "fast.py").write_text(PYTHON[3], "utf-8")
    assert reader.shell("python fast.py") == ""


def test_one_exported_library_takes_the_sizes_of_the_page(reader, monkeypatch):
    if shutil.which("g++") is None or not native.available():
        pytest.skip("no C++ compiler, or the native part is not built. Do: apt-get install g++ && make native")
    (kernel,) = texts(PAGES, "cuda")
    (reader.folder / "prelu.cu").write_text(kernel, "utf-8")
    (reader.folder / "prelu_gpu.py").write_text(PYTHON[5], "utf-8")
    check, export = COMMANDS[2].splitlines()
    assert "PRelu(slope=array(float32, shape=(3,))): ok" in reader.shell(check)
    with builds_kept("-O0"):
        assert "acme.gpu::PRelu version 1, neutral" in reader.shell(export)
    assert reader.python(PYTHON[6]) == PYTHON[6].partition("# ")[2].replace("\n# ", "\n")
