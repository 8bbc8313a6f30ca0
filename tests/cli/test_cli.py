import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from pytrtplugins.calibration import CalibrationTable

ROOT = Path(__file__).parents[2]
CFG = ROOT / "samples" / "models" / "yolov2-animals.cfg"
PLUGIN = """
import pytrtplugins as ptp

@ptp.plugin(namespace="clitest")
class ChannelShuffle(ptp.Plugin):
    '''Interleave the channels of `groups` groups.'''
    groups: int = 2

    def output_dims(self, x):
        return x

    def compute(self, x):
        n, c, h, w = x.shape
        return x.reshape(n, self.groups, c // self.groups, h, w).swapaxes(1, 2).reshape(n, c, h, w)

@ptp.plugin(namespace="clitest")
class Liar(ptp.Plugin):
    '''Says one shape and gives another.'''

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x[:, :1]
"""


@pytest.fixture
def relu(tmp_path):
    """A small model: y = max(x, 0)."""
    text = '<ir_version: 10, opset_import: ["": 18]> relu (float[1, 2, 3] x) => (float[1, 2, 3] y) { y = Relu (x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "relu.onnx")
    return tmp_path / "relu.onnx"


@pytest.mark.parametrize(
    "command", ["devices", "inspect", "build", "run", "calibrate", "check-plugin", "evaluate", "bench", ""]
)
def test_the_help_teaches_with_examples(printed, command):
    assert f"pytrt {command or 'check-plugin mylayers:ChannelShuffle'}" in printed(*command.split(), "--help")


def test_devices_lists_every_engine(pytrt):
    from pytrtplugins.engines import auto_engine, names

    code, out, err = pytrt("devices")
    assert (code, err) == (0, "")
    assert re.search(rf"^\s*{auto_engine()}\s+yes, auto\b", out, re.MULTILINE)
    assert out.count("yes, auto") == 1
    assert all(re.search(rf"^\s*{name}\s+(yes|no)\b", out, re.MULTILINE) for name in names())


def test_inspect_shows_inputs_outputs_and_operators(printed, relu):
    out = printed("inspect", relu)
    assert re.search(r"input\s+x\s+float32\s+1 x 2 x 3", out)
    assert re.search(r"output\s+y\s+float32\s+1 x 2 x 3", out)
    assert "Relu 1" in out
    graph = onnx.load(relu).graph
    facts = json.loads(printed("inspect", relu, "--json"))["result"]
    assert (facts["file"], facts["name"], facts["nodes"]) == (str(relu), graph.name, 1)


def test_inspect_shows_what_no_engine_takes_and_what_the_file_leaves_out(printed, tmp_path):
    text = (
        '<ir_version: 8, opset_import: ["": 17]> g (seq(float[2]) s, float[] x, bool c, string[2] t) => (int64 n, float[] y) {'
        " n = SequenceLength (s) r = Relu (x) y = If (c) <"
        "then_branch = a () => (float[] u) { u = Neg (r) }, else_branch = b () => (float[] v) { q = Abs (r) v = Abs (q) }> }"
    )
    model = onnx.parser.parse_model(text)
    model.graph.output[1].ClearField("type")
    onnx.save(model, tmp_path / "net.onnx")
    out = printed("inspect", tmp_path / "net.onnx")
    assert re.search(r"input\s+s\s+sequence\s+any rank", out)
    assert re.search(r"input\s+x\s+float32\s+any rank", out)
    assert re.search(r"input\s+t\s+string\s+2\b", out)
    assert re.search(r"output\s+y\s+type unknown\s+any rank", out)
    out = printed("inspect", tmp_path / "net.onnx", "--nodes")
    assert re.search(r"n\s+SequenceLength\s+s: sequence → n: int64\[\]", out)
    assert re.search(r"r\s+Relu\s+x: float32 → r: float32", out)
    out = printed("inspect", tmp_path / "net.onnx", "--json")
    assert [row["dims"] for row in json.loads(out)["result"]["tensors"]][1] is None


def test_inspect_shows_plugins_with_their_fields(printed, tmp_path):
    from darknet2caffe import read_network, to_onnx

    onnx.save(to_onnx(read_network(CFG, CFG.with_suffix(".weights"))), tmp_path / "net.onnx")
    assert re.search(r"27_reorg\s+darknet\.Reorg\s+stride=2", printed("inspect", tmp_path / "net.onnx"))


def test_inspect_of_a_cfg_is_darknets_table(printed):
    assert re.search(r"31\s+region", printed("inspect", CFG))


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--repeat", 3], "of 3 runs"), (["--repeat", 7, "--slots", 3], r"[\d.]+ runs a second of 7 runs, 3 at a time")],
)
def test_run_shows_figures_and_rates_and_saves_outputs(pytrt, relu, tmp_path, options, said):
    np.save(tmp_path / "x.npy", x := np.array([[[-1, 2, -3], [4, -5, 6]]], np.float32))
    code, out, err = pytrt("run", relu, "--input", "x=x.npy", "--save", "out.npz", *options)
    assert code == 0
    assert re.search(r"y\s+float32\s+1 x 2 x 3\s+0\s+6\s+2", out)
    assert re.search(said, err)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["y"], np.maximum(x, 0))


def test_run_finds_objects_on_images(pytrt, images, small_cfg, tmp_path):
    code, out, err = pytrt(
        "run", small_cfg, images, "--output", "boxes.png", "--save-json", "coco.json", "--batch", 2, "--json"
    )
    assert code == 0, err
    assert re.search(r"^cat: \d\d%$", err, re.MULTILINE)
    assert {path.name for path in tmp_path.glob("boxes*")} == {"boxes-astronaut.png", "boxes-chelsea.png"}
    found = json.loads(out)["result"]
    assert [image["detections"][0]["label"] for image in found["images"]] == ["person", "cat"]
    assert found["saved"] == ["boxes-astronaut.png", "boxes-chelsea.png", "coco.json"]
    assert [entry["image_id"] for entry in json.loads((tmp_path / "coco.json").read_text())][-1] == 1


def test_an_image_that_cannot_be_read_costs_the_others_nothing(pytrt, refused, images, small_cfg, tmp_path):
    (images / "b.png").write_bytes(b"broken")
    assert pytrt("build", small_cfg, "-o", "net.engine", "--threshold", "0.3")[0] == 0
    code, out, err = pytrt("run", "net.engine", images, "--output", "found", "--save-txt", "labels")
    assert code == 1
    assert re.search(r"^cat: \d\d%$", out, re.MULTILINE)  # by the names in the engine file
    assert re.search(
        r"^2 images, \d detections: [\d.]+ images/s; a run: median [\d.]+ ms, p99 [\d.]+ ms$", out, re.MULTILINE
    )
    assert "1 of 3 files could not be read" in err
    assert "b.png': not an image" in err
    assert sorted(path.name for path in (tmp_path / "found").iterdir()) == ["astronaut.png", "chelsea.png"]
    assert sorted(path.name for path in (tmp_path / "labels").iterdir()) == ["astronaut.txt", "chelsea.txt"]
    err = refused("run", "net.engine", images, "--decode", "gpu")
    assert "engine 'cpu' has no decoder of images on its device.\nDo: " in err


def test_a_built_engine_runs_as_its_model_does(pytrt, printed, relu, tmp_path):
    assert "built in" in printed("build", relu, "-o", "relu.engine")
    assert re.search(r"output\s+y", pytrt("inspect", "relu.engine")[1])
    outputs = []
    for model in ("relu.onnx", "relu.engine"):
        assert pytrt("run", model, "--save", f"{model}.npz")[0] == 0
        outputs.append(np.load(tmp_path / f"{model}.npz")["y"])
    np.testing.assert_array_equal(*outputs)


def test_a_calibration_is_kept_and_used_by_a_build(pytrt, printed, images, small_cfg, tmp_path):
    out = printed("calibrate", small_cfg, "--calibration", images, "--cache", "my.cache", "--algorithm", "minmax")
    assert "MinMaxCalibration" in out
    written = (tmp_path / "my.cache").read_bytes()
    code, out, err = pytrt("build", small_cfg, "--precision", "int8", "--cache", "my.cache", "-o", "net.engine")
    assert (code, err) == (0, "")
    assert "int8" in out
    assert (tmp_path / "my.cache").read_bytes() == written
    assert re.search(
        r"^cat: \d\d%$",
        pytrt("run", "net.engine", images / "chelsea.png", "--names", CFG.with_suffix(".names"))[1],
        re.MULTILINE,
    )


def test_networks_that_read_no_images_are_calibrated_on_arrays(pytrt, refused, relu, tmp_path):
    (tmp_path / "data").mkdir()
    for index in range(3):
        np.savez(tmp_path / "data" / f"{index}.npz", x=np.full((1, 2, 3), 10.0 * index, np.float32))
    assert pytrt("calibrate", relu, "--calibration", "data", "--cache", "all.cache")[0] == 0
    assert pytrt("calibrate", relu, "--calibration", "data", "--cache", "two.cache", "--limit", 2)[0] == 0
    amax = {name: CalibrationTable.read(tmp_path / name).amax("y") for name in ("all.cache", "two.cache")}
    assert amax == pytest.approx({"all.cache": 20, "two.cache": 10})
    assert "NoDataError" in refused("calibrate", relu, "--calibration", relu.parent / "none", "--cache", "none.cache")


@pytest.mark.parametrize("options", [(), pytest.param(("--round-weights", "--limit", "2"), marks=pytest.mark.slow)])
def test_an_equalized_network_is_calibrated_and_finds_the_same(options, pytrt, printed, images, small_cfg, tmp_path):
    code, out, err = pytrt("equalize", small_cfg, "--calibration", images, "-o", "net.onnx", *options)
    assert (code, err) == (0, "")
    assert out == f"net.onnx: {(tmp_path / 'net.onnx').stat().st_size:,} bytes\n"
    printed("build", "net.onnx", "--precision", "int8", "--calibration", images, "-o", "net.engine")
    names = CFG.with_suffix(".names")
    for model in ("net.onnx", "net.engine"):
        assert re.search(
            r"^cat: \d\d%$", pytrt("run", model, images / "chelsea.png", "--names", names)[1], re.MULTILINE
        )


@pytest.mark.parametrize("precision", ["int8", "fp8"])
def test_without_scales_8_bits_say_how_to_make_them(refused, relu, precision):
    err = refused("build", relu, "--precision", precision, "-o", "relu.engine")
    assert f"{precision.upper()} needs the scale of each tensor" in err
    assert "Do: pytrt calibrate" in err


def test_evaluate_prints_a_table_and_draws_curves(pytrt, labelled, tmp_path):
    code, out, err = pytrt("evaluate", CFG, "--data", labelled, "--plot", "curves.svg")
    assert (code, err) == (0, "")
    (map50,) = re.findall(r"all\s+2\s+\d+\s+(\d\.\d{3})", out)
    assert float(map50) > 0.9
    image = (tmp_path / "curves.svg").read_text()  # matplotlib writes each text as a comment, too
    assert f"<!-- mAP50 {map50}: 2 images, 2 objects of 2 classes -->" in image
    assert "<!-- yolov2-animals.cfg, " in image


def test_evaluate_without_the_names_of_the_classes_asks_for_them(refused, labelled, tmp_path):
    for suffix in (".cfg", ".weights"):
        (tmp_path / f"net{suffix}").write_bytes(CFG.with_suffix(suffix).read_bytes())
    err = refused("evaluate", "net.cfg", "--data", labelled)
    assert "Detector: class 0, class 1" in err
    assert "--names FILE" in err


@pytest.mark.parametrize(
    ("name", "options", "ended", "said"),
    [
        ("ChannelShuffle", [], 0, "ChannelShuffle"),
        ("Liar", [], 1, "Liar"),
        ("ChannelShuffle", ["--sanitize", "--time-limit", "60", "-v"], 0, "AddressSanitizer"),
    ],
)
def test_check_plugin_passes_a_good_one_and_ends_with_1_for_a_bad_one(pytrt, tmp_path, name, options, ended, said):
    (tmp_path / "mylayers.py").write_text(PLUGIN.replace("clitest", f"clitest{ended}{len(options)}"))
    code, out, err = pytrt("check-plugin", f"mylayers.py:{name}", *options)
    assert code == ended, out + err
    assert said in out


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("ChannelShuffle", "expected module:Class"),
        ("nosuchmodule_:A", "cannot be imported"),
        ("nosuchfile.py:A", "no such file"),
        ("json:JSONEncoder", "has no plugin class 'JSONEncoder'. It has: none"),
        ("broken.py:A", "broken.py, line 1"),
        ("failing.py:A", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_wrong_plugin_name_is_a_clear_error(refused, tmp_path, target, text):
    (tmp_path / "broken.py").write_text("def (:\n")
    (tmp_path / "failing.py").write_text("\n1 / 0\n")
    assert text in " ".join(refused("check-plugin", target).split())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["inspect", "none.onnx"], "no such file. Looked for:"),
        (["inspect", "text.onnx"], "not an ONNX model"),
        (["run", "relu.onnx", "none.jpg"], "no such file. Looked for:"),
        (["run", "relu.onnx", "text.onnx"], "no output comes from a region or yolo layer"),
        (["run", "relu.onnx", "text.onnx"], "pytrt run MODEL --input NAME=FILE.npy"),
        (["run", "relu.onnx", "x.npy"], "x.npy is an array; expected an image. Do: pass it as --input NAME=x.npy"),
        (["run", "relu.onnx", "--input", "z=x.npy"], "expected NAME=FILE.npy. Inputs: x."),
        (["run", "relu.onnx", "--input", "x=text.onnx"], "not a .npy file"),
        (["run", "relu.onnx", "--engine", "nonsense"], "nonsense"),
        (["run", "relu.onnx", "--precision", "fp16", "--engine", "cpu"], "PrecisionError"),
        (["run", "relu.onnx", "--save", "nowhere/out.npz"], "mkdir -p"),
        (["build", "relu.onnx", "-o", "nowhere/out.engine"], "mkdir -p"),
        (["calibrate", "relu.onnx", "--calibration", "nowhere"], "NoDataError"),
        (["equalize", "relu.onnx", "--calibration", ".", "-o", "out.engine"], "expected a file .onnx"),
        (["evaluate", "relu.onnx", "--data", "nowhere"], "no such folder"),
        (["evaluate", "relu.onnx", "--data", ".", "--plot", "curves.gif"], "Known: .png .svg .pdf."),
        (["evaluate", "relu.onnx", "--data", ".", "--plot", "nowhere/curves.png"], "mkdir -p"),
        (["inspect", "relu.onnx", "--plugins", "nosuchmodule_"], "cannot be imported"),
        (["run", "--nonsense"], "--nonsense"),
    ],
)
def test_what_goes_wrong_is_said_without_a_traceback_and_ends_with_2(refused, relu, words, text):
    relu.with_name("text.onnx").write_text("hello")
    assert text in " ".join(refused(*words).split())


def test_the_table_of_kernels_says_which_layer_runs_by_what(capsys):
    from pytrtplugins.cli.facts import Built
    from pytrtplugins.cli.model_facts import EngineFacts
    from pytrtplugins.cli.shared.tables import print_built
    from pytrtplugins.engines import Arithmetic
    from pytrtplugins.engines.cuda.conv.cache import Choice
    from pytrtplugins.engines.cuda.conv.selector import LayerKernel
    from pytrtplugins.engines.cuda.engine import CudaEngine

    layers = tuple(f"conv{index}" for index in range(5))
    rows = [
        LayerKernel(layers, "3x3, 8 → 8 channels", Choice("hopper", "m64n64k128u1s4x1", 2.125, 18)),
        LayerKernel(("last",), "1x1, 8 → 5 channels", Choice("direct", "direct")),
    ]
    kernels = CudaEngine.chosen_kernels(SimpleNamespace(tactics=lambda: rows))
    print_built(
        Built(EngineFacts("a.engine", "cuda", "fp16", Arithmetic("fp16", "fp16"), "abc", (), {}), kernels, 1.0, 100)
    )
    out = capsys.readouterr().out
    assert re.search(
        r"conv0, conv1, conv2, and 2 more\s+3x3, 8 → 8 channels\s+hopper m64n64k128u1s4x1\s+2\.1\d\s+18", out
    )
    assert re.search(r"last\s+1x1, 8 → 5 channels\s+direct\s+0\s*$", out, re.MULTILINE)
