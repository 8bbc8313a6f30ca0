"""Convert a float32 model to float16 or bfloat16, with float32 inputs and outputs.

TensorRT 11 has no precision flags: a network computes in the types that the model says. So do the other engines.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import BuildError, PrecisionError
from ..model.ir import add_constant, array_of, is_op, names_in, rewrite, set_dtype, unused_name
from ..model.operator_traits import Trait, operators
from ..model.proto import copy_of, node_name
from ..plugin.onnx_node import is_plugin_node, supports_dtype
from ..tensor import DType
from ..utils.optional import ir, onnx
from .half_ranges import fit_scales
from .normalize import in_opset

__all__ = ["HALF_TYPES", "STAYS_FLOAT", "WRITTEN", "convert_to_half", "to_half", "with_typed_scales"]

HALF_TYPES = {"fp16": DType.FLOAT16, "bf16": DType.BFLOAT16}
"""Name of a precision → element type."""

WRITTEN = "pytrtplugins.half"
"""Key in the metadata of a model that is written already: its type."""

STAYS_FLOAT = {"Resize": (1, 2), "Upsample": (1,), "RoiAlign": (1,)}
"""Inputs that are sizes or positions, not values."""
_SUBGRAPHS = operators(Trait.SUBGRAPHS)
_TYPED_SCALES = 19
"""The first opset whose QuantizeLinear and DequantizeLinear have scales of other types than float32."""


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
    two layers in float32 a tensor stays what it is. So do plugins that do not take the type. Scales of Q/DQ nodes change their type
    too, which ONNX allows from opset 19 on: an older model with such nodes is converted to it.

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
        ModelError: the model has Q/DQ nodes and cannot be converted to opset 19.
    """
    if any(entry.key == WRITTEN for entry in model.metadata_props):
        return copy_of(model)
    convert = functools.partial(
        convert_to_half, dtype=dtype, keep=keep, half_weights=half_weights, refuse_overflow=refuse_overflow
    )
    return rewrite(with_typed_scales(model), convert)


def with_typed_scales(model: onnx.ModelProto) -> onnx.ModelProto:
    """Convert a prepared model with Q/DQ nodes to the first opset that allows scales in half precision, if its own is older."""
    has_scales = any(node.op_type in ("QuantizeLinear", "DequantizeLinear") for node in model.graph.node)
    return in_opset(model, _TYPED_SCALES) if has_scales else model


def _float_inputs(node: ir.Node) -> Collection[int]:
    return STAYS_FLOAT.get(node.op_type, ()) if node.domain == "" else ()


def convert_to_half(
    model: ir.Model,
    dtype: DType,
    float_inputs: Callable[[ir.Node], Collection[int]] = _float_inputs,
    keep: Collection[str] = (),
    *,
    half_weights: Collection[str] = (),
    refuse_overflow: bool = False,
) -> ir.Model:
    """Convert in place an onnx-ir model that `with_typed_scales` returned.

    Args:
        model: As for `to_half`; with `WRITTEN` in its metadata it stays as it is.
        dtype: As for `to_half`.
        float_inputs: A node → its inputs that stay float32 though the node does not.
        keep: Names of nodes that stay in float32, with their subgraphs.
        half_weights: As for `to_half`.
        refuse_overflow: As for `to_half`.
    """
    if WRITTEN in model.metadata_props:
        return model
    if dtype is DType.FLOAT16:
        fit_scales(model, float_inputs)
    return _HalfConverter(model, dtype, keep, half_weights, refuse_overflow, float_inputs).run()


class _HalfConverter:
    """One walk from the inputs down. A tensor has up to two versions, float32 and half; the second is made when it is read."""

    def __init__(
        self,
        model: ir.Model,
        dtype: DType,
        keep: Collection[str],
        half_weights: Collection[str],
        refuse: bool,
        float_inputs: Callable[[ir.Node], Collection[int]],
    ) -> None:
        self._float, self._half = ir.DataType.FLOAT, ir.DataType.from_numpy(dtype.numpy)
        self._names = {self._float: "float32", self._half: str(dtype)}
        self._dtype, self._model, self._graph = dtype, model, model.graph
        self._keep, self._half_weights, self._refuse = keep, half_weights, refuse
        self._float_inputs = float_inputs
        self._forms: dict[ir.Value, dict[ir.DataType, ir.Value]] = {}
        self._lift_constants()
        self._taken = names_in(self._graph)

    def run(self) -> ir.Model:
        initializers = self._graph.initializers
        for value in (*self._graph.inputs, *initializers.values()):
            if value.dtype == self._float:
                self._forms[value] = {self._float: value}
        for node in list(self._graph):
            self._write(node)
        for name in [name for name, value in initializers.items() if not value.uses() and not value.is_graph_output()]:
            del initializers[name]
        self._model.metadata_props[WRITTEN] = str(self._dtype)
        return self._model

    def _write(self, node: ir.Node) -> None:
        name, is_plugin = node_name(node), is_plugin_node(node)
        if node.op_type in _SUBGRAPHS and node.domain == "":
            if name not in self._keep:
                raise BuildError(
                    f"node {node.name!r}: {node.op_type} holds a subgraph, which is not written in {self._dtype}"
                )
            self._keep_inside(node)
        stays = name in self._keep or (is_plugin and not supports_dtype(node, self._dtype))
        kind = self._float if stays else self._half
        if not stays:
            self._attributes(node, is_plugin)
        float_inputs = self._float_inputs(node)
        for index, value in enumerate(node.inputs):
            if value in self._forms:
                dtype = self._float if index in float_inputs else kind
                if stays and name in self._half_weights and value.is_initializer():
                    read = self._cast(node, self._read(node, value, self._half), self._float)
                else:
                    read = self._read(node, value, dtype)
                node.replace_input_with(index, read)
        outputs = [output for output in node.outputs if output.dtype == self._float]
        self._forms.update((output, {kind: output}) for output in outputs)
        if not stays:
            for output in outputs:
                set_dtype(output, self._half)
            self._graph.insert_after(node, [self._cast_back(result) for result in outputs if result.is_graph_output()])

    def _keep_inside(self, node: ir.Node) -> None:
        """Keep the subgraphs of a float32 node in float32: outer tensors that they read are cast."""
        graphs = [attribute.as_graph() for attribute in node.attributes.values() if attribute.type.name == "GRAPH"]
        for graph in itertools.chain(graphs, *(graph.subgraphs() for graph in graphs)):
            for inner in graph:
                for index, value in enumerate(inner.inputs):
                    if value in self._forms:
                        inner.replace_input_with(index, self._read(node, value, self._float))
            graph.outputs[:] = [
                self._read(node, value, self._float) if value in self._forms else value for value in graph.outputs
            ]

    def _cast_back(self, output: ir.Value) -> ir.Node:
        """A Cast that keeps the element type of a model output that is now in half precision."""
        name = str(output.name)
        output.name = unused_name(f"{name}_{self._dtype}", self._taken)
        node = self._cast_node(output, self._float, name)
        outputs = self._graph.outputs
        outputs[:] = [node.outputs[0] if value is output else value for value in outputs]
        self._forms[output][self._float] = node.outputs[0]
        return node

    def _read(self, node: ir.Node, value: ir.Value, kind: ir.DataType) -> ir.Value:
        """A tensor in the element type that a node reads."""
        forms = self._forms[value]
        if kind not in forms and value.is_initializer():
            half = self._to_half_array(array_of(value), str(value.name))
            forms[kind] = add_constant(self._graph, f"{value.name}_{self._dtype}", half, self._taken)
        elif kind not in forms:
            forms[kind] = self._cast(node, next(iter(forms.values())), kind)
        return forms[kind]

    def _to_half_array(self, array: npt.NDArray[np.float32], name: str) -> npt.NDArray[Any]:
        largest = np.abs(array[np.isfinite(array)]).max(initial=0)
        if self._refuse and self._dtype is DType.FLOAT16 and largest > np.finfo(np.float16).max:
            raise PrecisionError(
                f'constant {name!r} holds {largest:g}, beyond float16.\nDo: precision="bf16" or precision="fp32", '
                "or find the layers to keep in float32: pytrt precision search",
                tensor=name,
            )
        with np.errstate(over="ignore"):
            return array.astype(self._dtype.numpy)

    def _attributes(self, node: ir.Node, is_plugin: bool) -> None:
        """Convert constants and types in attributes."""
        for name, value in [(name, attribute.value) for name, attribute in node.attributes.items()]:
            if getattr(value, "dtype", None) == self._float and not is_plugin:
                half = ir.tensor(self._to_half_array(value.numpy(), value.name), name=value.name)
                node.attributes[name] = ir.AttrTensor(name, half)
            elif name in ("to", "dtype") and value == self._float and node.domain == "":
                node.attributes[name] = ir.AttrInt64(name, self._half)

    def _lift_constants(self) -> None:
        """Make initializers of float32 Constant nodes, so that each reader gets the version that it needs."""
        for node in [node for node in self._graph if is_op(node, "Constant")]:
            output, array = node.outputs[0], array_of(node.outputs[0])
            if array is not None and array.dtype == np.float32 and not output.is_graph_output():
                output.replace_all_uses_with(add_constant(self._graph, str(output.name), array))
                self._graph.remove(node)

    def _cast(self, reader: ir.Node, value: ir.Value, kind: ir.DataType) -> ir.Value:
        """A tensor in another type, before a node that reads it."""
        node = self._cast_node(value, kind, unused_name(f"{value.name}_{self._names[kind]}", self._taken))
        self._graph.insert_before(reader, node)
        return node.outputs[0]

    def _cast_node(self, value: ir.Value, kind: ir.DataType, name: str) -> ir.Node:
        result = ir.Value(name=name, type=ir.TensorType(kind), shape=value.shape)
        node: ir.Node = ir.node(
            "Cast", [value], {"to": kind}, outputs=[result], name=unused_name(f"{name}_Cast", self._taken)
        )
        return node
