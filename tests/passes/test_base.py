from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest

from pytrtplugins.errors import ModelError
from pytrtplugins.model import Graph
from pytrtplugins.passes import (
    CrossLayerEqualization,
    LayerPrecision,
    Pass,
    PassResult,
    Placement,
    Precisions,
    Quantize,
    layer_names,
    load_model,
    prepare,
    quantize,
    quantized_tensors,
    run_passes,
    to_ir,
    to_proto,
)
from pytrtplugins.passes._quantize_plan import make_plan
from pytrtplugins.passes.codes import quantize_weights
from pytrtplugins.passes.half import to_half
from pytrtplugins.tensor import DType
from tests.onnx_parts import parsed
from tests.passes.nets import Net, ones


def model():
    return parsed("(float[1] x) => (float[1] y) { y = Relu (x) }")


def test_a_model_without_the_operators_that_passes_need_is_not_converted():
    class OfQuantized(Nothing):
        needs = ("QuantizeLinear",)

    step, given = OfQuantized(), model()
    assert run_passes(given, step) is given
    assert step.log == []
    assert run_passes(given, step, Nothing()) is given
    assert "call" in step.log


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


class Adds(Pass):
    name = "adds"

    def call(self, model):
        model.graph.outputs.append(model.graph.outputs[0])
        return PassResult(model, True)


def test_the_message_tells_the_inputs_and_outputs_before_and_after():
    message = "pass 'adds': the inputs and outputs of the model must stay: expected (['x'], ['y']), found (['x'], ['y', 'y'])."
    with pytest.raises(ModelError) as caught:
        Adds()(to_ir(model()))
    assert str(caught.value) == message


class Refuses(Nothing):
    name = "refuses"

    def requires(self, model):
        raise ModelError("not this one")


class Breaks(Nothing):
    name = "breaks"

    def ensures(self, model):
        raise ModelError("broken")


def test_conditions_that_do_not_hold_end_the_pass():
    refuses, breaks = Refuses(), Breaks()
    with pytest.raises(ModelError, match="not this one"):
        refuses(to_ir(model()))
    assert refuses.log == []
    with pytest.raises(ModelError, match="broken"):
        breaks(to_ir(model()))
    assert breaks.log == ["requires", "call"]


def test_what_onnx_ir_cannot_read_is_an_error_with_the_models_name(tmp_path, monkeypatch):
    import onnx_ir

    def refuse(_):
        raise KeyError("odd")

    onnx.save(model(), tmp_path / "m.onnx")
    monkeypatch.setattr(onnx_ir, "from_proto", refuse)
    for given, name in (
        (model(), "model"),
        (tmp_path / "m.onnx", tmp_path / "m.onnx"),
        (str(tmp_path / "m.onnx"), tmp_path / "m.onnx"),
    ):
        with pytest.raises(ModelError) as caught:
            to_ir(given)
        assert str(caught.value).startswith(f"{name}: not a model that passes can work on: 'odd'.\nDo: ")


def test_results_and_records_cannot_be_changed():
    """Others hold them too: a placement is shared by all networks of an engine."""
    net = Net()
    made = net.model(net.conv(net.conv("data", "a"), "b", leaky=False))
    ir_model = to_ir(made)
    quantized = Quantize(ones(made), placement=Placement(unsigned=True))(to_ir(made))
    records = [
        (PassResult(ir_model, False), "modified"),
        (CrossLayerEqualization({})(ir_model), "pairs"),
        (quantized, "layers"),
        (make_plan(to_ir(made), None), "layers"),
        (Placement(), "kernels"),
        (LayerPrecision("fp32"), "precision"),
        (Precisions("fp16", "0", ("a",), {"a": LayerPrecision("fp32")}), "names"),
    ]
    for record, name in records:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(record, name, None)
    assert layer_names(to_proto(ir_model)) == ("a", "a_leaky", "b")


def test_a_model_is_prepared_whichever_way_it_is_given(tmp_path):
    net = Net()
    made = net.model(net.conv("data", "a"))
    onnx.save(made, tmp_path / "m.onnx")
    expected = prepare(made)
    assert expected.graph.value_info
    for given in (tmp_path / "m.onnx", str(tmp_path / "m.onnx"), Graph(made)):
        assert prepare(given).graph == expected.graph
        assert load_model(given).graph == made.graph
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "other.onnx")


def test_passes_run_in_order_and_a_model_that_none_changes_comes_back_itself():
    class Marks(Nothing):
        def call(self, model):
            model.graph[0].name += self.name
            return PassResult(model, True)

    class More(Marks):
        name = "more"

    made, nothing = model(), Nothing()
    assert run_passes(made, nothing) is made
    marked = run_passes(made, Marks(), More(), nothing)
    assert [marked.graph.node[0].name, made.graph.node[0].name] == ["nothingmore", ""]
    assert nothing.log == ["requires", "call", "ensures"] * 2


def test_a_pass_without_a_body_cannot_be_made():
    with pytest.raises(TypeError, match="abstract"):
        type("Empty", (Pass,), {"name": "empty"})()


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (quantize, "model table"),
        (Quantize, "table"),
        (quantized_tensors, "model"),
        (to_half, "model dtype"),
        (make_plan, "model table"),
        (quantize_weights, "weights axis levels"),
    ],
)
def test_options_of_passes_are_given_by_name_and_the_rest_by_place_or_name(function, names):
    net = Net()
    made = prepare(net.model(net.conv(net.conv("data", "a"), "b", leaky=False)))
    values = {
        "table": ones(made),
        "dtype": DType.FLOAT16,
        "weights": np.ones((2, 3), np.float32),
        "axis": 0,
        "levels": 127,
    }
    values["model"] = to_ir(made) if function in (quantized_tensors, make_plan) else made
    given = {name: values[name] for name in names.split()}
    function(**given)
    with pytest.raises(TypeError, match="positional argument"):
        function(*given.values(), "more")
