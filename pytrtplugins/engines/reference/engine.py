"""The oracle: every operator in NumPy, every plugin through `compute`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...errors import EngineError, ExecutionError, PytrtpluginsError, UsageError
from ...model.proto import node_name
from ...passes import run_passes
from ...passes.half import HALF_TYPES, to_half
from ...plugin.onnx_node import is_plugin_node, requantizes, scales_of
from ...plugin.policy import HOST_ENQUEUE, chosen_form
from ...plugin.runner import PluginRunner
from ...tensor import Array
from ...utils.optional import onnx, require
from ...validation import validated
from ...validation.dataflow import walk
from ...validation.operators import standard_domain
from ..base.context import Arrays, ExecutionContext
from ..base.engine import Engine
from ..base.failures import as_error, is_plugins
from ..base.plugin_codes import WriteCodes
from ..base.plugins import forms_run
from ..base.types import Availability, BuildOptions
from .coverage import is_plain
from .half import HALF_SUM_OPS, STAYS_HALF, half_type, is_half, run_wide
from .ops import OPS
from .program import Program, Step
from .windows import convolve

__all__ = ["ReferenceEngine"]


@dataclass(frozen=True)
class _Codes:
    """A tensor as its codes: what DequantizeLinear reads."""

    codes: Array
    scale: Array
    zero: Array
    attributes: dict[str, Any]


class ReferenceEngine(Engine):
    """NumPy, slow and exact: what the other engines are tested against.

    Float layers sum in float64 and round to float32 once. INT8 convolutions, those whose data and weights both come from
    DequantizeLinear, add integers exactly: y = float32(sum · (scale_x · scale_w) + bias), with the product of the scales, the
    multiplication and the addition in float64. Plugins run as Python code, never through a decomposition.

    Operators that are not written here are computed by ``onnx.reference``, ONNX's own implementation, in the types that the
    model says. What that is known to compute wrongly is refused by name; so are random operators, text, and attributes that
    ONNX does not know.

    FP16 and BF16 are those of a GPU: every tensor is stored in 16 bits, and layers compute in float32 or better, rounding once.
    They serve to find what rounding does to a network; they are no faster.

    Settings: ``sums``, ``"float32"`` by default; ``"float16"``: convolutions and matrix products of float16 numbers sum in float16,
    as GPU kernels may that do not ask for more.
    """

    name: ClassVar[str] = "reference"
    plugin_forms: ClassVar[tuple[str, ...]] = (HOST_ENQUEUE, "compute")  # it is the oracle, and runs no decomposition
    precisions: ClassVar[tuple[str, ...]] = ("fp32", "bf16", "fp16", "int8", "fp8")
    settings: ClassVar[tuple[str, ...]] = ("sums",)

    def __init__(self, model: onnx.ModelProto, options: BuildOptions) -> None:
        super().__init__(model, options)
        sums = options.settings.get("sums", "float32")
        if sums not in ("float32", "float16"):
            raise UsageError(f"engine 'reference': sums: expected float32 or float16, found {sums!r}", setting="sums")
        self._float16_ops = {**OPS, **HALF_SUM_OPS} if sums == "float16" else OPS
        self.choices.update(forms_run(model, model, self.plugin_forms, options.plugins))
        model = _without_functions(model)
        if any(is_plugin_node(node) and requantizes(node) for node in walk(model.graph.node)):
            model = run_passes(model, WriteCodes(self.plugin_forms, options.plugins))
        if options.precision in HALF_TYPES:
            model = to_half(model, HALF_TYPES[options.precision])
        opsets = {standard_domain(item.domain): item.version for item in model.opset_import}
        self._program = Program(model.graph, opsets)

    @property
    def _steps(self) -> list[Step]:
        return list(self._program.walk())

    @classmethod
    def availability(cls) -> Availability:
        """Always there: it needs NumPy, and onnx to read the model."""
        return Availability(cls.name, "", f"NumPy {np.__version__}")

    def _create_context(self) -> ExecutionContext:
        return ReferenceContext(self)


class ReferenceContext(ExecutionContext):
    """Clones of the engine's plugins."""

    engine: ReferenceEngine

    def __init__(self, engine: ReferenceEngine) -> None:
        super().__init__(engine)
        self._runners = {
            id(step): PluginRunner(
                step.plugin.clone(),
                step.node.name or step.node.op_type,
                form=chosen_form(type(step.plugin), engine.plugin_forms, engine.options.plugins),
                scales=scales_of(step.node),
            )
            for step in engine._steps
            if step.plugin is not None
        }

    def _run(self, inputs: Arrays) -> Arrays:
        tensors: dict[str, Any] = {**self.engine._program.constants, **inputs}
        with as_error("engine 'reference' failed in the run", self.engine.name, ExecutionError):
            self._execute(self.engine._program, tensors)
            return {desc.name: np.array(_dense(tensors[desc.name])) for desc in self.engine.outputs}

    def _execute(self, program: Program, tensors: dict[str, Any]) -> None:
        """Run the steps of a graph; ``tensors`` holds what they read, and then what they make."""
        for step in program.steps:
            given: list[Any] = [tensors[name] if name else None for name in step.node.input]
            if step.plugin is not None:
                outputs: Any = self._runners[id(step)].run([_dense(value) for value in given])
            else:
                outputs = self._outputs(step, given, tensors)
            tensors.update(zip(step.node.output, outputs, strict=False))  # optional outputs may be left out
            for name in step.last_use:
                del tensors[name]

    def _outputs(self, step: Step, given: list[Any], tensors: dict[str, Any]) -> list[Any]:
        """What a node of ONNX gives."""
        try:
            if step.control is not None:
                return step.control.run(
                    [_dense(value) for value in given],
                    lambda program, values: self._inside(program, values, tensors),
                )
            with np.errstate(all="ignore"):  # infinities and NaN are results like others
                return self._computed(step, given)
        except PytrtpluginsError:
            raise
        except Exception as error:
            if is_plugins(error):  # of one in a branch or a body
                raise
            raise EngineError(
                f"engine 'reference': node {node_name(step.node)!r}: {step.node.op_type} cannot be computed of "
                f"{', '.join(_shown(value) for value in given)}: {error}",
                node=step.node.name,
                op_type=step.node.op_type,
            ) from error

    def _inside(self, program: Program, values: Sequence[Any], tensors: dict[str, Any]) -> list[Any]:
        """Run a graph of a node once; it sees the tensors around it."""
        inside = {name: tensors[name] for name in program.captured}
        inside.update(program.constants)
        inside.update(zip(program.inputs, values, strict=True))
        self._execute(program, inside)
        return [_dense(inside[name]) for name in program.outputs]

    def _computed(self, step: Step, given: list[Any]) -> list[Any]:
        name = step.node.op_type
        if step.delegated is None and name == "DequantizeLinear" and not is_half(given[1].dtype):
            return [_codes(step.attributes, *given)]
        if step.delegated is None and name == "Conv" and all(isinstance(value, _Codes) for value in given[:2]):
            return [_integer_convolution(step.attributes, *given[:2], *map(_dense, given[2:]))]
        given = [_dense(value) for value in given]
        if step.delegated is not None:
            return step.delegated(given)
        for value in given:
            if isinstance(value, np.ndarray) and not is_plain(value.dtype):
                raise EngineError(
                    f"engine 'reference': node {node_name(step.node)!r}: {name} of {value.dtype} is not computed here; "
                    "the model does not say this type, so that it was not refused when it was built"
                )
        half = half_type(given)
        if half is not None and name not in STAYS_HALF:
            function = (self.engine._float16_ops if half == np.float16 else OPS)[name]
            return run_wide(function, step.attributes, given, keeps_type=name != "Cast")
        result = OPS[name](step.attributes, *given)
        return result if isinstance(result, list) else [result]

    def _close(self) -> None:
        for runner in self._runners.values():
            runner.close()


def _without_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with local functions written out, except those of plugins: a plugin is computed by its class."""
    bodies = (model.graph.node, *(function.node for function in model.functions))
    plugins = {(node.domain, node.op_type) for body in bodies for node in body if is_plugin_node(node)}
    functions = {(item.domain, item.name) for item in model.functions} - plugins
    if not functions:
        return model
    inliner = require("onnx.inliner", extra="onnx", feature="engine 'reference'")
    return validated(inliner.inline_selected_functions(model, sorted(functions)))


def _codes(a: dict[str, Any], x: Array, scale: Array, zero: Array | None = None) -> _Codes:
    if not all(_lies_along(a, value, x) for value in (scale, zero) if value is not None):
        OPS["DequantizeLinear"](a, x, scale, zero)  # raises what its reader would raise else
    return _Codes(x, scale, np.zeros_like(scale, x.dtype) if zero is None else zero, a)


def _lies_along(a: dict[str, Any], value: Array, x: Array) -> bool:
    """Whether a scale or zero point has one number, one for each index of the axis, or one for each block."""
    axis, block = a.get("axis", 1), a.get("block_size", 0)
    if value.size == 1:
        return True
    if not -x.ndim <= axis < x.ndim:
        return False
    if not block:
        return bool(value.size == x.shape[axis])
    return value.ndim == x.ndim and all(
        size * block >= length if place == axis % x.ndim else size == length
        for place, (size, length) in enumerate(zip(value.shape, x.shape, strict=True))
    )


def _dense(value: Any) -> Any:
    if isinstance(value, _Codes):
        return OPS["DequantizeLinear"](value.attributes, value.codes, value.scale, value.zero)
    return value


def _integer_convolution(a: dict[str, Any], x: _Codes, weight: _Codes, bias: Array | None = None) -> Array:
    along_filters = weight.scale.size == 1 or (
        weight.scale.ndim == 1 and weight.attributes.get("axis", 1) % weight.codes.ndim == 0
    )
    if x.scale.size > 1 or weight.zero.any() or not along_filters:
        return OPS["Conv"](a, _dense(x), _dense(weight), bias)
    centred = x.codes.astype(np.int32) - np.int32(x.zero.reshape(()))  # the border is 0 in these terms
    sums = convolve(centred, weight.codes, a)
    scales = x.scale.astype(np.float64).reshape(()) * weight.scale.astype(np.float64)
    per_filter = (-1, *[1] * (sums.ndim - 2))
    y = sums * scales.reshape(per_filter)
    return (y if bias is None else y + bias.reshape(per_filter)).astype(np.float32)


def _shown(value: Any) -> str:
    value = value.codes if isinstance(value, _Codes) else value
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
