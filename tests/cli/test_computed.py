"""Commands that measure accuracy, or compare precisions, compute as they were asked; every result says what ran."""

import json
import shutil
from pathlib import Path

import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines.host import host_engine, timing
from pytrtplugins.engines.openvino import engine as openvino
from tests.engines.networks import conv_net, image

CFG = Path(__file__).parents[2] / "samples" / "models" / "yolov2-animals.cfg"
INT8 = ("--precision", "int8")
IN_INT8 = "int8 in 1 of 2 layers, fp32 in 'conv2'"  # the last layer stays in float
FELL_BACK = "int8, which computes in fp32 (INT8 takes 2e+03 ms, float32 1e+03 ms)"
LOADED = "int8, which computes in fp32 (the model was built without INT8 layers)"


@pytest.fixture(autouse=True, scope="module")
def float32_wins():
    """Let engines for CPUs find float32 faster than any other precision."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_engine, "sample_inputs", timing.sample_inputs)
        for module in (host_engine, openvino):
            patch.setattr(module, "run_seconds", lambda runs: {name: 1.0 + (name != "float32") for name in runs})
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A network, its calibration and an engine file that fell back to float32."""
    folder = tmp_path_factory.mktemp("net")
    onnx.save(conv_net(), folder / "net.onnx")
    calibrator = MinMaxCalibrator([{"data": image()}])
    table = ptp.engines.calibrate(conv_net(), calibrator, progress=False)
    table.write(folder / "net.cache")
    ptp.build(conv_net(), engine="cpu", precision="int8", calibration=table).save(folder / "net.engine")
    return folder


@pytest.fixture
def net(files, tmp_path):
    """Copies of them in the test's folder."""
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)


@pytest.fixture
def results(pytrt):
    """Runs a command twice: what it prints, and its result in JSON."""

    def run(*words):
        code, out, err = pytrt(*words)
        assert code == 0, err
        return out + err, json.loads(pytrt(*words, "--json")[1])["result"]

    return run


@pytest.mark.usefixtures("net")
@pytest.mark.parametrize("engine", ["cpu", "onnxruntime"])
@pytest.mark.parametrize(
    ("words", "where", "line"),
    [
        (("bench", "net.onnx", "--rounds", "1", "--seconds", "0.001"), ("rows", 0, "computed"), "{} int8: " + IN_INT8),
        (("inspect", "net.onnx", "--fused"), ("computed",), "on engine {}, " + IN_INT8),
        (("run", "net.onnx", "--setting", "int8=always"), ("computed",), "engine {}, " + IN_INT8),
    ],
)
def test_what_is_measured_in_int8_computes_in_int8_where_float32_is_faster(results, engine, words, where, line):
    text, facts = results(*words, "--engine", engine, *INT8, "--cache", "net.cache")
    for key in where:
        facts = facts[key]
    assert (facts["asked"], facts["precision"], facts["reason"]) == ("int8", "int8", "")
    assert facts["layers"] == {"conv1": "int8", "conv2": "fp32"}
    assert line.format(engine) in text


@pytest.mark.usefixtures("net")
def test_compare_measures_int8_where_float32_is_faster(pytrt):
    words = ("compare", "net.onnx", "net.onnx", "--engine-b", "cpu", "--precision-b", "int8", "--cache", "net.cache")
    code, out, _ = pytrt(*words)
    assert (code, out.splitlines()[-3:-1]) == (1, ["A: engine reference, fp32", f"B: engine cpu, {IN_INT8}"])
    facts = json.loads(pytrt(*words, "--json")[1])["result"]["computed"]
    assert [each["precision"] for each in facts] == ["fp32", "int8"]


@pytest.mark.usefixtures("net")
@pytest.mark.parametrize("engine", ["cpu", "onnxruntime"])
@pytest.mark.parametrize("command", ["run", "build"])
def test_elsewhere_the_faster_form_is_kept_and_named(results, engine, command):
    out = ("-o", "new.engine") if command == "build" else ()
    text, facts = results(command, "net.onnx", "--engine", engine, *INT8, "--cache", "net.cache", *out)
    assert f"engine {engine}, {FELL_BACK}" in " ".join(text.split())
    facts = facts["engine"]["computed"] if command == "build" else facts["computed"]
    assert (facts["precision"], facts["layers"]) == ("fp32", {"conv1": "fp32", "conv2": "fp32"})


@pytest.mark.usefixtures("net")
@pytest.mark.parametrize(
    ("words", "where"),
    [
        (("run", "net.engine"), ("computed",)),
        (("inspect", "net.engine"), ("computed",)),
        (("inspect", "net.engine", "--fused"), ("computed",)),
        (("bench", "net.engine", "--rounds", "1", "--seconds", "0.001"), ("rows", 0, "computed")),
    ],
)
def test_a_saved_engine_says_that_it_computes_in_float32(results, words, where):
    text, facts = results(*words)
    assert LOADED in " ".join(text.split())
    for key in where:
        facts = facts[key]
    assert (facts["asked"], facts["precision"]) == ("int8", "fp32")


@pytest.mark.usefixtures("net")
def test_a_registry_keeps_the_precision_that_a_saved_engine_computes_in(pytrt, results):
    pytrt("models", "add", "net.engine", "--name", "net", "--registry", "registry")
    _, facts = results("models", "show", "net:1", "--registry", "registry")
    assert facts["version"]["precision"] == "fp32"


@pytest.mark.parametrize("engine", ["cpu", "onnxruntime"])
def test_evaluate_measures_int8_where_float32_is_faster(results, labelled, small_cfg, engine):
    words = ("--data", labelled, "--engine", engine, *INT8, "--cache", CFG.with_suffix(".cache"))
    text, facts = results("evaluate", small_cfg, *words)
    computed = facts["figures"]["computed"]
    assert (facts["precision"], computed["precision"], set(computed["layers"].values())) == (
        "int8",
        "int8",
        {"int8", "fp32"},
    )
    assert f"engine {engine}, int8 in 22 of 23 layers, fp32 in '" in text


def test_evaluate_says_where_a_saved_engine_computes_in_float32(pytrt, results, labelled, small_cfg):
    cache = CFG.with_suffix(".cache")
    assert pytrt("build", small_cfg, "--engine", "cpu", *INT8, "--cache", cache, "-o", "net.engine")[0] == 0
    text, facts = results("evaluate", "net.engine", "--data", labelled)
    assert f"net.engine: engine cpu, {LOADED}" in text
    assert facts["figures"]["computed"]["precision"] == "fp32"
