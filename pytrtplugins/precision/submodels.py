"""Extract parts of a model: with other outputs, or one layer alone."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from ..model.operator_traits import Trait, operators
from ..model.proto import copy_fields, infos_of, node_name, numpy_type
from ..utils.optional import onnx
from ..validation.dataflow import given_inputs

__all__ = ["Layer", "find_layers", "floating_tensors", "in_groups", "layer_alone", "sources", "with_outputs"]

_COPYING = operators(Trait.COPIES)


class Layer:
    """A node with float outputs that depend on the input.

    Attributes:
        inputs: Tensors that it reads, constants left out.
        outputs: Float tensors that it gives.
        bytes: Size of both together, for one image.
        copies: Whether its values are copied, never computed.
    """

    def __init__(self, node: Any, inputs: tuple[str, ...], outputs: tuple[str, ...], size: int) -> None:
        self.name, self.node, self.inputs, self.outputs, self.bytes = node_name(node), node, inputs, outputs, size
        self.copies = node.op_type in _COPYING and node.domain == ""


def find_layers(model: onnx.ModelProto) -> list[Layer]:
    """The layers of a prepared model, in its order, which is topological."""
    infos = infos_of(model.graph)
    floats = floating_tensors(model)
    input_names = {info.name for info in given_inputs(model.graph)}
    dynamic, layers = set(input_names), []
    for node in model.graph.node:
        inputs = tuple(dict.fromkeys(name for name in node.input if name in dynamic))
        if not inputs:
            continue
        dynamic.update(name for name in node.output if name)
        outputs = tuple(name for name in node.output if name in floats)
        if outputs:
            layers.append(Layer(node, inputs, outputs, sum(_size(infos.get(name)) for name in (*inputs, *outputs))))
    return layers


def floating_tensors(model: onnx.ModelProto) -> set[str]:
    """Names of the tensors of a model with shapes that hold float32, float16 or bfloat16 numbers."""
    kinds = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
    return {name for name, info in infos_of(model.graph).items() if info.type.tensor_type.elem_type in kinds}


def in_groups(layers: Iterable[Layer], limit_bytes: int) -> Iterator[list[Layer]]:
    """Group neighbouring layers: each group is within the memory limit, or is one layer that exceeds it."""
    group: list[Layer] = []
    for layer in layers:
        if group and sum(member.bytes for member in group) + layer.bytes > limit_bytes:
            yield group
            group = []
        group.append(layer)
    if group:
        yield group


def with_outputs(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """The model with these outputs, without the nodes that they do not need."""
    infos = infos_of(model.graph)
    return _extract(model, names, [info.name for info in model.graph.input], infos)


def layer_alone(model: onnx.ModelProto, layer: Layer, input_names: Collection[str]) -> onnx.ModelProto | None:
    """One layer with the Q/DQ of its inputs and weights as a model; None if the layer is not in the model.

    The model is the float model, or what `quantize` has made of it; the part begins at tensors of the float model.
    """
    producers = {name: node for node in model.graph.node for name in node.output}
    if any(name not in producers for name in layer.outputs):
        return None
    inputs: list[str] = []
    ahead = [name for output in layer.outputs for name in producers[output].input]
    seen = set(ahead)
    while ahead:
        name = ahead.pop(0)
        if name in input_names and not _on_codes(producers.get(name), producers):
            inputs.append(name)
            continue
        more = [before for before in producers[name].input if before not in seen] if name in producers else []
        seen.update(more)
        ahead += more
    return _extract(model, layer.outputs, list(dict.fromkeys(inputs)), infos_of(model.graph))


def sources(model: onnx.ModelProto, name: str) -> tuple[str, ...]:
    """The computed tensors whose values a tensor holds, through nodes that only copy."""
    producers = {output: node for node in model.graph.node for output in node.output}
    constants = {tensor.name for tensor in model.graph.initializer}
    tensors: list[str] = []
    ahead = [name]
    while ahead:
        tensor = ahead.pop()
        node = producers.get(tensor)
        if node is not None and node.op_type in _COPYING and node.domain == "":
            count = len(node.input) if node.op_type == "Concat" else 1
            ahead += [item for item in node.input[:count] if item not in constants]
        else:
            tensors.append(tensor)
    return tuple(tensors)


def _on_codes(node: Any, producers: dict[str, Any]) -> bool:
    """Whether a node copies values that were just dequantized, and so runs on int8 codes."""
    if node is None or node.op_type not in _COPYING or node.domain != "":
        return False
    before = producers.get(node.input[0])
    return before is not None and (before.op_type == "DequantizeLinear" or _on_codes(before, producers))


def _extract(
    model: onnx.ModelProto, outputs: Sequence[str], inputs: Sequence[str], infos: dict[str, Any]
) -> onnx.ModelProto:
    producers = {name: index for index, node in enumerate(model.graph.node) for name in node.output}
    node_indices: set[int] = set()
    stop = set(inputs)
    ahead = [name for name in outputs if name not in stop]
    while ahead:
        index = producers.get(ahead.pop())
        if index is not None and index not in node_indices:
            node_indices.add(index)
            ahead += [name for name in model.graph.node[index].input if name and name not in stop]
    part = type(model)()
    copy_fields(model, part, without=("graph",))
    part.graph.name = model.graph.name
    part.graph.node.extend(node for index, node in enumerate(model.graph.node) if index in node_indices)
    read = {name for node in part.graph.node for name in node.input}
    defined = {name for node in part.graph.node for name in node.output}
    part.graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name in read)
    part.graph.input.extend(infos[name] for name in inputs if name in infos)
    part.graph.output.extend(infos[name] for name in outputs)
    part.graph.value_info.extend(info for name, info in infos.items() if name in defined and name not in outputs)
    return part


def _size(info: Any) -> int:
    """Bytes of a tensor; free dims count 1."""
    if info is None:
        return 0
    tensor = info.type.tensor_type
    items = math.prod(max(dim.dim_value, 1) for dim in tensor.shape.dim)
    return int(items * numpy_type(tensor.elem_type).itemsize)
