"""Image bytes to boxes on a GPU: the boxes of the plain path, for images of any size, batches, threads."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import pytrtplugins as ptp
from darknet2caffe import read_network, to_onnx
from pytrtplugins.engines.base.host_detection import HostDetection
from pytrtplugins.models import read_heads
from pytrtplugins.vision import MODES
from tests.engines.cuda.conftest import animals_engine
from tests.engines.cuda.device_memory import assert_needs_no_more_memory
from tests.engines.cuda.run.test_image_run import NETWORKS, assert_same_boxes

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

SIZES = [
    *((768, 576), (1, 1), (4000, 3000), (224, 224), (100, 900)),
    *((448, 448), (1300, 3), (31, 17), (640, 480), (1920, 1080)),
]
THRESHOLDS = [(0.5, 0.45), (0.05, 0.45), (0.0, 0.7)]


def random_image(size, seed=0):
    """Coarse spots, and noise: something that a trained network sees things in."""
    rng = np.random.default_rng(seed)
    width, height = size
    side = max(1, min(size) // 6)
    spots = rng.integers(0, 256, (-(-height // side), -(-width // side), 3)).repeat(side, 0).repeat(side, 1)
    noise = rng.integers(-20, 21, (height, width, 3))
    return np.clip(spots[:height, :width] + noise, 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def engine():
    return animals_engine([1, 3])


def contexts(engine, mode="letterbox", max_detections=200):
    heads = read_heads(engine.model)
    return [
        make(heads, (224, 224), mode, max_detections) for make in (engine.create_detection_context, plain_path(engine))
    ]


def plain_path(engine):
    return lambda *arguments: HostDetection(engine, *arguments)


@pytest.mark.parametrize("mode", MODES)
def test_boxes_are_those_of_the_plain_path_on_images_of_any_size(engine, mode):
    detection, plain = contexts(engine, mode)
    seen = 0
    with detection, plain:
        for number, size in enumerate(SIZES):
            image = [random_image(size, number)]
            for score, iou in THRESHOLDS:
                wanted = plain.detect(image, score_threshold=score, iou_threshold=iou)
                assert_same_boxes(detection.detect(image, score_threshold=score, iou_threshold=iou), wanted)
                seen += len(wanted[0].scores)
    assert seen > 100


def test_boxes_are_those_of_the_plain_path_on_real_images(engine):
    data = pytest.importorskip("skimage.data")
    detection, plain = contexts(engine)
    with detection, plain:
        for name in ("astronaut", "chelsea", "coffee"):
            image = [getattr(data, name)()]
            assert_same_boxes(detection.detect(image, score_threshold=0.1), plain.detect(image, score_threshold=0.1))


def test_more_boxes_than_there_is_room_for_are_the_best(engine):
    detection, plain = contexts(engine, max_detections=5)
    with detection, plain:
        found = detection.detect([random_image((500, 400))], score_threshold=0.0)
        assert len(found[0].scores) == 5
        assert_same_boxes(found, plain.detect([random_image((500, 400))], score_threshold=0.0))


def test_ten_sizes_go_through_one_graph(engine):
    detection, _ = contexts(engine)
    with detection:
        detection.detect([random_image((4000, 3000))])
        detection.detect([random_image((10, 10))])
        run = detection._runs[1]
        graph = run.graph
        assert graph is not None
        for size in SIZES:
            detection.detect([random_image(size)])
        assert run.graph is graph


def test_images_of_a_batch_have_sizes_of_their_own(engine):
    detection, _ = contexts(engine)
    images = [random_image(size, number) for number, size in enumerate(SIZES[:3])]
    plain = [HostDetectionOfBatch(engine, count) for count in (1, 3)]
    with detection:
        assert detection.batch == 3
        for count, reference in zip((1, 3), plain, strict=True):
            assert_same_boxes(detection.detect(images[:count], score_threshold=0.05), reference.detect(images[:count]))
        padded = detection.detect(images[:2], score_threshold=0.05)
        assert_same_boxes(padded, plain[1].detect(images)[:2])


class HostDetectionOfBatch(HostDetection):
    """The plain path with a batch that the engine's model leaves free."""

    def __init__(self, engine, batch):
        super().__init__(engine, read_heads(engine.model), (224, 224))
        self._batch = batch

    def detect(self, images):  # type: ignore[override]
        return super().detect(images, score_threshold=0.05)


def test_two_contexts_in_threads_give_the_boxes_of_one(engine):
    images = [random_image(size, number) for number, size in enumerate(SIZES)]

    def work(_):
        detection, _ = contexts(engine)
        with detection:
            return [detection.detect([image], score_threshold=0.05)[0] for _ in range(5) for image in images]

    alone = work(0)
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(work, range(2)):
            assert_same_boxes(found, alone)


@pytest.mark.parametrize("name", list(NETWORKS))
@pytest.mark.parametrize("disable", [["tactics"], ["tactics", "graph"]])
def test_several_layers_and_a_context_without_a_graph(name, disable, tmp_path):
    cfg = tmp_path / "net.cfg"
    cfg.write_text(f"[net]\nwidth=96\nheight=64\nchannels=3\n{NETWORKS[name]}")
    model = to_onnx(read_network(cfg).with_random_weights(1))
    engine = ptp.build(model, engine="cuda", precision="fp16", settings={"disable": disable})
    heads, image = read_heads(engine.model), [random_image((300, 200))]
    with engine.create_detection_context(heads, (96, 64)) as detection, HostDetection(engine, heads, (96, 64)) as plain:
        for _ in range(2):
            found = detection.detect(image, score_threshold=0.2)
            assert_same_boxes(found, plain.detect(image, score_threshold=0.2))
        assert len(found[0].scores)


def test_many_runs_need_no_more_memory(engine):
    image = [random_image((64, 48))]
    detection, _ = contexts(engine)
    with detection:
        detection.detect([random_image((700, 500))])
        assert_needs_no_more_memory(lambda: [detection.detect(image) for _ in range(2000)])
