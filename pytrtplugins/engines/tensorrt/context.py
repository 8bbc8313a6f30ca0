"""TensorRT's execution context: inputs to the GPU, a run, outputs back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import EngineError
from ..base import Arrays, ExecutionContext
from .collected import ErrorLog, collecting
from .logger import Messages

if TYPE_CHECKING:
    from .engine import TensorrtEngine

__all__ = ["TensorrtContext"]


class TensorrtContext(ExecutionContext):
    """One of TensorRT's execution contexts, with a stream and buffers of its own."""

    engine: TensorrtEngine

    def __init__(self, engine: TensorrtEngine) -> None:
        super().__init__(engine)
        self._cupy, self._where = engine.device.cupy, engine.device.index
        said = Messages(engine.api)
        with self._cupy.cuda.Device(self._where), collecting(engine.errors):
            self._context = engine.cuda_engine.create_execution_context()
            self._stream = self._cupy.cuda.Stream(non_blocking=True)
        if self._context is None:
            raise EngineError(f"{engine!r}: TensorRT cannot make a context: {said.text()}")
        self._buffers: dict[str, Any] = {}

    def _run(self, inputs: Arrays) -> Arrays:
        said = Messages(self.engine.api)
        with self._cupy.cuda.Device(self._where), self._stream, collecting(ErrorLog()) as errors:
            for name, array in inputs.items():
                self._set_input(name, array, said)
            for desc in self.engine.outputs:
                dims = tuple(self._context.get_tensor_shape(desc.name))
                errors.check()
                if any(dim < 0 for dim in dims):
                    raise EngineError(f"output {desc.name!r}: TensorRT cannot tell its dims, {dims}: {said.text()}")
                if not self._holds(desc.name, dims):
                    self._bind(desc.name, dims, desc.dtype.numpy, said)
            if not self._context.execute_async_v3(self._stream.ptr):
                errors.check()
                raise EngineError(f"{self.engine!r}: the run failed: {said.text()}")
            found = {desc.name: self._buffers[desc.name].get(stream=self._stream) for desc in self.engine.outputs}
            self._stream.synchronize()
        return found

    def _set_input(self, name: str, array: Any, said: Messages) -> None:
        if not self._holds(name, array.shape):
            if not self._context.set_input_shape(name, array.shape):
                self._buffers.pop(name, None)  # the context has no dims now; the next run sets them anew
                raise EngineError(f"input {name!r}: TensorRT refuses dims {array.shape}: {said.text()}")
            self._bind(name, array.shape, array.dtype, said)
        self._buffers[name].set(array, stream=self._stream)

    def _holds(self, name: str, dims: tuple[int, ...]) -> bool:
        return name in self._buffers and self._buffers[name].shape == dims

    def _bind(self, name: str, dims: tuple[int, ...], dtype: Any, said: Messages) -> None:
        """Give the tensor a buffer of these dims."""
        self._buffers.pop(name, None)
        buffer = self._cupy.empty(dims, np.dtype(dtype))
        if not self._context.set_tensor_address(name, int(buffer.data.ptr)):
            raise EngineError(f"tensor {name!r}: TensorRT refuses the buffer: {said.text()}")
        self._buffers[name] = buffer

    def _close(self) -> None:
        self._stream.synchronize()
        self._buffers.clear()
        del self._context
