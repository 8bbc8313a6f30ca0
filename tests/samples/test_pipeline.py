"""The pipeline of samples/pipeline: read in both sizes; and run in the small one, twice, from the middle, and changed."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytrtplugins.mlops.pipeline import Pipeline
from pytrtplugins.mlops.pipeline.record import RunRecord, run_ids
from pytrtplugins.mlops.registry import ModelRegistry

pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
FILE = ROOT / "samples/pipeline/pipeline.yaml"


@pytest.mark.parametrize(
    ("size", "first", "algorithms"),
    [("smoke", "draw", {"minmax", "percentile"}), ("full", "train", {"minmax", "percentile", "entropy"})],
)
def test_the_sample_has_both_sizes(size, first, algorithms):
    found = Pipeline.load(FILE, {"size": size})
    names = {step.name for step in found.steps}
    assert first in names
    assert ("draw" in names, "train" in names) == (size == "smoke", size == "full")
    assert {step.matrix["algorithm"] for step in found.steps if step.family == "calibrate"} == algorithms
    missing = [
        path for step in found.steps for path in step.inputs if not found.maker(path) and not (ROOT / path).exists()
    ]
    assert set(missing) <= {"data/animals"}


@pytest.fixture
def project(tmp_path):
    shutil.copytree(FILE.parent, tmp_path / "samples/pipeline")
    (tmp_path / "samples/models").symlink_to(ROOT / "samples/models")
    return tmp_path


def run(project, *options):
    words = ["pipeline", "run", "samples/pipeline/pipeline.yaml", "--parameter", "size=smoke", *options]
    done = subprocess.run(
        [sys.executable, "-m", "pytrtplugins", *words],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    folder = project / ".pytrt/pipelines/yolov2-animals"
    record = RunRecord.load(folder / "runs" / f"{run_ids(folder)[-1]}.json")
    return done, record, {step.name for step in record.steps if step.state == "done" and not step.reused}


@pytest.mark.slow
def test_the_small_size_goes_from_photos_to_a_registered_engine(project):
    for module in ("dvc.repo", "openvino", "pycocotools", "skimage", "cv2"):
        pytest.importorskip(module)
    begin = time.monotonic()
    done, record, ran = run(project)
    assert (done.returncode, record.state) == (3, "waiting for approval"), done.stderr
    assert ran == {step.name for step in record.steps} - {"promote"}
    done, record, ran = run(project, "--approve", "promote")
    assert (done.returncode, ran) == (0, {"promote"}), done.stderr
    print(f"first run: {time.monotonic() - begin:.0f} s")

    figures = record.figures
    assert figures["choose.figures.map50"] > 0.9
    verdict = json.loads((project / "build/pipeline/gate.json").read_text())
    assert verdict["passes"]
    assert len(verdict["comparisons"]) == 3
    assert figures["served.version"] == 0  # nothing is served: the FP32 engine stands for it
    assert figures["served.figures.map50"] == figures["evaluate-float.figures.map50"]
    registry = ModelRegistry(project / ".pytrt/models")
    served = registry.get("yolov2-animals", stage="production")
    engine = registry.file(served).read_bytes()
    assert (project / "build/pipeline/package/compose/models/int8.engine").read_bytes() == engine
    assert (project / "build/pipeline/package/triton/yolov2-animals/1/model.onnx").is_file()

    begin = time.monotonic()
    done, record, ran = run(project)
    assert (done.returncode, ran) == (0, set()), done.stderr
    print(f"second run: {time.monotonic() - begin:.1f} s")

    done, record, ran = run(project, "--only", "served", "--rerun")
    assert (done.returncode, ran, record.figures["served.version"]) == (0, {"served"}, served.version), done.stderr
    done, _, ran = run(project, "--only", "gate", "--rerun")
    assert (done.returncode, ran) == (0, {"gate"}), done.stderr
    done, record, ran = run(project, "--from", "choose", "--parameter", "p99=0.001")
    assert (done.returncode, record.state, ran) == (1, "failed", set())
    assert "FAILS: bench.p99 below 0.001 ms" in done.stderr
