"""What libraries below the engines raise reaches callers as our own error, short, with its cause; what plugins raise stays."""

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.engines import BuildOptions
from pytrtplugins.engines.base.failures import as_error, explained_runs, shorten_message
from pytrtplugins.engines.registry import engine_class
from pytrtplugins.errors import BuildError, EngineError, ExecutionError, ModelError
from pytrtplugins.passes import prepare

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")

from tests.engines.model_parts import parsed
from tests.engines.networks import run
from tests.user_plugins import Copy

UNKNOWN = f"Unknown{'o' * 80}"
MANY_UNKNOWN = parsed(
    f"(float[4] x) => ({', '.join(f'float[] y{i}' for i in range(100))})"
    f"{{ {' '.join(f'y{i} = com.microsoft.{UNKNOWN}{i} (x)' for i in range(100))} }}",
    *(18, 10, ["com.microsoft"]),
)


@ptp.plugin(namespace="tests.failures")
class Raising(Copy):
    def compute(self, x):
        raise LookupError("the plugin's own")


@pytest.mark.parametrize("engine", ["cpu", "onnxruntime"])
def test_what_a_library_says_of_a_model_that_it_cannot_build_is_short_and_whole_in_its_cause(engine):
    with pytest.raises(BuildError, match=r"cannot (build the model|run it): ") as caught:
        engine_class(engine)(prepare(MANY_UNKNOWN), BuildOptions())
    assert len(str(caught.value)) < 1700
    assert caught.value.text == str(caught.value.__cause__)
    assert caught.value.engine == engine


@pytest.mark.parametrize("engine", ["cpu", "onnxruntime"])
def test_where_it_says_that_it_lacks_an_operator_the_error_names_the_node_and_not_the_librarys_words(engine):
    words = r"^engine '\w+' does not have the operator com.microsoft::Unknowno+0 "
    with pytest.raises(BuildError, match=words) as caught:
        ptp.build(MANY_UNKNOWN, engine=engine)
    assert len(str(caught.value)) < 1700
    assert not set(caught.value.text.splitlines()) & set(str(caught.value).splitlines())
    assert caught.value.text == str(caught.value.__cause__)
    assert (caught.value.engine, caught.value.op) == (engine, f"{UNKNOWN}0")


RESHAPE = parsed("(float[4] x, int64[2] s) => (float[] y) { y = Reshape (x, s) }", 18, 10)


@pytest.mark.parametrize("engine", ["cpu", "onnxruntime", "reference"])
def test_a_run_that_the_library_refuses_is_an_error_of_ours_with_its_cause(engine):
    with ptp.build(RESHAPE, engine=engine).create_context() as context:
        given = {"x": np.ones(4, np.float32), "s": np.array([3, 5])}
        with pytest.raises(EngineError) as caught:
            context.run(given)
        assert caught.value.__cause__ is not None
        if engine != "reference":
            assert isinstance(caught.value, ExecutionError)
            assert caught.value.text == str(caught.value.__cause__)
        given["s"] = np.array([2, 2])
        np.testing.assert_array_equal(context.run(given)["y"], np.ones((2, 2), np.float32))  # the context is usable


def test_memory_that_a_run_does_not_get_is_an_error_of_ours():
    hungry = parsed("(float[1] x, int64[2] s) => (float[] y) { y = Expand (x, s) }", 18, 10)
    given = {"x": np.ones(1, np.float32), "s": np.array([2**23, 2**23])}
    for name in ("cpu", "onnxruntime", "reference"):
        engine = ptp.build(hungry, engine=name)
        with pytest.raises(EngineError):
            run(engine, given)


@pytest.mark.parametrize("engine", ["cpu", "onnxruntime", "reference"])
def test_what_a_plugin_raises_stays_what_it_raised(engine):
    model = parsed("(float[4] x) => (float[] y) { y = tests.failures.Raising (x) }", 18, 10, ["tests.failures"])
    built = ptp.build(model, engine=engine)
    with pytest.raises(LookupError, match="the plugin's own"):
        run(built, {"x": np.ones(4, np.float32)})


def test_exceptions_of_ours_pass_and_others_keep_their_cause():
    with pytest.raises(ModelError, match=r"^ours$"), as_error("it failed", "cpu"):
        raise ModelError("ours")
    with pytest.raises(BuildError, match=r"^it failed: KeyError$") as caught, as_error("it failed", "cpu"):
        raise KeyError
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(KeyboardInterrupt), as_error("it failed", "cpu"):
        raise KeyboardInterrupt


def test_methods_of_contexts_are_explained():
    class Context:
        engine = type("E", (), {"name": "cuda"})

        @explained_runs("it failed")
        def run(self, error):
            raise error

    with pytest.raises(ExecutionError, match=r"^it failed: out of memory$") as caught:
        Context().run(RuntimeError("out of memory"))
    assert (caught.value.engine, caught.value.text) == ("cuda", "out of memory")


def test_a_text_is_shortened_to_its_first_useful_lines():
    text = "Exception from src/inference/core.cpp:105:\n\nCheck 'false' failed at src/a.cpp:1:\nthe reason\nthe reason\nmore"
    assert shorten_message(text) == "the reason\nmore"
    assert shorten_message("\n") == ""
    assert shorten_message("Exception from src/core.cpp:105:") == "Exception from src/core.cpp:105:"
    assert (
        shorten_message("it failed\nAt:\n/a/b.py(12): run\n/a/c.py(3): <module>\nthere, too") == "it failed\nthere, too"
    )
    long = "\n".join(f"line {index}" for index in range(10_000))
    found = shorten_message(long)
    assert len(found) <= 1500
    assert found.startswith("line 0\nline 1\n")
    assert found.endswith(f"of {len(long):,} characters; the whole text is in .text")


def test_a_node_that_onnxruntime_writes_with_others_is_named_where_one_of_these_fails():
    """Factors of each channel, where opset 18 has one for each group; the product inside has no name."""
    network = parsed(
        "(float[1,4,2] x) => (float[] z) <float[4] w = {1,1,1,1}>"
        "{ y = GroupNormalization <num_groups = 2> (x, w, w)  z = Neg (y) }",
        *(18, 10),
    )
    engine = ptp.build(network, engine="onnxruntime")
    words = r"that onnxruntime writes with others: node 'GroupNormalization_y' \(GroupNormalization\)$"
    with pytest.raises(ExecutionError, match=words) as caught:
        run(engine, {"x": np.ones((1, 4, 2), np.float32)})
    assert "while running Mul node" in caught.value.text


def test_a_node_in_onnxruntimes_own_layout_has_the_models_name():
    assert shorten_message("running Conv node. Name:'a_nchwc' Status") == "running Conv node. Name:'a' Status"
