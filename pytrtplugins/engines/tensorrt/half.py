"""A float32 model → the same in float16 or bfloat16, with float32 inputs and outputs.

TensorRT 11 has no precision flags: a network computes in the types that the model says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..._optional import require
from ...errors import BuildError, PrecisionError
from ...onnx_node import from_node, is_plugin_node
from ...plugin import Plugin
from ...tensor import DType, TensorDesc

if TYPE_CHECKING:
    import onnx

__all__ = ["to_half"]

_STAYS_FLOAT = {"Resize": (1, 2), "Upsample": (1,), "RoiAlign": (1,)}  # inputs that are sizes or places, not values
_SUBGRAPHS = ("If", "Loop", "Scan")


def to_half(model: onnx.ModelProto, dtype: DType) -> onnx.ModelProto:
    """Write a model in half precision.

    Weights and every float32 tensor change their type; inputs and outputs of the model keep theirs, with a Cast behind
    and before them. Plugins that do not take the type get casts around them.

    Args:
        model: A float32 model with the types of all tensors; it is not changed.
        dtype: float16 or bfloat16.

    Raises:
        PrecisionError: a weight is beyond float16.
        BuildError: the model has subgraphs.
    """
    written = type(model)()
    written.CopyFrom(model)
    return _Halver(written, dtype).run()


class _Halver:
    def __init__(self, model: onnx.ModelProto, dtype: DType) -> None:
        onnx = require("onnx", extra="onnx")
        self._helper, self._numpy_helper = onnx.helper, onnx.numpy_helper
        self._float = onnx.TensorProto.FLOAT
        self._kind = onnx.TensorProto.FLOAT16 if dtype is DType.FLOAT16 else onnx.TensorProto.BFLOAT16
        self._dtype, self._model, self._graph = dtype, model, model.graph
        infos = (*self._graph.input, *self._graph.value_info, *self._graph.output)
        self._floats = {info.name for info in infos if info.type.tensor_type.elem_type == self._float}
        self._weights = {tensor.name: tensor for tensor in self._graph.initializer if tensor.data_type == self._float}
        self._halves: dict[str, str] = {}
        self._nodes: list[Any] = []
        self._taken = {name for node in self._graph.node for name in (*node.output, node.name)}

    def run(self) -> onnx.ModelProto:
        graph = self._graph
        inputs = {info.name for info in graph.input} - set(self._weights)
        outputs = {info.name for info in graph.output}
        for name in sorted(inputs & self._floats):
            self._halves[name] = self._cast(name, self._kind)
        for node in list(graph.node):
            self._node(node, outputs)
        del graph.node[:]
        graph.node.extend(self._nodes)
        read = {name for node in graph.node for name in node.input}
        unused = [tensor for tensor in graph.initializer if tensor.name not in read | outputs]
        for tensor in unused:
            graph.initializer.remove(tensor)
        for info in graph.value_info:
            if info.name in self._floats:
                info.type.tensor_type.elem_type = self._kind
        return self._model

    def _node(self, node: Any, outputs: set[str]) -> None:
        if node.op_type in _SUBGRAPHS and node.domain == "":
            raise BuildError(
                f"node {node.name!r}: {node.op_type} holds a subgraph, which is not written in {self._dtype}"
            )
        if is_plugin_node(node) and not _takes(from_node(node), self._dtype, len(node.input), len(node.output)):
            self._float_node(node, outputs)
            return
        self._attributes(node)
        stays = _STAYS_FLOAT.get(node.op_type, ()) if node.domain == "" else ()
        for index, name in enumerate(node.input):
            if index in stays and name in self._floats and name not in self._weights:
                node.input[index] = self._cast(self._halves.get(name, name), self._float)
            elif index not in stays and (name in self._weights or name in self._halves):
                node.input[index] = self._half(name)
        self._nodes.append(node)
        for index, name in enumerate(node.output):
            if name in outputs and name in self._floats:
                inner = self._name(f"{name}_{self._dtype}")
                node.output[index] = inner
                self._halves[name] = inner
                self._cast(inner, self._float, name)

    def _float_node(self, node: Any, outputs: set[str]) -> None:
        """A plugin that computes in float32, among tensors that are not."""
        for index, name in enumerate(node.input):
            if name in self._floats and name not in self._weights:
                node.input[index] = self._cast(self._halves.get(name, name), self._float)
        self._nodes.append(node)
        for index, name in enumerate(node.output):
            if name not in self._floats:
                continue
            if name in outputs:
                self._halves[name] = self._cast(name, self._kind)
            else:
                inner = self._name(f"{name}_float32")
                node.output[index] = inner
                self._cast(inner, self._kind, name)

    def _half(self, name: str) -> str:
        """The name of a tensor's half form; a weight's is made when it is first read."""
        if name not in self._halves:
            tensor = self._weights[name]
            self._halves[name] = self._name(f"{name}_{self._dtype}")
            self._graph.initializer.append(self._tensor(tensor, self._halves[name]))
        return self._halves[name]

    def _tensor(self, tensor: Any, name: str) -> Any:
        array = self._numpy_helper.to_array(tensor)
        largest = np.abs(array[np.isfinite(array)]).max(initial=0)
        if self._dtype is DType.FLOAT16 and largest > np.finfo(np.float16).max:
            raise PrecisionError(
                f'constant {tensor.name!r} holds {largest:g}, beyond float16.\nDo: precision="bf16" or precision="fp32"',
                tensor=tensor.name,
            )
        half = array.astype(self._dtype.numpy)
        return self._helper.make_tensor(name, self._kind, array.shape, half.tobytes(), raw=True)

    def _attributes(self, node: Any) -> None:
        """Constants and types that stand in attributes."""
        for attribute in node.attribute:
            if attribute.HasField("t") and attribute.t.data_type == self._float and not is_plugin_node(node):
                attribute.t.CopyFrom(self._tensor(attribute.t, attribute.t.name))
            elif attribute.name in ("to", "dtype") and attribute.i == self._float and node.domain == "":
                attribute.i = self._kind
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name in ("value_float", "value_floats"):
            value = self._helper.get_attribute_value(node.attribute[0])
            tensor = self._tensor(self._numpy_helper.from_array(np.array(value, np.float32)), node.output[0])
            node.attribute[0].CopyFrom(self._helper.make_attribute("value", tensor))

    def _cast(self, name: str, kind: int, output: str = "") -> str:
        output = output or self._name(f"{name}_{'float32' if kind == self._float else self._dtype}")
        self._nodes.append(self._helper.make_node("Cast", [name], [output], self._name(f"{output}_Cast"), to=kind))
        return output

    def _name(self, name: str) -> str:
        unique, number = name, 2
        while unique in self._taken:
            unique, number = f"{name}_{number}", number + 1
        self._taken.add(unique)
        return unique


def _takes(plugin: Plugin, dtype: DType, num_inputs: int, num_outputs: int) -> bool:
    descs = [TensorDesc(f"tensor{index}", (1,) * 4, dtype) for index in range(num_inputs + num_outputs)]
    return all(plugin.supports_format(position, descs) for position in range(len(descs)))
