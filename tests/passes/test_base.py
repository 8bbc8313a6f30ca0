from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from pytrtplugins.errors import ModelError
from pytrtplugins.passes._base import Pass, PassResult, to_ir, to_proto


def model():
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


class Nothing(Pass):
    name = "nothing"
    log: list  # what was called

    def __init__(self):
        self.log = []

    def requires(self, model):
        self.log.append("requires")

    def call(self, model):
        self.log.append("call")
        return PassResult(model, False)

    def ensures(self, model):
        self.log.append("ensures")


class Renames(Pass):
    name = "renames"

    def call(self, model):
        model.graph.outputs[0].name = "other"
        return PassResult(model, True)


def test_conditions_are_checked_around_the_call():
    nothing = Nothing()
    assert nothing(to_ir(model())).modified is False
    assert nothing.log == ["requires", "call", "ensures"]


def test_a_pass_that_changes_the_outputs_is_an_error():
    with pytest.raises(ModelError, match="'renames'"):
        Renames()(to_ir(model()))


def test_a_model_survives_the_way_there_and_back(tmp_path):
    onnx.save(model(), tmp_path / "m.onnx")
    assert to_proto(to_ir(model())).graph == to_proto(to_ir(tmp_path / "m.onnx")).graph
    onnx.checker.check_model(to_proto(to_ir(model())))


@pytest.mark.parametrize("content", [b"\xff\xfe no model", None])
def test_a_file_that_is_no_model_is_an_error_with_its_name(tmp_path, content):
    if content is not None:
        (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(ModelError, match=r"m\.onnx"):
        to_ir(tmp_path / "m.onnx")
