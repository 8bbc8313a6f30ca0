"""A node of onnxruntime's operators that lacks something, or has it otherwise, is refused by an error that names it."""

import itertools

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from benchmarks.forms.families import BUILDERS
from benchmarks.forms.form import draw_forms
from pytrtplugins.errors import ModelError, PytrtpluginsError
from pytrtplugins.passes import prepare
from pytrtplugins.passes.contrib.table import BODIES
from pytrtplugins.passes.prepare import of_onnx

OPERATORS = sorted({f"{domain}.{name}" if domain else name for domain, name in BODIES} & BUILDERS.keys())
FORMS = 1


def copied(model):
    """A copy without declared dims, and its node of interest."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for info in copy.graph.output:
        info.type.tensor_type.ClearField("shape")
    return copy, next(node for node in copy.graph.node if node.name == "the_node")


def without_parts(model):
    """The model without each input of its node, and without each attribute."""
    _, node = copied(model)
    for index in range(len(node.input)):
        copy, changed = copied(model)
        changed.input[index] = ""
        yield copy
    for index in range(len(node.attribute)):
        copy, changed = copied(model)
        del changed.attribute[index]
        yield copy


def with_other_attributes(model):
    """The model with other values and types of attributes of its node."""
    _, node = copied(model)
    for index, value in itertools.product(range(len(node.attribute)), ("text", 0, -1, [1, 2, 3])):
        copy, changed = copied(model)
        changed.attribute[index].CopyFrom(helper.make_attribute(changed.attribute[index].name, value))
        yield copy


CHANGES = {
    "one axis more": lambda x: x[None],
    "no axes": lambda x: x.reshape(-1)[:1].reshape(()) if x.size else np.zeros((), x.dtype),
    "shorter": lambda x: x[..., :-1] if x.ndim else x[None],
    "float64": lambda x: x.astype(np.float64),
}


def with_other_inputs(model, inputs):
    """The model with other dims and types of the inputs of its node."""
    _, node = copied(model)
    for name, change in itertools.product(filter(None, dict.fromkeys(node.input)), CHANGES.values()):
        copy, _ = copied(model)
        for tensor in copy.graph.initializer:
            if tensor.name == name and tensor.data_type != onnx.TensorProto.STRING:
                array = np.ascontiguousarray(change(numpy_helper.to_array(tensor)))
                tensor.CopyFrom(numpy_helper.from_array(array, name))
        for info in copy.graph.input:
            if info.name == name and info.type.tensor_type.elem_type != onnx.TensorProto.STRING:
                array = change(np.asarray(inputs[name]))
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                info.CopyFrom(helper.make_tensor_value_info(name, kind, array.shape))
        yield copy


def refusal(model):
    """Why a model is refused; empty where it is not."""
    try:
        of_onnx(model)
    except PytrtpluginsError as error:
        return str(error)
    return ""


def assert_own_errors(models):
    for model in models:
        names = {"the_node", *(name for node in model.graph.node for name in (*node.input, *node.output) if name)}
        text = refusal(model)
        assert not text or any(name in text for name in names), text


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_node_that_lacks_an_input_or_attribute_is_left_or_refused_by_its_name(operator):
    for form in itertools.islice(draw_forms(0, [operator]), FORMS):
        assert_own_errors(without_parts(form.model))


@pytest.mark.slow
@pytest.mark.parametrize("operator", OPERATORS)
def test_so_is_one_with_other_attributes_and_inputs_than_its_operator_takes(operator):
    for form in itertools.islice(draw_forms(0, [operator]), FORMS):
        assert_own_errors(with_other_attributes(form.model))
        assert_own_errors(with_other_inputs(form.model, form.inputs))


def node_model(op, inputs, count=1, **attributes):
    """A model of one node that gives ``count`` outputs."""
    infos = [helper.make_tensor_value_info(f"i{index}", 1, dims) for index, dims in enumerate(inputs) if dims]
    names = [f"i{index}" if dims else "" for index, dims in enumerate(inputs)]
    outputs = [f"o{index}" for index in range(count)]
    node = helper.make_node(op, names, outputs, "the_node", domain="com.microsoft", **attributes)
    graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info(name, 1, None) for name in outputs])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (node_model("Attention", [(2, 2, 4)], num_heads=1), "lacks its input 1, which Attention needs"),
        (node_model("Attention", [(2, 2, 4), (4, 12)]), "lacks the attribute 'num_heads', which Attention needs"),
        (node_model("MultiHeadAttention", [(1, 2, 4)] * 3), "lacks the attribute 'num_heads'"),
        (node_model("SkipSimplifiedLayerNormalization", [(2, 2, 4)] * 2), "lacks its input 2"),
        (node_model("QuickGelu", []), "lacks its input 0"),
        (node_model("Attention", [(2, 2, 4), (4, 12)], num_heads=0), "attribute 'num_heads' has the value 0"),
        (node_model("Attention", [(2, 2, 4), (4, 12)], num_heads="two"), "cannot be written with ONNX's operators: "),
    ],
)
def test_the_error_says_what_is_missing(model, what):
    with pytest.raises(ModelError, match=r"node 'the_node' \(\w+\)") as caught:
        prepare(model)
    assert what in str(caught.value)
    assert "\nDo: " in str(caught.value)
    assert caught.value.facts["node"] == "the_node"


def test_an_operator_of_a_later_opset_that_lacks_inputs_is_no_foreign_error():
    text = """<ir_version: 9, opset_import: ["" : 19]> g (float[2,4,4] x, float[4,12] w) => (float[2,4,4] y)
        { y = Attention <num_heads = 2> (x, w) }"""
    assert [node.op_type for node in prepare(onnx.parser.parse_model(text)).graph.node] == ["Attention"]


@pytest.mark.parametrize("operator", ["FastGelu", "Gelu", "QuickGelu"])
def test_an_operator_that_computes_with_fractions_is_not_written_for_whole_numbers(operator):
    text = f"""<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]> g (int32[2] x) => (int32[2] y)
        {{ y = com.microsoft.{operator} (x) }}"""
    assert [node.op_type for node in prepare(onnx.parser.parse_model(text)).graph.node] == [operator]
