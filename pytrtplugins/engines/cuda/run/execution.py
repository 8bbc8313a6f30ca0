"""The execution of a plan: one context's buffers and launches for inputs of some dims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any

from ....plugin.runner import PluginRunner
from ....utils.heap import no_collection
from ..conv.problem import ConvLaunch, Scratch
from ..device.attention import AttentionMaker, attention
from ..device.device import Device, Tensor, tensor_at
from ..device.nhwc import Launch
from ..operators.index_flags import IndexFlags
from ..plan.plan import Plan, Step
from .launches import StepBuilder
from .values import Value

__all__ = ["Execution", "Segment", "capture_graph"]

_NOTHING: Mapping[str, Any] = MappingProxyType({})


def capture_graph(queue: Callable[[Any], None], stream: Any) -> Any:
    """Capture what ``queue`` puts on an idle stream as a CUDA graph."""
    stream.begin_capture()
    try:
        queue(stream)
    finally:
        graph = stream.end_capture()
    graph.upload(stream)
    return graph


class Segment:
    """Steps that run in one go: as one CUDA graph, or one by one where a plugin may not be captured.

    Args:
        capturable: Whether it may become a graph.
        streams: For branches; the first is unused, since the caller's stream is the main one.

    Attributes:
        launches: What queues each step, the number of its stream, and the steps on other streams that it waits for.
        graph: The graph, once there is one.
    """

    def __init__(self, capturable: bool, streams: Sequence[Any] = ()) -> None:
        self.graph: Any = None  # in front of the launches, which keep its kernels loaded: so it goes before them
        self.launches: list[tuple[Launch, int, tuple[int, ...]]] = []
        self.capturable, self._streams = capturable, streams

    def queue(self, stream: Any) -> None:
        """Queue the work on a stream; what runs on others begins behind what is on it, and is done when its end is."""
        if self.graph is not None:
            self.graph.launch(stream)
        else:
            self.queue_steps(stream)

    def queue_steps(self, stream: Any) -> None:
        """Queue the steps one by one, without the graph."""
        if self._streams and max(number for _, number, _ in self.launches):
            self._queue_branches(stream)
        else:
            for launch, _, _ in self.launches:
                launch(stream)

    def _queue_branches(self, main: Any) -> None:
        streams = [main, *self._streams[1:]]
        waited = {earlier for _, _, waits in self.launches for earlier in waits}
        begin, begun, done = main.record(), {0}, dict[int, Any]()
        for index, (launch, number, waits) in enumerate(self.launches):
            stream = streams[number]
            if number not in begun:
                stream.wait_event(begin)
                begun.add(number)
            for earlier in waits:
                stream.wait_event(done[earlier])
            with stream:
                launch(stream)
            if index in waited:
                done[index] = stream.record()
        for number in begun - {0}:
            main.wait_event(streams[number].record())


class Execution:
    """Buffers and launches.

    Args:
        device: Where arrays live.
        plan: What to run.
        conv: Makes a convolution's launch.
        outside: Arrays that tensors lie in, by the tensors' names, instead of the arena: row-major, of the tensors' dims.
        product: Makes the launch of a product of two computed tensors; None: arrays' own products.
        attention: Makes an attention's launch.

    Attributes:
        plan: The plan.
        tensors: Its tensors in memory.
        segments: The work, in order.
        indices: Flags of steps whose indices may be out of range; to be looked at when a run is done.
    """

    def __init__(
        self,
        device: Device,
        plan: Plan,
        conv: Callable[[Step, Plan, Scratch], ConvLaunch],
        outside: Mapping[str, Any] = _NOTHING,
        product: Callable[[Tensor, Tensor, Tensor, Scratch], Launch] | None = None,
        attention: AttentionMaker = attention,
    ) -> None:
        self.device, self.plan, self._pool = device, plan, device.new_pool()
        self._arena = device.allocate(plan.memory.bytes)
        self.tensors: dict[str, Tensor] = {
            name: tensor_at(device.xp, self._arena, plan.memory.offsets[placed.storage] + placed.offset, placed.format)
            for name, placed in plan.tensors.items()
            if name not in outside
        }
        for name, array in outside.items():
            self.tensors[name] = Tensor(array.reshape(-1), plan.tensors[name].format, array)
        numbers = plan.schedule.streams
        self._streams = {step.outputs: number for step, number in zip(plan.steps, numbers, strict=True)}
        self._runners = list[PluginRunner]()
        self.indices = IndexFlags(device.xp)
        self._builder = StepBuilder(
            device,
            plan,
            self.tensors,
            lambda step: conv(step, plan, self._scratch(step)),
            self._runners,
            self.indices,
            product=product and (lambda step, a, b, y: product(a, b, y, self._scratch(step))),
            attention=attention,
        )
        launches = self._build(plan.steps)
        self._interpreter = self._builder.interpreter
        self.bytes = plan.memory.bytes + sum(scratch.bytes for scratch in self._scratches)
        self.segments = _segments(launches, plan, device.new_streams(len(self._scratches)))

    @property
    def launches(self) -> list[tuple[Step, Launch]]:
        """Each step and what queues it."""
        queued = [launch for segment in self.segments for launch, _, _ in segment.launches]
        return list(zip(self.plan.steps, queued, strict=True))

    def remake(self, changed: Callable[[Step], bool]) -> Callable[[], None]:
        """Make the launches of some steps anew, as kernels are chosen now; all graphs have to be captured again.

        Returns:
            What puts the launches and the graphs back.
        """
        before = [(segment, segment.graph, segment.launches) for segment in self.segments]
        made = {step.outputs: launch for step, launch in self._build(filter(changed, self.plan.steps))}
        steps = iter(self.plan.steps)
        for segment, _, launches in before:
            segment.graph = None
            segment.launches = [
                (made.get(next(steps).outputs, launch), stream, waits) for launch, stream, waits in launches
            ]

        def undo() -> None:
            for segment, graph, launches in before:
                segment.graph, segment.launches = graph, launches

        return undo

    def input(self, name: str) -> Any:
        """The array that an input is copied to."""
        return self.tensors[name].view

    def output(self, name: str) -> Any:
        """The array that an output is copied from.

        Raises:
            BindingError: its dims are data-dependent.
        """
        return self.tensors[self.plan.tensor_of(name)].view

    @property
    def late(self) -> dict[str, Value]:
        """The outputs of the last run with data-dependent dims, in memory of their own."""
        return {} if self._interpreter is None else dict(self._interpreter.outputs)

    def allocating(self) -> AbstractContextManager[Any]:
        """Inside the block, new arrays come from this execution's memory pool."""
        return self.device.allocating(self._pool)

    def queue(self, stream: Any) -> None:
        """Queue the whole run."""
        with self.allocating():
            for segment in self.segments:
                segment.queue(stream)

    def capture(self, stream: Any) -> None:
        """Make a graph of each segment that may be captured; its steps run once before, so that all is loaded."""
        with self.allocating():
            for segment in self.segments:
                if segment.capturable and segment.graph is None:
                    segment.queue(stream)
                    stream.synchronize()
                    segment.graph = capture_graph(segment.queue_steps, stream)

    @no_collection()
    def _build(self, steps: Iterable[Step]) -> list[tuple[Step, Launch]]:
        """Launches, with memory of their own to work in for each stream."""
        self._scratches = [Scratch() for _ in range(max(self.plan.schedule.streams, default=0) + 1)]
        made = [(step, self._builder.build(step)) for step in steps]
        for scratch in self._scratches:
            scratch.fill(self.device)
        return made

    def _scratch(self, step: Step) -> Scratch:
        return self._scratches[self._streams[step.outputs]]

    def close(self) -> None:
        """Terminate the plugins."""
        if self._interpreter is not None:
            self._interpreter.close()
        for runner in self._runners:
            runner.close()
        self._runners.clear()


def _segments(launches: Sequence[tuple[Step, Launch]], plan: Plan, streams: Sequence[Any]) -> list[Segment]:
    segments: list[Segment] = []
    for index, (step, launch) in enumerate(launches):
        if not segments or segments[-1].capturable != step.capturable:
            segments.append(Segment(step.capturable, streams))
        segments[-1].launches.append((launch, plan.schedule.streams[index], plan.schedule.waits[index]))
    return segments
