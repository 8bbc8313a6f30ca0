"""A plugin gives its numbers wherever it stands in a network, or the build says what is wrong with the node."""

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import BindingError, DimsError, ModelError, PluginError, PytrtpluginsError
from tests.engines.model_parts import parsed
from tests.engines.networks import Affine, conv_net, image, run
from tests.engines.plugin_models import PLACES, REFUSED, X, model
from tests.user_plugins import Copy


@pytest.mark.parametrize("place", PLACES)
def test_a_plugin_reads_and_gives_every_kind_of_tensor(engine_name, place):
    model, expected = PLACES[place]
    with ptp.build(model, engine=engine_name).create_context() as context:
        assert [desc.name for desc in context.engine.inputs] == ["x"]
        for _ in range(2):  # a constant is the same in each run
            found = context.run({"x": X})
            assert found.keys() == expected.keys()
            for name, value in expected.items():
                np.testing.assert_array_equal(found[name], value)


@ptp.plugin(namespace="test.places")
class Above(ptp.Plugin):
    def output_dims(self, x, b):
        return x[0] + b[0], x[1]

    def compute(self, x, b):
        return np.concatenate([x, b])


@pytest.mark.parametrize("given", ["x, w", "w, x"])
def test_a_constant_without_elements_keeps_its_dims(engine_name, given):
    network = model(f"y = Above ({given})", weights=np.zeros((0, 3), np.float32))
    np.testing.assert_array_equal(run(ptp.build(network, engine=engine_name), {"x": X})["y"], X)


@pytest.mark.parametrize("place", REFUSED)
def test_what_no_plugin_node_may_have_is_refused_with_its_name(engine_name, place):
    model, words = REFUSED[place]
    with pytest.raises((DimsError, ModelError), match=f"node 'plugin': .*{words}"):
        ptp.build(model, engine=engine_name)


# -- outputs of compute ----------------------------------------------------------------------------------------------

RESULTS = {
    "None": (lambda x: None, PluginError, r"compute gave None, expected float32\[1, 8, 8, 8\]"),
    "too many": (lambda x: (x, x), DimsError, "compute gave 2 outputs, output_dims 1"),
    "none": (lambda x: (), DimsError, "compute gave 0 outputs, output_dims 1"),
    "None among them": (
        lambda x: [None],
        PluginError,
        "output 0 of compute is of type NoneType, expected an array float32",
    ),
    "a number": (lambda x: 3.5, PluginError, "output 0 of compute is of type float, expected an array"),
    "text": (lambda x: "y", PluginError, "output 0 of compute is of type str, expected an array"),
    "a list": (lambda x: x.tolist() + x.tolist(), DimsError, "compute gave 2 outputs, output_dims 1"),
    "another shape": (lambda x: x[:, 1:], DimsError, r"output 0 of compute has shape \(1, 7, 8, 8\)"),
    "another rank": (lambda x: x[0], DimsError, r"output 0 of compute has shape \(8, 8, 8\)"),
    "another type": (
        lambda x: x.astype(np.float64),
        PluginError,
        "output 0 of compute is float64, output_dtypes says float32",
    ),
    "text in an array": (lambda x: x.astype(str), PluginError, "output 0 of compute is <U"),
    "objects": (lambda x: x.astype(object), PluginError, "output 0 of compute is object, output_dtypes says float32"),
}


@ptp.plugin(namespace="test.engines")
class Giving(Copy):
    def compute(self, x):
        return Giving.result(x)


@pytest.mark.parametrize("result", RESULTS)
def test_outputs_of_compute_that_do_not_fit_are_named(engine_name, result):
    if engine_name == "cuda" and result in ("text in an array", "objects"):
        pytest.skip("CuPy has no such arrays")
    Giving.result, error, words = RESULTS[result]
    with ptp.build(conv_net(Giving()), engine=engine_name).create_context() as context:
        with pytest.raises(error, match=rf"^node 'plugin0': Giving\(\): {words}") as caught:
            context.run({"data": image()})
        assert caught.value.node == "plugin0"
        Giving.result = lambda x: x + 0
        assert context.run({"data": image()})["y"].shape == (1, 4, 8, 8)


def test_a_plugin_error_of_the_plugins_own_is_raised_as_it_is(engine_name):
    own = PluginError("mine")

    def fail(x):
        raise own

    Giving.result = fail
    engine = ptp.build(conv_net(Giving()), engine=engine_name)
    with pytest.raises(PluginError) as caught:
        run(engine)
    assert caught.value is own


# -- what engines do not take ----------------------------------------------------------------------------------------


def test_a_batch_of_nothing_is_refused_and_the_context_goes_on(engine_name):
    with ptp.build(conv_net(Affine(), batch="N"), engine=engine_name).create_context() as context:
        before = context.run({"data": image(2)})["y"]
        for run in (context.run, lambda data: context.run_async(data).result()):
            with pytest.raises(BindingError, match=r"input 'data': its batch N is 0, expected at least 1") as caught:
                run({"data": image(0)})
            assert caught.value.found == (0, 3, 8, 8)
        np.testing.assert_array_equal(context.run({"data": image(2)})["y"], before)


def test_a_free_dim_that_is_no_batch_may_be_0(engine_name):
    text = """(int64[n] sizes) => (float y)
        { z = ConstantOfShape <value = float[1] {3}> (sizes) y = ReduceSum <keepdims = 0> (z) }"""
    engine = ptp.build(parsed(text), engine=engine_name)
    assert run(engine, {"sizes": np.zeros(0, np.int64)})["y"] == 3
    assert run(engine, {"sizes": np.array([2, 4])})["y"] == 24


def test_a_model_without_outputs_is_refused(engine_name):
    network = parsed("(float[2] x) => (float[2] y) { y = Relu (x) }")
    del network.graph.output[:]
    with pytest.raises(ModelError, match="the model has no outputs"):
        ptp.build(network, engine=engine_name)


@pytest.mark.parametrize("kind", ["sequence", "optional", "map", "sparse tensor"])
@pytest.mark.parametrize("end", ["input", "output"])
def test_inputs_and_outputs_that_are_no_tensors_are_refused(engine_name, kind, end):
    text = {"sequence": "seq(float[2,3])", "map": "map(int64,float[2,3])"}.get(kind, f"{kind}(float[2,3])")
    other = f"{text.replace(' t', '_t')} s"
    if end == "input":
        network = model("y = Next (x)", inputs=f"float[2,3] x, {other}")
    else:
        network = model("y = Next (x) s = SequenceConstruct (y)", f"{other}, y")
    with pytest.raises(ModelError, match=rf"(?s)'s'.*{kind}"):
        ptp.build(network, engine=engine_name)


def test_a_plugin_that_reads_a_sequence_is_refused(engine_name):
    with pytest.raises(PytrtpluginsError, match=r"'plugin'.*'s'"):
        ptp.build(model("a = Relu (x) s = SequenceConstruct (a) y = Next (s)"), engine=engine_name)
