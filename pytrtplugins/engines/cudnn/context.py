"""One thread's runs: inputs in, one graph, outputs out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from ..._optional import require
from ...cuda import as_cupy
from ...cuda.bindings import is_device_array
from ...errors import BindingError
from ...tensor import Array, SymbolicDim, TensorDesc
from ..base import Arrays, ExecutionContext
from .execution import Execution

if TYPE_CHECKING:
    from .engine import CudnnEngine

__all__ = ["CudnnContext"]

_KEPT = 8


class _Ready:
    """An execution, its pinned memory for the host's side, and the graph of the whole way."""

    def __init__(self, execution: Execution, names: tuple[list[str], list[str]], pinned: Any) -> None:
        self.execution = execution
        self.inputs = {name: pinned(execution.input(name).shape, execution.input(name).dtype) for name in names[0]}
        self.outputs = {name: pinned(execution.output(name).shape, execution.output(name).dtype) for name in names[1]}
        self.graph: Any = None

    def queue(self, stream: Any) -> None:
        """Host to device, the network, device to host."""
        for name, array in self.inputs.items():
            self.execution.input(name).set(array, stream=stream)
        self.execution.queue(stream)
        for name, array in self.outputs.items():
            self.execution.output(name).get(stream=stream, out=array, blocking=False)


class CudnnContext(ExecutionContext):
    """Buffers and graphs, one set for each shape of the inputs, the last few kept."""

    engine: CudnnEngine

    def __init__(self, engine: CudnnEngine) -> None:
        super().__init__(engine)
        self._cupy: Any = engine.device.xp
        self._pinned = require("cupyx", extra="cudnn", package="cupy-cuda13x").empty_pinned
        self._ready: dict[tuple[tuple[int, ...], ...], _Ready] = {}
        with self._cupy.cuda.Device(engine.device.number):
            self._stream = self._cupy.cuda.Stream(non_blocking=True)

    def enqueue(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array], stream: Any = None) -> None:
        """Queue a run from arrays on the GPU to arrays on the GPU, and return at once.

        Args:
            inputs: By name; arrays of CuPy, PyTorch, PyCUDA or any library with ``__cuda_array_interface__`` or DLPack.
            outputs: Likewise; written.
            stream: Of CuPy, PyTorch or PyCUDA, or its number; None: CuPy's current one. The run begins when the work queued on
                it is done, and work queued later waits for the run.

        Raises:
            BindingError: names, dims or dtypes do not fit.
        """
        self._check_open()
        checked = self._check(inputs)
        ready = self._prepared(checked)
        runtime = self._cupy.cuda.runtime
        caller = self._cupy.cuda.get_current_stream().ptr if stream is None else _handle(stream)
        event = self._cupy.cuda.Event(disable_timing=True)
        runtime.eventRecord(event.ptr, caller)
        runtime.streamWaitEvent(self._stream.ptr, event.ptr)
        execution = ready.execution
        with self._cupy.cuda.Device(self.engine.device.number), self._stream:
            for name, array in checked.items():
                _copy(execution.input(name), array)
            execution.queue(self._stream)
            for name in (desc.name for desc in self.engine.outputs):
                if name not in outputs:
                    raise BindingError(f"enqueue: no array for output {name!r}", expected=name, found=sorted(outputs))
                made = execution.output(name)
                _copy(as_cupy(outputs[name], made.shape, made.dtype), made)
            event = self._cupy.cuda.Event(disable_timing=True)
            event.record(self._stream)
        runtime.streamWaitEvent(caller, event.ptr)

    def kernel_times(self, inputs: Mapping[str, Array], runs: int = 20) -> list[tuple[str, str, float]]:
        """Time of each step, one by one: name, kind, and microseconds of the fastest of some runs."""
        ready = self._prepared(self._check(inputs))
        cuda, times = self._cupy.cuda, list[tuple[str, str, float]]()
        with self._stream, self.engine.device.allocating(ready.execution._pool):
            for step, launch in ready.execution.launches:
                begin, end, spans = cuda.Event(), cuda.Event(), []
                for _ in range(runs):
                    begin.record(self._stream)
                    launch(self._stream)
                    end.record(self._stream)
                    end.synchronize()
                    spans.append(1e3 * cuda.get_elapsed_time(begin, end))
                times.append((step.name, step.kind, min(spans)))
        return times

    # -- inside ----------------------------------------------------------------------------------------------------------

    def _run(self, inputs: Arrays) -> Arrays:
        ready = self._prepared(inputs)
        on_host = all(isinstance(array, np.ndarray) for array in inputs.values())
        with self._cupy.cuda.Device(self.engine.device.number), self._stream:
            if on_host:
                for name, array in inputs.items():
                    np.copyto(ready.inputs[name], array)
                if ready.graph is not None:
                    ready.graph.launch(self._stream)
                else:
                    ready.queue(self._stream)
            else:
                for name, array in inputs.items():
                    _copy(ready.execution.input(name), array)
                ready.execution.queue(self._stream)
                for name, pinned in ready.outputs.items():
                    ready.execution.output(name).get(stream=self._stream, out=pinned, blocking=False)
            self._stream.synchronize()
        return {name: pinned.copy() for name, pinned in ready.outputs.items()}

    def _prepared(self, inputs: Arrays) -> _Ready:
        key = tuple(tuple(inputs[desc.name].shape) for desc in self.engine.inputs)
        ready = self._ready.get(key)
        if ready is None:
            if len(self._ready) >= _KEPT:
                self._ready.pop(next(iter(self._ready))).execution.close()
            ready = self._ready[key] = self._prepare(inputs)
        return ready

    def _prepare(self, inputs: Arrays) -> _Ready:
        sizes = {
            dim.name: size
            for desc in self.engine.inputs
            for dim, size in zip(desc.dims, inputs[desc.name].shape, strict=True)
            if isinstance(dim, SymbolicDim)
        }
        with self._cupy.cuda.Device(self.engine.device.number), self._stream:
            execution = self.engine.execution(sizes)
            names = [desc.name for desc in self.engine.inputs], [desc.name for desc in self.engine.outputs]
            ready = _Ready(execution, names, self._pinned)
            if "graph" in self.engine.without:
                return ready
            with self.engine.capturing:
                execution.capture(self._stream)
                if len(execution.segments) == 1 and execution.segments[0].captured:
                    ready.graph = self._whole(ready)
        return ready

    def _whole(self, ready: _Ready) -> Any:
        """One graph of the copies and the network."""
        segment = ready.execution.segments[0]
        core, segment.graph = segment.graph, None
        self._stream.synchronize()
        self._stream.begin_capture()
        try:
            ready.queue(self._stream)
        finally:
            graph = self._stream.end_capture()
            segment.graph = core
        graph.upload(self._stream)
        return graph

    def _close(self) -> None:
        self._stream.synchronize()
        for ready in self._ready.values():
            ready.execution.close()
        self._ready.clear()

    def _checked(self, desc: TensorDesc, value: Array, free: dict[SymbolicDim, int]) -> npt.NDArray[Any]:
        if not is_device_array(value):
            return cast("npt.NDArray[Any]", super()._checked(desc, value, free))
        array = as_cupy(value, None, desc.dtype)
        super()._checked(desc, np.broadcast_to(np.zeros((), desc.dtype.numpy), array.shape), free)
        return cast("npt.NDArray[Any]", array)


def _copy(to: Any, array: Any) -> None:
    if isinstance(array, np.ndarray):
        to.set(array)
    else:
        to[...] = array


def _handle(stream: Any) -> int:
    for name in ("ptr", "cuda_stream", "handle"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    return int(stream)
