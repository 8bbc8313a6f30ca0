"""From image bytes to boxes with the kernels of the engine on NumPy arrays, against the plain path around the network."""

import numpy as np
import pytest

from darknet2caffe import read_network, to_onnx
from pytrtplugins.cuda.backends import host as host_backend
from pytrtplugins.engines.base.host_detection import HostDetection
from pytrtplugins.engines.cuda.device.device import HostDevice
from pytrtplugins.engines.cuda.run.image_run import ImageRun
from pytrtplugins.engines.cuda.run.staging import Staging
from pytrtplugins.models import read_heads
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import TensorDesc
from pytrtplugins.vision import MODES
from tests.engines.cuda.host import host_execution

pytestmark = pytest.mark.skipif(not host_backend.available(), reason="no C++ compiler (apt-get install g++)")

SIZES = [(40, 33), (64, 64), (7, 90), (1, 1), (200, 31)]
CONV = "[convolutional]\nfilters={filters}\nsize=3\nstride=2\npad=1\nactivation={activation}\n"
NETWORKS = {
    "region": CONV.format(filters=8, activation="leaky")
    + CONV.format(filters=16, activation="linear")
    + "[region]\nanchors=1,1,3,2\nclasses=3\nnum=2\nsoftmax=1\n",
    "two yolo layers": CONV.format(filters=16, activation="linear")
    + "[yolo]\nanchors=10,13,16,30,33,23\nmask=0,1\nclasses=3\nnum=3\n[route]\nlayers=-2\n"
    + CONV.format(filters=8, activation="linear")
    + "[yolo]\nanchors=10,13,16,30,33,23\nmask=2\nclasses=3\nnum=3\n",
}
NETWORKS["suppression by distance"] = f"{NETWORKS['two yolo layers']}nms_kind=diounms\nbeta_nms=0.4\n"


def random_image(size, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3)).astype(np.uint8)


class HostEngine:
    """The engine's own execution behind the interface of an engine, for the plain path."""

    nests = True

    def __init__(self, execution, batch):
        self.execution = execution
        self.inputs = (TensorDesc("data", (batch, 3, 16, 32)),)

    def check_process(self):
        pass

    def create_context(self):
        return self

    def run(self, inputs):
        self.execution.input("data")[...] = inputs["data"]
        self.execution.queue(None)
        return {name: self.execution.output(name).copy() for name in self.execution.plan.outputs}


def detection_model(name, folder):
    cfg = folder / "net.cfg"
    cfg.write_text(f"[net]\nwidth=32\nheight=16\nchannels=3\n{NETWORKS[name]}")
    return prepare(to_onnx(read_network(cfg).with_random_weights(1), batch="dynamic"))


@pytest.fixture(params=list(NETWORKS))
def model(request, tmp_path):
    return detection_model(request.param, tmp_path)


def executed(model, batch):
    return host_execution(model, {"data": np.zeros((batch, 3, 16, 32), np.float32)})


def assert_same_boxes(found, wanted):
    for ours, theirs in zip(found, wanted, strict=True):
        for name in ("classes", "scores", "boxes_cxcywh"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), strict=True)
        assert ours.placement == theirs.placement


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("batch", [1, 3])
def test_boxes_are_those_of_the_plain_path(model, batch, mode):
    execution, heads = executed(model, batch), read_heads(model)
    run = ImageRun(execution, "data", heads, mode, 30)
    plain = HostDetection(HostEngine(execution, batch), heads, (32, 16), mode, 30)
    images = [random_image(size, number) for number, size in enumerate(SIZES)]
    seen = 0
    for chunk in (images[start : start + batch] for start in range(0, len(images), batch)):
        for thresholds in ((0.0, 0.3), (0.3, 0.6), (1.0, 0.45)):
            placements = run.send(chunk, *thresholds, None)
            run.queue(None)
            found = run.boxes(placements)
            wanted = plain.detect(chunk, score_threshold=thresholds[0], iou_threshold=thresholds[1])
            assert len(wanted) == len(chunk)
            assert_same_boxes(found, wanted)
            seen += sum(len(boxes.scores) for boxes in found)
    assert seen > 50


def sent(staging, images, mode="letterbox"):
    """Whether the memory is new, and what the letterbox kernel will read: each image's row and its pixels."""
    _, new = staging.send(images, (32, 16), mode, 0.25, 0.5, None)
    rows = staging.placements.tolist()
    return new, [
        (row, staging.bytes[16 * row[0] :][: 3 * row[1] * row[2]].reshape(row[2], row[1], 3)) for row in rows if row[1]
    ]


@pytest.mark.parametrize(
    "sizes", [[(100, 100)], [(700, 900), (1, 1), (900, 701)], [(1, 1)], [(3, 1), (5, 7)], [(2000, 1500)]]
)
def test_every_byte_arrives(sizes):
    staging, images = Staging(HostDevice(), 3), [random_image(size, number) for number, size in enumerate(sizes)]
    staging.bytes[:] = 0xAA
    _, arrived = sent(staging, images)
    for (_, pixels), image in zip(arrived, images, strict=True):
        np.testing.assert_array_equal(pixels, image)
    assert (float(staging.score_threshold[0]), float(staging.iou_threshold[0])) == (0.25, 0.5)
    assert not staging.counts.any()


SENT = {"sizes": ((64, 32), (32, 16)), "mode": "letterbox", "score_threshold": 0.25, "iou_threshold": 0.5}
"""Images that all modes place alike, and resize otherwise."""
OTHER = {
    "sizes": [
        *(((65, 32), (32, 16)), ((64, 33), (32, 16)), ((64, 32), (33, 16)), ((32, 64), (32, 16))),
        *(((32, 16), (64, 32)), ((64, 32),)),
    ],
    "mode": ["darknet"],
    "score_threshold": [0.75],
    "iou_threshold": [0.75],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key in SENT for value in OTHER[key]])
def test_what_changes_between_two_runs_arrives_with_the_second(key, value):
    """The header is written again where one fact is another one, and the memory is that of a first run."""

    def header(*runs):
        staging = Staging(HostDevice(), 2)
        for sizes, mode, score_threshold, iou_threshold in map(dict.values, runs):
            staging.send([random_image(size) for size in sizes], (32, 16), mode, score_threshold, iou_threshold, None)
        return staging.bytes[: len(staging._header)].tolist()

    assert header(SENT, SENT | {key: value}) == header(SENT | {key: value}) != header(SENT)


def test_a_graph_serves_all_images_until_the_memory_grows():
    staging = Staging(HostDevice(), 2)
    sides = [(100, 100), (3, 5), (500, 600), (1, 1), (768, 400)]
    assert [sent(staging, [random_image(side)])[0] for side in sides] == [False] * 5
    assert sent(staging, [random_image((800, 700)), random_image((10, 10))])[0]
    assert len(staging.bytes) == 1 << 21
    assert not sent(staging, [random_image((800, 800))])[0]


def test_an_image_with_alpha_or_upside_down_arrives_as_it_looks():
    image = np.zeros((5, 7, 4), np.uint8)
    image[...] = np.arange(4)
    _, [(_, pixels)] = sent(Staging(HostDevice(), 1), [image[::-1, :, :3]])
    np.testing.assert_array_equal(pixels, image[..., :3])


def test_an_image_too_large_for_opencv_is_thinned_out():
    staging = Staging(HostDevice(), 1)
    for mode, width in (("letterbox", 20_000), ("darknet", 40_000)):
        _, [(row, _)] = sent(staging, [random_image((40_000, 2))], mode)
        assert row[1:3] == [width, 2]
