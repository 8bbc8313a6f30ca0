"""Borders of other projects' files: spellings of domains, tensors without rank or type, and what is no tensor of numbers."""

import ml_dtypes
import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")

import pytrtplugins as ptp
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines import calibrate
from pytrtplugins.errors import BindingError, ModelError
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import AnyDims
from tests.engines.cuda.host import run_on_host
from tests.engines.operators import literal

ENGINES = ("cpu", "onnxruntime", "reference")
X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def parsed(text, opsets='"": 17', ir_version=8):
    return onnx.parser.parse_model(f"<ir_version: {ir_version}, opset_import: [{opsets}]> g {text}")


def without_type(model):
    model.graph.output[0].ClearField("type")
    return model


def run(model, feeds, engine):
    if engine == "cuda":
        return run_on_host(prepare(model), feeds)[0]
    with ptp.build(model, engine=engine, progress=False).create_context() as context:
        return context.run(feeds)


def check_outputs(model, feeds, engine):
    """Compare an engine with onnxruntime on the model as it is."""
    before = model.SerializeToString()
    outputs = run(model, feeds, engine)
    expected = literal(model, feeds)
    assert [*outputs] == [info.name for info in model.graph.output]
    for name, right in zip(outputs, expected, strict=True):
        assert outputs[name].dtype == right.dtype
        np.testing.assert_allclose(outputs[name], right, 1e-4, 1e-5)
        assert np.shape(outputs[name]) == np.shape(right)
    assert model.SerializeToString() == before


DOMAINS = {
    "nodes and import": parsed("(float[2,3] x) => (float[2,3] y) { y = ai.onnx.Relu (x) }", '"ai.onnx": 17'),
    "nodes alone": parsed("(float[2,3] x) => (float[2,3] y) { y = ai.onnx.Relu (x) }"),
    "import alone": parsed("(float[2,3] x) => (float[2,3] y) { y = Relu (x) }", '"ai.onnx": 17'),
    "both imports": parsed("(float[2,3] x) => (float[2,3] y) { y = ai.onnx.Relu (x) }", '"": 17, "ai.onnx": 17'),
    "ai.onnx.ml, not imported": parsed(
        '(float[2,3] x) => (float[2,3] y) { y = ai.onnx.ml.Normalizer <norm = "L2"> (x) }'
    ),
    "com.microsoft, not imported": parsed("(float[2,3] x) => (float[2,3] y) { y = com.microsoft.QuickGelu (x) }"),
}


@pytest.mark.parametrize("name", DOMAINS)
@pytest.mark.parametrize("engine", [*ENGINES, "cuda"])
def test_domains_mean_the_same_however_they_are_spelled(name, engine):
    if engine == "cuda" and "ai.onnx.ml" in name:
        pytest.skip("engine cuda has no operators of ai.onnx.ml")
    model = DOMAINS[name]
    feeds = {"x": X, "c": np.array(True)}
    check_outputs(model, {info.name: feeds[info.name] for info in model.graph.input}, engine)


@pytest.mark.parametrize("name", DOMAINS)
def test_files_are_opened_in_the_plain_spelling(name, tmp_path):
    onnx.save(DOMAINS[name], tmp_path / "model.onnx")
    graph = ptp.load_onnx(tmp_path / "model.onnx")
    assert graph.nodes[0].type in {"Relu", "ai.onnx.ml::Normalizer", "com.microsoft::QuickGelu"}
    assert graph.tensors["y"] == (2, 3) or name == "com.microsoft, not imported"
    imports = [item.domain for item in graph.model.opset_import]
    assert len(imports) == len(set(imports))
    assert "ai.onnx" not in imports


@pytest.mark.parametrize("engine", ENGINES)
def test_branches_have_the_plain_spelling_too(engine):
    model = parsed(
        "(float[2,3] x, bool c) => (float[2,3] y) {"
        " y = ai.onnx.If (c) <then_branch = a () => (float[2,3] u) { u = ai.onnx.Relu (x) },"
        " else_branch = b () => (float[2,3] v) { v = ai.onnx.Neg (x) }> }"
    )
    found = run(model, {"x": X, "c": np.array(True)}, engine)["y"]
    np.testing.assert_array_equal(found, [[0, 0, 0], [1, 2, 3]])


@pytest.mark.parametrize("engine", [*ENGINES, "cuda"])
@pytest.mark.parametrize(
    "opsets", ['"": 13, "": 11', '"": 11, "": 13', '"ai.onnx": 13, "": 11', '"": 11, "ai.onnx": 13']
)
def test_the_last_of_two_versions_of_one_domain_counts(opsets, engine):
    model = parsed("(float[2,3,1] x) => (float[2,3,1] y) { y = Softmax <axis = 1> (x) }", opsets)
    check_outputs(model, {"x": X[..., None]}, engine)


FORMS = {
    "a size that is whole in float32 alone": (
        "(float[1,1,9,11] x) => (float[1,1,5,7] y) <float[4] s = {1, 1, 0.5555556, 0.6363636}> "
        '{ y = Resize <mode = "linear"> (x, , s) }',
        {"x": np.arange(99, dtype=np.float32).reshape(1, 1, 9, 11)},
    ),
    "such a size in a loop": (
        "(float[1,1,9,11] x) => (float[n,m,k,l] y) <int64 count = {1}, bool go = {1}, float[4] s = {1, 1, 0.5555556, 0.6363636}>"
        "{ y = Loop (count, go, x) <body = b (int64 i, bool a, float[p,q,r,t] u) => (bool a, float[v,w,z,o] e)"
        '{ e = Resize <mode = "linear"> (u, , s) }> }',
        {"x": np.arange(99, dtype=np.float32).reshape(1, 1, 9, 11)},
    ),
    "a loop that counts in vectors": (
        "(float[2,3] x) => (float[n,3] y) <int64 count = {2}, bool go = {1}, int64[1] axis = {0}, int64[1] one = {1}> "
        "{ state, y = Loop (count, go, x) <body = b (int64[1] i, bool a, float[2,3] u) => (bool a, float[2,3] u, float[3] e) "
        "{ end = Add (i, one) part = Slice (x, i, end, axis) e = Squeeze (part, axis) }> }",
        {"x": X},
    ),
    "a column of nothing": (
        "(int64[1] x) => (int64[n,1] y) <int64[2] dims = {-1, 1}, int64 three = {3}, int64 one = {1}> "
        "{ none = Range (three, three, one) column = Reshape (none, dims) y = Add (column, x) }",
        {"x": np.array([2])},
    ),
    "norms before opset 18": (
        "(float[2,3] x) => (float[2,1] y, float[2] z, float[1,3] w) { y = ReduceL1 <axes = [1]> (x) "
        "z = ReduceLogSumExp <axes = [-1], keepdims = 0> (x) positive = Abs (x) w = ReduceLogSum <axes = [0]> (positive) }",
        {"x": X + np.float32(0.5)},
    ),
}


@pytest.mark.parametrize("engine", [*ENGINES, "cuda"])
@pytest.mark.parametrize("form", FORMS)
def test_every_engine_computes_what_onnxruntime_does(form, engine):
    text, feeds = FORMS[form]
    check_outputs(parsed(text, '"": 17'), feeds, engine)


@pytest.mark.parametrize("engine", ["cpu", "onnxruntime"])
def test_int8_takes_the_spelling_ai_onnx(engine):
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((8, 3, 3, 3)), "u": rng.standard_normal((8, 8, 3, 3))}
    model = parsed(
        "(float[1,3,8,8] x) => (float[1,8,4,4] y) { c = ai.onnx.Conv (x, w) r = ai.onnx.Relu (c) y = ai.onnx.Conv (r, u) }",
        '"ai.onnx": 17',
    )
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()
    )
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    table = calibrate(model, MinMaxCalibrator([{"x": x}]), progress=False)
    built = ptp.build(
        model, engine=engine, precision="int8", calibration=table, settings={"int8": "always"}, progress=False
    )
    assert any(node.op_type == "QuantizeLinear" for node in built.model.graph.node)
    with built.create_context() as context:
        found = context.run({"x": x})["y"]
    right = literal(model, {"x": x})[0]
    assert np.abs(found - right).max() < 0.03 * np.abs(right).max()


def test_int8_that_quantizes_nothing_says_so_and_why(caplog):
    model = parsed("(float[1,3] x) => (float[1,2] y) { y = MatMul (x, w) }")
    model.graph.initializer.append(onnx.numpy_helper.from_array(X.T.copy(), "w"))
    for text, reason in (
        (model, "last layer before the outputs"),
        (UNRANKED["Relu"], "the model has no layer with constant"),
    ):
        x = X[:1]
        table = calibrate(text, MinMaxCalibrator([{"x": x}]), progress=False)
        caplog.clear()
        built = ptp.build(
            text, engine="onnxruntime", precision="int8", calibration=table, settings={"int8": "always"}, progress=False
        )
        (message,) = [item.getMessage() for item in caplog.records if "quantizes no layer" in item.getMessage()]
        assert reason in message
        with built.create_context() as context:
            np.testing.assert_allclose(context.run({"x": x})["y"], literal(text, {"x": x})[0], 1e-5)


UNRANKED = {
    "Relu": parsed("(float[] x) => (float[] y) { y = Relu (x) }"),
    "MatMul": parsed("(float[] x, float[3,2] w) => (float[] y) { t = MatMul (x, w) s = ReduceSum (t) y = Add (s, t) }"),
    "Flatten": parsed("(float[] x) => (float[] y) { t = Flatten (x) y = Softmax (t) }"),
}


@pytest.mark.parametrize("name", UNRANKED)
@pytest.mark.parametrize("engine", ENGINES)
def test_an_input_without_a_shape_takes_any_rank(name, engine):
    model = UNRANKED[name]
    assert not model.graph.input[0].type.tensor_type.HasField("shape")
    for x in (X, np.stack([X, 2 * X])):
        check_outputs(model, {"x": x, "w": X.T.copy()} if name == "MatMul" else {"x": x}, engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_input_without_a_shape_takes_a_scalar_and_keeps_its_type(engine):
    built = ptp.build(UNRANKED["Relu"], engine=engine, progress=False)
    assert isinstance(built.inputs[0].dims, AnyDims)
    assert str(built.inputs[0]) == "x: float32[...]"
    with built.create_context() as context:
        found = context.run({"x": np.array(-1, np.float32)})["y"]
        assert (found.shape, found.item()) == ((), 0)
        with pytest.raises(BindingError, match="input 'x': expected float32, found float64"):
            context.run({"x": X.astype(np.float64)})


def test_a_batch_for_an_input_without_a_shape_is_calibrated_as_it_is_given():
    table = calibrate(UNRANKED["Relu"], MinMaxCalibrator([{"x": X}]), progress=False)
    assert table["x"] == pytest.approx(3 / 127)


def test_a_scalar_input_still_takes_no_other_rank():
    model = parsed("(float x) => (float y) { y = Relu (x) }")
    model.graph.input[0].type.tensor_type.shape.SetInParent()
    with pytest.raises(BindingError, match=r"input 'x': expected dims \(\), found \(2, 3\)"):
        run(model, {"x": X}, "onnxruntime")


UNTYPED = {
    "Relu": parsed("(float[2,3] x) => (float[2,3] y) { y = Relu (x) }"),
    "of unknown rank": parsed("(float[] x) => (float[2,3] y) { y = Relu (x) }"),
    "of com.microsoft": parsed(
        "(float[2,3] x) => (float[2,3] y) { y = com.microsoft.QuickGelu (x) }", '"": 17, "com.microsoft": 1'
    ),
}


@pytest.mark.parametrize("name", UNTYPED)
@pytest.mark.parametrize("engine", ENGINES)
def test_an_output_without_a_type_gets_that_of_its_node(name, engine):
    check_outputs(without_type(onnx.ModelProto.FromString(UNTYPED[name].SerializeToString())), {"x": X}, engine)


WITHOUT_NODES = {
    "an input": "(float[2,3] x) => (float[2,3] x) { }",
    "an input and a constant": "(float[2,3] x) => (float[2,3] x, float[2] w) <float[2] w = {1, 2}> { }",
    "a constant": "() => (float[2] w) <float[2] w = {1, 2}> { }",
}


@pytest.mark.parametrize("name", WITHOUT_NODES)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_file_without_nodes_gives_what_it_has(name, engine, tmp_path):
    model = parsed(WITHOUT_NODES[name])
    onnx.save(model, tmp_path / "model.onnx")
    feeds = {"x": X} if model.graph.input else {}
    with ptp.build(tmp_path / "model.onnx", engine=engine, progress=False).create_context() as context:
        outputs = context.run(feeds)
    assert [*outputs] == [info.name for info in model.graph.output]
    for info in model.graph.output:
        np.testing.assert_array_equal(outputs[info.name], X if info.name == "x" else [1, 2])


NO_TENSORS = {
    "text in": ("(string[2] x) => (string[2] y) { y = Identity (x) }", "x", "element type string"),
    "complex in": ("(complex64[2] x) => (complex64[2] y) { y = Identity (x) }", "x", "element type complex64"),
    "text out": ("(float[2] x) => (string[2] y) { y = Cast <to = 8> (x) }", "y", "element type string"),
    "sequence in": ("(seq(float[2]) x) => (float[n] y) { y = ConcatFromSequence <axis = 0> (x) }", "x", "kind sequence"),
    "sequence out": ("(float[2] x) => (seq(float[2]) y) { y = SequenceConstruct (x, x) }", "y", "kind sequence"),
    "optional in": ("(optional(float[2]) x) => (float[2] y) { y = OptionalGetElement (x) }", "x", "kind optional"),
    "optional out": ("(float[2] x) => (optional(float[2]) y) { y = Optional (x) }", "y", "kind optional"),
    "map in": (
        "(map(int64, float) x) => (float[1,2] y) { y = ai.onnx.ml.CastMap <cast_to = \"TO_FLOAT\"> (x) }",
        "x",
        "kind map",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_TENSORS)
@pytest.mark.parametrize("engine", [*ENGINES, "null", "cuda"])
def test_what_is_no_tensor_of_numbers_is_refused_by_name(name, engine):
    text, tensor, kind = NO_TENSORS[name]
    with pytest.raises(
        ModelError, match=rf"tensor '{tensor}' is of the {kind}; inputs and outputs of .*\nDo: "
    ) as caught:
        run(parsed(text, '"": 17, "ai.onnx.ml": 2'), {}, engine)
    assert caught.value.facts["tensor"] == tensor


@pytest.mark.parametrize("engine", ENGINES)
def test_bfloat16_passes_the_borders(engine):
    x = np.array([1.5, -2.25], ml_dtypes.bfloat16)
    found = run(parsed("(bfloat16[2] x) => (bfloat16[2] y) { y = Identity (x) }"), {"x": x}, engine)["y"]
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found, x)
