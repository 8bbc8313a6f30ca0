"""The network as a careful user of PyTorch writes it: channels last, batch norms folded, activations in place."""

from __future__ import annotations

from typing import Any

import onnx
import torch
from onnx import helper, numpy_helper
from torch.nn import functional

from pytrtplugins.layers import Region
from pytrtplugins.plugin.onnx_node import from_node, is_plugin_node


class TorchNet(torch.nn.Module):
    """A darknet network of convolutions, pools, reorg, concats and a region layer.

    Args:
        model: The prepared ONNX model, without batch norms.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__()
        arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        self.input, self.output = model.graph.input[0].name, model.graph.output[0].name
        self.convolutions = torch.nn.ModuleList()
        self.steps: list[tuple[str, tuple[str, ...], str, Any]] = []
        for node in model.graph.node:
            found = {each.name: helper.get_attribute_value(each) for each in node.attribute}
            fact: Any = None
            if is_plugin_node(node):
                fact = from_node(node)
            elif node.op_type == "Conv":
                fact = len(self.convolutions)
                self.convolutions.append(_convolution(arrays[node.input[1]], arrays[node.input[2]], found))
            elif node.op_type == "LeakyRelu":
                fact = float(found["alpha"])
            elif node.op_type == "MaxPool":
                fact = int(found["kernel_shape"][0]), int(found["strides"][0]), int(found["pads"][0])
                if len(set(found["pads"])) > 1:
                    raise ValueError(f"{node.name}: PyTorch pads a pool on both sides, this one has {found['pads']}")
            elif node.op_type != "Concat":
                raise ValueError(f"{node.op_type} is not part of this network")
            inputs = tuple(name for name in node.input if name not in arrays)
            self.steps.append((node.op_type, inputs, node.output[0], fact))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The region layer's values."""
        values = {self.input: x}
        for kind, inputs, output, fact in self.steps:
            x = values[inputs[0]]
            if kind == "Conv":
                x = self.convolutions[fact](x)
            elif kind == "LeakyRelu":
                x = functional.leaky_relu(x, fact, inplace=True)
            elif kind == "MaxPool":
                x = functional.max_pool2d(x, *fact)
            elif kind == "Concat":
                x = torch.cat([values[name] for name in inputs], 1)
            elif kind == "Reorg":
                x = reorg(x, fact.stride)
            else:
                x = region(x, fact)
            values[output] = x
        return values[self.output]


def reorg(x: torch.Tensor, stride: int) -> torch.Tensor:
    """darknet's order."""
    n, c, h, w = x.shape
    blocks = x.reshape(n, c // stride**2, h, stride, w, stride).permute(0, 3, 5, 1, 2, 4)
    return blocks.reshape(n, c * stride**2, h // stride, w // stride)


def region(x: torch.Tensor, layer: Region) -> torch.Tensor:
    """Logistic on places and objectness, softmax over classes."""
    n, _, h, w = x.shape
    entries = x.reshape(n, layer.num, -1, h, w)
    parts = [
        entries[:, :, :2].sigmoid(),
        entries[:, :, 2:4],
        entries[:, :, 4:5].sigmoid(),
        entries[:, :, 5:].softmax(2),
    ]
    return torch.cat(parts, 2).reshape(n, -1, h, w)


def _convolution(weights: Any, bias: Any, attributes: dict[str, Any]) -> torch.nn.Conv2d:
    k, c, r, s = weights.shape
    made = torch.nn.Conv2d(c, k, (r, s), tuple(attributes["strides"]), tuple(attributes["pads"][:2]))
    made.weight.data, made.bias.data = torch.from_numpy(weights.copy()), torch.from_numpy(bias.copy())
    return made
