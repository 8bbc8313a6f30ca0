"""What TensorRT's parser is given computes what the model computes."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pytrtplugins as ptp
from pytrtplugins.calibration import CalibrationTable
from pytrtplugins.engines.tensorrt.engine import TensorrtEngine
from pytrtplugins.engines.tensorrt.graph import ParserForm, plugin_keys, written_out
from pytrtplugins.engines.tensorrt.plugin_fields import EXTRAS
from pytrtplugins.passes import prepare, quantize, run_passes, to_ir
from pytrtplugins.tensor import DType
from tests.engines.model_parts import parsed
from tests.engines.networks import Affine, Halves, conv_net, image
from tests.engines.networks import run as run_once
from tests.engines.plugin_models import PLACES
from tests.user_plugins import Copy

from .player import opened
from .user_plugins import Everything, Offsets


@ptp.plugin(namespace="test.tensorrt")
class Swap(Copy):
    """Moves values only, so int8 passes through."""

    int8 = "pass_through"

    def compute(self, x):
        return x[:, ::-1] + 0


@ptp.plugin(namespace="test.tensorrt")
class Composed(Copy):
    def compute(self, x):
        return x + x

    def decompose(self, op, x):
        return op.Add(x, x)


@ptp.plugin(namespace="test.tensorrt")
class Accelerated(Composed):
    def enqueue(self, inputs, outputs, workspace, stream):
        np.add(inputs[0], inputs[0], out=outputs[0])


def run(model, x, **options):
    return run_once(ptp.build(model, engine="reference", **options), {"data": x})["y"]


def quantized(*plugins):
    model = prepare(conv_net(*plugins))
    infos = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    return quantize(model, CalibrationTable({info.name: 0.01 for info in infos}), float_last=False)


def kinds(model):
    return Counter(node.op_type for node in model.graph.node)


def test_a_plugin_between_scales_gets_and_gives_int8_and_nothing_else_changes():
    model = quantized(Swap())
    form = run_passes(written_out(model), ParserForm())
    assert kinds(form)["QuantizeLinear"] == kinds(model)["QuantizeLinear"] - 1
    (node,) = [node for node in form.graph.node if node.op_type == "Swap"]
    assert {item.name: list(item.floats) for item in node.attribute if item.floats} == {
        EXTRAS[2]: [np.float32(0.01), np.float32(0.01)]
    }
    makers = {name: item.op_type for item in form.graph.node for name in item.output}
    readers = [item.op_type for item in form.graph.node if node.output[0] in item.input]
    assert (makers[node.input[0]], readers) == ("QuantizeLinear", ["DequantizeLinear"])
    form = opened(form)
    onnx.checker.check_model(form)
    np.testing.assert_array_equal(run(form, image(), precision="int8"), run(model, image(), precision="int8"))


def test_a_plugin_that_stays_in_float_keeps_its_scales_around_it():
    form = run_passes(written_out(quantized(Affine(3.0))), ParserForm())
    (node,) = [node for node in form.graph.node if node.op_type == "Affine"]
    (scales,) = [item for item in node.attribute if item.name == EXTRAS[2]]
    assert list(scales.floats) == [
        0.0,
        0.0,
    ]  # which says nothing: TensorRT's parser warns of attributes that are missing


def test_a_plugin_whose_result_is_wanted_in_float_too_stays_in_float():
    model = quantized(Swap())
    (node,) = [node for node in model.graph.node if node.op_type == "Swap"]
    model.graph.output.append(helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, [1, 8, 8, 8]))
    form = run_passes(written_out(model), ParserForm())
    assert kinds(form) == kinds(model)


def test_decompositions_are_written_out_unless_the_plugin_is_faster():
    form = written_out(prepare(conv_net(Composed(), Accelerated())))
    assert kinds(form)["Add"] == 1
    assert [str(key) for key in plugin_keys(form)] == ["test.tensorrt::Accelerated version 1"]


def test_the_form_that_is_asked_for_is_written_or_told_to_the_creator():
    model, name = prepare(conv_net(Accelerated())), "test.tensorrt::Accelerated"
    assert kinds(written_out(model, {name: "decomposition"}))["Add"] == 1
    for form, expected in (("enqueue", b""), ("compute", b"compute")):
        written = run_passes(written_out(model, {name: form}), ParserForm({name: form}))
        (node,) = [node for node in written.graph.node if node.op_type == "Accelerated"]
        found = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        assert found[EXTRAS[3]] == expected


def test_several_outputs_and_what_attributes_cannot_carry_are_written_for_the_creator():
    model = conv_net(Everything(required=2**40, number=5))
    model.graph.node.append(Halves().as_node(["y"], ["low", "high"], "halves"))
    model.opset_import.append(helper.make_opsetid("test.engines", 1))
    model.graph.output.append(helper.make_tensor_value_info("high", TensorProto.FLOAT, None))
    form = run_passes(written_out(prepare(model)), ParserForm())
    found = {
        node.op_type: {item.name: helper.get_attribute_value(item) for item in node.attribute}
        for node in form.graph.node
    }
    assert found["Halves"][EXTRAS[1]] == 2
    held = {spec.name for spec in Everything.field_specs()} - {"texts"}
    assert set(found["Everything"]) == {"plugin_namespace", "plugin_version", *EXTRAS, *held}
    assert (found["Everything"]["required"], list(found["Everything"]["table"])) == (0, [0.0])  # the bytes have them


@pytest.mark.parametrize("dims", [(8,), (8, 1, 1)])
def test_arrays_with_one_axis_are_attributes_for_the_parser_and_others_bytes(dims):
    form = run_passes(written_out(prepare(conv_net(Offsets(by=np.zeros(dims))))), ParserForm())
    (node,) = [node for node in form.graph.node if node.op_type == "Offsets"]
    found = {item.name: item for item in node.attribute}
    assert set(found) == {"plugin_namespace", "plugin_version", *EXTRAS, "by"}
    assert bool(found[EXTRAS[0]].s) is (len(dims) > 1)
    if len(dims) == 1:
        assert (found["by"].t.data_type, list(found["by"].t.dims)) == (TensorProto.FLOAT, [8])
    else:  # the parser warns of an attribute that is not there
        assert list(found["by"].floats) == [0.0]


def test_local_functions_of_plugins_are_left_out():
    from pytrtplugins.model.decompose import add_functions

    model = add_functions(conv_net(Accelerated()))
    assert model.functions
    assert not run_passes(written_out(prepare(model)), ParserForm()).functions


@pytest.mark.parametrize("batch", [1, "N"])
def test_the_models_own_numbers_stay(batch):
    model = prepare(conv_net(Accelerated(), Composed(), Affine(3.0), batch=batch))
    before = model.SerializeToString()
    form = opened(run_passes(written_out(model), ParserForm()))
    np.testing.assert_allclose(run(form, image()), run(model, image()), rtol=1e-6)
    assert model.SerializeToString() == before


@pytest.mark.parametrize(
    ("equation", "read"),
    [
        ("bij,bjk->bik", "bij,bjk->bik"),
        ("BIJ,BJK->BIK", "abc,acd->abd"),
        ("B...I, IJ -> B...J", "a...b, bc -> a...c"),
        ("aA->A", "ba->a"),
    ],
)
def test_equations_of_einsum_have_small_letters_and_mean_the_same(equation, read):
    rank = [len(part.replace("...", "xx").replace(" ", "")) for part in equation.split("->")[0].split(",")]
    shapes = [(2,) * each for each in rank]
    declared = [f"float{list(dims)} x{i}" for i, dims in enumerate(shapes)]
    operands = ", ".join(text.split()[-1] for text in declared)
    node = f'y = Einsum <equation = "{equation}"> ({operands})'
    model = parsed(f"({', '.join(declared)}) => (float[] y) {{ {node} }}")
    changed = run_passes(written_out(prepare(model)), ParserForm())
    (found,) = (node for node in changed.graph.node if node.op_type == "Einsum")
    assert found.attribute[0].s.decode() == read
    inputs = [np.random.default_rng(i).standard_normal(dims).astype(np.float32) for i, dims in enumerate(shapes)]
    np.testing.assert_array_equal(np.einsum(equation, *inputs), np.einsum(read, *inputs))


def test_outputs_that_nobody_names_get_names_that_no_tensor_has():
    model = prepare(PLACES["gives a first output without a name"][0])
    model.graph.node.append(helper.make_node("Relu", ["x"], ["plugin_output0"], "other"))
    model.graph.output.append(helper.make_tensor_value_info("plugin_output0", TensorProto.FLOAT, [2, 3]))
    node = next(node for node in run_passes(written_out(model), ParserForm()).graph.node if node.op_type == "Pair")
    assert list(node.output) == ["plugin_output0_2", "y"]


def test_a_model_in_half_precision_keeps_nodes_that_read_numbers_beyond_it():
    text = (
        "(float[2,3] x) => (float[2,3] y) <float m = {1e6}> { a = Relu (x) b = Mul (a, m) c = Exp (x) y = Add (b, c) }"
    )
    form, engine = to_ir(prepare(parsed(text))), SimpleNamespace(choices={}, precision="fp16")
    TensorrtEngine._halve(engine, form, DType.FLOAT16)
    kinds = {node.op_type: node.inputs[0].dtype.name for node in form.graph}
    assert (kinds["Relu"], kinds["Exp"], kinds["Mul"]) == ("FLOAT16", "FLOAT16", "FLOAT")
    assert engine.choices["fp16"].startswith("float32 where numbers are beyond it: Mul_b: constant")
