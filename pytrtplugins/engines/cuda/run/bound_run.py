"""Bound runs: the caller's arrays are checked and captured once; each run is one graph launch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....cuda.backends.gpu import StreamAddress, stream_handle
from ....cuda.bindings import stream_at
from ....errors import BindingError, ExecutionError
from ....tensor import Array
from ....utils.override import override
from ...base.bound_run import BoundRun
from ...base.context import check_dims
from ...base.exclusive import ActiveRun
from ...base.failures import as_error
from ..plan.arena import ALIGNMENT
from ..plan.plan import Plan
from .copies import copy
from .execution import capture_graph
from .owner import Owner

__all__ = ["CudaBoundRun"]


class CudaBoundRun(BoundRun):
    """Tensors of the plan at the arrays' addresses where they can lie there; the others are copied inside the graph.

    Args:
        engine: Whose network.
        given: The arrays as the caller gave them: inputs, outputs.
        inputs: The same ones as CuPy arrays that fit.
        outputs: Likewise, but for their dims.
        sizes: Of the free dims.
        stream: CuPy's, for the first run and the capture.

    Raises:
        BindingError: an output's dims do not fit, an array lies on another GPU, or an output over another array.
    """

    engine: Owner

    def __init__(
        self,
        engine: Owner,
        given: tuple[Mapping[str, Array], Mapping[str, Array]],
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        sizes: Mapping[str, int],
        stream: Any,
    ) -> None:
        super().__init__(engine, *given)
        self._graph: Any = None  # goes before the execution, which keeps its kernels loaded
        self._arrays = inputs, outputs
        self._copied_in: list[str] = []
        self._copied_out: list[str] = []
        self._last: Any = None
        self._check_places()
        with engine.device.current(), stream, engine.device.explaining_memory():
            self._execution: Any = engine.execution(sizes, outside=self._place)
            if "graph" not in engine.disabled:
                self._capture(stream)
            stream.synchronize()  # launches are on other streams

    @override
    def launch(self, stream: Any = None) -> None:
        self._take()
        try:
            device = self.engine.device
            with device.current():
                if self._graph is None:
                    self._queue_parts(stream)
                    return
                cuda = device.xp.cuda
                if stream is None:
                    stream = cuda.get_current_stream()
                elif not hasattr(stream, "ptr"):
                    stream = StreamAddress(stream_handle(stream))
                number = stream.ptr
                if number and cuda.runtime.streamIsCapturing(number):  # no graph is launched into another
                    inside = stream_at(device.xp, number)
                    with inside:
                        self._queue(inside)
                else:
                    self._graph.launch(stream)
        except Exception:
            with as_error("engine 'cuda' failed in the run", self.engine.name, ExecutionError):
                raise
        finally:
            self._busy.release()

    # -- inside ----------------------------------------------------------------------------------------------------------

    def _check_places(self) -> None:
        """Require that no output lies over another array, and all on the engine's GPU."""
        inputs, outputs = self._arrays
        named = [*(("input", *item) for item in inputs.items()), *(("output", *item) for item in outputs.items())]
        device = self.engine.device
        for what, name, array in named:
            if array.nbytes and (found := device.holder(array)) != device.number:
                raise BindingError(
                    f"{what} {name!r}: its array lies on GPU {found}, expected GPU {device.number}, the engine's",
                    expected=device.number,
                    found=found,
                )
        for place, (what, name, array) in enumerate(named):
            for other_what, other, earlier in named[:place]:
                if what == "output" and _overlap(array, earlier):
                    raise BindingError(
                        f"output {name!r}: its array lies over that of {other_what} {other!r}.\nDo: give it its own",
                        output=name,
                        other=other,
                    )

    def _place(self, plan: Plan) -> dict[str, Any]:
        """The tensors of a plan that lie in the caller's arrays; notes which ones are copied instead."""
        (inputs, outputs), placed = self._arrays, dict[str, Any]()
        for name, array in inputs.items():
            views = _views(plan, name, array)
            placed.update(views)
            if not views:
                self._copied_in.append(name)
        for name, array in outputs.items():
            tensor = plan.tensor_of(name)
            check_dims(name, array, plan.tensors[tensor].format.dims)
            views = {} if tensor in placed or tensor in plan.inputs else _views(plan, tensor, array)
            placed.update(views)
            if not views:
                self._copied_out.append(name)
        return placed

    def _capture(self, stream: Any) -> None:
        execution = self._execution
        with self.engine.capturing:
            if len(execution.segments) == 1 and execution.segments[0].capturable:
                self._queue(stream)  # once before it is captured, so that all is loaded
                stream.synchronize()
                self._graph = capture_graph(self._queue, stream)
            else:
                execution.capture(stream)

    def _queue(self, stream: Any) -> None:
        execution, (inputs, outputs) = self._execution, self._arrays
        for name in self._copied_in:
            copy(execution.device, execution.input(name), inputs[name], stream)
        execution.queue(stream)
        for name in self._copied_out:
            copy(execution.device, outputs[name], execution.output(name), stream)

    def _queue_parts(self, stream: Any) -> None:
        """A run with steps that cannot be captured: what lies between them is a graph each."""
        cupy = self.engine.device.xp
        caller = cupy.cuda.get_current_stream() if stream is None else stream_at(cupy, stream_handle(stream))
        with ActiveRun(self), caller:
            if self._last is not None:
                caller.wait_event(self._last)
            self._queue(caller)
            self._last = caller.record()

    @override
    def _close(self) -> None:
        with self.engine.device.current():
            self.engine.device.xp.cuda.runtime.deviceSynchronize()  # launches may be on any stream
        self._graph = None
        self._execution.close()
        self._execution, self._arrays = None, ({}, {})
        self.inputs.clear()
        self.outputs.clear()


def _views(plan: Plan, tensor: str, array: Any) -> dict[str, Any]:
    """The names of a tensor and its aliases if they can use the array's memory; empty if they cannot.

    It can where it is without gaps, as aligned as the arena's tensors are, and nothing else is in its memory.
    """
    storage, dtype = plan.tensors[tensor].storage, plan.tensors[tensor].format.dtype
    names = {name: placed for name, placed in plan.tensors.items() if placed.storage == storage}
    fits = all(
        not (placed.offset or placed.format.nhwc)
        and placed.format.dtype is dtype
        and placed.format.elements == array.size
        for placed in names.values()
    )
    shared = len(names) > 1 and names.keys() & {*plan.inputs, *plan.outputs.values()} != {tensor}
    if not fits or shared or array.data.ptr % ALIGNMENT:
        return {}
    return {name: array.reshape(placed.format.dims) for name, placed in names.items()}


def _overlap(one: Any, other: Any) -> bool:
    begin, other_begin = one.data.ptr, other.data.ptr
    return bool(begin < other_begin + other.nbytes and other_begin < begin + one.nbytes)
