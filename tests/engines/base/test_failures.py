"""What libraries below the engines raise reaches callers as our own error, short, with its cause; what plugins raise stays."""

from __future__ import annotations

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.engines import BuildOptions
from pytrtplugins.engines.base.failures import explained_runs, explaining, shortened
from pytrtplugins.engines.registry import engine_class
from pytrtplugins.errors import BuildError, EngineError, ExecutionError, ModelError
from pytrtplugins.passes import prepare

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")

from onnx import helper  # noqa: E402


def info(name, dims, kind=1):
    return helper.make_tensor_value_info(name, kind, dims)


def model(nodes, outputs=("y",), inputs=None, weights=(), domains=()):
    graph = helper.make_graph(
        nodes, "g", inputs or [info("x", [4])], [info(name, None) for name in outputs], list(weights)
    )
    imports = [helper.make_opsetid("", 18), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


MANY_UNKNOWN = model(
    [helper.make_node(f"Unknown{'o' * 80}{i}", ["x"], [f"y{i}"], domain="com.microsoft") for i in range(100)],
    outputs=[f"y{i}" for i in range(100)],
    domains=["com.microsoft"],
)


@ptp.plugin(namespace="tests.failures")
class Raising(ptp.Plugin):
    """A plugin whose compute fails in its own way."""

    def output_dims(self, x):
        return x

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
    with pytest.raises(
        BuildError, match=r"^engine '\w+' does not have the operator com.microsoft::Unknowno+0 "
    ) as caught:
        ptp.build(MANY_UNKNOWN, engine=engine)
    assert len(str(caught.value)) < 1700
    assert not set(caught.value.text.splitlines()) & set(str(caught.value).splitlines())
    assert caught.value.text == str(caught.value.__cause__)
    assert (caught.value.engine, caught.value.op) == (engine, f"Unknown{'o' * 80}0")


GATHER = model(
    [helper.make_node("Gather", ["x", "i"], ["y"])], inputs=[info("x", [4]), info("i", [2], onnx.TensorProto.INT64)]
)
RESHAPE = model(
    [helper.make_node("Reshape", ["x", "s"], ["y"])], inputs=[info("x", [4]), info("s", [2], onnx.TensorProto.INT64)]
)


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
    hungry = model(
        [helper.make_node("Expand", ["x", "s"], ["y"])],
        inputs=[info("x", [1]), info("s", [2], onnx.TensorProto.INT64)],
    )
    given = {"x": np.ones(1, np.float32), "s": np.array([2**23, 2**23])}
    for engine in ("cpu", "onnxruntime", "reference"):
        with ptp.build(hungry, engine=engine).create_context() as context, pytest.raises(EngineError):
            context.run(given)


@pytest.mark.parametrize("engine", ["cpu", "onnxruntime", "reference"])
def test_what_a_plugin_raises_stays_what_it_raised(engine):
    nodes = [helper.make_node("Raising", ["x"], ["y"], domain="tests.failures")]
    with (
        ptp.build(model(nodes, domains=["tests.failures"]), engine=engine).create_context() as context,
        pytest.raises(LookupError, match="the plugin's own"),
    ):
        context.run({"x": np.ones(4, np.float32)})


def test_exceptions_of_ours_pass_and_others_keep_their_cause():
    with pytest.raises(ModelError, match=r"^ours$"), explaining("it failed", "cpu"):
        raise ModelError("ours")
    with pytest.raises(BuildError, match=r"^it failed: KeyError$") as caught, explaining("it failed", "cpu"):
        raise KeyError
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(KeyboardInterrupt), explaining("it failed", "cpu"):
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
    assert shortened(text) == "the reason\nmore"
    assert shortened("\n") == ""
    assert shortened("Exception from src/core.cpp:105:") == "Exception from src/core.cpp:105:"
    assert shortened("it failed\nAt:\n/a/b.py(12): run\n/a/c.py(3): <module>\nthere, too") == "it failed\nthere, too"
    long = "\n".join(f"line {index}" for index in range(10_000))
    found = shortened(long)
    assert len(found) <= 1500
    assert found.startswith("line 0\nline 1\n")
    assert found.endswith(f"of {len(long):,} characters; the whole text is in .text")


def test_a_node_that_onnxruntime_writes_with_others_is_named_where_one_of_these_fails():
    """Factors of each channel, where opset 18 has one for each group; the product inside has no name."""
    node = helper.make_node("GroupNormalization", ["x", "w", "w"], ["y"], "groups", num_groups=2)
    weights = [helper.make_tensor("w", 1, [4], [1.0] * 4)]
    network = model([node, helper.make_node("Neg", ["y"], ["z"])], ["z"], [info("x", [1, 4, 2])], weights)
    with (
        ptp.build(network, engine="onnxruntime").create_context() as context,
        pytest.raises(
            ExecutionError, match=r"that onnxruntime writes with others: node 'groups' \(GroupNormalization\)$"
        ) as caught,
    ):
        context.run({"x": np.ones((1, 4, 2), np.float32)})
    assert "while running Mul node" in caught.value.text


def test_a_node_in_onnxruntimes_own_layout_has_the_models_name():
    assert shortened("running Conv node. Name:'a_nchwc' Status") == "running Conv node. Name:'a' Status"
