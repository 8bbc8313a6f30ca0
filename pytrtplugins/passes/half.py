"""A float32 model → the same in float16 or bfloat16, with float32 inputs and outputs.

TensorRT 11 has no precision flags: a network computes in the types that the model says. So do the other engines.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import BuildError, PrecisionError
from ..model.ir import unused_name
from ..model.proto import copy_of, infos_of, node_name
from ..plugin.base import Plugin
from ..plugin.onnx_node import from_node, is_plugin_node
from ..tensor import DType, TensorDesc
from ..utils.optional import require

if TYPE_CHECKING:
    import onnx

__all__ = ["HALF_TYPES", "WRITTEN", "to_half"]

HALF_TYPES = {"fp16": DType.FLOAT16, "bf16": DType.BFLOAT16}
"""Name of a precision → element type."""

WRITTEN = "pytrtplugins.half"
"""Key in the metadata of a model that is written already: its type."""

_STAYS_FLOAT = {"Resize": (1, 2), "Upsample": (1,), "RoiAlign": (1,)}  # inputs that are sizes or places, not values
_SUBGRAPHS = ("If", "Loop", "Scan")


def to_half(
    model: onnx.ModelProto,
    dtype: DType,
    *,
    keep: Collection[str] = (),
    half_weights: Collection[str] = (),
    refuse_overflow: bool = True,
) -> onnx.ModelProto:
    """Write a model in half precision.

    Weights and every float32 tensor change their type; inputs and outputs of the model keep theirs, with a Cast behind
    and before them. Layers that are kept in float32 get casts around them, once for every tensor that needs one: between
    two layers in float32 a tensor stays what it is. So do plugins that do not take the type.

    Args:
        model: A float32 model with the types of all tensors; it is not changed. One that this function has written
            already comes back as it is.
        dtype: float16 or bfloat16.
        keep: Names of nodes (or of their first output) that stay in float32.
        half_weights: Those of them whose constants are stored in half precision all the same.
        refuse_overflow: Refuse weights beyond float16; else they become infinite.

    Raises:
        PrecisionError: a weight is beyond float16.
        BuildError: the model has subgraphs.
    """
    written = copy_of(model)
    if any(entry.key == WRITTEN for entry in model.metadata_props):
        return written
    return _Halver(written, dtype, frozenset(keep), frozenset(half_weights), refuse_overflow).run()


class _Halver:
    """One walk from the inputs down. A tensor has up to two forms, float32 and half; the second is made when it is read."""

    def __init__(
        self, model: onnx.ModelProto, dtype: DType, keep: Collection[str], half_weights: Collection[str], refuse: bool
    ) -> None:
        onnx = require("onnx", extra="onnx")
        self._helper, self._numpy_helper = onnx.helper, onnx.numpy_helper
        self._float = onnx.TensorProto.FLOAT
        self._kind = onnx.TensorProto.FLOAT16 if dtype is DType.FLOAT16 else onnx.TensorProto.BFLOAT16
        self._dtype, self._model, self._graph = dtype, model, model.graph
        self._keep, self._half_weights, self._refuse = keep, half_weights, refuse
        self._infos = infos_of(self._graph)
        self._floats = {name for name, info in self._infos.items() if info.type.tensor_type.elem_type == self._float}
        self._outputs = {info.name for info in self._graph.output}
        self._lift_constants()
        self._weights = {tensor.name: tensor for tensor in self._graph.initializer if tensor.data_type == self._float}
        self._forms: dict[tuple[str, int], str] = {}
        self._nodes: list[Any] = []
        self._taken = {name for node in self._graph.node for name in (*node.output, node.name)}

    def run(self) -> onnx.ModelProto:
        graph = self._graph
        for name in {info.name for info in graph.input} & self._floats:
            self._forms[name, self._float] = name
        for name in self._weights:
            self._forms[name, self._float] = name
        for node in list(graph.node):
            self._node(node)
        del graph.node[:]
        graph.node.extend(self._nodes)
        read = {name for node in graph.node for name in node.input}
        for tensor in [tensor for tensor in graph.initializer if tensor.name not in read | self._outputs]:
            graph.initializer.remove(tensor)
        for info in graph.value_info:
            if self._forms.get((info.name, self._kind)) == info.name:
                info.type.tensor_type.elem_type = self._kind
        self._model.metadata_props.add(key=WRITTEN, value=str(self._dtype))
        return self._model

    def _node(self, node: onnx.NodeProto) -> None:
        if node.op_type in _SUBGRAPHS and node.domain == "":
            raise BuildError(
                f"node {node.name!r}: {node.op_type} holds a subgraph, which is not written in {self._dtype}"
            )
        name = node_name(node)
        stays = name in self._keep or (
            is_plugin_node(node) and not _takes(from_node(node), self._dtype, len(node.input), len(node.output))
        )
        kind = self._float if stays else self._kind
        if not stays:
            self._attributes(node)
        float_inputs = _STAYS_FLOAT.get(node.op_type, ()) if node.domain == "" else ()
        for index, given in enumerate(node.input):
            if given in self._weights and index in float_inputs:
                continue
            if given in self._weights or (given in self._floats):
                narrow = stays and given in self._weights and name in self._half_weights
                node.input[index] = self._read(given, self._float if index in float_inputs else kind, narrow)
        self._nodes.append(node)
        for index, made in enumerate(node.output):
            if made in self._floats:
                node.output[index] = self._made(made, kind)

    def _made(self, name: str, kind: int) -> str:
        """Note in which form a node gives a tensor, and under which name."""
        inner = name
        if kind == self._kind and name in self._outputs:
            inner = unused_name(f"{name}_{self._dtype}", self._taken)
            self._describe(name, inner, kind)
            self._helper_cast(inner, self._float, name)
            self._forms[name, self._float] = name
        self._forms[name, kind] = inner
        return inner

    def _read(self, name: str, kind: int, narrow: bool = False) -> str:
        """The name of a tensor in the form that a node wants."""
        if narrow:
            return self._cast(self._read(name, self._kind), self._float)
        if (name, kind) not in self._forms:
            if name in self._weights:
                self._forms[name, kind] = unused_name(f"{name}_{self._dtype}", self._taken)
                self._graph.initializer.append(self._tensor(self._weights[name], self._forms[name, kind]))
            else:
                other = self._kind if kind == self._float else self._float
                self._forms[name, kind] = self._cast(self._forms[name, other], kind)
        return self._forms[name, kind]

    def _tensor(self, tensor: onnx.TensorProto, name: str) -> onnx.TensorProto:
        array = self._numpy_helper.to_array(tensor)
        largest = np.abs(array[np.isfinite(array)]).max(initial=0)
        if self._refuse and self._dtype is DType.FLOAT16 and largest > np.finfo(np.float16).max:
            raise PrecisionError(
                f'constant {tensor.name!r} holds {largest:g}, beyond float16.\nDo: precision="bf16" or precision="fp32", '
                "or find the layers to keep in float32: pytrt precision search",
                tensor=tensor.name,
            )
        with np.errstate(over="ignore"):
            half = array.astype(self._dtype.numpy)
        made: onnx.TensorProto = self._helper.make_tensor(name, self._kind, array.shape, half.tobytes(), raw=True)
        return made

    def _attributes(self, node: onnx.NodeProto) -> None:
        """Constants and types that stand in attributes."""
        for attribute in node.attribute:
            if attribute.HasField("t") and attribute.t.data_type == self._float and not is_plugin_node(node):
                attribute.t.CopyFrom(self._tensor(attribute.t, attribute.t.name))
            elif attribute.name in ("to", "dtype") and attribute.i == self._float and node.domain == "":
                attribute.i = self._kind

    def _lift_constants(self) -> None:
        """Make initializers of Constant nodes in float32: each reader takes the form that it wants."""
        names = ("value", "value_float", "value_floats")
        for node in [node for node in self._graph.node if node.op_type == "Constant" and node.domain == ""]:
            attribute = next((item for item in node.attribute if item.name in names), None)
            if attribute is None or node.output[0] in self._outputs:
                continue
            value = self._helper.get_attribute_value(attribute)
            array = self._numpy_helper.to_array(value) if attribute.name == "value" else np.array(value, np.float32)
            if array.dtype == np.float32:
                self._graph.initializer.append(self._numpy_helper.from_array(array, node.output[0]))
                self._graph.node.remove(node)

    def _cast(self, name: str, kind: int) -> str:
        output = unused_name(f"{name}_{'float32' if kind == self._float else self._dtype}", self._taken)
        self._describe(name, output, kind)
        return self._helper_cast(name, kind, output)

    def _helper_cast(self, name: str, kind: int, output: str) -> str:
        self._nodes.append(
            self._helper.make_node("Cast", [name], [output], unused_name(f"{output}_Cast", self._taken), to=kind)
        )
        return output

    def _describe(self, name: str, form: str, kind: int) -> None:
        """Note the dims of a tensor for another form of it: engines that plan ahead read them."""
        if name in self._infos:
            info = self._graph.value_info.add()
            info.CopyFrom(self._infos[name])
            info.name, info.type.tensor_type.elem_type = form, kind


def _takes(plugin: Plugin, dtype: DType, num_inputs: int, num_outputs: int) -> bool:
    descs = [TensorDesc(f"tensor{index}", (1,) * 4, dtype) for index in range(num_inputs + num_outputs)]
    return all(plugin.supports_format(position, descs) for position in range(len(descs)))
