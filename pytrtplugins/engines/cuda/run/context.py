"""The context of engine cuda: copies inputs, launches one graph, copies outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import numpy as np

from ....cuda import as_cupy, pinned_empty
from ....cuda.array_keys import names_device
from ....cuda.backends.gpu import StreamAddress, stream_handle
from ....cuda.bindings import is_device_array, stream_at, wait_for
from ....errors import BindingError, ExecutionError
from ....tensor import Array, TensorDesc
from ....utils.override import override
from ...base.context import Arrays, ExecutionContext, check_dims
from ...base.failures import as_error, explained_runs
from ..device.elements import from_stored, to_stored
from ..plan.input_rounding import find_input_rounding
from ..plan.plan import Plan
from .bound_run import CudaBoundRun
from .copies import copy
from .enqueue_cache import CachedEnqueue, Call, Routes, call_key
from .execution import Execution, capture_graph
from .owner import Owner
from .upload import Upload
from .values import Value

__all__ = ["CudaContext"]

_KEPT = 8
_FAILED = "engine 'cuda' failed in the run"


class _Ready:
    """An execution, page-locked memory for its outputs, and the graph of the network and the copies there."""

    def __init__(self, execution: Execution) -> None:
        self.graph: Any = None  # goes before the execution, which keeps its kernels loaded
        self.execution = execution
        arrays = {name: execution.output(name) for name in execution.plan.outputs}
        self.outputs = {name: pinned_empty(array.shape, array.dtype) for name, array in arrays.items()}
        self.uploads = {
            name: Upload(execution.device, execution.input(name), find_input_rounding(execution.plan, name))
            for name in execution.plan.inputs
        }

    def queue(self, stream: Any) -> None:
        """Queue the network and the copies of outputs to the host."""
        self.execution.queue(stream)
        self.copy_out(self.outputs, stream)

    def copy_in(self, arrays: Mapping[str, Any], stream: Any) -> None:
        """Copy inputs from arrays on the GPU."""
        for name, array in arrays.items():
            copy(self.execution.device, self.execution.input(name), array, stream)

    def copy_out(self, arrays: Mapping[str, Any], stream: Any) -> None:
        """Copy outputs to page-locked or GPU memory."""
        for name, array in arrays.items():
            copy(self.execution.device, array, self.execution.output(name), stream)


class CudaContext(ExecutionContext):
    """Buffers and graphs, one set for each shape of the inputs, the last few kept."""

    engine: Owner

    def __init__(self, engine: Owner) -> None:
        super().__init__(engine)
        self._cupy: Any = engine.device.xp
        self._routes = Routes()  # in front of what keeps their graphs' kernels loaded: so it goes before that
        self._ready: dict[tuple[tuple[int, ...], ...], _Ready] = {}
        cuda = self._cupy.cuda
        self._runtime, self._caller = cuda.runtime, StreamAddress(0)
        with engine.device.current():
            self._stream = cuda.Stream(non_blocking=True)
            self._begun, self._done = (cuda.Event(disable_timing=True) for _ in range(2))
        self._elsewhere = False  # whether the last run was enqueued on another stream, which has recorded `_done`

    @override
    def activation_bytes(self) -> int | None:
        return sum(ready.execution.bytes for ready in self._ready.values())

    def enqueue(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array], stream: Any = None) -> None:
        """Queue a run from arrays on the GPU to arrays on the GPU, and return at once; `bind` costs less for the same ones again.

        Args:
            inputs: By name; arrays of CuPy, PyTorch, PyCUDA or any library with ``__cuda_array_interface__`` or DLPack.
            outputs: Likewise; written.
            stream: Of CuPy, PyTorch or PyCUDA, or its number; None: CuPy's current one. The run begins when the work queued on
                it is done, and work queued later waits for the run.

        Raises:
            BindingError: names, dims or dtypes do not fit, or an array is on the host.
            EngineError: the context is closed, or another thread is running it.
        """
        self._check_open()
        caller = self._stream_address(stream)
        call = call_key(inputs, outputs, caller)
        if call is not None and self._enqueue_cached(call, caller):
            return
        checked, targets = self._check_on_gpu("enqueue", inputs, outputs)
        with self._running():
            self._enqueue(checked, targets, caller)
            if call is not None and self._are_on_gpu(call, (*checked.values(), *targets.values())):
                shapes = self._shapes(checked)
                self._routes.remember(call, shapes, self._ready[shapes].execution, inputs, outputs)

    @override
    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> CudaBoundRun:
        self._check_open()
        checked, targets = self._check_on_gpu("bind", inputs, outputs)
        with self._running():
            return self._bind((inputs, outputs), checked, targets)

    def step_times(self, inputs: Mapping[str, Array], runs: int = 20) -> tuple[float, list[float], Plan]:
        """Microseconds of a whole run on the GPU, of each step alone, and the plan that has the steps."""
        self._check_open()
        checked = self._check(inputs)
        ready = self._prepared(checked)
        self._begin(checked, {})()  # steps that read values on the host have some
        execution, stream = ready.execution, self._stream
        with self.engine.device.current(), stream, execution.allocating():
            whole = self._time(lambda: execution.queue(stream), runs)
            times = []
            for step, launch in execution.launches:
                if step.capturable:
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
        """Mean microseconds of a run on the GPU, over ``runs`` queued back to back."""
        queue()
        begin, end = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        begin.record(self._stream)
        for _ in range(runs):
            queue()
        end.record(self._stream)
        end.synchronize()
        return 1e3 * float(self._cupy.cuda.get_elapsed_time(begin, end)) / runs

    # -- inside ----------------------------------------------------------------------------------------------------------

    def _check_on_gpu(
        self, call: str, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> tuple[Arrays, dict[str, Any]]:
        checked, targets = self._check(inputs), self._check_targets(outputs)
        for name, array in (*checked.items(), *targets.items()):
            if isinstance(array, np.ndarray):
                raise BindingError(
                    f"{call}: {name!r} is on the host, expected an array on the GPU.\n"
                    "Do: cupy.asarray(...), or context.run(...), which takes both"
                )
        return checked, targets

    @explained_runs(_FAILED)
    def _bind(
        self, given: tuple[Mapping[str, Array], Mapping[str, Array]], inputs: Arrays, outputs: Mapping[str, Any]
    ) -> CudaBoundRun:
        self._stream.wait_event(self._cupy.cuda.get_current_stream().record())
        return CudaBoundRun(self.engine, given, inputs, outputs, self._sizes(inputs), self._stream)

    def _are_on_gpu(self, call: Call, arrays: tuple[Any, ...]) -> bool:
        """Whether all arrays of a call are on the engine's GPU; kernels may not reach the memory of other GPUs."""
        device = self.engine.device
        if device.number_of_devices > 1 and not all(names_device(part) for part in call[0] if isinstance(part, tuple)):
            return False
        return all(device.holder(array) == device.number for array in arrays if array.nbytes)

    def _stream_address(self, stream: Any) -> int:
        """The address of a caller's stream."""
        try:
            return int(self._cupy.cuda.get_current_stream().ptr) if stream is None else stream_handle(stream)
        except Exception:
            with as_error(_FAILED, self.engine.name, ExecutionError):
                raise

    def _enqueue_cached(self, call: Call, caller: int) -> bool:
        """Queue a run for arrays like those of an earlier call, on the caller's stream; False: there was no such call."""
        self._take()
        try:
            route = self._routes.find(call)
            if route is None:
                return False
            self._mark_used(route.shapes)
            with self.engine.device.current():
                self._queue_route(route, call[1], caller)
            return True
        except Exception:
            with as_error(_FAILED, self.engine.name, ExecutionError):
                raise
        finally:
            self._busy.release()

    def _queue_route(self, route: CachedEnqueue, addresses: tuple[int, ...], caller: int) -> None:
        runtime = self._runtime
        is_capturing = runtime.streamIsCapturing(caller)  # then order is that of the graph that the caller makes
        for writer in route.writers:
            self._wait_for(writer(), caller)
        if is_capturing:
            inside = stream_at(self._cupy, caller)
            with inside:
                route.queue(addresses, inside)
            return
        done = self._done.ptr
        runtime.streamWaitEvent(caller, done)
        stream = self._caller
        stream.ptr = caller
        route.launch(addresses, stream, self._with_copies)
        runtime.eventRecord(done, caller)
        self._elsewhere = True

    def _with_copies(self, queue: Callable[[Any], None]) -> Any:
        """Capture a graph of the network with copies from and to the caller's arrays."""
        with self._stream, self.engine.capturing:
            return capture_graph(queue, self._stream)

    def _wait_for(self, writing: int, stream: int) -> None:
        """Let a stream wait for the one that a library is writing its arrays on."""
        if writing != stream:
            self._runtime.eventRecord(self._begun.ptr, writing)
            self._runtime.streamWaitEvent(stream, self._begun.ptr)

    @explained_runs(_FAILED)
    def _enqueue(self, inputs: Arrays, outputs: Mapping[str, Any], caller: int) -> None:
        ready = self._prepared(inputs)
        for name, target in outputs.items():
            check_dims(name, target, ready.execution.output(name).shape)
        runtime = self._runtime
        runtime.eventRecord(self._begun.ptr, caller)
        runtime.streamWaitEvent(self._stream.ptr, self._begun.ptr)
        with self.engine.device.current(), self._stream:
            ready.copy_in(inputs, self._stream)
            ready.execution.queue(self._stream)
            ready.copy_out(outputs, self._stream)
            event = self._cupy.cuda.Event(disable_timing=True)
            event.record(self._stream)
        runtime.streamWaitEvent(caller, event.ptr)
        if not runtime.streamIsCapturing(caller):
            self._done = event

    def _run(self, inputs: Arrays) -> Arrays:
        return self._run_into(inputs, {})

    def _run_into(self, inputs: Arrays, outputs: Mapping[str, Array]) -> Arrays:
        return self._begin(inputs, outputs)()

    def run_async(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array] | None = None) -> Future[Arrays]:
        """Queue a `run`, when the one before is finished: all is queued when this returns, and no thread works on it."""
        self._check_open()
        return self._start(self._begin_checked, self._check(inputs), self._check_targets(outputs or {}))

    def _begin_checked(self, inputs: Arrays, outputs: Mapping[str, Array]) -> Callable[[], Arrays]:
        finish = self._begin(inputs, outputs)
        return lambda: self._check_outputs(inputs, finish())

    @explained_runs(_FAILED)
    def _begin(self, inputs: Arrays, outputs: Mapping[str, Array]) -> Callable[[], Arrays]:
        ready, inputs = self._prepared(inputs), dict(inputs)  # the caller's dict keeps what it has
        for name, target in outputs.items():
            if name in ready.outputs:
                check_dims(name, target, ready.outputs[name].shape)
        from_gpu = {name: array for name, array in inputs.items() if not isinstance(array, np.ndarray)}
        to_gpu = {name: array for name, array in outputs.items() if not isinstance(array, np.ndarray)}
        with self.engine.device.current():
            if from_gpu or to_gpu:
                self._stream.wait_event(self._cupy.cuda.get_current_stream().record())
            for name, array in inputs.items():
                if name not in from_gpu:
                    inputs[name] = to_stored(array)
                    ready.uploads[name].send(inputs[name], self._stream)
            ready.copy_in(from_gpu, self._stream)
            if ready.graph is not None:
                ready.graph.launch(self._stream)
            else:
                with self._stream:
                    ready.queue(self._stream)
            ready.copy_out({name: array for name, array in to_gpu.items() if name in ready.outputs}, self._stream)
        late = ready.execution.late

        def finish() -> Arrays:
            with as_error(_FAILED, self.engine.name, ExecutionError):
                self._stream.synchronize()
            with self.engine.device.current():
                ready.execution.indices.check()
            inputs.clear()  # held until now, since the GPU reads page-locked ones itself
            found = {name: self._data_dependent_output(name, value, outputs.get(name)) for name, value in late.items()}
            return {
                desc.name: found[desc.name]
                if desc.name in found
                else _copy_output(from_stored(ready.outputs[desc.name], desc.dtype), outputs.get(desc.name))
                for desc in self.engine.outputs
            }

        return finish

    def _data_dependent_output(self, name: str, value: Value, target: Any) -> Any:
        """Return an output with data-dependent dims, in the caller's array if it fits."""
        if target is not None:
            check_dims(name, target, value.dims)
        with self.engine.device.current(), self._stream:
            if target is None or isinstance(target, np.ndarray):
                return _copy_output(value.numbers(), target)
            target[...] = value.stored(False)
            self._stream.synchronize()
        return target

    def _prepared(self, inputs: Arrays) -> _Ready:
        self._join()
        shapes = self._shapes(inputs)
        if shapes not in self._ready:
            if len(self._ready) >= _KEPT:
                self._stream.synchronize()  # what was enqueued may use it still
                self._routes.forget()
                self._ready.pop(next(iter(self._ready))).execution.close()
            self._ready[shapes] = self._prepare(inputs)
        return self._mark_used(shapes)

    def _shapes(self, inputs: Arrays) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(inputs[desc.name].shape) for desc in self.engine.inputs)

    def _mark_used(self, shapes: tuple[tuple[int, ...], ...]) -> _Ready:
        """Return the buffers for inputs of these shapes, and mark them as the most recently used."""
        if shapes != next(reversed(self._ready)):
            self._ready[shapes] = self._ready.pop(shapes)
        return self._ready[shapes]

    def _join(self) -> None:
        """Let this context's stream wait for what was enqueued on others."""
        if self._elsewhere:
            self._stream.wait_event(self._done)
            self._elsewhere = False

    def _prepare(self, inputs: Arrays) -> _Ready:
        sizes, device = self._sizes(inputs), self.engine.device
        with device.current(), self._stream, device.explaining_memory():
            execution = self.engine.execution(sizes)
            ready = _Ready(execution)
            if "graph" in self.engine.disabled:
                return ready
            with self.engine.capturing:
                execution.capture(self._stream)
                if len(execution.segments) == 1 and execution.segments[0].capturable:
                    ready.graph = self._capture_whole(ready)
            execution.indices.clear()
        return ready

    def _capture_whole(self, ready: _Ready) -> Any:
        """Capture one graph of the network and the copies to the host."""
        segment = ready.execution.segments[0]
        core, segment.graph = segment.graph, None
        self._stream.synchronize()
        try:
            return capture_graph(ready.queue, self._stream)
        finally:
            segment.graph = core

    def _close(self) -> None:
        self._join()
        self._stream.synchronize()
        self._routes.forget()
        for ready in self._ready.values():
            ready.execution.close()
        self._ready.clear()

    def _array(self, desc: TensorDesc, value: Array) -> Any:
        return self._on_gpu(desc, value) if is_device_array(value) else super()._array(desc, value)

    def _target(self, desc: TensorDesc, value: Array) -> Array:
        return self._on_gpu(desc, value) if is_device_array(value) else super()._target(desc, value)

    def _on_gpu(self, desc: TensorDesc, value: Array) -> Any:
        wait_for(value, self._stream)
        return as_cupy(value, None, desc.dtype)


def _copy_output(array: Any, target: Any) -> Any:
    """Copy an output from memory that the next run overwrites, into the caller's array or a new one."""
    if target is None:
        return array.copy()
    if isinstance(target, np.ndarray):
        np.copyto(target, array)
    return target
