"""TensorRT's execution context: it copies inputs to the GPU, runs, and copies outputs back; arrays on the GPU are used without a copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from ...cuda import as_cupy, device_array, is_device_array
from ...errors import EngineError, ExecutionError
from ...tensor import Array, TensorDesc
from ..base.context import Arrays, ExecutionContext, check_dims, check_dtype
from ..base.failures import as_error
from ..base.types import OwningEngine
from ._api import Api
from .collected import ErrorLog, collecting
from .device import Device
from .logger import Messages

__all__ = ["TensorrtContext"]


class Owner(OwningEngine, Protocol):
    """What a context needs of its engine."""

    api: Api
    device: Device
    errors: ErrorLog  # of plugins, in threads of TensorRT's own
    cuda_engine: Any


class TensorrtContext(ExecutionContext):
    """One of TensorRT's execution contexts, with a stream and buffers of its own.

    Arrays on the GPU, of any library that speaks ``__cuda_array_interface__`` or DLPack, are bound without a copy, as inputs
    and as outputs; such outputs come back as CuPy arrays over the same memory. The run waits for what CuPy's current
    stream, and the stream that an array names, have queued.
    """

    engine: Owner

    def __init__(self, engine: Owner) -> None:
        super().__init__(engine)
        self._cupy, self._where = engine.device.cupy, engine.device.index
        messages = Messages(engine.api)
        with self._cupy.cuda.Device(self._where), collecting(engine.errors):
            self._context = self._make_context()
            self._stream = self._cupy.cuda.Stream(non_blocking=True)
        if self._context is None:
            raise EngineError(f"{engine!r}: TensorRT cannot make a context: {messages.text()}")
        self._buffers: dict[str, Any] = {}
        self._dims: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}

    def _make_context(self) -> Any:
        """TensorRT's context; None where it cannot make one."""
        return self.engine.cuda_engine.create_execution_context()

    def _run(self, inputs: Arrays) -> Arrays:
        return self._run_into(inputs, {})

    def _run_into(self, inputs: Arrays, outputs: Mapping[str, Array]) -> Arrays:
        messages, callers = Messages(self.engine.api), self._cupy.cuda.get_current_stream()
        shared = any(not isinstance(array, np.ndarray) for array in (*inputs.values(), *outputs.values()))
        failed = as_error("TensorRT failed in the run", self.engine.name, ExecutionError)
        # what a plugin raised comes before what is made of it: collecting() raises it at its end
        with self._cupy.cuda.Device(self._where), self._stream, collecting(ErrorLog()), failed:
            if shared:
                self._stream.wait_event(callers.record())
            for name, array in inputs.items():
                self._set_dims(name, array.shape, messages)
                self._bind(name, self._on_device(name, array), messages)
            written: dict[str, Any] = {}
            for desc in self.engine.outputs:
                dims = tuple(self._context.get_tensor_shape(desc.name))
                if any(dim < 0 for dim in dims):
                    raise EngineError(
                        f"output {desc.name!r}: TensorRT cannot infer its dims, {dims}: {messages.text()}"
                    )
                written[desc.name] = self._target_for(desc, dims, outputs.get(desc.name))
                self._bind(desc.name, written[desc.name], messages)
            if not self._context.execute_async_v3(self._stream.ptr):
                raise ExecutionError(f"{self.engine!r}: the run failed: {messages.text()}")
            found = {name: self._fetched(written[name], outputs.get(name)) for name in written}
            self._stream.synchronize()
        return found

    # -- arrays of the caller's --------------------------------------------------------------------------------------

    def _array(self, desc: TensorDesc, value: Array) -> Any:
        return self._as_cupy(desc, value) if is_device_array(value) else super()._array(desc, value)

    def _target(self, desc: TensorDesc, value: Array) -> Array:
        if not is_device_array(value):
            return super()._target(desc, value)
        array = self._as_cupy(desc, value)
        check_dtype("output", desc, array)
        return array

    def _as_cupy(self, desc: TensorDesc, value: Any) -> Any:
        with self._cupy.cuda.Device(self._where):
            stream = getattr(value, "__cuda_array_interface__", {}).get("stream")
            if stream is not None:
                self._cupy.cuda.runtime.streamSynchronize(stream)
            if device_array(value).shape is not None:
                return as_cupy(value)
            dims = tuple(dim for dim in desc.dims if isinstance(dim, int))  # memory has none of its own
            return as_cupy(value, dims if len(dims) == len(desc.dims) else None, desc.dtype)

    # -- memory of the GPU's -----------------------------------------------------------------------------------------

    def _set_dims(self, name: str, dims: tuple[int, ...], messages: Messages) -> None:
        if self._dims.get(name) == dims:
            return
        self._dims.pop(name, None)  # where TensorRT refuses, the next run sets them anew
        if not self._context.set_input_shape(name, dims):
            raise EngineError(f"input {name!r}: TensorRT refuses dims {dims}: {messages.text()}")
        self._dims[name] = dims

    def _on_device(self, name: str, array: Any) -> Any:
        """The array, or a copy of it in a buffer."""
        if not isinstance(array, np.ndarray):
            return array
        buffer = self._buffer(name, array.shape, array.dtype)
        buffer.set(array, stream=self._stream)
        return buffer

    def _target_for(self, desc: TensorDesc, dims: tuple[int, ...], given: Array | None) -> Any:
        if given is not None:
            check_dims(desc.name, given, dims)
            if not isinstance(given, np.ndarray):
                return given
        return self._buffer(desc.name, dims, desc.dtype.numpy)

    def _fetched(self, written: Any, given: Array | None) -> Any:
        """An output as the caller gets it."""
        if written is given:
            return given
        array = written.get(stream=self._stream)
        if given is None:
            return array
        np.copyto(given, array)
        return given

    def _buffer(self, name: str, dims: tuple[int, ...], dtype: Any) -> Any:
        held = self._buffers.pop(name, None)
        if held is None or held.shape != dims:
            held = self._cupy.empty(dims, np.dtype(dtype))
        self._buffers[name] = held
        return held

    def _bind(self, name: str, array: Any, messages: Messages) -> None:
        address = int(array.data.ptr)
        if self._addresses.get(name) == address:
            return
        self._addresses.pop(name, None)
        if not self._context.set_tensor_address(name, address):
            raise EngineError(f"tensor {name!r}: TensorRT refuses the buffer: {messages.text()}")
        self._addresses[name] = address

    def _close(self) -> None:
        self._stream.synchronize()
        self._buffers.clear()
        del self._context
