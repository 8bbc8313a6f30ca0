"""ONNX's packages are imported when they are first used, and an error says how to install them where they are missing."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOADED = """
import sys
import pytrtplugins.passes.constants
from pytrtplugins.utils.optional import ir, onnx

assert not {"onnx", "onnx_ir"} & set(sys.modules)
assert not hasattr(ir, "__wrapped__") and "onnx_ir" not in sys.modules
assert onnx.ModelProto is sys.modules["onnx"].ModelProto and "onnx_ir" not in sys.modules
assert ir.Value is sys.modules["onnx_ir"].Value
assert onnx.__version__ == sys.modules["onnx"].__version__
"""
MISSING = """
import sys
from pytrtplugins.errors import MissingExtraError
from pytrtplugins.utils.optional import ir

sys.modules["onnx_ir"] = None
try:
    ir.Value
except MissingExtraError as error:
    assert error.package == "onnx_ir" and error.extra == "onnx", error
    assert 'Do: pip install "pytrtplugins[onnx]"' in str(error), error
else:
    raise AssertionError
"""


def run(program):
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_onnx_is_imported_at_the_first_use_of_an_attribute():
    run(LOADED)


def test_an_attribute_of_a_missing_package_is_an_error_with_the_next_command():
    run(MISSING)
