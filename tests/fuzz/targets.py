"""One fuzz target for each parser: a function of bytes, usable with and without atheris.

A target gives whatever the parser gives, or raises an error of this package; anything else is a defect. What a target
must not cost is the matter of `tests.fuzz.limits`.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import zipfile

import numpy as np

from darknet2caffe import from_caffe, read_network
from darknet2caffe.caffemodel import read_caffemodel
from darknet2caffe.cfg import parse_cfg
from darknet2caffe.prototxt import parse_prototxt
from pytrtplugins.calibration import CalibrationTable
from pytrtplugins.calibration.sidecar import Sidecar
from pytrtplugins.cli import command
from pytrtplugins.cli.shared.config import open_config, read_config
from pytrtplugins.cli.shared.option_values import read_settings
from pytrtplugins.engines import build, load_engine
from pytrtplugins.engines.cuda.conv.cache import decode
from pytrtplugins.engines.cuda.saved import SavedPlan
from pytrtplugins.errors import PytrtpluginsError
from pytrtplugins.mlops.tables import ImagePairs
from pytrtplugins.models.dataset import YoloData
from pytrtplugins.models.description import read_description
from pytrtplugins.models.faces import FaceIndex
from pytrtplugins.models.heads import read_heads, read_input_size
from pytrtplugins.models.yolov2 import read_names
from pytrtplugins.mxnet import from_mxnet
from pytrtplugins.passes import Precisions, repair
from pytrtplugins.plugin.base import Plugin
from pytrtplugins.plugin.envelope import wrap
from pytrtplugins.precision.report import read_report
from pytrtplugins.serving.config import read_limits, read_models
from pytrtplugins.utils.array_files import read_npy, read_npz
from pytrtplugins.utils.files import sha256_hex
from pytrtplugins.utils.journal import Journal
from pytrtplugins.utils.text_formats import parse_json, parse_yaml
from pytrtplugins.vision import decode_image
from tests.fuzz import folder_targets as folder_targets  # which registers some
from tests.fuzz import http_targets as http_targets
from tests.fuzz import model_targets as model_targets
from tests.fuzz import pipeline_targets as pipeline_targets
from tests.fuzz import served_targets as served_targets
from tests.fuzz import shard_targets as shard_targets
from tests.fuzz.files import file, folder
from tests.fuzz.registry import TARGETS, Target, target
from tests.mxnet.files import Symbol, params_bytes

__all__ = ["TARGETS", "Target"]

MAX_WEIGHTS = 100_000  # of networks that are converted
_MAX_PIXELS_BYTES = 32 << 20
WEIGHTS_CFG = "[net]\nwidth=4\nheight=4\nchannels=1\n[convolutional]\nbatch_normalize=1\nfilters=2\nsize=3\npad=1\n[connected]\noutput=3\n"
TREE_CFG = "[net]\nwidth=1\nheight=1\nchannels=4\n[softmax]\ntree=x\n"
PLAIN_PROTOTXT = """name: "net" input: "data" input_shape { dim: 1 dim: 1 dim: 4 dim: 4 }
layer { name: "0_convolutional" type: "Convolution" bottom: "data" top: "0_convolutional"
  convolution_param { num_output: 1 kernel_size: 1 } }
"""
CACHE = b"TRT-8601-EntropyCalibration2\ndata: 3c010204\n"


# --- darknet and caffe -------------------------------------------------------------------------------------------------


@target
def tree(data: bytes) -> object:
    """darknet's tree of classes."""
    file(data, "x")
    return read_network(parse_cfg(TREE_CFG, str(folder() / "x.cfg")))


@target
def caffemodel(data: bytes) -> object:
    """caffe's weights."""
    path = file(data, "x.caffemodel")
    read_caffemodel(path)
    return from_caffe(file(PLAIN_PROTOTXT.encode(), "plain.prototxt"), path)


@functools.cache
def mxnet_network() -> Symbol:
    """A small network of MXNet."""
    net = Symbol()
    x = net.conv("conv", net.variable("data"), 2, 2, kernel=(1, 1), bias=True)
    x = net.prelu("slope", net.norm("bn", x, 2, fix_gamma=True), 2)
    x = net.node("Pooling", "pool", x, kernel=(2, 2), stride=(2, 2), pool_type="avg", pooling_convention="full")
    net.dense("fc", net.node("Reshape", "flat", x, shape=(0, -1)), 8, 2)
    return net


# --- calibration and precision -----------------------------------------------------------------------------------------


@target
def calibration_cache(data: bytes) -> object:
    """TensorRT's calibration cache; what was read is written and read again."""
    table = CalibrationTable.from_bytes(data)
    assert CalibrationTable.from_bytes(table.to_bytes()) == table
    return table


@target
def sidecar(data: bytes) -> object:
    """The JSON beside a calibration cache."""
    file(data, "net.cache.json")
    return Sidecar.read(folder() / "net.cache", lambda: CACHE)


@target
def precision_file(data: bytes) -> object:
    """Precisions, layer by layer; what was read is written and read again."""
    found = Precisions.read(file(data, "x.yaml"))
    found.write(folder() / "again.yaml")
    return Precisions.read(folder() / "again.yaml")


@target
def precision_report(data: bytes) -> object:
    """Figures of a precision search, and the parts of its page that are not drawn."""
    from pytrtplugins.precision import page

    found = read_report(file(data, "x.json"))
    return page._layers_table(found), page._steps_table(found), page._reverted_text(found)


# --- plugins, engines, models ------------------------------------------------------------------------------------------


@target
def plugin(data: bytes) -> object:
    """A serialized plugin: the bytes as they are, or as the payload of a frame whose checksum is right."""
    import pytrtplugins.layers  # noqa: F401  which registers some

    return Plugin.deserialize(wrap(data[1:]) if data[:1] == b"p" else data)


@target
def engine_file(data: bytes) -> object:
    """A saved engine: the bytes as they are, or as the metadata of a file whose digests are right."""
    if data[:1] != b"m":
        return load_engine(file(data, "x.engine"))
    held = data[1:]
    with contextlib.suppress(ValueError, RecursionError):
        facts = json.loads(held)
        if isinstance(facts, dict):
            held = json.dumps({**facts, "model_sha256": sha256_hex(model_bytes())}).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, part in (("metadata.json", held), ("model.onnx", model_bytes())):
            archive.writestr(zipfile.ZipInfo(name), part)
    return load_engine(file(buffer.getvalue(), "x.engine"))


@target
def heads(data: bytes) -> object:
    """What the metadata of a model say of its detection layers."""
    import onnx

    model = onnx.ModelProto()
    model.graph.output.add(name="y")
    model.metadata_props.add(key="darknet.net", value=data.decode("utf-8", "replace"))
    with contextlib.suppress(PytrtpluginsError):
        read_input_size(model)
    return read_heads(model)


@target
def description(data: bytes) -> object:
    """What a model says of itself as a detector."""
    import onnx

    model = onnx.ModelProto()
    model.metadata_props.add(key="pytrtplugins.detector", value=data.decode("utf-8", "replace"))
    return read_description(model)


@target
def saved_plan(data: bytes) -> object:
    """What engine cuda saves beside the model: the bytes as they are, or as the header of a file of 64 bytes of tensors."""
    if data[:1] == b"h":
        data = len(data[1:]).to_bytes(8, "little") + data[1:] + bytes(64)
    return SavedPlan.from_bytes(data)


@functools.cache
def model_bytes() -> bytes:
    """A small model."""
    from onnx import parser

    text = '<ir_version: 10, opset_import: ["": 17]> net (float[1, 2] x) => (float[1, 2] y) { y = Relu (x) }'
    found: bytes = parser.parse_model(text).SerializeToString()
    return found


# --- arrays, images, labels, texts -------------------------------------------------------------------------------------


@target
def image(data: bytes) -> object:
    """An image."""
    found = decode_image(data, max_bytes=_MAX_PIXELS_BYTES)
    assert found.dtype == np.uint8
    assert found.shape[2:] == (3,)
    return found


@target
def labels(data: bytes) -> object:
    """An image's labels."""
    place = folder() / "yolo"
    if not place.is_dir():
        (place / "images").mkdir(parents=True)
        (place / "labels").mkdir()
        (place / "classes.txt").write_text("cat\ndog\n")
        (place / "val.txt").write_text("images/a.png\n")
        (place / "labels" / "a.txt").touch()
        labels.data = YoloData(place)
    (place / "labels" / "a.txt").write_bytes(data)
    return labels.data.boxes("images/a.png")


@target
def image_pairs(data: bytes) -> object:
    """A list of pairs, whose first byte says which form it is."""
    place = folder() / "pairs"
    for name in ("a/a_0001.png", "a/a_0002.png", "b/b_0001.png"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).touch()
    return ImagePairs(file(data[1:], "pairs.csv" if data[:1] == b"," else "pairs.txt"), place)


@target
def dataset(data: bytes) -> object:
    """A tar of labelled images."""
    found = YoloData(file(data, "x.tar"))
    for image in found.images()[:3]:
        found.boxes(image)
    return found


@target
def config(data: bytes) -> object:
    """pytrt.toml, with models that are served."""
    opened = open_config(file(data, "pytrt.toml"))
    return read_config(opened, command()), read_models(opened, {}), read_limits(opened, {})


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


TARGETS |= {  # parsers of which a call is all that there is to say
    "cfg": lambda data: read_network(parse_cfg(_text(data), str(folder() / "x.cfg"))),
    "weights": lambda data: read_network(parse_cfg(WEIGHTS_CFG), file(data, "x.weights")),
    "prototxt": lambda data: parse_prototxt(_text(data)),
    "caffe": lambda data: from_caffe(file(data, "x.prototxt"), file(b"", "x.caffemodel")),
    "mxnet_symbol": lambda data: from_mxnet(
        file(data, "x.json"), file(params_bytes(mxnet_network().arrays), "x.params"), shapes={"data": (2, 3, 3)}
    ),
    "mxnet_params": lambda data: from_mxnet(
        file(mxnet_network().json().encode(), "x.json"), file(data, "x.params"), shapes={"data": (2, 3, 3)}
    ),
    "journal": lambda data: len(Journal(file(data, "x.journal"), {"a": 1})),  # a damaged file starts anew
    "onnx_model": lambda data: build(file(data, "x.onnx"), engine="null"),
    "repair_model": lambda data: [repair(file(data, "x.onnx"), only=only) for only in (None, ["free-batch"])],
    "tactics": decode,
    "npy": lambda data: read_npy(file(data, "x.npy"), max_bytes=1 << 20),
    "npz": lambda data: read_npz(file(data, "x.npz"), max_bytes=1 << 20),
    "face_index": lambda data: FaceIndex.load(file(data, "faces.npz")),
    "names": lambda data: read_names(file(data, "x.names"), 3),
    "settings": lambda data: read_settings([_text(data)]),
    "json_text": lambda data: parse_json(data, "x.json"),
    "yaml_text": lambda data: parse_yaml(data, "x.yaml"),
}
