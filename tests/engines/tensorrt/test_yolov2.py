"""YOLOv2, from darknet's files to TensorRT, on a small image."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import pytrtplugins as ptp
from darknet2caffe import read_network, to_onnx
from pytrtplugins.calibration import MinMaxCalibrator

from .builds import build

NETWORK = Path(__file__).parents[3] / "samples" / "models" / "yolov2-animals.cfg"
LAYERS = {"Conv": 23, "LeakyRelu": 22, "MaxPool": 5, "Concat": 1, "Reorg": 1, "Region": 1}


@pytest.fixture(scope="module")
def yolov2(tmp_path_factory):
    """The shipped network, for images of 96 x 96."""
    cfg = tmp_path_factory.mktemp("yolov2") / "yolov2.cfg"
    cfg.write_text(NETWORK.read_text().replace("width=416", "width=96").replace("height=416", "height=96"))
    return to_onnx(read_network(cfg, NETWORK.with_suffix(".weights")))


@pytest.mark.parametrize(
    ("precision", "tolerance", "plugins"),
    [
        ("fp32", 0, [("Reorg", "float32"), ("Region", "float32")]),
        ("fp16", 2e-3, [("Reorg", "float16"), ("Region", "float16")]),
        ("int8", 0, [("Reorg", "int8"), ("Region", "float32")]),
    ],
)
def test_yolov2_keeps_its_layers_and_its_numbers(player, yolov2, precision, tolerance, plugins):
    x = {"data": np.random.default_rng(0).random((1, 3, 96, 96), dtype=np.float32)}
    options = {"calibration": MinMaxCalibrator([x])} if precision == "int8" else {}
    exact = ptp.build(yolov2, engine="reference", precision="int8" if options else "fp32", **options)
    engine = build(yolov2, precision=precision, **options)
    with engine.create_context() as context, exact.create_context() as reference:
        (found,), (expected,) = context.run(x).values(), reference.run(x).values()
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
    assert player.enqueued == plugins
    kinds = Counter(node.op_type for node in player.model.graph.node)
    assert {name: kinds[name] for name in LAYERS} == LAYERS
