"""Models that others made run on the engines for CPUs, with onnxruntime's numbers."""

import numpy as np
import onnx
import onnxruntime
import pytest

import pytrtplugins as ptp
from pytrtplugins.engines import build
from pytrtplugins.errors import BuildError, PluginError
from tests.engines.exported_models import MODELS
from tests.engines.model_parts import parsed
from tests.engines.networks import run
from tests.user_plugins import Copy

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
class Doubled(Copy):
    def compute(self, x):
        return x + x


@ptp.plugin(namespace="tests.exported")
class Tripled(Doubled):
    def compute(self, x):
        return x * 3

    def decompose(self, op, x):
        return op.Mul(x, np.float32(3))


def around_a_branch(plugin):
    """A branch reads what a plugin gives, and nothing else does; a plugin reads what the branch gives."""
    text = f"""(float[n,2] x, bool flag) => (float[n,2] y) {{
        doubled = tests.exported.{plugin} (x)
        chosen = If (flag) <then_branch = a () => (float[] then_out) {{ then_out = Add (doubled, x) }},
                            else_branch = b () => (float[] else_out) {{ else_out = Neg (doubled) }}>
        y = tests.exported.{plugin} (chosen) }}"""
    return parsed(text, domains=["tests.exported"])


def inside_a_branch(plugin):
    text = f"""(float[n,2] x, bool flag) => (float[n,2] y) {{
        h = Abs (x)
        y = If (flag) <then_branch = a () => (float[] then_out) {{ then_out = tests.exported.{plugin} (h) }},
                       else_branch = b () => (float[] else_out) {{ else_out = Neg (h) }}> }}"""
    return parsed(text, domains=["tests.exported"])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("plugin", "factor"), [("Doubled", 2), ("Tripled", 3)])
@pytest.mark.parametrize("flag", [True, False])
def test_plugins_around_a_branch_that_captures(engine, plugin, factor, flag):
    x = np.array([[1, -2], [3, 4]], np.float32)
    expected = factor * ((factor + 1) * x if flag else -factor * x)
    found = run(build(around_a_branch(plugin), engine=engine), {"x": x, "flag": np.array(flag)})
    np.testing.assert_array_equal(found["y"], expected)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("flag", [True, False])
def test_a_decomposition_is_written_into_a_branch(engine, flag):
    x = np.array([[1, -2], [3, 4]], np.float32)
    found = run(build(inside_a_branch("Tripled"), engine=engine), {"x": x, "flag": np.array(flag)})
    np.testing.assert_array_equal(found["y"], np.abs(x) * (3 if flag else -1))


def test_a_plugin_inside_a_branch_is_refused_by_onnxruntime():
    words = r"(?s)plugin node 'Doubled_then_out' is inside node 'If_y' \(If\).*Do: give the plugin"
    with pytest.raises(BuildError, match=words):
        build(inside_a_branch("Doubled"), engine="onnxruntime")


def test_a_plugin_inside_a_branch_runs_on_engine_cpu():
    x = np.array([[1, -2]], np.float32)
    found = run(build(inside_a_branch("Doubled"), engine="cpu"), {"x": x, "flag": np.array(True)})
    np.testing.assert_array_equal(found["y"], 2 * np.abs(x))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_plugin_does_not_read_what_plugins_do_not_exchange(engine):
    text = "(double[2] x) => (double[2] y) { y = tests.exported.Doubled (x) }"
    words = r"(?s)reads float64, which is not an element type of plugins.*Do: put a Cast"
    with pytest.raises(PluginError, match=words):
        build(parsed(text, domains=["tests.exported"]), engine=engine)


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
