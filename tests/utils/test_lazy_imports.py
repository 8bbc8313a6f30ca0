"""What a library imports and seldom uses is imported when it uses it, whoever else imports it meanwhile."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pytrtplugins.utils.lazy_imports import defer_imports

ROOT = Path(__file__).parents[2]


@pytest.fixture
def library(tmp_path, monkeypatch):
    """The names of a library, of the package that it imports, and of a module in that."""
    (tmp_path / "late_library.py").write_text("import late_package\n\ndef value():\n    return late_package.VALUE\n")
    (tmp_path / "late_package").mkdir()
    (tmp_path / "late_package" / "__init__.py").write_text("VALUE = 3\n")
    (tmp_path / "late_package" / "inner.py").write_text("VALUE = 4\n")
    monkeypatch.syspath_prepend(tmp_path)
    names = ("late_library", "late_package", "late_package.inner")
    yield names
    for name in names:
        sys.modules.pop(name, None)


def test_a_module_is_imported_when_an_attribute_is_used(library):
    with defer_imports("late_package"):
        found = importlib.import_module("late_library")
    assert "late_package" not in sys.modules
    assert found.value() == 3
    assert sys.modules["late_package"].VALUE == 3
    assert found.value() == 3


def test_a_module_that_is_imported_already_stays(library):
    package = importlib.import_module("late_package")
    with defer_imports("late_package"):
        assert importlib.import_module("late_library").late_package is package
    assert sys.modules["late_package"] is package


def test_a_library_that_uses_it_at_once_gets_it(library):
    with defer_imports("late_package"):
        namespace: dict[str, object] = {}
        exec("from late_package import VALUE", namespace)
        assert namespace["VALUE"] == 3
    assert sys.modules["late_package"].VALUE == 3


def test_a_function_that_is_taken_out_at_once_imports_its_module_when_it_is_called(library, tmp_path):
    (tmp_path / "late_package" / "__init__.py").write_text(
        "def double(number, *, more=0):\n    return 2 * number + more\n"
    )
    namespace: dict[str, object] = {}
    with defer_imports("late_package:double"):
        exec("from late_package import double", namespace)
    assert "late_package" not in sys.modules
    assert namespace["double"](3, more=1) == 7
    assert sys.modules["late_package"].double is not namespace["double"]


@pytest.mark.parametrize(
    "statement",
    ["import late_package as found", "import late_package.inner as found", "from late_package import VALUE"],
)
def test_another_thread_may_import_it_meanwhile(library, statement):
    namespace: dict[str, object] = {}
    with defer_imports("late_package"):
        thread = threading.Thread(target=lambda: exec(statement, namespace))
        thread.start()
        thread.join()
    found = namespace.get("found")
    assert namespace.get("VALUE", getattr(found, "VALUE", None)) == (4 if "inner" in statement else 3)


def test_what_is_missing_is_an_import_error_where_it_is_used(library):
    with defer_imports("late_nowhere"):
        nowhere = importlib.import_module("late_nowhere")
    with pytest.raises(ModuleNotFoundError, match="late_nowhere"):
        nowhere.attribute  # noqa: B018


ONNX_IR = """
import sys
from pytrtplugins.utils.optional import require

ir = require("onnx_ir", extra="onnx")
require("onnx_ir.passes.common", extra="onnx")
assert not [name for name in sys.modules if name.partition(".")[0] == "sympy"], sys.modules
dim = ir.SymbolicDim("n")
assert dim == "n" and "sympy" not in sys.modules
print(dim + 1, type(sys.modules["sympy"].Symbol))
"""


def test_onnx_ir_imports_sympy_when_it_computes_with_free_dims():
    pytest.importorskip("onnx_ir")
    done = subprocess.run([sys.executable, "-c", ONNX_IR], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("n + 1 <class ")


OPENVINO = """
import sys
import onnx
from onnx import helper
from pytrtplugins.utils.optional import require

openvino = require("openvino", extra="cpu")
assert "openvino.tools.ovc" not in sys.modules
x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy")
model = helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y]))
onnx.save(model, sys.argv[1])
print(openvino.convert_model(sys.argv[1]).outputs[0].any_name, "openvino.tools.ovc" in sys.modules)
"""


def test_openvino_imports_its_converter_when_it_converts(tmp_path):
    pytest.importorskip("openvino")
    command = [sys.executable, "-c", OPENVINO, str(tmp_path / "relu.onnx")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "y True\n"
