"""Files of other projects on engines: inputs are found, what is right says onnxruntime, and outcomes are told apart."""

import json
import os
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("onnxruntime")

from benchmarks import files
from benchmarks.files import NO_ORACLE, OTHER, REFUSED_ALONE, UNNAMED, ask_oracle, find_files, run_file, summary
from benchmarks.forms import runners
from benchmarks.node_tests import CRASHED, FAILED, PASSED, REFUSED, WRONG, Outcome


def model_of(nodes, inputs, outputs=("y",), initializers=(), opset=17):
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "a file", inputs, results, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def tensor(name, dims, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, dims)


RELU = model_of([helper.make_node("Relu", ["x"], ["y"])], [tensor("x", [2, 3])])
FREE = model_of(
    [helper.make_node("MatMul", ["x", "w"], ["y"])],
    [tensor("x", ["n", "k"])],
    initializers=[numpy_helper.from_array(np.ones((4, 2), np.float32), "w")],
)
GATHER = model_of(
    [helper.make_node("Gather", ["x", "i"], ["y"])], [tensor("x", [3, 2]), tensor("i", ["n"], TensorProto.INT64)]
)
RANDOM = model_of([helper.make_node("RandomNormalLike", ["x"], ["y"])], [tensor("x", [2])])
UNKNOWN = model_of([helper.make_node("NoSuchOperator", ["x"], ["y"])], [tensor("x", [2])])


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "kept").mkdir()
    return tmp_path / "files"


def asked(folder, **models):
    """Files of models by their names, which the oracle was asked about."""
    for name, model in models.items():
        onnx.save(model, folder / f"{name}.onnx")
    found = find_files(folder, folder.parent / "kept")
    return {file.name.removesuffix(".onnx"): (file, ask_oracle(file)) for file in found}


def test_inputs_are_found_where_free_dims_and_indices_have_to_fit(folder):
    for name, (file, outcome) in asked(folder, relu=RELU, free=FREE, gather=GATHER).items():
        assert outcome.kind == PASSED, name
        assert run_file(file, "reference").kind == PASSED


def test_random_numbers_and_operators_that_onnxruntime_lacks_have_no_oracle(folder):
    found = asked(folder, random=RANDOM, unknown=UNKNOWN)
    assert [outcome.kind for _, outcome in found.values()] == [REFUSED, REFUSED]
    assert found["random"][1].reason == "random numbers"
    assert run_file(found["random"][0], "onnxruntime").kind == NO_ORACLE
    assert run_file(found["unknown"][0], "onnxruntime").kind == REFUSED


def test_the_test_data_beside_a_file_are_its_inputs(folder):
    data = folder / "deep" / "test_data_set_0"
    data.mkdir(parents=True)
    onnx.save(RELU, folder / "deep" / "model.onnx")
    given = np.array([[-1, 2, 3], [4, 5, 6]], np.float32)
    (data / "input_0.pb").write_bytes(numpy_helper.from_array(given).SerializeToString())
    ((file, outcome),) = asked(folder).values()
    assert (file.name, outcome.kind) == (os.path.join("deep", "model.onnx"), PASSED)
    inputs, expected = files.read_oracle(file)
    assert expected is not None
    np.testing.assert_array_equal(inputs["x"], given)
    np.testing.assert_array_equal(expected[0], np.maximum(given, 0))


def test_outcomes_are_told_apart(folder, monkeypatch):
    file, _ = asked(folder, relu=RELU)["relu"]

    def outcome(results):
        def run(model, inputs):
            if isinstance(results, Exception):
                raise results
            return results(inputs["x"])

        monkeypatch.setitem(runners.RUNNERS, "cpu", run)
        return run_file(file, "cpu").kind

    from pytrtplugins.errors import ModelError

    assert outcome(lambda x: ([np.maximum(x, 0)], "")) == PASSED
    assert outcome(lambda x: ([np.maximum(x, 0)], "computed by: onnxruntime")) == OTHER
    assert outcome(lambda x: ([np.maximum(x, 0.01)], "")) == WRONG
    assert outcome(ModelError("node Relu is not supported")) == REFUSED_ALONE
    assert outcome(ModelError("?")) == UNNAMED
    assert outcome(ModelError("list index out of range")) == UNNAMED  # which has an x
    assert outcome(ModelError("the model has no outputs, so there is nothing to compute")) == REFUSED_ALONE
    assert outcome(KeyError("x")) == FAILED


def test_a_node_of_a_function_counts_as_a_name(folder):
    text = """<ir_version: 9, opset_import: ["" : 17, "local" : 1]> g (float[2] x) => (float[2] y) { y = local.Outer (x) }
        <domain: "local", opset_import: ["" : 17]> Outer (a) => (b) { [inside] b = NoSuchOperator (a) }"""
    file, _ = asked(folder, nested=onnx.parser.parse_model(text))["nested"]
    for engine in ("onnxruntime", "cpu", "reference", "cuda"):
        assert run_file(file, engine).kind == REFUSED, engine


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("x", "input 'x' has no type", True),
        ("x", "list index out of range", False),
        ("a", "a tensor of float", False),
        ("y", "node 'y/scaled' (Mul)", True),
        ("y", "node (y) failed", True),
        ("y", "Node y of type Reference", True),
        ("conv", "node 'conv.Expand' (Expand)", True),
        ("conv", "node 'conv__2'", True),
        ("conv", "convolutions", False),
        ("Mul", "node '' (Mul)", True),
        ("", "anything", False),
    ],
)
def test_a_name_is_a_word_of_a_text(name, text, named):
    assert runners.is_named(name, text) is named


def test_a_file_that_is_no_model_is_refused_by_our_reader(folder):
    (folder / "text.onnx").write_text("no model")
    ((file, outcome),) = asked(folder).values()
    assert outcome.kind == REFUSED
    assert run_file(file, "onnxruntime").kind == REFUSED


def test_the_command_prints_a_table_before_and_after_and_goes_on_after_a_crash(folder, monkeypatch, capsys):
    for name, model in (("a", RELU), ("b", FREE)):
        onnx.save(model, folder / f"{name}.onnx")
    run = runners.RUNNERS["reference"]

    def crashes(model, inputs):
        if model.graph.node[0].op_type == "Relu":
            os._exit(3)
        return run(model, inputs)

    monkeypatch.setitem(runners.RUNNERS, "reference", crashes)
    report = folder.parent / "before.json"
    words = ["files", str(folder), "--engine", "reference", "--processes", "1"]
    monkeypatch.setattr(sys, "argv", [*words, "--json", str(report), "--show", "crashed"])
    assert files.main() == 1
    printed = capsys.readouterr().out
    assert "reference\ta.onnx\tcrashed\tthe process ended with code 3" in printed
    assert printed.splitlines()[-1] == "| reference | 1 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 1 | 0 |"
    assert json.loads(report.read_text())["engines"]["reference"]["b.onnx"] == [PASSED, ""]
    monkeypatch.setitem(runners.RUNNERS, "reference", run)
    monkeypatch.setattr(sys, "argv", [*words, "--before", str(report)])
    assert files.main() == 0
    assert capsys.readouterr().out.splitlines()[-1] == "| reference | 1 → 2 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 1 → 0 | 0 |"


def test_a_folder_without_files_says_so(folder, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["files", str(folder)])
    assert files.main() == 2
    assert "no file .onnx there" in capsys.readouterr().out


def test_a_table_counts_each_kind():
    found = {"cpu": {str(index): Outcome(kind) for index, kind in enumerate((PASSED, PASSED, WRONG, CRASHED))}}
    assert summary(found, {}).splitlines()[-1] == "| cpu | 2 | 0 | 0 | 0 | 0 | 0 | 1 | 0 | 1 | 0 |"
