"""Dims that a file declares are those that its operators give, or the file is refused; declared types do not count."""

import numpy as np
import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import ModelError
from pytrtplugins.model.declared import check_declared, infer_without_declared, take_output_dims
from pytrtplugins.model.proto import info_dims
from pytrtplugins.passes import prepare
from tests.engines.cuda.host import run_on_host


def parsed(text, between=""):
    """A model of a graph's text; ``between`` declares tensors between nodes."""
    declared = f"<{between}>" if between else ""
    text = text.replace("{", declared + " {", 1)
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17, "acme" : 1]> g {text}')


@pytest.mark.parametrize(
    ("text", "between", "tensor"),
    [
        ("(float[2,3] x) => (float[2,4] y) { y = Relu (x) }", "", "y"),
        ("(float[2,3] x) => (float[1,2,3] y) { y = Relu (x) }", "", "y"),
        ("(float[N,3] x) => (float[N,4] y) { y = Relu (x) }", "", "y"),
        ("(float[2,3] x) => (float[a,b] y) { t = Transpose (x) y = Relu (t) }", "float[2,3] t", "t"),
        ("(float[2,3] x) => (int64[3,n] y) { y = NonZero (x) }", "", "y"),
        ("(float[2,3] x) => (float[2,2] y) { t = acme.Nobody (x) y = Relu (t) }", "float[2,3] t", "y"),
    ],
)
def test_dims_that_contradict_the_operators_are_an_error_that_names_the_tensor(text, between, tensor):
    model = parsed(text, between)
    before = model.SerializeToString()
    with pytest.raises(ModelError, match=rf"tensor '{tensor}' is declared with the dims .*\nDo: ") as caught:
        prepare(model)
    assert caught.value.facts["tensor"] == tensor
    assert len(caught.value.facts["expected"]) in (1, 2)
    assert model.SerializeToString() == before


@pytest.mark.parametrize("engine", ["cpu", "onnxruntime", "reference"])
def test_every_engine_refuses_them(engine):
    with pytest.raises(ModelError, match="tensor 'y' is declared with the dims"):
        ptp.build(parsed("(float[2,3] x) => (float[2,4] y) { y = Relu (x) }"), engine=engine)


@pytest.mark.parametrize(
    ("text", "between"),
    [
        ("(float[2,3] x) => (float[2,3] y) { y = Relu (x) }", ""),
        ("(float[N,3] x) => (float[2,3] y) { y = Relu (x) }", ""),  # of one batch, by an exporter
        ("(float[2,3] x) => (float[a,b] y) { y = Relu (x) }", ""),
        ("(float[2,3] x) => (int64[2,5] y) { y = NonZero (x) }", ""),  # found wrong by the run
        ("(float[2,3] x) => (float[7] y) { y = acme.Nobody (x) }", ""),
        ("(float[2,3] x, int64[n] s) => (float[6] y) { y = Reshape (x, s) }", ""),
        ("(float[2,3] x) => (float[3,2] y) { t = Transpose (x) y = Relu (t) }", "float[3,2] t"),
    ],
)
def test_dims_that_agree_or_cannot_be_inferred_are_taken(text, between):
    check_declared(parsed(text, between))


def test_declared_dims_of_outputs_are_removed_where_a_rule_gives_them():
    model = parsed("(float[2,3] x) => (float[2,3] y, float[7] z) { y = Relu (x) z = acme.Nobody (x) }")
    types = take_output_dims(model)
    assert list(types) == ["y"]
    assert [dim.dim_value for dim in types["y"].tensor_type.shape.dim] == [2, 3]
    assert [info.type.tensor_type.HasField("shape") for info in model.graph.output] == [False, True]


def test_dims_follow_from_the_nodes_whatever_is_declared():
    model = parsed("(float[2,3] x) => (int64[2,5] y) { y = NonZero (x) }")
    (info,) = infer_without_declared(model).graph.output
    assert (info_dims(info)[0], isinstance(info_dims(info)[1], int)) == (2, False)
    assert info_dims(model.graph.output[0]) == (2, 5)


def test_dims_that_only_a_run_shows_to_be_wrong_do_not_shape_what_onnxruntime_computes_inside_openvino():
    text = """(float[1,1,4] b, float[1,1,1] s, int64[1] m, float[1] i, float[1] t) => (int64[1,3] y)
        { y = NonMaxSuppression (b, s, m, i, t) }"""
    inputs = {
        "b": np.float32([[[0, 0, 1, 1]]]),
        "s": np.float32([[[-1]]]),
        "m": np.int64([3]),
        "i": np.float32([0.5]),
        "t": np.float32([0]),
    }
    with ptp.build(parsed(text), engine="cpu").create_context() as context:
        with pytest.raises(
            ptp.errors.ExecutionError, match=r"'y' is int64 of dims \(0, 3\); expected int64 of \(1, 3\)"
        ):
            context.run(inputs)
        inputs["s"] = np.float32([[[1]]])
        np.testing.assert_array_equal(context.run(inputs)["y"], [[0, 0, 0]])


X = {"x": np.float32([1.5, -2])}
WRONG_TYPES = {
    "a constant": ("() => (float[1] y) { y = Constant <value: tensor = int32[1] {1}> () }", "", np.int32([1])),
    "truth values": ("(float[2] x) => (bfloat16[2] y) { y = IsNaN (x) }", "", np.array([False, False])),
    "a Cast to another type than the input's": (
        "(float[2] x) => (float[2] y) { y = Cast <to = 7> (x) }",
        "",
        np.int64([1, -2]),
    ),
    "between nodes": (
        "(float[2] x) => (int64[2] y) { t = Cast <to = 7> (x) y = Neg (t) }",
        "int32[2] t",
        np.int64([-1, 2]),
    ),
    "an input": ("(float[2] x) => (float16[2] x) { y = Relu (x) }", "", X["x"]),
    "an initializer": ("() => (float[2] w) { y = Relu (w) }", "int32[2] w = {1, 2}", np.int32([1, 2])),
}


@pytest.mark.parametrize("engine", ["cpu", "onnxruntime", "reference", "cuda"])
@pytest.mark.parametrize("where", WRONG_TYPES)
def test_a_wrongly_declared_element_type_is_corrected_before_engines_see_it(where, engine, caplog):
    text, between, expected = WRONG_TYPES[where]
    model = parsed(text, between)
    before = model.SerializeToString()
    inputs = X if model.graph.input else {}
    name = model.graph.output[0].name
    if engine == "cuda":
        result = run_on_host(prepare(model), inputs)[0][name]
    else:
        with ptp.build(model, engine=engine).create_context() as context:
            result = context.run(inputs)[name]
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)
    assert "is declared as" in caplog.text
    assert model.SerializeToString() == before


@pytest.mark.parametrize("engine", ["cpu", "reference"])
def test_so_is_that_of_an_operator_that_is_written_with_others(engine):
    text = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[2] x) => (float16[2] y) { y = com.microsoft.QuickGelu (x) }"""
    with ptp.build(onnx.parser.parse_model(text), engine=engine).create_context() as context:
        result = context.run(X)["y"]
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, X["x"] / (1 + np.exp(-1.702 * X["x"])), rtol=1e-5)


def test_a_model_whose_declared_types_are_right_is_not_copied():
    model = parsed("(float[2] x) => (bool[2] y) { y = IsNaN (x) }")
    assert check_declared(model) is model
