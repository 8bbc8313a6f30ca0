"""An engine beside its file, which onnxruntime runs as it is: a conversion of ours that is wrong is seen."""

import json
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pytrtplugins as ptp
from pytrtplugins.errors import BuildError, ExecutionError, UsageError
from pytrtplugins.precision import compare, compare_with_file, parse_tolerance
from pytrtplugins.precision.file_comparison import FileComparison, OutputDifference, _difference
from tests.engines.networks import conv_net
from tests.engines.operators import model_of
from tests.precision.planted import samples

CLOSE = parse_tolerance("atol=1e-4,rtol=1e-4")


def floats(values):
    return np.array(values, np.float32)


def whole(values):
    return np.array(values, np.int64)


def written(folder, model):
    onnx.save(model, folder / "net.onnx")
    return folder / "net.onnx"


@pytest.mark.parametrize("engine", ["cpu", "onnxruntime", "reference"])
def test_an_engine_agrees_with_its_file(tmp_path, engine):
    model = conv_net()
    result = compare_with_file(written(tmp_path, model), ptp.build(model, engine=engine), samples(model, 2), CLOSE)
    assert result.agrees
    (output,) = result.outputs
    assert output.name == model.graph.output[0].name
    assert 0 <= output.absolute < 1e-4
    assert f"'{output.name}': largest difference" in str(result)


def test_a_conversion_that_both_engines_share_is_seen_beside_the_file_only(tmp_path):
    model = conv_net()
    converted = onnx.ModelProto()
    converted.CopyFrom(model)
    tensor = converted.graph.initializer[0]
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * 1.25, tensor.name))
    engines = [ptp.build(converted, engine=name) for name in ("reference", "cpu")]
    assert compare(*engines, samples(model), CLOSE).first_difference is None
    for engine in engines:
        result = compare_with_file(written(tmp_path, model), engine, samples(model), CLOSE)
        assert not result.agrees
        assert result.outputs[0].absolute > 1e-3
        assert result.outputs[0].error > 1


@pytest.mark.parametrize(
    ("values", "slope", "expected"),
    [
        ([1, 2, -4], 0.5, (1.0, 0.5)),  # -2 beside -1, -1 in the file
        ([1, 2], 0.5, (0.0, 0.0)),
        ([np.nan, np.inf, 1], 0.5, (0.0, 0.0)),
        ([-np.inf], 0.5, (0.0, 0.0)),
    ],
)
def test_the_largest_differences_are_absolute_and_relative(tmp_path, values, slope, expected):
    x = floats([values])
    path = written(tmp_path, model_of("LeakyRelu", [x], {"alpha": slope}))
    engine = ptp.build(model_of("LeakyRelu", [x], {"alpha": slope / 2}), engine="reference")
    (output,) = compare_with_file(path, engine, [{"x0": x}], CLOSE).outputs
    assert (output.absolute, output.relative) == pytest.approx(expected)
    assert (output.error <= 1) == (expected == (0.0, 0.0))


@pytest.mark.parametrize(
    ("actual", "expected"), [(1, np.inf), (np.inf, 1), (np.nan, 1), (1, np.nan), (np.inf, -np.inf)]
)
def test_what_is_no_number_on_one_side_alone_is_beyond_every_tolerance(actual, expected):
    found = _difference("y", floats([actual, 2]), floats([expected, 2]), CLOSE)
    assert (found.absolute, found.relative, found.error) == (np.inf, np.inf, np.inf)


def test_the_sample_that_differs_most_counts(tmp_path):
    x = floats([[-4]])
    path = written(tmp_path, model_of("LeakyRelu", [x], {"alpha": 0.5}))
    engine = ptp.build(model_of("LeakyRelu", [x], {"alpha": 0.25}), engine="reference")
    for order in (1, -1):
        found = compare_with_file(path, engine, [{"x0": a * x} for a in (1, 3, 2)][::order], CLOSE)
        assert found.outputs[0].absolute == 3


def test_whole_numbers_beyond_what_float64_holds_are_told_apart(tmp_path):
    x = whole([2**60])
    path = written(tmp_path, model_of("Add", [x, whole([1])], {}))
    engine = ptp.build(model_of("Add", [x, whole([2])], {}), engine="reference")
    (output,) = compare_with_file(path, engine, [{"x0": x}], parse_tolerance("atol=0,rtol=1e-20")).outputs
    assert output.relative == 0  # the values differ, and are one number in float64
    assert output.absolute == 0


def test_dims_and_types_that_differ_are_named(tmp_path):
    x = floats([[1, 2]])
    path = written(tmp_path, model_of("Transpose", [x], {}))
    result = compare_with_file(path, ptp.build(model_of("Relu", [x], {}), engine="reference"), [{"x0": x}], CLOSE)
    assert not result.agrees
    assert str(result) == "'y0': dims (1, 2), in the file (2, 1)"
    cast = model_of("Cast", [x], {"to": TensorProto.INT32})
    result = compare_with_file(path, ptp.build(cast, engine="reference"), [{"x0": x.reshape(1, 2)}], CLOSE)
    assert "dims" in str(result)
    path = written(tmp_path, model_of("Relu", [x], {}))
    result = compare_with_file(path, ptp.build(cast, engine="reference"), [{"x0": x}], CLOSE)
    assert str(result) == "'y0': element type int32, in the file float32"


def test_what_onnxruntime_does_not_run_and_other_files_are_refused(tmp_path):
    x = floats([[1, 2]])
    engine = ptp.build(model_of("Relu", [x], {}), engine="reference")
    with pytest.raises(UsageError, match="was built from another file") as caught:
        compare_with_file(written(tmp_path, conv_net()), engine, [{"x0": x}], CLOSE)
    assert "Do: " in str(caught.value)
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(BuildError, match=r"text\.onnx: onnxruntime does not load the file as it is"):
        compare_with_file(tmp_path / "text.onnx", engine, [{"x0": x}], CLOSE)
    with pytest.raises(ExecutionError, match=r"net\.onnx: onnxruntime does not run the file as it is"):
        compare_with_file(written(tmp_path, model_of("Relu", [x], {})), engine, [{"x0": x[0]}], CLOSE)


@pytest.mark.parametrize(("error", "agrees"), [(1.0, True), (1.01, False)])
def test_a_notebook_shows_every_output(error, agrees):
    outputs = (OutputDifference("y", 0.25, 0.5, error), OutputDifference("z", np.inf, np.inf, 0.125, "dims (1,)"))
    result = FileComparison(outputs, None)
    page = result._repr_html_()
    assert result.agrees == agrees == ("agrees with the file" in page)
    assert re.findall(r"<th [^>]*>(.*?)</th>", page) == ["output", "absolute", "relative", "error / tolerance"]
    cells = re.findall(r"<td[^>]*>(.*?)</td>", page)
    assert cells == ["y", "0.25", "0.5", f"{error:.3g}", "z", "inf", "inf", "dims (1,)"]


def test_the_command_prints_each_output_and_ends_with_1_where_one_differs(pytrt, tmp_path):
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "xyz"]
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["z"])]
    graph = helper.make_graph(nodes, "two", info[:1], info[1:])
    written(tmp_path, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10))
    code, out, _ = pytrt("compare", "net.onnx", "--with", "file", "--engine", "cpu")
    assert code == 0
    rows = [f"'{name}': largest difference 0 absolute, 0 relative; 0 of the tolerance" for name in "yz"]
    assert out.splitlines() == [*rows, "A: engine cpu, fp32"]
    code, out, _ = pytrt("compare", "net.onnx", "--with", "file", "--json")
    assert [output["name"] for output in json.loads(out)["result"]["outputs"]] == ["y", "z"]
    for words in (("net.onnx",), ("net.onnx", "net.onnx", "--with", "file")):
        code, _, err = pytrt("compare", *words)
        assert (code, "expected a second model, or --with file" in err) == (2, True)
    (tmp_path / "net.cfg").write_text("[net]\nwidth=8\nheight=8\nchannels=3\n[convolutional]\n")
    code, _, err = pytrt("compare", "net.cfg", "--with", "file")
    assert (code, "net.cfg is no ONNX file" in err) == (2, True)
    code, out, _ = pytrt("compare", "--help")
    assert "no independent comparison" in " ".join(out.replace("│", " ").split())
