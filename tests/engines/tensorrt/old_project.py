"""The files of a project of TensorRT 8 that docs/how-to/tensorrt11.md begins with: models with custom layers, and a calibration cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from pytrtplugins.calibration import CalibrationTable

__all__ = ["detector", "network", "write_project"]


def write_project(folder: Path) -> None:
    onnx.save(network(), folder / "model.onnx")
    scales = dict.fromkeys(("data", "first", "second", "shuffle", "third", "y"), 3 / 127)
    CalibrationTable(scales, version="8.6.1").write(folder / "old.cache")


def detector() -> onnx.ModelProto:
    """Convolutions, and a node behind them that nobody here has a class for; the file does not say the dims of what it gives."""
    model = network()
    del model.graph.node[2:]
    model.graph.node.append(
        helper.make_node("EfficientNMS_TRT", ["second"], ["boxes"], "nms", domain="TRT", max_output_boxes=100)
    )
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("boxes", TensorProto.FLOAT, None))
    model.opset_import[1].domain = "TRT"
    return model


def network() -> onnx.ModelProto:
    """Convolutions around a node of the page's custom layer, as an exporter would write them."""
    rng = np.random.default_rng(0)
    nodes, held, last, channels = [], [], "data", 3
    for name in ("first", "second", "shuffle", "third", "last"):
        if name == "shuffle":
            attributes = {"groups": 2, "plugin_namespace": "acme", "plugin_version": "1"}
            nodes.append(helper.make_node("ChannelShuffle", [last], [name], name, domain="acme", **attributes))
        else:
            weights = (rng.standard_normal((8, channels, 3, 3)) / np.sqrt(9 * channels)).astype(np.float32)
            held.append(onnx.numpy_helper.from_array(weights, f"{name}_w"))
            out = "y" if name == "last" else name
            nodes.append(helper.make_node("Conv", [last, f"{name}_w"], [out], name, pads=[1] * 4))
            channels = 8
        last = name
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, depth, 16, 16])
        for name, depth in (("data", 3), ("y", 8))
    ]
    graph = helper.make_graph(nodes, "net", infos[:1], infos[1:], held)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)
