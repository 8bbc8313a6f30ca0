"""Networks for tests, and a plain way to run their ONNX form."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from darknet2caffe import Network, read_cfg, read_network, write_darknet
from darknet2caffe.cfg import parse_cfg
from pytrtplugins.plugin.onnx_node import from_node, is_plugin_node
from tests.oracles.libdarknet import LibDarknet

CFGS = Path("/usr/share/darknet/cfg")
SHARED = Path(os.environ.get("PYTRTPLUGINS_SHARED", Path(__file__).parents[3] / "shared"))


def sections(text: str) -> str:
    """A cfg, written with one section a line."""
    return re.sub(r" +(?=\w+=)", "\n", text)


ALL_LAYERS = sections("""
# every layer type that the converter knows
[net] width=32 height=48 channels=3 batch=64

[convolutional] batch_normalize=1 filters=8 size=3 stride=1 pad=1 activation=leaky
[maxpool] size=2 stride=2
[convolutional] batch_normalize=1 filters=16 size=1 activation=leaky
[convolutional] batch_normalize=1 groups=16 filters=16 size=3 stride=1 pad=1 activation=linear
[dropout] probability=.15
[shortcut] from=-3 activation=leaky
[maxpool] size=2 stride=1
[maxpool] size=5 stride=1
[route] layers=-1,-2,5

[convolutional] filters=12 size=3 stride=2 padding=1 activation=relu
[route] layers=-1
[upsample] stride=2
[route] layers=-1, 8
[convolutional] filters=14 size=1 activation=linear
[yolo] mask=1,2 anchors=10,14, 23,27, 37,58 classes=2 num=3

[route] layers=9
[convolutional] size=1 filters=4
[reorg] stride=2
[convolutional] filters=16 size=1 activation=linear
[region] anchors=1,2, 3,4 classes=3 num=2 softmax=1
[avgpool]
[softmax] groups=2 temperature=2
""")


def network(text: str = ALL_LAYERS, seed: int = 0) -> Network:
    return read_network(parse_cfg(text)).with_random_weights(seed)


def published(name: str) -> Path:
    """A cfg of the package darknet, or of the shared models where it has a folder."""
    path = SHARED / name if "/" in name else CFGS / f"{name}.cfg"
    if not path.exists():
        pytest.skip(f"{path} is missing" + ("" if "/" in name else " (apt install darknet)"))
    return path


def first_layers(path: Path, count: int) -> Network:
    """The network up to and including layer ``count - 1``."""
    cfg = read_cfg(path)
    return read_network(replace(cfg, sections=cfg.sections[: count + 1]))


def darknet_output(
    libdarknet: LibDarknet, network: Network, folder: Path, x: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """What libdarknet's last output is for the first image."""
    write_darknet(network, folder / "a.cfg", folder / "a.weights")
    with libdarknet.load(folder / "a.cfg", folder / "a.weights") as oracle:
        oracle.predict(x[0])
        return oracle.layer_output(network.outputs[-1].index)


def image(network: Network, batch: int = 1, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).random((batch, *network.dims), dtype=np.float32)


def run(model: onnx.ModelProto, x: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Every tensor of the model: standard operators through onnxruntime, plugin nodes through `compute`."""
    values: dict[str, Any] = {"data": x}
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    stretch: list[onnx.NodeProto] = []
    for node in model.graph.node:
        if is_plugin_node(node):
            _run_stretch(stretch, constants, values)
            stretch = []
            values[node.output[0]] = from_node(node).compute(*(values[name] for name in node.input))
        else:
            stretch.append(node)
    _run_stretch(stretch, constants, values)
    return values


def _run_stretch(nodes: list[onnx.NodeProto], constants: dict[str, Any], values: dict[str, Any]) -> None:
    if not nodes:
        return
    made = [name for node in nodes for name in node.output]
    used = list(dict.fromkeys(name for node in nodes for name in node.input if name))
    given = [name for name in used if name not in made and name not in constants]
    graph = helper.make_graph(
        nodes,
        "stretch",
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, values[name].shape) for name in given],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in made],
        [constants[name] for name in used if name in constants],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    values |= zip(made, session(model).run(made, {name: values[name] for name in given}), strict=True)


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # lays no weights out anew
    options.log_severity_level = 3
    options.intra_op_num_threads = 2
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
