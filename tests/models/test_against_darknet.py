"""From the file on disk to boxes: darknet's own detections are met in float32."""

import functools

import numpy as np
import pytest

from darknet2caffe import read_network, to_onnx
from darknet2caffe.cfg import parse_cfg
from pytrtplugins import build
from pytrtplugins.models import Yolov2
from pytrtplugins.vision import load_image
from tests.oracles.kept_detections import KeptDetections

IMAGES = ("dog.jpg", "person.jpg", "horses.jpg", "giraffe.jpg", "eagle.jpg", "kite.jpg", "scream.jpg")


class Pair:
    """One network inside libdarknet, which does not know nms_kind, and in an engine of this package."""

    def __init__(self, libdarknet, stem, names):
        cfg, weights = stem.with_suffix(".cfg"), stem.with_suffix(".weights")
        self.theirs = libdarknet.load(cfg, weights)
        self.expected = KeptDetections(libdarknet, cfg, weights, self.theirs.detections)
        plain = parse_cfg(cfg.read_text().replace("nms_kind=greedynms", "nms_kind=default"), str(cfg))
        self.ours = Yolov2(build(to_onnx(read_network(plain, weights)), engine="cpu"), names, mode="darknet")

    @functools.cache  # noqa: B019  # few images, and as long as the networks
    def compare(self, image, threshold):
        """Compare classes, scores and boxes of one image; returns what was found."""
        found = self.ours(image, score_threshold=threshold)
        expected = self.expected(image, threshold)
        height, width = load_image(image).shape[:2]
        assert [item.class_id for item in found] == [item.class_id for item in expected]
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.score == pytest.approx(theirs.score, abs=0.005)
            np.testing.assert_allclose(ours.xyxy, np.clip(theirs.xyxy, 0, [width, height] * 2), atol=1)
        return found


@pytest.fixture(scope="module")
def animals(libdarknet, shipped):
    pair = Pair(libdarknet, shipped, shipped.with_suffix(".names"))
    yield pair
    pair.theirs.close()


@pytest.mark.parametrize("name", IMAGES)
def test_the_shipped_model_sees_what_darknet_sees(animals, darknet_image, name):
    animals.compare(darknet_image(name), 0.3)


def test_darknet_finds_the_same_from_an_images_bytes(animals, darknet_image):
    image = load_image(darknet_image("dog.jpg"))  # decoded by another library than darknet's own
    rows = animals.theirs.image_rows(image, threshold=0.5, nms=0.45)
    found = animals.ours(image, score_threshold=0.5)
    assert sorted(int(row[0]) for row in rows) == sorted(item.class_id for item in found)
    for item in found:
        assert min(np.abs(np.clip(row[2:], 0, [*image.shape[1::-1]] * 2) - item.xyxy).max() for row in rows) < 1


def test_the_images_above_hold_enough_to_compare(animals, darknet_image):
    found = [
        item for name in ("dog.jpg", "person.jpg", "horses.jpg") for item in animals.compare(darknet_image(name), 0.3)
    ]
    assert sum(item.score >= 0.5 for item in found) >= 6


@pytest.mark.parametrize("name", ["yolo-fastest-1.1", pytest.param("yolo-fastest-1.1-xl", marks=pytest.mark.slow)])
def test_networks_with_two_yolo_heads_are_met_too(libdarknet, shared, darknet_image, name):
    folder = shared / "pretrained"
    pair = Pair(libdarknet, folder / f"{name}.cfg", folder / "coco.names")
    assert len(pair.compare(darknet_image("dog.jpg"), 0.3)) >= 3
    assert len(pair.compare(darknet_image("kite.jpg"), 0.3)) >= 3
    pair.theirs.close()
