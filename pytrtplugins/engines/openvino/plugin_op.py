"""Custom operators in OpenVINO: plugins without a decomposition, and onnxruntime sessions."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import openvino as ov
from openvino.frontend.onnx import ConversionExtension

from ...plugin.base import Plugin
from ...plugin.policy import RUNNING, chosen_form
from ...plugin.runner import PluginRunner
from ...tensor import SMALL_DTYPES, Array, Dim, Dims, DType, SymbolicDim
from ..base.engine import Engine
from ..base.exclusive import ActiveRun
from .fallback import HOST
from .plugin_errors import PluginErrors

__all__ = ["Host", "HostedOp", "PluginHost", "conversion"]

_TYPES = {
    dtype: ov.Type.bf16 if dtype is DType.BFLOAT16 else ov.Type(dtype.numpy)
    for dtype in DType
    if dtype not in SMALL_DTYPES
}
_DTYPES = {ov_type: dtype for dtype, ov_type in _TYPES.items()}


class Host(Protocol):
    """Interface of the code that a `HostedOp` runs.

    Attributes:
        operators: All that it runs in; they keep each other alive in OpenVINO, and the graphs before them.
    """

    operators: list[Any]

    @property
    def dtypes(self) -> Sequence[DType]:
        """Types of the outputs that readers expect, where they are not the ones that the operator gives."""

    def described(self, dims: Sequence[Dims], dtypes: Sequence[DType]) -> Sequence[tuple[Dims | None, DType]]:
        """Dims and type of each output, for those of the inputs."""

    def enqueue(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Compute, from OpenVINO's tensors into OpenVINO's tensors."""


class PluginHost:
    """One plugin node: a clone of the plugin for each OpenVINO thread that runs it, and stored exceptions.

    ``empty`` has the constants without elements that the node reads, by the input's index: OpenVINO makes scalars of them.
    ``scales`` are those of `PluginRunner`.
    """

    def __init__(
        self,
        plugin: Plugin,
        name: str,
        errors: PluginErrors,
        engine: Engine,
        empty: Mapping[int, Array] | None = None,
        scales: Sequence[float] = (),
    ) -> None:
        self.plugin, self.name, self._errors, self._scales = plugin, name, errors, scales
        self._empty = dict(empty or {})
        self.dtypes: Sequence[DType] = ()
        self.operators: list[Any] = []
        self._engine = weakref.ref(engine)
        self._form = chosen_form(type(plugin), engine.plugin_forms, engine.options.plugins, RUNNING)
        self._runners: list[PluginRunner] = []
        self._local = threading.local()

    def described(self, dims: Sequence[Dims], dtypes: Sequence[DType]) -> list[tuple[Dims | None, DType]]:
        """Dims and type of each output."""
        shapes = [
            self._empty[index].shape if index in self._empty else input_dims for index, input_dims in enumerate(dims)
        ]
        with self.keeping_errors():
            outputs = self.plugin.all_output_dims(shapes)
            return list(zip(outputs, self.plugin.all_output_dtypes(dtypes, len(outputs)), strict=True))

    def enqueue(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Run the plugin on NumPy views of OpenVINO's tensors."""
        with self.keeping_errors():
            arrays = [self._empty.get(index, tensor.data) for index, tensor in enumerate(inputs)]
            self._enqueue(arrays, [tensor.data for tensor in outputs])

    def _enqueue(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        runner = getattr(self._local, "runner", None)
        if runner is None:
            runner = self._local.runner = PluginRunner(
                self.plugin.clone(), self.name, form=self._form, scales=self._scales
            )
            self._runners.append(runner)
        with ActiveRun(self._engine()):  # OpenVINO may call from a thread of its own
            runner.run(inputs, outputs)

    @contextmanager
    def keeping_errors(self) -> Iterator[None]:
        """Keep what the plugin raises, so that the caller of run gets it as it was raised."""
        try:
            yield
        except BaseException as error:
            raise self._errors.keep(error) from error

    def close(self) -> None:
        """Terminate the clones."""
        while self._runners:
            self._runners.pop().close()


class HostedOp(ov.Op):  # type: ignore[misc]
    """The custom operator. OpenVINO copies it while optimizing; all copies share one host."""

    def __init__(self, inputs: Sequence[Any], host: Host, key: str) -> None:
        super().__init__(self)
        self.host, self.key = host, key  # before the arguments: OpenVINO validates as soon as they are set
        host.operators.append(self)
        self.set_arguments(inputs)
        self.constructor_validate_and_infer_types()

    def validate_and_infer_types(self) -> None:
        """Set dims and types of the outputs for OpenVINO."""
        count = self.get_input_size()
        dims = [_dims(self.get_input_partial_shape(index), index) for index in range(count)]
        input_types = [_DTYPES[self.get_input_element_type(index)] for index in range(count)]
        outputs = self.host.described(dims, input_types)
        self.set_output_size(len(outputs))
        for index, (shape, dtype) in enumerate(outputs):
            self.set_output_type(index, _TYPES[dtype], _partial_shape(shape))

    def clone_with_new_inputs(self, inputs: Sequence[Any]) -> HostedOp:
        """Copy; without this method OpenVINO would lose the host silently."""
        return HostedOp(inputs, self.host, self.key)

    def visit_attributes(self, visitor: Any) -> bool:
        """Tell whose the operator is: OpenVINO makes one of two that are equal and read the same."""
        visitor.on_attributes({"host": self.key})
        return True

    def has_evaluate(self) -> bool:
        """The operator computes."""
        return True

    def evaluate(self, outputs: Sequence[Any], inputs: Sequence[Any]) -> bool:
        """Compute."""
        self.host.enqueue(inputs, outputs)
        return True


def conversion(domain: str, op_type: str, hosts: Mapping[str, Host]) -> Any:
    """A converter from ONNX nodes of a type to `HostedOp`s; the attribute `HOST` names the host."""

    def convert(context: Any) -> Any:
        key = context.get_attribute(HOST)
        inputs = [context.get_input(index) for index in range(context.get_input_size())]
        outputs = HostedOp(inputs, hosts[key], key).outputs()
        for index, dtype in enumerate(hosts[key].dtypes):
            outputs[index] = _convert_output(outputs[index], _TYPES[dtype])
        return outputs

    return ConversionExtension(op_type, domain, convert)


def _convert_output(output: Any, kind: Any) -> Any:
    if output.get_element_type() == kind:
        return output
    if kind == ov.Type.boolean:  # OpenVINO would leave out a Convert before an output of the model
        return ov.opset8.not_equal(output, ov.opset8.constant(0, output.get_element_type())).output(0)
    return ov.opset8.convert(output, kind).output(0)


def _partial_shape(dims: Dims | None) -> Any:
    if dims is None:
        return ov.PartialShape.dynamic()
    return ov.PartialShape([dim if isinstance(dim, int) else ov.Dimension() for dim in dims])


def _dims(shape: Any, index: int) -> Dims:
    def dim(axis: int, value: Any) -> Dim:
        return int(value.get_length()) if value.is_static else SymbolicDim(f"input{index}.{axis}")

    return tuple(dim(axis, value) for axis, value in enumerate(shape))
