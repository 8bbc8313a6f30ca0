"""PyTorch on a user's ONNX file: its nodes one after the other, as one CUDA graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch.nn import functional

from pytrtplugins.passes import prepare

from .clock import Clock
from .running import Running
from .torch_peer import captured


def pytorch(model: onnx.ModelProto, x: np.ndarray, precision: str, clock: Clock) -> Running:
    """One CUDA graph between tensors that stay on the GPU, channels last; ``run`` takes no other images than these."""
    module = OnnxModule(prepare(model)).eval().cuda().to(memory_format=torch.channels_last)
    given = torch.from_numpy(x).cuda().to(memory_format=torch.channels_last)
    torch.backends.cudnn.benchmark = True
    for kind in (torch.backends.cudnn, torch.backends.cuda.matmul):
        kind.allow_tf32 = precision == "tf32"
    with torch.inference_mode():
        found = torch.empty_like(module(given))
    stream = torch.cuda.ExternalStream(clock.stream.ptr)

    def computed() -> None:
        with torch.inference_mode():
            found.copy_(module(given))

    graph = captured(stream, computed)

    def queue() -> None:
        with torch.cuda.stream(stream):
            graph.replay()

    def run(_: np.ndarray) -> np.ndarray:
        queue()
        stream.synchronize()
        head: np.ndarray = found.cpu().numpy()
        return head

    return Running(run, queue, close=torch.cuda.empty_cache)


class OnnxModule(torch.nn.Module):
    """The nodes of an ONNX model, one after the other.

    Args:
        model: With Conv, PRelu, Relu, Clip, Add, Sub, Mul, Flatten, Reshape, Gemm and BatchNormalization; one input, one output.

    Raises:
        ValueError: it has others.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__()
        graph = model.graph
        self.input, self.output, self.nodes = graph.input[0].name, graph.output[0].name, list(graph.node)
        arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant":
                arrays[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        self.names = {name: f"array{index}" for index, name in enumerate(arrays)}
        for name, array in arrays.items():
            self.register_buffer(self.names[name], torch.from_numpy(np.array(array)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The output's values."""
        values = {self.input: x, **{name: getattr(self, at) for name, at in self.names.items()}}
        for node in self.nodes:
            if node.op_type != "Constant":
                given = [values[name] if name else None for name in node.input]
                values[node.output[0]] = _computed(node, given)
        return values[self.output]


def _computed(node: onnx.NodeProto, given: list[Any]) -> torch.Tensor:
    found = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    match node.op_type:
        case "Conv":
            return functional.conv2d(
                *given, stride=found.get("strides", [1, 1]), padding=found.get("pads", [0, 0])[:2], groups=found.get("group", 1)
            )  # fmt: skip
        case "PRelu":
            return functional.prelu(given[0], given[1].flatten())
        case "Relu":
            return functional.relu(given[0], inplace=False)
        case "Clip":
            return functional.hardtanh(given[0], 0.0, 6.0)
        case "Add" | "Sub" | "Mul":
            return getattr(torch, node.op_type.lower())(*given)
        case "Flatten" | "Reshape":
            return given[0].flatten(1)
        case "Gemm":
            return functional.linear(given[0], given[1] if found.get("transB") else given[1].T, given[2])
        case "BatchNormalization":
            return functional.batch_norm(
                given[0], given[3], given[4], given[1], given[2], eps=found.get("epsilon", 1e-5)
            )
    raise ValueError(f"{node.op_type} is not part of this benchmark")
