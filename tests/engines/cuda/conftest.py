"""Networks and a GPU for the tests of this engine."""

import functools
import re
from pathlib import Path

import numpy as np
import pytest

import pytrtplugins as ptp
from darknet2caffe import read_network, to_onnx
from darknet2caffe.cfg import parse_cfg
from pytrtplugins.passes import prepare, quantize
from pytrtplugins.passes.prepare import in_opset_of_precision
from tests.engines.cuda.plans import Listed

SAMPLES = Path(__file__).parents[3] / "samples/models"
DARKNET = Path("/usr/share/darknet/cfg")


def darknet_model(name, size=96, seed=1, batch=1, narrow=1):
    """A network of darknet's own with random weights, as a prepared model, and an input. Other tests get the same model.

    ``narrow`` divides the filters of the layers with 64 or more, except for heads.
    """
    path = SAMPLES / name if (SAMPLES / name).is_file() else DARKNET / name
    if not path.is_file():
        pytest.skip(f"{path} is missing (apt-get install darknet)")
    count = batch if isinstance(batch, int) else 1
    inputs = {"data": np.random.default_rng(seed).random((count, 3, size, size), dtype=np.float32)}
    return _prepared(path, size, seed, batch, narrow), inputs


@functools.cache
def _prepared(path, size, seed, batch, narrow):
    def filters(match):
        count = int(match[1])
        return match[0] if count % 64 else f"filters={count // narrow}"

    text = re.sub(r"^(width|height) *=.*", rf"\1={size}", path.read_text(), flags=re.M)
    text = re.sub(r"^filters *= *(\d+)", filters, text, flags=re.M)
    return prepare(to_onnx(read_network(parse_cfg(text)).with_random_weights(seed), batch=batch))


def animals_engine(batch):
    """The shipped network in FP16, with the first kernels that fit: which they are makes no difference to its users."""
    base = SAMPLES / "yolov2-animals"
    network = read_network(base.with_suffix(".cfg"), base.with_suffix(".weights"))
    model, settings = to_onnx(network, input_size=(224, 224), batch="dynamic"), {"batch": batch, "disable": ["tactics"]}
    return ptp.build(model, engine="cuda", precision="fp16", settings=settings)


def in_fp8(model, table):
    """A prepared model with Q/DQ in FP8, prepared again."""
    return prepare(quantize(in_opset_of_precision(model, "fp8"), table, precision="fp8"))


def pytest_configure(config):
    if not any(isinstance(plugin, Listed) for plugin in config.pluginmanager.get_plugins()):
        config.pluginmanager.register(Listed())
