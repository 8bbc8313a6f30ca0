"""docs/explanation/comparison.md, and docs/reference/comparison_programs.md: their programs, those that can run
here, and their numbers of lines.

TensorRT's two are in tests/engines/tensorrt/test_comparison.py.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import numpy as np
import pytest

import pytrtplugins as ptp
from tests.pages import Reader, blocks, read

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")

from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper  # noqa: E402

PAGE = "docs/explanation/comparison.md"
FILES = {block.title: block.text for block in blocks("docs/reference/comparison_programs.md") if block.title}
ROWS = {
    "this package": ("prelu.cu", "prelu.py"),
    "TensorRT, QDP": ("prelu_qdp.py",),
    "TensorRT, `IPluginV3`": ("prelu_v3.cu",),
    "onnxruntime": ("prelu_ort.cpp",),
    "`torch.library`": ("prelu_torch.py",),
}
SLOPE = np.array([0.1, 0.25, 3.0], np.float32)
X = np.random.default_rng(0).standard_normal((2, 3, 4, 5), np.float32)


def lines(text: str) -> int:
    """How many are neither empty nor a comment alone."""
    return sum(not re.fullmatch(r'\s*((#(?!include)|//).*|""".*""")?', line) for line in text.splitlines())


def model(node: NodeProto, *constants: TensorProto) -> ModelProto:
    x, y = helper.make_tensor_value_info("x", 1, ["N", 3, "H", "W"]), helper.make_tensor_value_info("y", 1, None)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("acme", 1)]
    graph = helper.make_graph([node], "g", [x], [y], list(constants))
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    """What onnxruntime's own PRelu gives."""
    slope = numpy_helper.from_array(SLOPE.reshape(3, 1, 1), "slope")
    session = onnxruntime.InferenceSession(
        model(helper.make_node("PRelu", ["x", "slope"], ["y"]), slope).SerializeToString()
    )
    return session.run(None, {"x": X})[0]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    made = Reader(tmp_path_factory.mktemp("comparison"))
    for title, text in FILES.items():
        (made.folder / title).write_text(text, "utf-8")
    return made


def test_the_page_has_these_programs_and_their_numbers_of_lines():
    assert set(FILES) == {name for names in ROWS.values() for name in names}
    for row, names in ROWS.items():
        (written,) = re.findall(rf"^\| {re.escape(row)} \| (\d+) \|", read(PAGE), re.MULTILINE)
        assert int(written) == sum(lines(FILES[name]) for name in names), row


def test_lines_are_counted_as_the_page_says():
    assert lines('#include <a>\n\n# a comment\n  // another\n    """A docstring."""\nx = 1  # one\n') == 2


@pytest.mark.parametrize("engine", ["cpu", "onnxruntime", "reference"])
def test_ours_computes_what_onnxruntimes_own_operator_does(reader, expected, engine):
    reader.names.update(ptp=ptp, model=model, engine=engine, X=X, SLOPE=SLOPE)
    reader.python(
        "from prelu import PRelu\n"
        "with ptp.build(model(PRelu(slope=SLOPE).as_node(['x'], ['y'])), engine=engine).create_context() as context:\n"
        "    found = context.run({'x': X})['y']\n"
    )
    np.testing.assert_array_equal(reader.names["found"], expected)


@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler: apt-get install g++")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_our_kernel_computes_it_too(reader, expected, dtype):
    x = X.astype(dtype)
    reader.names.update(x=x, y=np.zeros_like(x), SLOPE=SLOPE)
    reader.python(
        "from prelu import PRelu\nmade = PRelu(slope=SLOPE)\nmade.initialize()\nmade.enqueue([x], [y], None, None)\n"
    )
    np.testing.assert_allclose(reader.names["y"], expected, rtol=1e-6 if dtype == "float32" else 2e-3)


def test_onnxruntimes_custom_operator_computes_it_too(reader, expected):
    headers = os.environ.get("ONNXRUNTIME_INCLUDE", "")
    if not headers or not shutil.which("g++"):
        pytest.skip(
            "onnxruntime's headers or g++ are missing. Do: ONNXRUNTIME_INCLUDE=/path/to/onnxruntime/include python -m pytest"
        )
    library = reader.folder / "libprelu.so"
    command = ["g++", "-std=c++17", "-shared", "-fPIC", "-DORT_API_MANUAL_INIT", "-I", headers, "-o", str(library)]
    subprocess.run([*command, str(reader.folder / "prelu_ort.cpp")], check=True)
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(library))
    node = helper.make_node("PRelu", ["x"], ["y"], domain="acme", slope=SLOPE.tolist())
    session = onnxruntime.InferenceSession(model(node).SerializeToString(), options)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], expected)


def test_pytorchs_operator_computes_it_too_with_gradients(reader, expected):
    torch = pytest.importorskip("torch")
    reader.python("from prelu_torch import prelu")
    prelu = reader.names["prelu"]
    np.testing.assert_array_equal(prelu(torch.from_numpy(X), torch.from_numpy(SLOPE)).numpy(), expected)
    x, slope = (torch.from_numpy(array).double().requires_grad_() for array in (X[:1, :, :2, :1], SLOPE))
    torch.library.opcheck(
        prelu, (x, slope), test_utils=("test_schema", "test_autograd_registration", "test_faketensor")
    )
    assert torch.autograd.gradcheck(prelu, (x, slope))
