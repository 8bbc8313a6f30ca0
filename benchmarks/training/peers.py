"""The same training step in other libraries' loops, on one rank or several; what surrounds it stays the engine's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytrtplugins.utils.optional import require

_FABRIC = {"bf16": "bf16-mixed", "fp16": "16-mixed", "fp32": "32-true", "tf32": "32-true"}
_ACCELERATE = {"bf16": "bf16", "fp16": "fp16", "fp32": "no", "tf32": "no"}


def fabric(loop: Any, precision: str) -> Callable[[], None]:
    """The same step in Lightning Fabric's words."""
    library = require("lightning_fabric", extra="", package="lightning-fabric", feature="this row")
    place = "cuda" if loop.ranks.device.type == "cuda" else "cpu"
    run = library.Fabric(
        accelerator=place,
        devices=loop.ranks.world,
        strategy="ddp" if loop.ranks.joined else "auto",
        precision=_FABRIC[precision],
    )
    if loop.ranks.joined:
        run.launch()
    module, optimizer = run.setup(loop.task.module, loop.optimizer)

    def step(inputs: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        loss, figures = module(*inputs)
        run.backward(loss)
        # by default it waits for the device in each step, to see whether the norm is finite
        norm = run.clip_gradients(module, optimizer, max_norm=loop.clip, error_if_nonfinite=False)
        optimizer.step()
        optimizer.zero_grad()
        return loss, figures, norm

    return lambda: _as_loop(loop, step)


def accelerate(loop: Any, precision: str) -> Callable[[], None]:
    """The same step in accelerate's words."""
    library = require("accelerate", extra="", feature="this row")
    run = library.Accelerator(mixed_precision=_ACCELERATE[precision], cpu=loop.ranks.device.type != "cuda")
    module, optimizer = run.prepare(loop.task.module, loop.optimizer)

    def step(inputs: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        loss, figures = module(*inputs)
        run.backward(loss)
        norm = run.clip_grad_norm_(module.parameters(), loop.clip)
        optimizer.step()
        optimizer.zero_grad()
        return loss, figures, norm

    return lambda: _as_loop(loop, step)


PEERS = {"fabric": fabric, "accelerate": accelerate}
"""By name: from the engine's loop and its precision to what does a step. Of several ranks, the loop's own must share nothing."""


def _as_loop(loop: Any, step: Callable[[tuple[Any, ...]], tuple[Any, Any, Any]]) -> None:
    """What surrounds a step in the engine's loop: drawing, the rate, the average, the figures."""
    import torch

    shape, inputs = loop.task.inputs(loop.loader.next(), loop.step)
    loop._seed_generators(loop.step)
    for group in loop.optimizer.param_groups:
        group["lr"] = loop.schedule.rate(loop.step)
    loss, figures, norm = step(loop.task.draw(shape, *inputs))
    loop.average.update(loop.step)
    loop._measure(torch.cat([loss.detach()[None], figures.detach()]), norm)
    loop.step += 1
