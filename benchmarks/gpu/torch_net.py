"""The network as a careful user of PyTorch writes it: channels last, batch norms folded, activations in place."""

from __future__ import annotations

from typing import Any

import onnx
import torch
from onnx import helper, numpy_helper
from torch.nn import functional

from pytrtplugins.layers import Region, Yolo
from pytrtplugins.plugin.onnx_node import from_node, is_plugin_node


class TorchNet(torch.nn.Module):
    """A darknet network of convolutions, pools, reorg, concats, additions and upsampling, with region or yolo layers.

    Several heads become one output, each flattened, one behind the other.

    Args:
        model: The prepared ONNX model, without batch norms.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__()
        arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        self.input, self.outputs = model.graph.input[0].name, [output.name for output in model.graph.output]
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
                top, left, bottom, right = map(int, found["pads"])
                fact = (left, right, top, bottom), int(found["kernel_shape"][0]), int(found["strides"][0])
            elif node.op_type == "Resize":
                fact = tuple(float(scale) for scale in arrays[node.input[2]][2:])
                if found["mode"] != b"nearest":
                    raise ValueError(f"{node.name}: expected nearest, found {found['mode']!r}")
            elif node.op_type not in ("Concat", "Add"):
                raise ValueError(f"{node.op_type} is not part of this network")
            inputs = tuple(name for name in node.input if name not in arrays)
            self.steps.append((node.op_type, inputs, node.output[0], fact))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The heads' values."""
        values = {self.input: x}
        for kind, inputs, output, fact in self.steps:
            x = values[inputs[0]]
            if kind == "Conv":
                x = self.convolutions[fact](x)
            elif kind == "LeakyRelu":
                x = functional.leaky_relu(x, fact, inplace=True)
            elif kind == "MaxPool":
                x = pool(x, *fact)
            elif kind == "Concat":
                x = torch.cat([values[name] for name in inputs], 1)
            elif kind == "Add":
                x = x + values[inputs[1]]
            elif kind == "Resize":
                x = functional.interpolate(x, scale_factor=fact, mode="nearest")
            elif kind == "Reorg":
                x = reorg(x, fact.stride)
            elif kind == "Yolo":
                x = yolo(x, fact)
            else:
                x = region(x, fact)
            values[output] = x
        heads = [values[name] for name in self.outputs]
        return heads[0] if len(heads) == 1 else torch.cat([head.flatten(1) for head in heads], 1)


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


def pool(x: torch.Tensor, pads: tuple[int, int, int, int], size: int, stride: int) -> torch.Tensor:
    """A pool; PyTorch's own pads both sides alike, darknet's perhaps not."""
    if len(set(pads)) == 1:
        return functional.max_pool2d(x, size, stride, pads[0])
    return functional.max_pool2d(functional.pad(x, pads, value=float("-inf")), size, stride)


def yolo(x: torch.Tensor, layer: Yolo) -> torch.Tensor:
    """Logistic on places, objectness and classes."""
    if layer.scale_x_y != 1 or layer.new_coords:
        raise ValueError("yolo layers with scale_x_y or new_coords are not part of these networks")
    n, _, h, w = x.shape
    entries = x.reshape(n, len(layer.mask), -1, h, w)
    parts = [entries[:, :, :2].sigmoid(), entries[:, :, 2:4], entries[:, :, 4:].sigmoid()]
    return torch.cat(parts, 2).reshape(n, -1, h, w)


def _convolution(weights: Any, bias: Any, attributes: dict[str, Any]) -> torch.nn.Conv2d:
    k, c, r, s = weights.shape
    group = int(attributes.get("group", 1))
    made = torch.nn.Conv2d(
        group * c, k, (r, s), tuple(attributes["strides"]), tuple(attributes["pads"][:2]), groups=group
    )
    made.weight.data, made.bias.data = torch.from_numpy(weights.copy()), torch.from_numpy(bias.copy())
    return made
