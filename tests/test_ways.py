"""The ways of data in docs/explanation/ways.md are those that calls take: each file is entered, in the order of the page."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import pytrtplugins as ptp
from darknet2caffe import read_network, to_onnx
from pytrtplugins.models import Yolov2
from tests.engines.cuda.host import run_on_host

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/explanation/ways.md").read_text("utf-8")
FOLDERS = ("darknet2caffe", "pytrtplugins")


@ptp.plugin(namespace="tests.ways")
class Twice(ptp.Plugin):
    """Nothing but a definition."""

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x + x


def entered(call):
    """Files of the package, in the order in which a call enters the first function of each."""
    found: dict[str, None] = {}

    def note(frame, event, argument):
        path = frame.f_code.co_filename
        name = path.removeprefix(f"{ROOT}/")
        if event == "call" and name not in found and name.startswith(FOLDERS) and not imported(frame):
            found[name] = None

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(found)


def imported(frame):
    """Whether a call is part of an import, which a call before it may have done already."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.removeprefix(f"{ROOT}/").startswith(FOLDERS):
            return True
        frame = frame.f_back
    return False


def told(heading):
    """The files of a numbered list below a heading of the page."""
    text = PAGE.partition(f"## {heading}\n")[2].partition("\n#")[0]
    return re.findall(r"^\d+\. `([^`]+\.py)`", text, re.MULTILINE)


def in_order(names, found):
    rest = iter(found)
    return [name for name in names if name not in rest]  # what is not behind those before it


def model_with_plugin():
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", "y")]
    graph = helper.make_graph([Twice().as_node(["x"], ["y"], "twice")], "g", info[:1], info[1:])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("tests.ways", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def define_and_write():
    @ptp.plugin(namespace="tests.ways")
    class Thrice(ptp.Plugin):
        factor: int = 3

        def output_dims(self, x):
            return x

        def compute(self, x):
            return self.factor * x

    Thrice().as_node(["x"], ["y"])


def from_cfg_to_boxes(tmp_path):
    models = ROOT / "samples/models"
    network = read_network(models / "yolov2-animals.cfg", models / "yolov2-animals.weights")
    detector = Yolov2(ptp.build(to_onnx(network), engine="cpu"), names=models / "yolov2-animals.names")
    detector(np.zeros((32, 32, 3), np.uint8), score_threshold=0.5)


def on(engine):
    x = np.arange(4, dtype=np.float32)[None]
    with ptp.build(model_with_plugin(), engine=engine).create_context() as context:
        np.testing.assert_array_equal(context.run({"x": x})["y"], 2 * x)


def on_cuda_without_a_gpu():
    x = np.arange(4, dtype=np.float32)[None]
    outputs, _ = run_on_host(ptp.passes.prepare(model_with_plugin()), {"x": x})
    np.testing.assert_array_equal(outputs["y"], 2 * x)


WAYS = {
    "From a .cfg to boxes": from_cfg_to_boxes,
    "A plugin's class and its node": lambda tmp_path: define_and_write(),
    "A plugin on engine `cpu`": lambda tmp_path: on("cpu"),
    "A plugin on engine `onnxruntime`": lambda tmp_path: on("onnxruntime"),
    "A plugin on engine `reference`": lambda tmp_path: on("reference"),
    "A plugin on engine `cuda`": lambda tmp_path: on_cuda_without_a_gpu(),
}


@pytest.mark.parametrize("heading", WAYS)
def test_a_call_enters_the_files_of_the_page_in_its_order(heading, tmp_path):
    names = told(heading)
    assert len(names) >= 4, "no such list on the page"
    found = entered(lambda: WAYS[heading](tmp_path))
    assert not in_order(names, found), found


def test_a_file_out_of_its_order_is_found():
    assert in_order(["a.py", "c.py", "b.py"], ["a.py", "b.py", "c.py"]) == ["b.py"]
