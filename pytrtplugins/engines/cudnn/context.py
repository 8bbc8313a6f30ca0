"""One thread's runs: inputs in, one graph, outputs out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._optional import require
from ...cuda import as_cupy
from ...cuda.bindings import is_device_array
from ...tensor import Array, SymbolicDim, TensorDesc
from ..context import Arrays, ExecutionContext
from .execution import Execution
from .plan import Plan

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
        """Host to device, the network, device to host; CuPy's own copies refuse to be captured."""
        self.copy_in(self.inputs, stream)
        self.execution.queue(stream)
        self.copy_out(self.outputs, stream)

    def copy_in(self, arrays: Mapping[str, Any], stream: Any) -> None:
        """Fill the inputs, from pinned memory or from the GPU."""
        for name, array in arrays.items():
            _copy(self.execution.device.xp, self.execution.input(name), array, stream)

    def copy_out(self, arrays: Mapping[str, Any], stream: Any) -> None:
        """Take outputs, into pinned memory or memory of the GPU."""
        for name, array in arrays.items():
            _copy(self.execution.device.xp, array, self.execution.output(name), stream)


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
        checked, targets = self._check(inputs), self._check_targets(outputs)
        ready = self._prepared(checked)
        for name, target in targets.items():
            self._check_dims(name, target, ready.execution.output(name).shape)
        runtime = self._cupy.cuda.runtime
        caller = self._cupy.cuda.get_current_stream().ptr if stream is None else _handle(stream)
        event = self._cupy.cuda.Event(disable_timing=True)
        runtime.eventRecord(event.ptr, caller)
        runtime.streamWaitEvent(self._stream.ptr, event.ptr)
        with self._cupy.cuda.Device(self.engine.device.number), self._stream:
            ready.copy_in(checked, self._stream)
            ready.execution.queue(self._stream)
            ready.copy_out(targets, self._stream)
            event = self._cupy.cuda.Event(disable_timing=True)
            event.record(self._stream)
        runtime.streamWaitEvent(caller, event.ptr)

    def step_times(self, inputs: Mapping[str, Array], runs: int = 20) -> tuple[float, list[float], Plan]:
        """Microseconds of a whole run on the GPU, of each step alone, and the plan that has the steps."""
        ready = self._prepared(self._check(inputs))
        execution, stream = ready.execution, self._stream
        with self._cupy.cuda.Device(self.engine.device.number), stream, execution.allocating():
            whole = self._time(lambda: execution.queue(stream), runs)
            times = []
            for step, launch in execution.launches:
                if step.captured:
                    with self.engine.capturing:
                        stream.synchronize()
                        stream.begin_capture()
                        try:
                            for _ in range(runs):
                                launch(stream)
                        finally:
                            graph = stream.end_capture()
                    times.append(self._time(lambda graph=graph: graph.launch(stream), 3) / runs)  # type: ignore[misc]
                else:
                    times.append(self._time(lambda launch=launch: launch(stream), runs))  # type: ignore[misc]
        return whole, times, execution.plan

    def _time(self, queue: Callable[[], object], runs: int) -> float:
        """Microseconds on the GPU of one of some runs, queued one behind the other."""
        queue()
        begin, end = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        begin.record(self._stream)
        for _ in range(runs):
            queue()
        end.record(self._stream)
        end.synchronize()
        return 1e3 * float(self._cupy.cuda.get_elapsed_time(begin, end)) / runs

    # -- inside ----------------------------------------------------------------------------------------------------------

    def _run(self, inputs: Arrays) -> Arrays:
        return self._run_into(inputs, {})

    def _run_into(self, inputs: Arrays, outputs: Mapping[str, Array]) -> Arrays:
        ready = self._prepared(inputs)
        for name, target in outputs.items():
            self._check_dims(name, target, ready.execution.output(name).shape)
        shared = any(not isinstance(array, np.ndarray) for array in (*inputs.values(), *outputs.values()))
        with self._cupy.cuda.Device(self.engine.device.number):
            callers = self._cupy.cuda.get_current_stream()
            with self._stream:
                if shared:
                    self._stream.wait_event(callers.record())
                self._queue(ready, inputs, outputs)
                self._stream.synchronize()
        found: Arrays = {}
        for name, pinned in ready.outputs.items():
            target = outputs.get(name)
            if target is None:
                target = pinned.copy()
            elif isinstance(target, np.ndarray):
                np.copyto(target, pinned)
            found[name] = target
        return found

    def _queue(self, ready: _Ready, inputs: Arrays, outputs: Mapping[str, Array]) -> None:
        on_host = {name: array for name, array in inputs.items() if isinstance(array, np.ndarray)}
        for name, array in on_host.items():
            np.copyto(ready.inputs[name], array)
        on_device = {name: array for name, array in outputs.items() if not isinstance(array, np.ndarray)}
        if len(on_host) == len(inputs) and ready.graph is not None:
            ready.graph.launch(self._stream)
        else:
            ready.copy_in({**inputs, **{name: ready.inputs[name] for name in on_host}}, self._stream)
            ready.execution.queue(self._stream)
            ready.copy_out(ready.outputs, self._stream)
        ready.copy_out(on_device, self._stream)

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
        device = self.engine.device
        with self._cupy.cuda.Device(device.number), self._stream, device.explaining_memory():
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

    def _array(self, desc: TensorDesc, value: Array) -> Any:
        return as_cupy(value, None, desc.dtype) if is_device_array(value) else super()._array(desc, value)

    def _target(self, desc: TensorDesc, value: Array) -> Array:
        return as_cupy(value, None, desc.dtype) if is_device_array(value) else super()._target(desc, value)


def _copy(xp: Any, to: Any, array: Any, stream: Any) -> None:
    """Queue a copy between contiguous arrays, of which one at least is on the GPU."""
    runtime = xp.cuda.runtime
    if isinstance(array, np.ndarray):
        runtime.memcpyAsync(to.data.ptr, array.ctypes.data, array.nbytes, runtime.memcpyHostToDevice, stream.ptr)
    elif isinstance(to, np.ndarray):
        runtime.memcpyAsync(to.ctypes.data, array.data.ptr, to.nbytes, runtime.memcpyDeviceToHost, stream.ptr)
    else:
        runtime.memcpyAsync(to.data.ptr, array.data.ptr, to.nbytes, runtime.memcpyDeviceToDevice, stream.ptr)


def _handle(stream: Any) -> int:
    for name in ("ptr", "cuda_stream", "handle"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    return int(stream)
