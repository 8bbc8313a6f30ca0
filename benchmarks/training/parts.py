"""Where the time of a training step goes: its parts, what the host needs to launch it, and the longest kernels."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_STEPS = 10  # whose parts are measured
_LAUNCHED = 3  # steps that the host launches while the device is behind: so few that no queue is full
_KERNELS = 40  # that are kept

Spans = dict[str, list[tuple[Any, Any]]]


def parts_of(loop: Any, wait: Callable[[], None]) -> dict[str, float]:
    """Milliseconds of the parts of a step, one after the other as the device sees them.

    A captured step has the part "replay" in the place of "augment", "forward" and "backward".
    """
    wait()
    with _watched(loop) as spans:
        for _ in range(_STEPS):
            loop.advance()
        wait()
    found = {name: sum(_milliseconds(*span) for span in each) / _STEPS for name, each in spans.items()}
    gradients = found.pop("gradients")
    if "forward" not in found:
        return {"replay": gradients, **found}
    backward = gradients - found["augment"] - found["forward"]
    return {"augment": found["augment"], "forward": found["forward"], "backward": backward, **found}


@contextmanager
def _watched(loop: Any) -> Iterator[Spans]:
    """Notes when each part begins and ends."""
    spans: Spans = defaultdict(list)
    places = {
        "gradients": (loop, "_compute"),
        "augment": (loop.task, "draw"),
        "forward": (loop.mode, "forward"),
        "update": (loop.precision, "update"),
        "average": (loop.average, "update"),
    }
    before = {name: getattr(*place) for name, place in places.items()}

    def watch(name: str) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            begin = _mark(loop.ranks.device)
            result = before[name](*given)
            spans[name].append((begin, _mark(loop.ranks.device)))
            return result

        return run

    for name, place in places.items():
        setattr(*place, watch(name))
    try:
        yield spans
    finally:
        for name, place in places.items():
            setattr(*place, before[name])


def _mark(device: Any) -> Any:
    """This moment: on a GPU an event behind all work that is queued."""
    if device.type != "cuda":
        return time.perf_counter()
    import torch

    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _milliseconds(begin: Any, end: Any) -> float:
    return 1e3 * (end - begin) if isinstance(begin, float) else float(begin.elapsed_time(end))


def host_time(advance: Callable[[], Any], wait: Callable[[], None]) -> float:
    """Milliseconds that the host needs to launch a step; on a CPU, to compute it."""
    wait()
    begin = time.perf_counter()
    for _ in range(_LAUNCHED):
        advance()
    spent = time.perf_counter() - begin
    wait()
    return 1e3 * spent / _LAUNCHED


def kernels_of(advance: Callable[[], Any], wait: Callable[[], None], device: Any) -> list[tuple[str, float, float]]:
    """The longest kernels of a step with their milliseconds and their number, and all of them together; on a CPU operators."""
    from torch.profiler import ProfilerActivity, profile

    cuda = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]) as profiler:
        for _ in range(_LAUNCHED):
            advance()
        wait()
    field = "self_device_time_total" if cuda else "self_cpu_time_total"
    found = [
        (each.key, getattr(each, field) / 1e3 / _LAUNCHED, each.count / _LAUNCHED) for each in profiler.key_averages()
    ]
    found = sorted((each for each in found if each[1] > 0), key=lambda each: -each[1])
    together = ("all", sum(each[1] for each in found), sum(each[2] for each in found))
    return [together, *found[:_KERNELS]]


def launches_of(loop: Any, wait: Callable[[], None], device: Any) -> dict[str, float]:
    """How many kernels the augmentation launches, and the forward computation of the network and of its loss; on a CPU operators.

    The rest of those of a step are the backward computation, the update and the average.
    """
    import torch

    task = loop.task
    shape, inputs = task.inputs(loop.loader.next(), loop.step)
    images, truth, valid, _ = task.draw(shape, *inputs)
    run, known = task.module._run, (task.module.anchors, task.recipe.smoothing)

    def network() -> Any:
        with loop.precision.autocast():
            return run["finish"](run["begin"](images))[0]

    out = network().detach().requires_grad_()  # as the loss gets it, which is not compiled again then

    def loss() -> None:
        with loop.precision.autocast(), torch.autocast(device.type, enabled=False):
            run["loss"](out, truth, valid, *known)

    pieces = {"augment": lambda: task.draw(shape, *inputs), "network forward": network, "loss forward": loss}
    for piece in pieces.values():
        piece()
    return {name: kernels_of(piece, wait, device)[0][2] for name, piece in pieces.items()}
