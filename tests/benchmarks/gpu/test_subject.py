"""What counts as the same boxes, and what PyTorch and the race's blocks compute."""

from __future__ import annotations

import re

import numpy as np
import pytest

from benchmarks.gpu import subject as race
from benchmarks.gpu.subject import Subject, make_subject, threshold
from pytrtplugins.engines.base.types import Availability
from tests.darknet2caffe.networks import CFGS


@pytest.fixture(scope="module")
def subject(tmp_path_factory) -> Subject:
    """With fewer images, and an eighth of the filters of each layer but the last."""
    if not (CFGS / "yolov2-voc.cfg").is_file():
        pytest.skip(f"{CFGS / 'yolov2-voc.cfg'} is missing (apt-get install darknet)")
    folder = tmp_path_factory.mktemp("subject")
    published = (CFGS / "yolov2-voc.cfg").read_text()
    thin = re.sub(r"^filters=(\d+)", lambda line: f"filters={_thinned(int(line[1]))}", published, flags=re.MULTILINE)
    (folder / "thin.cfg").write_text(thin)
    patch = pytest.MonkeyPatch()
    patch.setenv("BENCHMARK_CFG", str(folder / "thin.cfg"))
    patch.setattr(race, "BATCHES", (1, 2))
    yield make_subject(folder)
    patch.undo()


def _thinned(filters: int) -> int:
    return filters if filters % 8 else filters // 8


def test_a_threshold_lies_in_the_widest_gap():
    scores = np.array([0.9, 0.8, 0.79, 0.4, 0.39], np.float32)
    assert threshold(scores, 0, 5) == pytest.approx(0.595)


def test_rounding_leaves_the_boxes_the_same(subject):
    assert len(subject.boxes(subject.head)) > 20
    assert subject.same_boxes(subject.head * np.float32(1 + 1e-6))
    assert subject.same_boxes(subject.head[:1])


def test_other_boxes_are_noticed(subject):
    assert not subject.same_boxes(subject.head[1:])
    moved = subject.head.copy()
    moved.reshape(2, 5, 25, -1)[:, :, 0] *= np.float32(0.9)  # centre x
    assert not subject.same_boxes(moved)


def test_pytorch_computes_the_same_head(subject):
    pytest.importorskip("torch")
    found = race.heads_by_torch(subject.one, subject.images)
    assert np.linalg.norm(found - subject.head) < 1e-5 * np.linalg.norm(subject.head)
    assert subject.same_boxes(found)


def test_pytorchs_reorg_is_darknets():
    torch = pytest.importorskip("torch")
    from benchmarks.gpu.torch_net import reorg
    from pytrtplugins.layers import Reorg

    x = np.random.default_rng(0).random((2, 8, 4, 6), dtype=np.float32)
    np.testing.assert_array_equal(reorg(torch.from_numpy(x), 2).numpy(), Reorg(stride=2).compute(x))


def test_where_numpy_alone_computes_on_the_cpu_pytorch_and_the_gpu_are_asked(subject, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(race, "cpu_engine", lambda: "reference")
    monkeypatch.setattr(race, "heads_by_torch", lambda model, images: images)
    assert race.heads(subject.one, subject.images) is subject.images
    for reason, name in (("", "cuda"), ("there is no GPU", "reference")):
        monkeypatch.setattr(race, "availability_of", lambda _, reason=reason: Availability("cuda", reason, ""))
        assert race.calibration_engine() == name
