"""Vectors are the means of a network's output over all places, whatever the network's batch."""

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("cv2")

from onnx import parser

from pytrtplugins.engines import build
from pytrtplugins.errors import UsageError
from pytrtplugins.mlops.drift import Embedder


def engine(batch):
    head = f'<ir_version: 8, opset_import: ["": 17]> net (float[{batch}, 3, 4, 6] x)'
    outputs = f"(float[{batch}, 3, 2, 3] y, float[{batch}, 72] z)"
    nodes = "{ y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x) z = Flatten (x) }"
    return build(parser.parse_model(f"{head} => {outputs} {nodes}"), engine="reference")


@pytest.fixture
def images():
    return list(np.random.default_rng(0).integers(0, 256, (5, 4, 6, 3), dtype=np.uint8))


@pytest.mark.parametrize("batch", ["N", 1, 2])
def test_a_vector_is_the_mean_over_places(images, batch):
    found = Embedder(engine(batch))(iter(images))
    pooled = np.stack(images).reshape(5, 2, 2, 3, 2, 3).max((2, 4)) / 255
    assert found == pytest.approx(pooled.mean((1, 2)), abs=1e-6)


def test_an_output_is_chosen_by_its_name(images):
    embedder = Embedder(engine("N"), "0..255", "z")
    assert embedder.output == "z"
    assert embedder(images) == pytest.approx(np.stack(images).transpose(0, 3, 1, 2).reshape(5, -1).astype(float))


def test_photos_of_another_size_are_stretched():
    assert Embedder(engine(1))([np.full((50, 20, 3), 51, np.uint8)]) == pytest.approx(np.full((1, 3), 0.2))


def test_what_the_network_does_not_have():
    with pytest.raises(UsageError, match="output 'w': expected one of y, z"):
        Embedder(engine(1), output="w")
    with pytest.raises(UsageError, match=r"pixels '0\.\.3': expected one of"):
        Embedder(engine(1), "0..3")


def test_an_output_without_a_row_for_each_photo_is_refused(images):
    head = '<ir_version: 8, opset_import: ["": 17]> net (float[N, 3, 4, 6] x) => (float[1, 1, 1, 1] y)'
    whole = build(parser.parse_model(f"{head} {{ y = ReduceMean (x) }}"), engine="reference")
    with pytest.raises(UsageError, match="'y': expected a row for each photo"):
        Embedder(whole)(images)
