"""darknet's networks with random weights, converted by darknet2caffe; the folder BENCHMARK_CFGS has their cfgs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import onnx
import pytest
import torch
from onnx import helper

from darknet2caffe import read_network, to_onnx
from pytrtplugins.model.proto import info_dims
from pytrtplugins.passes import prepare

from .torch_net import TorchNet

__all__ = ["SIDES", "darknet", "darknet_model"]

SIDES = {"yolov3": 608, "yolov3-tiny": 416, "yolov2-tiny": 416}
"""Networks, and the sides of their images."""


class _Net(TorchNet):
    """The network in PyTorch, beside the model that it was made from."""

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__(model)
        self.model = joined(model)


def darknet(name: str) -> torch.nn.Module:
    """A network; skips the row where there is no cfg."""
    folder = os.environ.get("BENCHMARK_CFGS")
    path = Path(folder or "", f"{name}.cfg")
    if not folder or not path.is_file():
        pytest.skip(f"{name}.cfg is not in the folder that BENCHMARK_CFGS names")
    model = prepare(to_onnx(read_network(path).with_random_weights(seed=0), batch="dynamic"))
    found = info_dims(model.graph.input[0])[2:]
    if found != (SIDES[name], SIDES[name]):
        raise ValueError(f"{path}: expected images of {SIDES[name]} x {SIDES[name]}, found {found}")
    return _Net(model)


def darknet_model(module: torch.nn.Module) -> onnx.ModelProto:
    """The ONNX model of what `darknet` gave, with plugin nodes."""
    return cast(_Net, module).model


def joined(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose heads are one output, each flattened, one behind the other."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    heads = [output.name for output in made.graph.output]
    if len(heads) > 1:
        flat = [f"{head}.flat" for head in heads]
        made.graph.node.extend(
            helper.make_node("Flatten", [head], [name], name) for head, name in zip(heads, flat, strict=True)
        )
        made.graph.node.append(helper.make_node("Concat", flat, ["y"], "y", axis=1))
        made.graph.value_info.extend(made.graph.output)
        del made.graph.output[:]
        made.graph.output.append(helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", None]))
    return made
