"""Plugins inside OpenVINO: one OpenVINO operator hosts every plugin that has no decomposition."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import openvino as ov
from openvino.frontend.onnx import ConversionExtension

from ...plugin import Plugin
from ...tensor import Dim, Dims, DType, SymbolicDim
from ..inside import Inside
from ..plugin_runner import PluginRunner
from .plugin_errors import PluginErrors

if TYPE_CHECKING:
    from ..base import Engine

__all__ = ["PluginHost", "PluginOp", "conversion"]

_TYPES = {
    DType.FLOAT32: ov.Type.f32,
    DType.FLOAT16: ov.Type.f16,
    DType.INT8: ov.Type.i8,
    DType.UINT8: ov.Type.u8,
    DType.INT32: ov.Type.i32,
    DType.INT64: ov.Type.i64,
    DType.BOOL: ov.Type.boolean,
}
_DTYPES = {ov_type: dtype for dtype, ov_type in _TYPES.items()}


class PluginHost:
    """One plugin node: a clone of the plugin for each thread of OpenVINO's that runs it, and what it raised.

    Args:
        plugin: The plugin of the node.
        name: The node's name, for descriptions.
        errors: Takes what the plugin raises.
        engine: Whose node it is.
    """

    def __init__(self, plugin: Plugin, name: str, errors: PluginErrors, engine: Engine) -> None:
        self.plugin, self.name, self._errors = plugin, name, errors
        self._engine = weakref.ref(engine)
        self._runners: list[PluginRunner] = []
        self._local = threading.local()

    def enqueue(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Run the plugin on NumPy views of OpenVINO's tensors."""
        runner = getattr(self._local, "runner", None)
        if runner is None:
            runner = self._local.runner = PluginRunner(self.plugin, self.name)
            self._runners.append(runner)
        with Inside(self._engine()):  # OpenVINO may call from a thread of its own
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


class PluginOp(ov.Op):  # type: ignore[misc]
    """The operator. OpenVINO copies it while it optimizes; every copy speaks to the same host."""

    def __init__(self, inputs: Sequence[Any] | None = None, host: PluginHost | None = None) -> None:
        super().__init__(self)
        self.host = host  # before the arguments: OpenVINO validates as soon as they are set
        if inputs is not None:
            self.set_arguments(inputs)
            self.constructor_validate_and_infer_types()

    def validate_and_infer_types(self) -> None:
        """Tell OpenVINO dims and types of the outputs."""
        host = _host(self)
        count = self.get_input_size()
        dims = [_dims(self.get_input_partial_shape(index), index) for index in range(count)]
        given = [_DTYPES[self.get_input_element_type(index)] for index in range(count)]
        with host.keeping_errors():
            outputs = host.plugin.all_output_dims(dims)
            dtypes = host.plugin.all_output_dtypes(given, len(outputs))
        self.set_output_size(len(outputs))
        for index, (shape, dtype) in enumerate(zip(outputs, dtypes, strict=True)):
            partial = ov.PartialShape([dim if isinstance(dim, int) else ov.Dimension() for dim in shape])
            self.set_output_type(index, _TYPES[dtype], partial)

    def clone_with_new_inputs(self, inputs: Sequence[Any]) -> PluginOp:
        """Copy; without this method OpenVINO would lose the host silently."""
        return PluginOp(inputs, _host(self))

    def visit_attributes(self, visitor: Any) -> bool:
        """Nothing to visit: the fields are the host's."""
        return True

    def has_evaluate(self) -> bool:
        """The operator computes."""
        return True

    def evaluate(self, outputs: Sequence[Any], inputs: Sequence[Any]) -> bool:
        """Run the plugin."""
        host = _host(self)
        with host.keeping_errors():
            host.enqueue([tensor.data for tensor in inputs], [tensor.data for tensor in outputs])
        return True


def conversion(domain: str, op_type: str, hosts: dict[str, PluginHost]) -> Any:
    """How OpenVINO's ONNX reader turns nodes of a type into `PluginOp`s.

    Args:
        domain: The nodes' domain.
        op_type: Their type.
        hosts: Name of each node's first output → its host.
    """

    def convert(context: Any) -> Any:
        key = context.get_attribute("pytrtplugins_host")
        inputs = [context.get_input(index) for index in range(context.get_input_size())]
        return PluginOp(inputs, hosts[key]).outputs()

    return ConversionExtension(op_type, domain, convert)


def _host(op: PluginOp) -> PluginHost:
    if op.host is None:
        raise RuntimeError("OpenVINO made a plugin operator without its host")
    return op.host


def _dims(shape: Any, index: int) -> Dims:
    def dim(axis: int, value: Any) -> Dim:
        return int(value.get_length()) if value.is_static else SymbolicDim(f"input{index}.{axis}")

    return tuple(dim(axis, value) for axis, value in enumerate(shape))
