"""Plays the parts of TensorRT's parser, builder, runtime and execution context, for whole networks on a CPU.

Operators of ONNX run in the reference engine. Plugins are found in TensorRT's own registry, by the rules of its parser,
and live in their adapters, as in `driver`. Like TensorRT, the player says False or None where an override raises.
"""

from __future__ import annotations

import base64
import ctypes
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
from onnx import AttributeProto, helper, numpy_helper

from pytrtplugins.engines.base.types import BuildOptions
from pytrtplugins.engines.reference import ReferenceEngine
from pytrtplugins.engines.tensorrt._api import Api
from pytrtplugins.engines.tensorrt.plugin_fields import EXTRAS, field_collection
from pytrtplugins.plugin.base import Plugin
from pytrtplugins.plugin.onnx_node import is_plugin_node
from pytrtplugins.tensor import DType, SymbolicDim, evaluate_dims

from .checked import HostMemory
from .driver import Driver

BATCH = 2  # of networks with a free one, while they are built


class Player:
    """One builder, one engine and one context at a time.

    Attributes:
        before_parse: Called first; a test breaks plugins here, which the passes before have met whole.
        model: What the parser was given, or the plan holds.
        enqueued: Name and dtype of the first input of each plugin that ran.
    """

    def __init__(self, api: Api) -> None:
        self.driver, self.trt = Driver(api, "v3"), api.trt
        self.before_parse: Callable[[], None] = lambda: None
        self.enqueued: list[tuple[str, str]] = []

    def answers(self) -> dict[str, Any]:
        """What it says, for `checked.CheckedModule`."""
        return {
            "OnnxParser.parse": self._parse,
            "OnnxParser.parse_from_file": lambda model: self._parse(Path(model).read_bytes()),
            "Builder.build_serialized_network": self._build,
            "Runtime.deserialize_cuda_engine": self._deserialize,
            "ICudaEngine.create_execution_context": self._create_context,
            "IExecutionContext.set_input_shape": self._set_input_shape,
            "IExecutionContext.get_tensor_shape": self._shape,
            "IExecutionContext.set_tensor_address": self._set_address,
            "IExecutionContext.execute_async_v3": self._execute,
        }

    # -- parser and builder ------------------------------------------------------------------------------------------

    def _parse(self, data: bytes) -> bool:
        self.before_parse()
        self.model = onnx.ModelProto.FromString(data)
        self._made = {node.name: self._create(node) for node in self.model.graph.node if is_plugin_node(node)}
        return None not in self._made.values()

    def _create(self, node: onnx.NodeProto) -> Any:
        attributes = {item.name: item for item in node.attribute}
        namespace, version = (attributes[name].s.decode() for name in ("plugin_namespace", "plugin_version"))
        found = self.trt.get_plugin_registry().get_creator(node.op_type, version, namespace)
        declared = [field.name for field in found.field_names]
        items = [_field(attributes[name]) for name in declared if name in attributes]
        fields, build = field_collection(self.driver.api, items), self.trt.TensorRTPhase.BUILD
        return self.trt.IPluginCreatorV3One.create_plugin(found, node.name, fields, build)

    def _build(self, network: Any, config: Any) -> HostMemory | None:
        def life(node: onnx.NodeProto, arrays: list[np.ndarray]) -> list[np.ndarray]:
            return self._time(self._made[node.name], arrays)

        try:
            self._run_network({info.name: _random(info) for info in self.model.graph.input}, life)
            saved = {name: [*_key(made), _saved(made.get_fields_to_serialize())] for name, made in self._made.items()}
        except Exception:
            return None
        model = base64.b64encode(self.model.SerializeToString()).decode()
        return HostMemory(json.dumps({"model": model, "plugins": saved}).encode())

    def _time(self, made: Any, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Ask everything that a builder asks, and run once, as it does to measure."""
        outputs, descs, size = self._configured(made, arrays, free=(0,))
        if not self.driver.accepts(made, descs, len(arrays)):
            raise RuntimeError("no combination of formats")
        self.driver.enqueue(made.clone(), arrays, outputs, size)
        return outputs

    def _configured(self, made: Any, arrays: list[np.ndarray], free: Sequence[int] = ()) -> Any:
        """Outputs that are not written yet, descriptions of all tensors, and the size of the workspace."""
        driver = self.driver
        dtypes = driver.output_types(made, [DType.of(array) for array in arrays])
        exprs = driver.output_exprs(made, [array.shape for array in arrays], free)
        outputs = [np.empty([e.value for e in dims], t.numpy) for dims, t in zip(exprs, dtypes, strict=True)]
        descs = [driver.desc(array.shape, DType.of(array)) for array in (*arrays, *outputs)]
        return outputs, descs, driver.configure(made, descs[: len(arrays)], descs[len(arrays) :])

    # -- runtime -----------------------------------------------------------------------------------------------------

    def _deserialize(self, plan: bytes) -> Any:
        held = json.loads(plan)
        self.model = onnx.ModelProto.FromString(base64.b64decode(held["model"]))
        self._loaded: dict[str, Any] = {}
        for node, (namespace, name, version, items) in held["plugins"].items():
            found = self.trt.get_plugin_registry().get_creator(name, version, namespace)
            fields = field_collection(self.driver.api, [(n, kind, np.array(v, dtype)) for n, kind, v, dtype in items])
            runtime = self.trt.TensorRTPhase.RUNTIME
            self._loaded[node] = self.trt.IPluginCreatorV3One.create_plugin(found, node, fields, runtime)
        return self.owner.proxy("ICudaEngine")

    def _create_context(self) -> Any:
        self._attached = {name: made.attach_to_context(None) for name, made in self._loaded.items()}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        self._last: dict[str, Any] = {}
        return self.owner.proxy("IExecutionContext")

    def _set_input_shape(self, name: str, shape: Sequence[int]) -> bool:
        self._shapes[name] = tuple(shape)
        return True

    def _shape(self, name: str) -> Any:
        reference = self._reference("fp32")
        sizes = {
            dim.name: size
            for desc in reference.inputs
            for dim, size in zip(desc.dims, self._shapes[desc.name], strict=True)
            if isinstance(dim, SymbolicDim)
        }
        (dims,) = [desc.dims for desc in reference.outputs if desc.name == name]
        return self.trt.Dims(list(evaluate_dims(dims, sizes)))

    def _set_address(self, name: str, memory: int) -> bool:
        self._addresses[name] = memory
        return True

    def _execute(self, stream_handle: int) -> bool:
        inputs = {name: _view(self._addresses[name], shape, np.float32) for name, shape in self._shapes.items()}
        try:
            found = self._run_network(inputs, self._enqueue)
        except Exception:
            return False
        for name, array in found.items():
            _view(self._addresses[name], array.shape, array.dtype)[...] = array
        return True

    def _enqueue(self, node: onnx.NodeProto, arrays: list[np.ndarray]) -> list[np.ndarray]:
        made = self._attached[node.name]
        outputs, _, size = self._configured(made, arrays)
        shapes = [array.shape for array in arrays]
        self.driver.enqueue(made, arrays, outputs, size, changed=shapes != self._last.get(node.name))
        self._last[node.name] = shapes
        self.enqueued.append((node.op_type, str(arrays[0].dtype)))
        return outputs

    def _reference(self, precision: str) -> ReferenceEngine:
        with mock.patch(
            "pytrtplugins.engines.base.engine.check_claims", lambda model, location: model
        ):  # TensorRT has no such door
            return ReferenceEngine(opened(self.model), BuildOptions(precision))

    def _run_network(self, inputs: dict[str, np.ndarray], life: Callable[..., list[np.ndarray]]) -> dict[str, Any]:
        quantized = any(node.op_type == "QuantizeLinear" for node in self.model.graph.node)
        reference = self._reference("int8" if quantized else "fp32")
        with reference.create_context() as context:
            context._runners = {
                id(step): _Runner(step.node, life) for step in reference._steps if step.plugin is not None
            }
            return context.run(inputs)


class _Runner:
    """In the place of the reference engine's own way to run a plugin."""

    def __init__(self, node: onnx.NodeProto, life: Callable[..., list[np.ndarray]]) -> None:
        self._node, self._life = node, life

    def run(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        return self._life(self._node, [np.ascontiguousarray(array) for array in arrays])

    def close(self) -> None:
        pass


def _field(attribute: AttributeProto) -> tuple[str, str, Any]:
    """An attribute as TensorRT's parser passes it on: numbers in 32 bits, no zero behind text."""
    value = helper.get_attribute_value(attribute)
    kind = attribute.type
    if kind in (AttributeProto.FLOAT, AttributeProto.FLOATS):
        return attribute.name, "FLOAT32", np.array(value, np.float32)
    if kind in (AttributeProto.INT, AttributeProto.INTS):
        return attribute.name, "INT32", np.array(value, np.int64).astype(np.int32)
    if kind == AttributeProto.STRING:
        return attribute.name, "CHAR", np.array(list(value), np.uint8).view(np.int8)
    assert kind == AttributeProto.TENSOR, f"the parser does not pass on {attribute.name}"
    array = numpy_helper.to_array(value)
    kinds = {"float32": "FLOAT32", "float64": "FLOAT64", "int32": "INT32", "int8": "INT8"}
    return attribute.name, kinds[array.dtype.name], array


def _key(made: Any) -> list[str]:
    return [made.plugin_namespace, made.plugin_name, made.plugin_version]


def _saved(fields: Any) -> list[list[Any]]:
    return [[f.name, f.type.name, np.array(f.data).tolist(), str(np.array(f.data).dtype)] for f in fields]


def opened(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without what only creators read: a plugin that travels as bytes has its attributes again."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for node in copy.graph.node:
        kept = [attribute for attribute in node.attribute if attribute.name not in EXTRAS]
        data = next((item.s for item in node.attribute if item.name == EXTRAS[0]), b"")
        if data:
            kept = list(Plugin.deserialize(base64.b64decode(data)).as_node(node.input, node.output).attribute)
        del node.attribute[:]
        node.attribute.extend(kept)
    return copy


def _random(info: onnx.ValueInfoProto) -> np.ndarray:
    dims = [dim.dim_value or BATCH for dim in info.type.tensor_type.shape.dim]
    return np.random.default_rng(0).random(dims, dtype=np.float32)


def _view(address: int, dims: Sequence[int], dtype: Any) -> np.ndarray:
    count = math.prod(dims) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_byte * count).from_address(address), dtype).reshape(dims)
