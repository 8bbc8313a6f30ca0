"""Models that others made run on the engines for CPUs, with onnxruntime's numbers."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import pytrtplugins as ptp
from pytrtplugins.engines import build
from pytrtplugins.errors import BuildError, ModelError, PluginError
from pytrtplugins.plugin.onnx_node import as_node
from tests.engines.exported_models import MODELS
from tests.engines.model_parts import BOOL, F, body, info, model, node

ENGINES = ("cpu", "onnxruntime")


def alone(model, inputs):
    """What onnxruntime computes without this package."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([info.name for info in session.get_outputs()], session.run(None, inputs), strict=True))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", MODELS)
def test_it_runs_with_onnxruntimes_numbers(name, engine):
    if name == "functions_of_one_name" and onnxruntime.__version__.startswith("1.23."):
        pytest.skip("onnxruntime 1.23, the last one for Python 3.10, takes one of the functions for the other")
    model, samples = MODELS[name]()
    before = model.SerializeToString(deterministic=True)
    built = build(model, engine=engine)
    assert model.SerializeToString(deterministic=True) == before
    with built.create_context() as context:
        for inputs in samples:
            expected, found = alone(model, inputs), context.run(inputs)
            assert found.keys() == expected.keys()
            for key, value in expected.items():
                assert found[key].dtype == value.dtype
                np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-6, err_msg=key)


@pytest.mark.parametrize("name", MODELS)
def test_the_models_are_what_onnx_allows(name):
    onnx.checker.check_model(MODELS[name]()[0], full_check=name not in ("minus_one_dims",))


@ptp.plugin(namespace="tests.exported")
class Doubled(ptp.Plugin):
    """Twice the input; without a decomposition."""

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x + x


@ptp.plugin(namespace="tests.exported")
class Tripled(Doubled):
    """Three times the input; with one."""

    def compute(self, x):
        return x * 3

    def decompose(self, op, x):
        return op.Mul(x, np.float32(3))


def around_a_branch(plugin):
    """A branch reads what a plugin gives, and nothing else does; a plugin reads what the branch gives."""
    then = body([node("Add", ["doubled", "x"], ["then_out"])], [info("then_out", F, None)])
    other = body([node("Neg", ["doubled"], ["else_out"])], [info("else_out", F, None)])
    nodes = [
        as_node(plugin, ["x"], ["doubled"], "first"),
        node("If", ["flag"], ["chosen"], then_branch=then, else_branch=other),
        as_node(plugin, ["chosen"], ["y"], "second"),
    ]
    return exported(nodes, [info("x", F, ["n", 2]), info("flag", BOOL, [])], [info("y", F, ["n", 2])])


def inside_a_branch(plugin):
    then = body([as_node(plugin, ["h"], ["then_out"], "inside")], [info("then_out", F, None)])
    other = body([node("Neg", ["h"], ["else_out"])], [info("else_out", F, None)])
    nodes = [node("Abs", ["x"], ["h"]), node("If", ["flag"], ["y"], then_branch=then, else_branch=other)]
    return exported(nodes, [info("x", F, ["n", 2]), info("flag", BOOL, [])], [info("y", F, ["n", 2])])


def exported(nodes, inputs, outputs):
    return model(nodes, inputs, outputs, domains=("tests.exported",))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("plugin", [Doubled(), Tripled()])
@pytest.mark.parametrize("flag", [True, False])
def test_plugins_around_a_branch_that_captures(engine, plugin, flag):
    x = np.array([[1, -2], [3, 4]], np.float32)
    factor = 2 if type(plugin) is Doubled else 3
    expected = factor * ((factor + 1) * x if flag else -factor * x)
    with build(around_a_branch(plugin), engine=engine).create_context() as context:
        np.testing.assert_array_equal(context.run({"x": x, "flag": np.array(flag)})["y"], expected)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("flag", [True, False])
def test_a_decomposition_is_written_into_a_branch(engine, flag):
    x = np.array([[1, -2], [3, 4]], np.float32)
    with build(inside_a_branch(Tripled()), engine=engine).create_context() as context:
        found = context.run({"x": x, "flag": np.array(flag)})["y"]
    np.testing.assert_array_equal(found, np.abs(x) * (3 if flag else -1))


def test_a_plugin_inside_a_branch_is_refused_by_onnxruntime():
    with pytest.raises(BuildError, match=r"(?s)plugin node 'inside' is inside node 'If_y' \(If\).*Do: give the plugin"):
        build(inside_a_branch(Doubled()), engine="onnxruntime")


def test_a_plugin_inside_a_branch_runs_on_engine_cpu():
    x = np.array([[1, -2]], np.float32)
    with build(inside_a_branch(Doubled()), engine="cpu").create_context() as context:
        np.testing.assert_array_equal(context.run({"x": x, "flag": np.array(True)})["y"], 2 * np.abs(x))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_plugin_does_not_read_what_plugins_do_not_exchange(engine):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(np.float64))
    made = exported([as_node(Doubled(), ["x"], ["y"], "n")], [info("x", kind, [2])], [info("y", kind, [2])])
    with pytest.raises(
        PluginError, match=r"(?s)reads float64, which is not an element type of plugins.*Do: put a Cast"
    ):
        build(made, engine=engine)


SEQUENCE = helper.make_sequence_type_proto(helper.make_tensor_type_proto(F, [2]))
KINDS = {
    "sequence": (SEQUENCE, "tensor 'x' is of the kind sequence"),
    "optional": (
        helper.make_optional_type_proto(helper.make_tensor_type_proto(F, [2])),
        "tensor 'x' is of the kind optional",
    ),
    "map": (
        helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(F, [2])),
        "tensor 'x' is of the kind map",
    ),
    "string": (helper.make_tensor_type_proto(TensorProto.STRING, [2]), "tensor 'x' is of the element type string"),
    "complex": (
        helper.make_tensor_type_proto(TensorProto.COMPLEX64, [2]),
        "tensor 'x' is of the element type complex64",
    ),
}


@pytest.mark.parametrize("engine", [*ENGINES, "reference", "null"])
@pytest.mark.parametrize("kind", KINDS)
def test_inputs_that_are_no_tensors_of_numbers_are_refused_by_name(engine, kind):
    type_proto, text = KINDS[kind]
    made = model(
        [node("Identity", ["x"], ["h"]), node("Identity", ["h"], ["y"])],
        [helper.make_value_info("x", type_proto)],
        [helper.make_value_info("y", type_proto)],
    )
    with pytest.raises(ModelError, match=text):
        build(made, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_outputs_are_the_callers(engine):
    """Also those that are an input, or a weight of the engine."""
    made, (sample, *_) = MODELS["constants_as_outputs"]()
    with build(made, engine=engine).create_context() as context:
        first = context.run(sample)
        kept = {name: value.copy() for name, value in first.items()}
        for value in first.values():
            assert not any(np.shares_memory(value, given) for given in sample.values())
            value[...] = 0
        for name, value in context.run(sample).items():
            np.testing.assert_array_equal(value, kept[name])
