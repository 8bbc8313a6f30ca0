"""Published weights: the CPU engine finds what OpenCV 4's darknet importer finds, and is worth the same mAP50.

Images are fitted, scores cut, boxes suppressed and mapped back by one code for both; the networks' values and their decoding
to boxes are each side's own. ``pytest -s`` prints the figures.
"""

import contextlib
import io
import json

import numpy as np
import pytest

from darknet2caffe import read_network, to_onnx
from darknet2caffe.cli import main as darknet2caffe
from pytrtplugins import build
from pytrtplugins.cli import main as pytrt
from pytrtplugins.engines import Arithmetic
from pytrtplugins.engines.base.host_detection import HostDetection
from pytrtplugins.models import Head, YoloData, Yolov2, evaluate, read_heads
from pytrtplugins.vision import letterbox, load_image

SMALL, LARGE = "yolo-fastest-1.1", "yolo-fastest-1.1-xl"


def darknet_files(shared, name):
    return [shared / "pretrained" / f"{name}{suffix}" for suffix in (".cfg", ".weights")]


class Rows(Head):
    """OpenCV's form of a yolo layer: (B, 5 + classes), boxes already decoded, scores already times the objectness."""

    def decode(self, values, size):
        return values[None, :, :4], values[None, :, 5:]


class OpencvEngine:
    """OpenCV's darknet importer behind the interface of an engine."""

    name, precision, nests = "opencv", "fp32", True
    arithmetic = Arithmetic("fp32", "fp32")

    def __init__(self, cv2, cfg, weights):
        self.model_without_weights = to_onnx(read_network(cfg, weights))  # names and input size for Yolov2, never run
        self.inputs = build(self.model_without_weights, engine="null").inputs
        # of itself the importer zeroes scores below 0.2 and suppresses boxes within each head
        text = cfg.read_bytes().replace(b"[yolo]", b"[yolo]\nthresh=0\nnms_threshold=0\n")
        self.net = cv2.dnn.readNetFromDarknet(np.frombuffer(text, np.uint8), np.fromfile(weights, np.uint8))
        self.net.setPreferableBackend(cv2.dnn.DNN_BACKEND_OPENCV)
        power = read_heads(self.model_without_weights)[-1].distance_power  # OpenCV does not read nms_kind
        names = self.net.getUnconnectedOutLayersNames()
        self.heads = tuple(Rows(name, "yolo", (), 80, distance_power=power) for name in names)

    def check_process(self):
        pass

    def create_context(self):
        return self

    def create_detection_context(self, heads, *arguments):
        return HostDetection(self, self.heads, *arguments)

    def run(self, inputs):
        (data,) = inputs.values()
        self.net.setInput(data)
        names = [head.output for head in self.heads]
        return dict(zip(names, self.net.forward(names), strict=True))

    def close(self):
        pass


@pytest.fixture(scope="module")
def cv2():
    library = pytest.importorskip("cv2")
    if not hasattr(library.dnn, "readNetFromDarknet"):
        pytest.skip(f"OpenCV {library.__version__} has no darknet importer; version 4 has")
    return library


@pytest.fixture(scope="module")
def images(shared):
    return YoloData(shared / "coco-small")


def opencv_detector(cv2, shared, name, mode):
    engine = OpencvEngine(cv2, *darknet_files(shared, name))
    return Yolov2(engine, shared / "pretrained" / "coco.names", mode=mode)


def map50_of_pytrt(shared, name, mode, folder, limit):
    """From darknet's files to a figure, by the two commands alone."""
    model, curves = folder / "model.onnx", folder / "curves.png"
    evaluation = ["evaluate", model, "--names", shared / "pretrained" / "coco.names", "--data", shared / "coco-small"]
    evaluation += ["--engine", "cpu", "--fit", mode, "--limit", limit, "--json", "--plot", curves]
    for command, words in ((darknet2caffe, [*darknet_files(shared, name), "-o", model]), (pytrt, evaluation)):
        with pytest.raises(SystemExit) as end, contextlib.redirect_stdout(io.StringIO()) as out:
            command([str(word) for word in words])
        assert not end.value.code
    assert load_image(curves).shape == (600, 1080, 3)
    return json.loads(out.getvalue())["result"]["figures"]["map50"]


@pytest.mark.parametrize(("name", "mode"), [(SMALL, "letterbox"), (LARGE, "stretch")])
def test_every_box_and_score_is_opencvs(cv2, shared, images, name, mode):
    theirs = OpencvEngine(cv2, *darknet_files(shared, name))
    # OpenCV's sqrt(v + 1e-6) is nearer to darknet's CPU code than to its fork's sqrt(v + 1e-5)
    network = read_network(*darknet_files(shared, name))
    ours = Yolov2(build(to_onnx(network, bn_eps="darknet-cpu"), engine="cpu"), mode=mode)
    for image in images.images()[:6]:
        data = {"data": letterbox(images.image(image), ours.size, mode).data[None]}
        with ours.engine.create_context() as context:
            values, rows = context.run(data), theirs.run(data)
        for head, other in zip(ours.heads, theirs.heads, strict=True):
            height, width = values[head.output].shape[2:]
            order = rows[other.output].reshape(height, width, 3, 85).transpose(2, 0, 1, 3).reshape(-1, 85)
            for mine, expected in zip(
                head.decode(values[head.output], ours.size), (order[:, :4], order[:, 5:]), strict=True
            ):
                np.testing.assert_allclose(mine[0], expected, rtol=5e-4, atol=5e-4)


def compare(cv2, shared, images, folder, name, mode, limit):
    ours = map50_of_pytrt(shared, name, mode, folder, limit)
    theirs = evaluate(opencv_detector(cv2, shared, name, mode), images, limit=limit, progress=False).map50
    print(f"\n{name}, {mode}, {limit} images: mAP50 {100 * ours:.3f} %, OpenCV {100 * theirs:.3f} %")
    assert theirs > 0.3
    assert abs(ours - theirs) <= 0.005


def test_map50_of_the_first_images_is_that_of_opencv(cv2, shared, images, tmp_path):
    compare(cv2, shared, images, tmp_path, SMALL, "stretch", 32)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["letterbox", "stretch"])
@pytest.mark.parametrize("name", [SMALL, LARGE])
def test_map50_is_that_of_opencv(cv2, shared, images, tmp_path, name, mode):
    compare(cv2, shared, images, tmp_path, name, mode, 128)
