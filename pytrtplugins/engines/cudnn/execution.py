"""A plan in memory: one context's buffers and launches for inputs of some dims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...plugin import Plugin
from .conv import ConvLaunch, Scratch
from .device import Device, Tensor, tensor_at
from .plan import Plan, Step
from .steps import Launch, StepBuilder

__all__ = ["Execution", "Segment"]


class Segment:
    """Steps that run in one go: as one CUDA graph, or one by one where a plugin may not be captured.

    Attributes:
        launches: What queues each step.
        captured: Whether it may become a graph.
        graph: The graph, once there is one.
    """

    def __init__(self, captured: bool) -> None:
        self.launches: list[Launch] = []
        self.captured = captured
        self.graph: Any = None

    def queue(self, stream: Any) -> None:
        """Queue the work on a stream."""
        if self.graph is not None:
            self.graph.launch(stream)
        else:
            for launch in self.launches:
                launch(stream)


class Execution:
    """Buffers and launches.

    Args:
        device: Where arrays live.
        plan: What to run.
        conv: Makes a convolution's launch.

    Attributes:
        plan: The plan.
        tensors: Its tensors in memory.
        segments: The work, in order.
        launches: Each step and what queues it.
    """

    def __init__(self, device: Device, plan: Plan, conv: Callable[[Step, Plan, Scratch], ConvLaunch]) -> None:
        self.device, self.plan, self._pool = device, plan, device.new_pool()
        self._arena = device.allocate(plan.memory.bytes)
        self.tensors: Mapping[str, Tensor] = {
            name: tensor_at(device.xp, self._arena, plan.memory.offsets[placed.storage] + placed.offset, placed.format)
            for name, placed in plan.tensors.items()
        }
        scratch, self._plugins = Scratch(), list[Plugin]()
        builder = StepBuilder(device, plan, self.tensors, lambda step: conv(step, plan, scratch), self._plugins)
        self.launches: list[tuple[Step, Launch]] = [(step, builder.build(step)) for step in plan.steps]
        scratch.fill(device)
        self.bytes = plan.memory.bytes + scratch.bytes
        self.segments = _segments(self.launches)

    def input(self, name: str) -> Any:
        """The array that an input is copied to."""
        return self.tensors[name].view

    def output(self, name: str) -> Any:
        """The array that an output is copied from."""
        return self.tensors[self.plan.outputs[name]].view

    def queue(self, stream: Any) -> None:
        """Queue the whole run."""
        with self.device.allocating(self._pool):
            for segment in self.segments:
                segment.queue(stream)

    def capture(self, stream: Any) -> None:
        """Make a graph of each segment that may be captured; its steps run once before, so that all is loaded."""
        with self.device.allocating(self._pool):
            for segment in self.segments:
                if segment.captured and segment.graph is None:
                    segment.queue(stream)
                    stream.synchronize()
                    stream.begin_capture()
                    try:
                        segment.queue(stream)
                    finally:
                        graph = stream.end_capture()
                    segment.graph = graph
                    graph.upload(stream)

    def close(self) -> None:
        """Terminate the plugins."""
        for plugin in self._plugins:
            plugin.terminate()
        self._plugins.clear()


def _segments(launches: Sequence[tuple[Step, Launch]]) -> list[Segment]:
    segments: list[Segment] = []
    for step, launch in launches:
        if not segments or segments[-1].captured != step.captured:
            segments.append(Segment(step.captured))
        segments[-1].launches.append(launch)
    return segments
