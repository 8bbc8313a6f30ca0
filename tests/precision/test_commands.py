"""`pytrt precision search`, `pytrt precision report`, `pytrt compare`."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins.cli.shared.option_values import read_settings
from pytrtplugins.passes import Precisions
from pytrtplugins.vision import save_image
from tests.engines.networks import Complete, Witness, conv_net, image
from tests.precision.planted import cancelling, chain, outlier_weights, samples

SEARCH = ("precision", "search", "net.onnx", "--engine", "reference", "--data", "data")
COSINE = ("--tolerance", "cosine=0.9995")


def write(folder, model, count=2):
    onnx.save(model, folder / "net.onnx")
    (folder / "data").mkdir()
    for number, sample in enumerate(samples(model, count)):
        np.savez(folder / "data" / f"{number}.npz", **sample)


def test_a_search_writes_a_file_that_build_follows_and_a_page(pytrt, tmp_path):
    write(tmp_path, cancelling())
    code, out, _ = pytrt(*SEARCH, *COSINE, "-o", "precision.yaml")
    assert code == 0
    assert "add: fp32, pin: own error" in out
    assert "outputs within tolerance: error 25.6 ->" in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "net.onnx", "precision.json", "precision.yaml"]
    assert set(Precisions.read("precision.yaml").layers) == {"left", "right", "add"}
    assert json.loads((tmp_path / "precision.json").read_text(encoding="utf-8"))["offenders"] == ["add"]
    assert ptp.build("net.onnx", engine="reference", precision="precision.yaml").precision == "fp16"
    code, out, _ = pytrt("precision", "report", "precision.yaml", "-o", "precision.html")
    assert code == 0
    assert "<svg" in (tmp_path / "precision.html").read_text(encoding="utf-8")
    code, out, _ = pytrt(
        "build", "net.onnx", "--precision", "precision.yaml", "--engine", "reference", "-o", "net.engine"
    )
    assert code == 0
    assert "fp16" in out
    assert ptp.load_engine("net.engine").precision == "fp16"
    code, _, err = pytrt("run", "net.onnx", "--precision", "precision.yaml", "--engine", "reference")
    assert (code, "engine reference, fp16" in err) == (0, True)
    compared = ("compare", "net.onnx", "net.onnx", "--engine-b", "reference", *COSINE)
    code, out, _ = pytrt(*compared, "--precision-b", "fp16")
    assert (code, out.splitlines()[0][:25]) == (1, "first difference: 'add', ")
    code, out, _ = pytrt(*compared, "--precision-b", "precision.yaml")
    assert (code, out[:16]) == (0, "9 tensors agree;")


@pytest.mark.parametrize("batch", [1, 3])
def test_int8_is_searched_on_images(pytrt, tmp_path, batch):
    model = outlier_weights()
    for info in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        info.type.tensor_type.shape.dim[0].dim_value = batch
    onnx.save(model, tmp_path / "net.onnx")
    (tmp_path / "photos").mkdir()
    rng = np.random.default_rng(0)
    for number in range(3):
        save_image(rng.integers(0, 256, (12, 14, 3)).astype(np.uint8), tmp_path / "photos" / f"{number}.png")
    options = ("--precision", "int8", "--tolerance", "cosine=0.99", "--per-tensor", "--samples", "2", "-o", "p.yaml")
    code, out, _ = pytrt(*SEARCH[:-1], "photos", *options)
    assert code == 0
    assert "conv3: int8, per-channel: own error" in out
    engine = ptp.build("net.onnx", engine="cpu", precision="p.yaml")
    assert (engine.precision, engine.inputs[0].dims[0]) == ("int8", batch)


def test_the_seed_chooses_the_samples_and_a_journal_of_another_seed_is_not_used(pytrt, tmp_path):
    write(tmp_path, cancelling(), 6)
    common = (*SEARCH, *COSINE, "--samples", "2")
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        assert pytrt(*common, "--seed", seed, "-o", f"{name}.yaml")[0] == 0
    one, again, other = (Path(f"{name}.json").read_text(encoding="utf-8") for name in ("one", "again", "other"))
    assert one == again
    assert one != other
    Path("other.journal").write_text(json.dumps({"identity": {"seed": 1}, "results": {"layers": []}}))
    assert pytrt(*common, "--seed", 2, "-o", "other.yaml")[0] == 0
    assert Path("other.json").read_text(encoding="utf-8") == other


def test_the_form_of_a_plugin_is_that_of_the_search(pytrt, tmp_path):
    onnx.save(conv_net(Complete()), tmp_path / "net.onnx")
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "x.npz", data=image())
    Witness.calls.clear()
    options = ("--precision", "int8", "--tolerance", "cosine=0.9", "--plugin-form", "test.engines::Complete=compute")
    code, _, err = pytrt(*SEARCH, *options, "-o", "p.yaml")
    assert code == 0, err
    assert set(Witness.calls) == {"compute"}
    assert json.loads(Path("p.json").read_text(encoding="utf-8"))["facts"]["plugins"] == {
        "test.engines::Complete": "compute"
    }


def test_exit_code_1_where_the_budget_is_too_small(pytrt, tmp_path):
    write(tmp_path, cancelling(), 1)
    code, out, _ = pytrt(*SEARCH, *COSINE, "--max-runs", "2", "-o", "p.yaml")
    assert code == 1
    assert "outputs NOT within tolerance: 2 evaluations are spent" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("build", "net.onnx", "--precision", "fp4", "-o", "x"),
            "--precision fp4: expected fp32, tf32, bf16, fp16, int8, fp8, or",
        ),
        (("build", "net.onnx", "--precision", "other.yaml", "-o", "x"), "--precision other.yaml: no such file"),
        (("run", "net.engine", "--precision", "p.yaml"), "net.engine is built already"),
        (("build", "net.onnx", "--precision", "p.yaml", "--cache", "p.yaml", "-o", "x"), "p.yaml holds its own scales"),
        (("evaluate", "net.onnx", "--precision", "p.yaml", "--data", "data"), "not a usable precision file"),
        (("profile", "net.onnx", "--precision", "fp4"), "--precision fp4: expected"),
        (("compare", "net.onnx", "net.onnx", "--precision", "q.yaml"), "--precision q.yaml: no such file"),
    ],
)
def test_a_precision_that_cannot_be_followed_is_refused(pytrt, tmp_path, words, message):
    onnx.save(chain(), tmp_path / "net.onnx")
    ptp.build("net.onnx", engine="reference").save("net.engine")
    (tmp_path / "p.yaml").write_text("format: 0\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "classes.txt").write_text("cat\n")
    code, _, err = pytrt(*words)
    assert code == 2
    assert message in " ".join(err.split())


def test_the_help_names_all_precisions(pytrt):
    _, out, _ = pytrt("build", "--help")
    assert "NAME|FILE.yaml" in out
    assert "fp32, tf32, bf16, fp16, int8" in " ".join(out.replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "p.txt"], "expected a file .yaml"),
        (["-o", "p.yaml", "--tolerance", "psnr=3"], "expected atol=1e-3"),
        (["-o", "p.yaml", "--engine", "cpu"], "has no precision 'fp16'"),
        (["-o", "p.yaml", "--data", "nothing"], "nothing"),
        (["-o", "p.yaml", "--data", "bad"], r"expected arrays for the inputs ['data'], found ['other']"),
    ],
)
def test_what_is_wrong_is_said(pytrt, tmp_path, words, message):
    write(tmp_path, chain(), 1)
    (tmp_path / "bad").mkdir()
    np.savez(tmp_path / "bad" / "x.npz", other=np.zeros(1))
    given = words if "--data" in words else [*words, "--data", "data"]
    given = given if "--engine" in words else [*given, "--engine", "reference"]
    code, _, err = pytrt("precision", "search", "net.onnx", *given)
    assert code == 2
    assert message in err


def test_settings_reach_the_engine_and_words_become_a_list(pytrt, tmp_path):
    write(tmp_path, chain(), 1)
    code, _, err = pytrt(*SEARCH, "-o", "p.yaml", "--setting", "disable=tactics,graph")
    assert code == 2
    assert "disable" in err
    assert read_settings(["disable=tactics,graph", "batch=1,8", "float=float32"]) == {
        "disable": ["tactics", "graph"], "batch": [1, 8], "float": "float32",
    }  # fmt: skip


def test_a_report_without_figures_is_refused(pytrt):
    code, _, err = pytrt("precision", "report", "p.yaml", "-o", "p.html")
    assert code == 2
    assert "p.json: no such file" in err


def test_compare_takes_random_inputs_without_data(pytrt, tmp_path):
    onnx.save(chain(), tmp_path / "net.onnx")
    code, out, _ = pytrt("compare", "net.onnx", "net.onnx", "--engine-b", "cpu")
    assert (code, out[:17]) == (0, "11 tensors agree;")
