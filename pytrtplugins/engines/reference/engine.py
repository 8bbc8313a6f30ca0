"""The oracle: every operator in NumPy, every plugin through `compute`."""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..._optional import require
from ...errors import BuildError, UsageError
from ...onnx_node import from_node, is_plugin_node, node_attributes
from ...passes.half import HALF_TYPES, to_half
from ...plugin import Plugin
from ..base import Arrays, Availability, BuildOptions, Engine, ExecutionContext
from ..plugin_runner import PluginRunner
from .half import half_type, is_half, run_wide
from .half_sums import HALF_SUM_OPS
from .ops import KNOWN_VALUES, OPS
from .windows import convolve

if TYPE_CHECKING:
    import onnx

__all__ = ["ReferenceEngine"]

Array = npt.NDArray[Any]
_OLDEST_OPSET = 13  # before it, Softmax meant something else


@dataclass(frozen=True)
class _Codes:
    """A tensor as its codes: what DequantizeLinear reads."""

    codes: Array
    scale: Array
    zero: Array
    axis: int


@dataclass(frozen=True)
class _Step:
    """One node, ready to run."""

    node: onnx.NodeProto
    attributes: dict[str, Any]
    plugin: Plugin | None
    last_use: tuple[str, ...]


class ReferenceEngine(Engine):
    """NumPy, slow and exact: what the other engines are tested against.

    Float layers sum in float64 and round to float32 once. INT8 convolutions, those whose data and weights both come from
    DequantizeLinear, add integers exactly: y = float32(sum · (scale_x · scale_w) + bias), with the product of the scales, the
    multiplication and the addition in float64. Plugins run as Python code, never through a decomposition.

    FP16 and BF16 are those of a GPU: every tensor is stored in 16 bits, and layers compute in float32 or better, rounding once.
    They serve to find what rounding does to a network; they are no faster.

    Settings: ``sums``, ``"float32"`` by default; ``"float16"``: convolutions and matrix products of float16 numbers sum in float16,
    as GPU kernels may that do not ask for more.
    """

    name: ClassVar[str] = "reference"
    precisions: ClassVar[tuple[str, ...]] = ("fp32", "bf16", "fp16", "int8")
    settings: ClassVar[tuple[str, ...]] = ("sums",)

    def __init__(self, model: onnx.ModelProto, options: BuildOptions) -> None:
        super().__init__(model, options)
        sums = options.settings.get("sums", "float32")
        if sums not in ("float32", "float16"):
            raise UsageError(f"engine 'reference': sums: expected float32 or float16, found {sums!r}", setting="sums")
        self._float16_ops = {**OPS, **HALF_SUM_OPS} if sums == "float16" else OPS
        numpy_helper = require("onnx.numpy_helper", extra="onnx", feature="engine 'reference'")
        _check_opset(model)
        model = _without_functions(model)
        if options.precision in HALF_TYPES:
            model = to_half(model, HALF_TYPES[options.precision])
        self._constants: Arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        self._steps = self._plan(model)

    @classmethod
    def availability(cls) -> Availability:
        """Always there: it needs NumPy, and onnx to read the model."""
        return Availability(cls.name, "", f"NumPy {np.__version__}")

    def _create_context(self) -> ExecutionContext:
        return ReferenceContext(self)

    def _plan(self, model: onnx.ModelProto) -> list[_Step]:
        uses = Counter(name for node in model.graph.node for name in node.input)
        uses.update(info.name for info in model.graph.output)
        steps = []
        for node in model.graph.node:
            attributes = node_attributes(node)
            if node.op_type == "Constant" and not node.domain:
                self._constants[node.output[0]] = _constant(node, attributes)
                continue
            plugin = from_node(node) if is_plugin_node(node) else None
            if plugin is None:
                _check_operator(node, attributes, self._constants)
            if node.op_type == "Split":
                attributes.setdefault("num_outputs", len(node.output))
            uses.subtract(node.input)
            last = tuple(name for name in set(node.input) if name and not uses[name] and name not in self._constants)
            steps.append(_Step(node, attributes, plugin, last))
        return steps


class ReferenceContext(ExecutionContext):
    """Clones of the engine's plugins."""

    engine: ReferenceEngine

    def __init__(self, engine: ReferenceEngine) -> None:
        super().__init__(engine)
        self._runners = {
            id(step): PluginRunner(step.plugin, step.node.name or step.node.op_type)
            for step in engine._steps
            if step.plugin is not None
        }

    def _run(self, inputs: Arrays) -> Arrays:
        tensors: dict[str, Any] = {**self.engine._constants, **inputs}
        for step in self.engine._steps:
            given: list[Any] = [tensors[name] if name else None for name in step.node.input]
            if step.plugin is not None:
                outputs: Any = self._runners[id(step)].run([_dense(value) for value in given])
            elif step.node.op_type == "DequantizeLinear" and not is_half(given[1].dtype):
                outputs = [_codes(step.attributes, *given)]
            elif step.node.op_type == "Conv" and all(isinstance(value, _Codes) for value in given[:2]):
                outputs = [_integer_convolution(step.attributes, *given)]
            else:
                with np.errstate(all="ignore"):  # infinities and NaN are results like others
                    outputs = self._computed(step, [_dense(value) for value in given])
            tensors.update(zip(step.node.output, outputs, strict=False))  # optional outputs may be left out
            for name in step.last_use:
                del tensors[name]
        return {desc.name: np.array(_dense(tensors[desc.name])) for desc in self.engine.outputs}

    def _computed(self, step: _Step, given: list[Any]) -> list[Any]:
        name, half = step.node.op_type, half_type(given)
        if half is not None:
            function = (self.engine._float16_ops if half == np.float16 else OPS)[name]
            return run_wide(function, step.attributes, given, keeps_type=name != "Cast")
        result = OPS[name](step.attributes, *given)
        return result if isinstance(result, list) else [result]

    def _close(self) -> None:
        for runner in self._runners.values():
            runner.close()


def _check_opset(model: onnx.ModelProto) -> None:
    opset = next((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), _OLDEST_OPSET)
    if opset < _OLDEST_OPSET:
        raise BuildError(
            f"engine 'reference' needs opset {_OLDEST_OPSET} or newer, the model has {opset}.\n"
            "Do: onnx.version_converter.convert_version(model, 18)",
            expected=_OLDEST_OPSET,
            found=opset,
        )


def _without_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with local functions written out, except those of plugins: a plugin is computed by its class."""
    bodies = (model.graph.node, *(function.node for function in model.functions))
    plugins = {(node.domain, node.op_type) for body in bodies for node in body if is_plugin_node(node)}
    functions = {(item.domain, item.name) for item in model.functions} - plugins
    if not functions:
        return model
    inliner = require("onnx.inliner", extra="onnx", feature="engine 'reference'")
    return inliner.inline_selected_functions(model, sorted(functions))  # type: ignore[no-any-return]


def _check_operator(node: onnx.NodeProto, attributes: dict[str, Any], constants: Arrays) -> None:
    where = f"engine 'reference': node {node.name or node.output[0]!r}"
    elsewhere = 'Do: engine="cpu" or engine="onnxruntime"'
    if node.domain not in ("", "ai.onnx") or node.op_type not in OPS:
        near = difflib.get_close_matches(node.op_type, OPS, n=3)
        raise BuildError(
            f"{where}: operator {node.domain + '::' if node.domain else ''}{node.op_type} is not known"
            + (f"; near: {', '.join(near)}" if near else "")
            + f".\n{elsewhere}, or write it as a plugin: @plugin(namespace=...)",
            node=node.name,
            op_type=node.op_type,
        )
    for name, known in KNOWN_VALUES.get(node.op_type, {}).items():
        value = attributes.get(name)
        if value is not None and value not in known:
            raise BuildError(
                f"{where}: {node.op_type} with {name}={value!r} is not computed here; "
                + (f"it knows {', '.join(map(str, known))}" if known else f"it knows {node.op_type} without {name}")
                + f".\n{elsewhere}",
                node=node.name,
                op_type=node.op_type,
            )
    if node.op_type == "MaxPool" and len(node.output) > 1:
        raise BuildError(
            f"{where}: the second output of MaxPool, the indices, is not computed here.\n{elsewhere}", node=node.name
        )
    if node.op_type == "Dropout" and any(name and constants.get(name, np.True_).any() for name in node.input[2:]):
        raise BuildError(
            f"{where}: Dropout with training_mode is random, and is not computed here.\nDo: export the model for inference",
            node=node.name,
        )


def _constant(node: onnx.NodeProto, attributes: dict[str, Any]) -> Array:
    kinds = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
    for name, value in attributes.items():
        if name == "value":
            return np.asarray(value)
        if name in kinds:
            return np.asarray(value, kinds[name])
    raise BuildError(
        f"engine 'reference': constant {node.output[0]!r} has no value that is known here: {sorted(attributes)}"
    )


def _codes(a: dict[str, Any], x: Array, scale: Array, zero: Array | None = None) -> _Codes:
    return _Codes(x, scale, np.zeros_like(scale, x.dtype) if zero is None else zero, a.get("axis", 1))


def _dense(value: Any) -> Any:
    if isinstance(value, _Codes):
        return OPS["DequantizeLinear"]({"axis": value.axis}, value.codes, value.scale, value.zero)
    return value


def _integer_convolution(a: dict[str, Any], x: _Codes, weight: _Codes, bias: Array | None = None) -> Array:
    per_filter = weight.scale.size == 1 or weight.axis % weight.codes.ndim == 0
    if x.scale.size > 1 or weight.zero.any() or not per_filter:
        return OPS["Conv"](a, _dense(x), _dense(weight), bias)  # type: ignore[no-any-return]
    centred = x.codes.astype(np.int32) - np.int32(x.zero.reshape(()))  # the border is 0 in these terms
    sums = convolve(centred, weight.codes, a)
    scales = x.scale.astype(np.float64).reshape(()) * weight.scale.astype(np.float64)
    y = sums * scales.reshape(-1, 1, 1)
    return (y if bias is None else y + bias.reshape(-1, 1, 1)).astype(np.float32)
