"""`pytrt import mxnet` writes a model that engines run; wrong words and wrong files get an error that says what to do."""

import json

import numpy as np
import onnx
import pytest

from tests.mxnet.files import Symbol, face


def test_a_network_is_imported_and_run(pytrt, printed, tmp_path):
    face().write(tmp_path)
    code, out, err = pytrt(
        "import", "mxnet", "model-symbol.json", "model-0000.params", "-o", "face.onnx", "--shape", "data=3,16,16"
    )
    assert (code, err) == (0, "")
    assert out == (
        "face.onnx: 16 nodes, 1,114 parameters\n  input  data N x 3 x 16 x 16\n  output fc1 N x 8\nDo: pytrt inspect face.onnx\n"
    )
    np.save(tmp_path / "x.npy", np.zeros((2, 3, 16, 16), np.float32))
    printed("run", "face.onnx", "--engine", "reference", "--input", "data=@x.npy", "--save", "y.npz")
    assert np.load(tmp_path / "y.npz")["fc1"].shape == (2, 8)


def test_the_result_as_json_has_the_facts(pytrt, tmp_path):
    face().write(tmp_path)
    code, out, _ = pytrt("import", "mxnet", "model-symbol.json", "model-0000.params", "-o", "face.onnx", "--json")
    found = json.loads(out)
    assert (code, found["command"]) == (0, "pytrt import mxnet")
    assert found["result"]["tensors"][0]["dims"] == ["N", 3, "height", "width"]
    assert found["result"]["nodes"] == len(onnx.load(tmp_path / "face.onnx").graph.node)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--shape", "data=3,x"], "--shape data=3,x: expected whole numbers with x between them"),
        (["--shape", "data"], "NAME=CxHxW"),
        (["--shape", "face=3x16x16"], "'face' is no input of"),
        (["--shape", "data=3,40,40"], "expected 8 x 1352"),
    ],
)
def test_wrong_words_get_an_error(pytrt, tmp_path, words, text):
    face().write(tmp_path)
    code, _, err = pytrt("import", "mxnet", "model-symbol.json", "model-0000.params", "-o", "face.onnx", *words)
    assert (code, (tmp_path / "face.onnx").exists()) == (2, False)
    assert text in err


def test_an_operator_that_is_not_supported_is_named(pytrt, tmp_path):
    net = Symbol()
    net.node("ROIPooling", "roi", net.variable("data", __shape__="(1, 3, 8, 8)"))
    net.write(tmp_path)
    code, _, err = pytrt("import", "mxnet", "model-symbol.json", "model-0000.params", "-o", "face.onnx")
    assert (code, "node 'roi' (ROIPooling): this operator is not supported" in err) == (2, True)


@pytest.mark.parametrize("name", ["model-symbol.json", "model-0000.params"])
def test_mxnet_s_files_where_a_model_is_expected_say_how_to_import_them(pytrt, tmp_path, name):
    face().write(tmp_path)
    code, _, err = pytrt("inspect", name)
    assert (code, "MXNet's; expected a model" in err) == (2, True)
    assert "\nDo: pytrt import mxnet " in err
