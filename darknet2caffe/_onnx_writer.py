"""Writer of an ONNX graph: nodes are written at once, constants when the file or the model is complete."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pytrtplugins.model.op_builder import OpBuilder, Value
from pytrtplugins.utils.optional import onnx, require

from .layers import Layer
from .network import INPUT_NAME, Network

__all__ = ["NEAREST", "Constant", "OnnxGraph", "OnnxWriter", "Options", "length_delimited"]

OPSET, IR_VERSION = 18, 10
NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
"""Of a Resize that repeats values."""


@dataclass(frozen=True)
class Options:
    """The user's options of the conversion.

    Attributes:
        fold: Write batch normalization into the layers before it.
        activation: Replacement of leaky and relu, or ``"as-is"``.
        bn_eps: Which of darknet's two batch normalizations.
        batch: Images per run, or the name of a dynamic batch.
    """

    fold: bool
    activation: str
    bn_eps: str
    batch: int | str


@dataclass(frozen=True)
class Constant:
    """A float32 constant whose values are computed when they are needed."""

    name: str
    dims: tuple[int, ...]
    make: Callable[[], npt.NDArray[np.float32]]

    @property
    def size_bytes(self) -> int:
        """Bytes of the values."""
        return 4 * int(np.prod(self.dims, dtype=np.int64))

    def data(self) -> npt.NDArray[np.float32]:
        """The values, little-endian and in order."""
        return np.ascontiguousarray(self.make(), "<f4")


class OnnxGraph:
    """A model that is built node by node."""

    def __init__(self, name: str) -> None:
        require("onnx", extra="onnx", feature="writing ONNX")
        self.model: onnx.ModelProto = onnx.ModelProto(ir_version=IR_VERSION, producer_name="darknet2caffe")
        self.graph = self.model.graph  # written in place: helper.make_model would copy everything
        self.graph.name = name

    def node(self, operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """Add one operator; it has its output's name."""
        self.graph.node.append(onnx.helper.make_node(operator, inputs, [output], name=output, **attributes))
        return output

    def info(self, name: str, dims: Sequence[int | str]) -> onnx.ValueInfoProto:
        """Name, type and dims of a tensor."""
        value_info: onnx.ValueInfoProto = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims)
        return value_info

    def complete(self, facts: Mapping[str, Any] | None = None) -> onnx.ModelProto:
        """The complete model, with its opsets, and with metadata for detectors if it has heads."""
        domains = sorted({node.domain for node in self.graph.node} - {""})
        versions = {"": OPSET} | dict.fromkeys(domains, 1)
        self.model.opset_import.extend(onnx.helper.make_opsetid(*version) for version in versions.items())
        if facts is not None:
            onnx.helper.set_model_props(self.model, {"darknet.net": json.dumps(facts)})
        return self.model


class OnnxWriter(OnnxGraph):
    """Builds the nodes and constants of a network's model."""

    def __init__(self, network: Network, options: Options) -> None:
        super().__init__(network.name)
        self.network, self.options = network, options
        self.constants: list[Constant] = []

    def write(self, write_layer: Callable[[Layer, OnnxWriter], None]) -> None:
        """Write all layers, inputs, outputs and metadata."""
        network, graph = self.network, self.graph
        graph.input.append(self.info(INPUT_NAME, [self.options.batch, *network.dims]))
        outputs = network.outputs
        last = {layer.index for layer in outputs}
        for layer in network.layers:
            if not layer.is_identity:
                write_layer(layer, self)
                if layer.index not in last:
                    graph.value_info.append(self.info(layer.name, [self.options.batch, *layer.dims]))
        for layer in outputs:
            if layer.is_identity:
                self.node("Identity", [network.tensor_name(layer.index)], layer.name)
            graph.output.append(self.info(layer.name, [self.options.batch, *layer.dims]))
        c, h, w = network.dims
        facts = {"width": w, "height": h, "channels": c, "dialect": network.dialect, "heads": network.head_metadata()}
        self.complete(facts)

    def inputs(self, layer: Layer) -> list[str]:
        """Names of the tensors that a layer reads."""
        return [self.network.tensor_name(index) for index in layer.inputs]

    def constant(self, name: str, values: Any, dims: tuple[int, ...] | None = None) -> str:
        """Add a constant: an array, or a function that gives a float32 one of these dims later.

        Small arrays are in the graph at once: they may be shapes and scales, which shape inference reads.
        """
        if dims is not None:
            self.constants.append(Constant(name, dims, values))
            return name
        array = np.ascontiguousarray(values)
        if array.dtype == np.float32 and array.size > 64:
            self.constants.append(Constant(name, array.shape, lambda: array))
        else:
            self.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        return name

    def builder(self, layer: Layer) -> tuple[OpBuilder, list[Value]]:
        """A builder for several operators, and the layer's inputs in it; pass its result to `finish`."""
        dims = zip(self.inputs(layer), layer.input_dims, strict=True)
        return OpBuilder(layer.name, layer.name), [Value(name, (self.options.batch, *shape)) for name, shape in dims]  # type: ignore[arg-type]

    def finish(self, op: OpBuilder, result: Value, output: str) -> str:
        """Add a builder's operators; the result gets the name of the output."""
        if not any(result.name in node.output for node in op.nodes):
            result = op.Identity(result)
        for node in op.nodes:
            node.input[:] = [output if name == result.name else name for name in node.input]
            if node.output[0] == result.name:
                node.name = output
            node.output[:] = [output if name == result.name else name for name in node.output]
        self.graph.node.extend(op.nodes)
        return output


def length_delimited(number: int, size: int) -> bytes:
    """Tag and length of a length-delimited protobuf field (protobuf.dev/programming-guides/encoding); ``size`` bytes follow.

    Written by hand, so that large arrays need not pass through protobuf.
    """
    return _varint(number << 3 | 2) + _varint(size)


def _varint(value: int) -> bytes:
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes([*data, value])
