from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from darknet2caffe import read_network, to_caffe, write_darknet, write_onnx
from darknet2caffe.cli import main
from darknet2caffe.graph import draw_svg
from tests.darknet2caffe.networks import network

ROOT = Path(__file__).parents[2]


@pytest.fixture
def files(tmp_path):
    net = network()
    write_darknet(net, tmp_path / "a.cfg", tmp_path / "a.weights")
    return tmp_path / "a.cfg", tmp_path / "a.weights"


def run(*arguments) -> str | int:
    """Exit status."""
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    return caught.value.code or 0


@pytest.mark.parametrize("verb", [[], ["convert"]])
def test_the_verb_convert_may_be_left_out(files, tmp_path, capsys, verb):
    assert run(*verb, *files, "-o", tmp_path / "a.onnx") == 0
    onnx.checker.check_model(str(tmp_path / "a.onnx"))
    assert "19_region 1 x 16 x 6 x 4" in capsys.readouterr().out


def test_the_layers_of_darknet_become_nodes_functions_or_standard_operators(files, tmp_path):
    for option, functions, plugins in (
        ((), [], True),
        (("--functions",), ["Region", "Reorg", "Yolo"], True),
        (("--inline",), [], False),
    ):
        assert run(*files, "-o", tmp_path / "a.onnx", *option) == 0
        model = onnx.load(tmp_path / "a.onnx")
        assert sorted(function.name for function in model.functions) == functions, option
        assert ("Region" in {node.op_type for node in model.graph.node}) == plugins, option


def test_without_options_the_files_are_those_of_the_functions_defaults(files, tmp_path):
    assert run(*files, "-o", tmp_path / "a.onnx", "--caffe", tmp_path / "a") == 0
    net = read_network(*files)
    written = [*write_onnx(net, tmp_path / "b.onnx"), *to_caffe(net, tmp_path / "b")]
    for path, suffix in zip(written, ("onnx", "prototxt", "caffemodel"), strict=True):
        assert path.read_bytes() == (tmp_path / f"a.{suffix}").read_bytes(), suffix


def test_options_may_come_first_and_reach_the_conversion(files, tmp_path):
    options = ["--no-fold", "--activation", "relu", "--bn-eps", "darknet-gpu", "--input-size", "64x32"]
    options += ["--batch", "dynamic"]
    assert run("-o", tmp_path / "a.onnx", *options, *files) == 0
    model = onnx.load(tmp_path / "a.onnx")
    operators = {node.op_type for node in model.graph.node}
    assert "LeakyRelu" not in operators
    dims = [dim.dim_param or dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    assert dims == ["N", 3, 32, 64]
    node = next(node for node in model.graph.node if node.op_type == "BatchNormalization")
    assert [a.f for a in node.attribute if a.name == "epsilon"] == pytest.approx([1e-5])


def test_caffe_files_are_written(tmp_path, capsys):
    text = "[net]\nwidth=8\nheight=8\nchannels=3\n[conv]\nfilters=4\n[maxpool]\nsize=2\nstride=2\n"
    write_darknet(network(text), tmp_path / "b.cfg", tmp_path / "b.weights")
    assert run(tmp_path / "b.cfg", tmp_path / "b.weights", "--caffe", tmp_path / "b") == 0
    assert capsys.readouterr().out.split()[-2:] == [str(tmp_path / "b.prototxt"), str(tmp_path / "b.caffemodel")]
    assert (tmp_path / "b.caffemodel").stat().st_size > 4 * 16


def test_a_layer_that_caffe_lacks_is_named_and_nothing_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_darknet(
        network("[net]\nwidth=8\nheight=8\nchannels=3\n[activation]\nactivation=stair\n"), "b.cfg", "b.weights"
    )
    assert run("b.cfg", "b.weights", "--caffe", "b") == 2
    assert "layer 0 (activation" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.cfg", "b.weights"]


def test_inspect_prints_darknets_table(files, capsys):
    assert run("inspect", *files) == 0
    output = capsys.readouterr().out
    assert re.search(r"0 +convolutional +8 +3 x 3 / 1 +32 x +48 x +3 +32 x +48 x +8 +0\.001 +248", output)
    assert re.search(r"8 +route +layers 7 6 5 ", output)
    assert "fits exactly, all finite" in output


def test_inspect_needs_no_weights(files, capsys):
    assert run("inspect", files[0], "--input-size", "64x32") == 0
    assert "64 x  32 x   3" in capsys.readouterr().out


def test_inspect_saves_a_image(files, tmp_path, capsys):
    assert run("inspect", *files, "--graph", tmp_path / "a.svg", "--input-size", "64x32") == 0
    image = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert image == draw_svg(read_network(files[0]).with_input_size(64, 32))
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == str(tmp_path / "a.svg")
    assert lines[-2].endswith("fits exactly, all finite")


@pytest.mark.parametrize(("shown", "words"), [(True, "a.svg"), (False, "a.svg: open it by hand, no browser was found")])
def test_inspect_opens_a_image(files, tmp_path, monkeypatch, capsys, shown, words):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("webbrowser.open", lambda address: shown)
    assert run("inspect", files[0], "--graph", "open") == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("/" + words)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a.png", r"--graph a\.png: expected a name that ends in \.svg.*\nDo: --graph a\.svg, or --graph open"),
        ("a", r"--graph a: expected"),
        (".", r"Do: --graph network\.svg"),
        ("absent/a.svg", "folder does not exist"),
    ],
)
def test_an_image_that_cannot_be_had_is_refused_before_anything_is_read(tmp_path, monkeypatch, capsys, name, words):
    monkeypatch.chdir(tmp_path)
    assert run("inspect", "absent.cfg", "--graph", name) == 2
    message = capsys.readouterr().err
    assert message.startswith("UsageError: ")
    assert re.search(words, message)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        (["inspect", "--help"], ["yolov2-voc.cfg --graph yolov2-voc.svg", "yolov2-voc.cfg --graph open"]),
        (["--help"], ["yolov2-voc.cfg yolov2-voc.weights"]),
    ],
)
def test_help_teaches_with_examples(capsys, arguments, texts):
    assert run(*arguments) == 0
    output = capsys.readouterr().out
    assert all(f"darknet2caffe inspect {text}" in output for text in texts)
    assert "convert" in output or "inspect" in arguments


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "nothing to write"),
        (["-o", "absent/a.onnx"], "folder does not exist"),
        (["-o", "a.onnx", "--input-size", "416"], "--input-size 416"),
        (["-o", "a.onnx", "--input-size", "0x4"], "--input-size 0x4"),
        (["-o", "a.onnx", "--input-size", "36x36"], "layer 17"),
        (["-o", "a.onnx", "--batch", "all"], "--batch all"),
        (["-o", "a.onnx", "--batch", "0"], "--batch 0"),
        (["-o", "a.onnx", "--batch", "9" * 5000], "from 1 to 65,536"),
        (["-o", "a.onnx", "--input-size", "1" + "0" * 5000 + "x4"], "from 1 to 16,384"),
        (["-o", "a.onnx", "--functions", "--inline"], "exclude each other"),
        (["--caffe", "a", "--batch", "dynamic"], "caffe files need a number"),
    ],
)
def test_wrong_arguments_are_explained_without_a_traceback(files, tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert run(*files, *arguments) == 2
    assert words in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.cfg", "a.weights"]


def test_wrong_files_are_explained_without_a_traceback(files, tmp_path, capsys):
    cfg, weights = files
    assert run(tmp_path / "absent.cfg", weights, "-o", tmp_path / "a.onnx") == 2
    assert capsys.readouterr().err.startswith("CfgError: ")
    weights.write_bytes(weights.read_bytes()[:-4])
    assert run(cfg, weights, "-o", tmp_path / "a.onnx") == 2
    message = capsys.readouterr().err
    assert message.startswith("WeightsError: ")
    assert f"Do: darknet2caffe inspect {cfg} {weights}" in message
    assert not (tmp_path / "a.onnx").exists()


def test_a_folder_that_cannot_be_written_is_explained(files, tmp_path, capsys):
    (tmp_path / "a.onnx").mkdir()
    assert run(*files, "-o", tmp_path / "a.onnx") == 2
    assert f"{tmp_path}/a.onnx: expected a file to write, found a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("missing", "words"), [("", "Convert darknet networks"), ("typer", 'pip install "pytrtplugins[cli]"')]
)
def test_the_module_runs_or_says_what_to_install(missing, words):
    code = f"import runpy, sys; sys.modules.update(dict.fromkeys({missing.split()!r})); sys.argv[1:] = ['--help']"
    code += "; runpy.run_module('darknet2caffe', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert words in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert (done.returncode == 0) == (not missing)


def test_the_dialect_is_said_with_its_reason_and_can_be_chosen(files, capsys):
    assert run("inspect", files[0]) == 0
    assert "dialect: pjreddie (nothing in it is AlexeyAB's alone)" in capsys.readouterr().out
    assert run(*files, "-o", files[0].with_suffix(".onnx"), "--dialect", "alexeyab") == 0
    assert "dialect: alexeyab (as asked for)" in capsys.readouterr().out


def test_weights_can_be_written_beside_the_model(files, capsys):
    assert run(*files, "-o", files[0].with_suffix(".onnx"), "--external-data") == 0
    (data,) = files[0].parent.glob("a.onnx.*.data")
    assert data.stat().st_size > files[0].with_suffix(".onnx").stat().st_size
    assert data.name in capsys.readouterr().out
