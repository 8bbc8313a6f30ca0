"""Every option of a command reaches what it is for: what stands behind is a stub, so that no network runs."""

import inspect
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
from onnx import ModelProto

from pytrtplugins.cli.shared import loading, option_values
from pytrtplugins.engines import Arithmetic
from pytrtplugins.errors import UsageError
from pytrtplugins.layers import Reorg
from pytrtplugins.models import Description, describe, read_description
from pytrtplugins.precision import parse_tolerance
from pytrtplugins.vision import save_image
from tests.cli.stubs import ends

BUILT = ["--weights", "w", "--engine", "cpu", "--precision", "int8", "--cache", "c", "--threads", "3"]
OPENED = {"weights": Path("w"), "engine": "cpu", "precision": "int8", "cache": Path("c"), "threads": 3}
DETECTOR = ["--names", "n", "--fit", "stretch", "--threshold", "0.25", "--nms", "0.75"]
THRESHOLDS = {"score_threshold": 0.25, "iou_threshold": 0.75}
ENGINE = SimpleNamespace(name="stub", precision="int8", arithmetic=Arithmetic("int8", "int8"), choices={})


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["build", *BUILT, "-o", "x.engine", "--calibration", "p", "--calibration-fit", "stretch", "--setting", "batch=1,8",
          "--plugin-form", "a::B=compute", "--plugin-form", "a::C=enqueue", "--names", "n", "--fit", "darknet", "--threshold", "0.25",
          "--batch", "4"],
         {**OPENED, "calibration": Path("p"), "mode": "stretch", "settings": {"batch": [1, 8]},
          "plugins": {"a::B": "compute", "a::C": "enqueue"}, "batch": 4,
          "details": {"names": Path("n"), "mode": "darknet", "score_threshold": 0.25}}),
        (["run", *BUILT, "--setting", "int8=always", "--plugin-form", "a::B=compute", "--batch", "4"],
         {**OPENED, "settings": {"int8": "always"}, "plugins": {"a::B": "compute"}, "batch": 4}),
        (["bench", *BUILT, "--setting", "batch=1,8", "--plugin-form", "a::B=compute"],
         {**OPENED, "settings": {"batch": [1, 8]}, "plugins": {"a::B": "compute"}, "as_asked": True}),
        (["profile", "--weights", "w", "--precision", "int8", "--cache", "c", "--batch", "8",
          "--plugin-form", "a::B=decomposition"],
         {"weights": Path("w"), "engine": "cuda", "precision": "int8", "cache": Path("c"), "settings": {"batch": 8},
          "plugins": {"a::B": "decomposition"}}),
    ],
)  # fmt: skip
def test_what_an_engine_is_opened_with(pytrt, asked, words, options):
    bound = inspect.signature(loading.open_engine).bind
    opened = asked(loading, "open_engine")
    ends(pytrt, words[0], "net.onnx", *words[1:])
    assert [bound(*given, **named).arguments for given, named in opened] == [{"path": Path("net.onnx"), **options}]


@pytest.mark.parametrize("pair", ["a::B", "=compute", "a::B=fast", "a::B="])
def test_a_form_that_is_none_is_refused(pair):
    with pytest.raises(UsageError, match="expected NAME=FORM with a form of enqueue, decomposition, compute") as caught:
        option_values.read_forms([pair])
    assert str(caught.value).startswith(f"--plugin-form {pair}: ")


@pytest.mark.parametrize("calibrated", [False, True])
def test_what_an_opened_engine_is_built_with(asked, tmp_path, calibrated):
    (tmp_path / "c").touch()
    path, options = (
        tmp_path / "net.cfg",
        {"engine": "cpu", "threads": 3, "settings": {"a": 1}, "plugins": {"a::B": "compute"}},
    )
    model = ModelProto()
    read, made = asked(loading, "open_model", model), asked(loading, "make_calibrator", "scales")
    built = asked(loading, "build", ENGINE)
    given = {"precision": "int8", "cache": tmp_path / "c", "calibration": Path("p")} if calibrated else {}
    said = {"names": ["cat"], "mode": "darknet"}
    loading.open_engine(path, weights=Path("w"), mode="stretch", batch=4, details=said, **options, **given)
    assert read == [((path, Path("w"), 4), {})]
    assert read_description(model) == Description(("cat",), "darknet")
    assert made == ([(("minmax", Path("p"), tmp_path / "c"), {"mode": "stretch"})] if calibrated else [])
    wanted = (
        {"precision": "int8", "calibration": "scales"} if calibrated else {"precision": "fp32", "calibration": None}
    )
    assert built == [((model,), {**options, **wanted})]


@pytest.mark.parametrize("name", ["entropy", "minmax", "percentile"])
def test_what_a_calibrator_is_made_of(name, tmp_path):
    for number in range(4):
        save_image(np.full((4, 4, 3), number, np.uint8), tmp_path / f"{number}.png")
    found = loading.make_calibrator(name, tmp_path, tmp_path / "c", batch=2, limit=3, mode="stretch")
    assert type(found).__name__.lower() == f"{name}calibrator"
    assert (found.cache, found.batches.batch, found.batches.mode) == (tmp_path / "c", 2, "stretch")
    assert [path.name for path in found.batches.paths] == ["0.png", "1.png", "2.png"]


def test_calibrate(pytrt, asked):
    made = asked(loading, "make_calibrator", "calibrator")
    read = asked(asked.calibrate, "open_with_shapes", "model")
    asked(asked.calibrate.passes, "prepare", "prepared")
    calibrated = asked(asked.calibrate.engines, "calibrate")
    ends(pytrt, "calibrate", "net.cfg", "--calibration", "p", "--cache", "c", "--weights", "w", "--algorithm", "entropy",
         "--batch", "2", "--limit", "3", "--calibration-fit", "stretch", "--engine", "onnxruntime", "--threads", "5",
         "--plugin-form", "acme::Scale=compute", "--shape", "boxes=1x4")  # fmt: skip
    assert made == [(("entropy", Path("p"), Path("c")), {"batch": 2, "limit": 3, "mode": "stretch"})]
    assert read == [((Path("net.cfg"), Path("w"), ["boxes=1x4"]), {})]
    assert calibrated == [
        (("prepared", "calibrator"), {"engine": "onnxruntime", "threads": 5, "plugins": {"acme::Scale": "compute"}})
    ]


class Detector:
    """A detector that finds nothing, and keeps what it is asked for."""

    engine = ENGINE

    def __init__(self):
        self.streamed = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def stream(self, *given, **options):
        self.streamed.append((given, options))
        return []


def test_run_on_images(pytrt, asked):
    asked(loading, "open_engine", ENGINE)
    detector, sources = Detector(), SimpleNamespace(count=lambda: 2, failures=[])
    outputs = MagicMock(saved=lambda: ["boxes.png"])
    found, written = asked(asked.run, "Sources", sources), asked(asked.run, "Outputs", outputs)
    detectors, trackers = asked(loading, "Yolov2", detector), asked(asked.run, "Tracker", None)
    code, out, err = pytrt("run", "net.onnx", "a.png", "http://h/b", "--camera", "3", "--recursive", *DETECTOR, "--output", "boxes",
                           "--save-json", "c.json", "--save-txt", "t", "--save-crops", "d", "--batch", "2",
                           "--track", "--show")  # fmt: skip
    assert code == 0, err
    assert found == [((["a.png", "http://h/b", 3],), {"recursive": True})]
    files = {"coco": "c.json", "labels": "t", "crops": "d", "output": "boxes"}
    assert written == [((sources,), {"show": True, **{name: Path(file) for name, file in files.items()}})]
    assert detectors == [((ENGINE, Path("n")), {"mode": "stretch", "batch": 2})]
    assert detector.streamed == [((sources,), {**THRESHOLDS, "track": True, "decode": "cpu"})]
    assert trackers == [((), {})]
    assert out.splitlines() == ["saved boxes.png", "no images", "engine stub, int8"]
    assert outputs.__exit__.called


@pytest.mark.parametrize(("kind", "ended"), [("live", 0), ("video", 130)])
def test_ctrl_c_ends_a_camera_and_interrupts_a_video(pytrt, asked, kind, ended):
    class Interrupted(Detector):
        def stream(self, *given, **options):
            raise KeyboardInterrupt

    asked(loading, "open_engine", ENGINE)
    asked(asked.run, "Sources", SimpleNamespace(count=lambda: None, failures=[], found=[SimpleNamespace(kind=kind)]))
    asked(asked.run, "Outputs", MagicMock(saved=lambda: ["a.mp4"]))
    asked(loading, "open_detector", Interrupted())
    code, out, _ = pytrt("run", "net.onnx", "--camera", "0")
    assert (code, out) == (ended, "saved a.mp4\nno images\nengine stub, int8\n" if ended == 0 else "")


@pytest.mark.parametrize(
    "words",
    [["--output", "a.png"], ["--save-txt", "t"], ["--track"], ["--show"], ["--recursive"]],
)
def test_options_for_images_want_images(refused, words):
    assert "there is no image to find objects on" in refused("run", "net.onnx", *words)


@pytest.mark.parametrize(("slots", "name"), [(1, "one_by_one"), (4, "side_by_side")])
def test_run_on_arrays(pytrt, asked, slots, name):
    asked(loading, "open_engine", ENGINE)
    read = asked(option_values, "read_inputs", "arrays")
    run = asked(asked.run.runs, name)
    ends(pytrt, "run", "net.onnx", "--input", "x=a.npy", "--input", "y=b.npy", "--input-limit", "3", "--repeat", "7",
         "--slots", slots)  # fmt: skip
    assert read == [((["x=a.npy", "y=b.npy"], ENGINE, 3 << 20), {"free": 1})]
    assert run == [((ENGINE, "arrays", 7, *([4] if slots > 1 else [])), {})]


@pytest.mark.parametrize(
    ("given", "own", "beside", "found"),
    [
        (None, None, False, None),
        (None, None, True, Path("net.names")),
        (None, ["cat"], True, None),
        (Path("n"), ["cat"], True, Path("n")),
    ],
)
def test_names_are_those_given_else_the_models_own_else_those_beside_it(
    asked, tmp_path, monkeypatch, given, own, beside, found
):
    monkeypatch.chdir(tmp_path)
    if beside:
        Path("net.names").write_text("cat\n")
    engine = SimpleNamespace(model_without_weights=ModelProto())
    describe(engine.model_without_weights, names=own)
    detectors = asked(loading, "Yolov2", "detector")
    assert loading.open_detector(engine, Path("net.onnx"), given, mode="stretch") == "detector"
    assert detectors == [((engine, found), {"mode": "stretch"})]


def test_evaluate(pytrt, asked):
    read = asked(asked.evaluate.models, "YoloData", "data")
    opened, detectors = asked(loading, "open_engine", ENGINE), asked(loading, "Yolov2", "detector")
    evaluated = asked(asked.evaluate.models, "evaluate")
    ends(pytrt, "evaluate", "net.onnx", "--data", "d", "--data", "e.tar", "--split", "test.txt", *BUILT, *DETECTOR,
         "--class-map", "tv=tvmonitor", "--class-map", "a=b=c", "--limit", "9", "--setting", "batch=8",
         "--exif", "stored", "--plugin-form", "acme::Scale=compute")  # fmt: skip
    assert read == [(([Path("d"), Path("e.tar")],), {"exif": "stored"})]
    asked_for = {"settings": {"batch": 8}, "plugins": {"acme::Scale": "compute"}, "as_asked": True}
    assert opened == [((Path("net.onnx"), *OPENED.values()), asked_for)]
    assert detectors == [((ENGINE, Path("n")), {"mode": "stretch"})]
    wanted = {**THRESHOLDS, "class_map": {"tv": "tvmonitor", "a": "b=c"}, "limit": 9}
    assert evaluated == [(("detector", "data", "test.txt"), wanted)]


@pytest.mark.parametrize(("limit", "rounded"), [(None, 8), (5, 5), (30, 8)])
def test_equalize(pytrt, asked, limit, rounded):
    images = asked(asked.calibrate, "ImageBatches", "photos")
    read = asked(loading, "open_model", "model")
    equalized, round_weights = (asked(asked.calibrate.engines, name, *answer) for name, answer in
                                (("equalize", ["equalized"]), ("round_weights", [])))  # fmt: skip
    ends(pytrt, "equalize", "net.cfg", "--calibration", "p", "-o", "out.onnx", "--weights", "w", "--calibration-fit", "stretch",
         "--round-weights", "--engine", "onnxruntime", "--threads", "5", *([] if limit is None else ["--limit", limit]))  # fmt: skip
    assert read == [((Path("net.cfg"), Path("w")), {})]
    assert images == [
        ((Path("p"),), {"limit": count, "mode": "stretch"}) for count in (20 if limit is None else limit, rounded)
    ]
    on = {"engine": "onnxruntime", "threads": 5}
    assert (equalized, round_weights) == ([(("model", "photos"), on)], [(("equalized", "photos"), on)])


def test_check_plugin(pytrt, asked):
    asked(loading, "import_plugin", Reorg)
    asked(asked.check, "import_plugin", Reorg)
    checked = asked(asked.check.check, "check_plugin")
    ends(pytrt, "check-plugin", "a:B", "--sanitize", "--time-limit", "2.5", "--set", "stride=3", "--input", "x=0..9")
    ends(pytrt, "check-plugin", "a:B", "--shape", "x=1x8x6x6,offset=1x18x6x6", "--skip", "clone", "--reference", "c:D")
    shapes = {"x": (1, 8, 6, 6), "offset": (1, 18, 6, 6)}
    usual = {"shapes": None, "inputs": None, "sanitize": False, "time_limit": 30.0, "skip": (), "reference": None}
    assert checked == [
        ((Reorg(stride=3),), {**usual, "inputs": {"x": (0, 9)}, "sanitize": True, "time_limit": 2.5}),
        ((Reorg,), {**usual, "shapes": shapes, "skip": ["clone"], "reference": Reorg}),
    ]


@pytest.mark.parametrize("text", ["1x8", "x=", "x=1x", "x=1x8,x=1x8", "x=-1x8", "x=1x8,", "x=1x2x3x4x5x6x7x8x9"])
def test_shapes_of_another_form_are_refused(refused, asked, text):
    asked(loading, "import_plugin", Reorg)
    err = refused("check-plugin", "a:B", "--shape", text)
    assert "expected NAME=DIMS, once for each input, such as x=1x8x6x6." in " ".join(err.split())


@pytest.mark.parametrize(
    "command", ["inspect", "build -o x", "run", "calibrate --calibration p", "evaluate --data d", "profile"]
)
def test_plugins_are_imported_first(pytrt, asked, command):
    name, *rest = command.split()
    imported = asked(loading, "import_plugins")
    ends(pytrt, name, "net.onnx", *rest, "--plugins", "a", "--plugins", "b.py")
    assert imported == [((["a", "b.py"],), {})]


@pytest.mark.parametrize("option", ["--plot", "--trace"])
def test_what_a_profile_writes_is_checked_before_it_measures(refused, asked, option):
    opened = asked(loading, "open_engine")
    assert "bad.xyz" in refused("profile", "net.onnx", option, "nowhere/bad.xyz")
    assert not opened


def test_compare(pytrt, asked, tmp_path):
    (tmp_path / "p.yaml").touch()
    engine = SimpleNamespace(inputs="inputs")
    opened, read = asked(loading, "open_engine", engine), asked(asked.precision, "read_samples", "samples")
    compared = asked(asked.precision.precision, "compare")
    ends(pytrt, "compare", "a.onnx", "b.cfg", "--engine", "cpu", "--engine-b", "onnxruntime", "--precision", "p.yaml",
         "--precision-b", "int8", "--cache", "c", "--data", "d", "--tolerance", "cosine=0.5", "--samples", "3", "--seed", "7",
         "--fit", "stretch")  # fmt: skip
    assert opened == [
        ((Path("a.onnx"),), {"engine": "cpu", "precision": "p.yaml", "cache": None, "as_asked": True}),
        ((Path("b.cfg"),), {"engine": "onnxruntime", "precision": "int8", "cache": Path("c"), "as_asked": True}),
    ]
    assert read == [(([Path("d")], "inputs"), {"limit": 3, "seed": 7, "mode": "stretch"})]
    assert compared == [((engine, engine, "samples", parse_tolerance("cosine=0.5")), {})]


def test_export_triton(pytrt, asked):
    asked(asked.export, "_open_for_triton", "model")
    exported = asked(asked.export.triton, "export_triton")
    ends(pytrt, "export-triton", "net.onnx", "-o", "models", "--name", "n", "--version", "2", "--plan", "p", "--library", "a.so",
         "--library", "b.so", "--max-batch", "4", "--instances", "3", "--instance-kind", "gpu", "--queue-delay", "5",
         "--served-at", "/m", "--plugin-form", "acme::Scale=enqueue")  # fmt: skip
    assert exported == [(("model", Path("models")), {
        "name": "n", "version": 2, "plan": Path("p"), "libraries": [Path("a.so"), Path("b.so")], "max_batch": 4, "instances": 3,
        "kind": "gpu", "queue_delay": 5, "served_at": "/m", "plugins": {"acme::Scale": "enqueue"}})]  # fmt: skip


def test_export_plugin(pytrt, asked):
    asked(loading, "import_plugin", Reorg)
    exported = asked(asked.export, "export_plugin")
    ends(pytrt, "export-plugin", "a:B", "-o", "lib.so", "--set", "stride=4", "--set", "reverse=true", "--source-only", "--loadable",
         "--tensorrt-include", "i", "--architecture", "75", "--architecture", "90", "--cpu-kernels")  # fmt: skip
    ends(pytrt, "export-plugin", "a:B", "-o", "lib.so")
    given = (Reorg, Path("lib.so"))
    assert exported == [
        (given, {"fixed": {"stride": 4, "reverse": True}, "source_only": True, "loadable": True, "tensorrt_include": Path("i"),
                 "architectures": [75, 90], "host": True}),
        (given, {"fixed": {}, "source_only": False, "loadable": False, "tensorrt_include": None, "architectures": (80, 90),
                 "host": False}),
    ]  # fmt: skip
