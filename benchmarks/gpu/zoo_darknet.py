"""darknet's networks with random weights, converted by darknet2caffe; the folder BENCHMARK_CFGS has their cfgs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import onnx
import pytest
import torch
from onnx import helper, numpy_helper

from darknet2caffe import read_network, to_onnx
from pytrtplugins.model.proto import info_dims
from pytrtplugins.passes import prepare

from .torch_net import TorchNet

__all__ = ["SIDES", "DarknetNet", "darknet", "darknet_model"]

SIDES = {"yolov3": 608, "yolov3-tiny": 416, "yolov2-tiny": 416}
"""Networks, and the sides of their images."""


class DarknetNet(TorchNet):
    """The network in PyTorch, and as the ONNX model that it was made from."""

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__(model)
        self._model = model

    @torch.no_grad()
    def even_out(self, images: torch.Tensor) -> None:
        """Scale each convolution so that its results on images have a deviation of 1: those of random weights leave float16's range."""

        def scale(made: torch.nn.Conv2d, _: object, found: torch.Tensor) -> torch.Tensor:
            deviation = found.std()
            for values in (made.weight, made.bias):
                assert values is not None
                values /= deviation
            return found / deviation

        hooks = [made.register_forward_hook(scale) for made in self.convolutions]
        self(images)
        for hook in hooks:
            hook.remove()

    def as_onnx(self) -> onnx.ModelProto:
        """The network with its present weights, its heads as one output."""
        made = joined(self._model)
        del made.graph.initializer[:]
        nodes = [node for node in made.graph.node if node.op_type == "Conv"]
        for number, (node, module) in enumerate(zip(nodes, self.convolutions, strict=True)):
            for index, (kind, values) in enumerate((("weights", module.weight), ("bias", module.bias)), 1):
                node.input[index] = f"{kind}{number}"
                made.graph.initializer.append(numpy_helper.from_array(values.detach().numpy(), node.input[index]))
        used = {name for node in made.graph.node for name in node.input}
        made.graph.initializer.extend(tensor for tensor in self._model.graph.initializer if tensor.name in used)
        return made


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
    return DarknetNet(model)


def darknet_model(module: torch.nn.Module) -> onnx.ModelProto:
    """The ONNX model of what `darknet` gave, with plugin nodes."""
    return cast(DarknetNet, module).as_onnx()


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
