"""The loop of a training run: steps, state, stopping and continuing."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint import state_dict

from pytrtplugins.errors import ExecutionError, FormatError

from .batch import Pool
from .checkpoint import Checkpoints
from .modes import Mode, own_part
from .optional.graphs import Graphs
from .precision import Precision, make_deterministic
from .ranks import Ranks, is_launched
from .schedule import Average, Schedule
from .settings import Settings

__all__ = ["Loop", "Task", "decay_groups", "noted_signals"]

SYNC = 20  # steps that a GPU is given before the host looks at their results
MEMORY = 0.99  # of the running means that are logged


class Task(Protocol):
    """The task of a training: network, loss, and how a batch becomes its inputs."""

    module: nn.Module
    """Takes the inputs, and gives the loss and the figures of ``parts``, all in one tensor."""
    network: nn.Module
    """The part of the module that is clipped, averaged and exported."""
    parts: tuple[str, ...]
    """Names of the figures."""

    def draw_from(self, pool: Pool | None, name: Callable[[int], str]) -> None:
        """All photos of the set, where they are on the device, and their names by their numbers; None: each batch brings its own."""

    def inputs(self, batch: Any, step: int) -> tuple[Hashable, tuple[Tensor, ...]]:
        """Shape key and device tensors of a step."""

    def draw(self, shape: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The module's inputs, each with the batch as its first axis; random numbers are seeded for the step."""

    def drawn(self, keys: Sequence[str], step: int) -> Sequence[str]:
        """Names of the photos of a step, whose batch had these keys; random numbers are seeded for the step."""

    def groups(self) -> Sequence[dict[str, Any]]:
        """The optimizer's groups of parameters, of the module as it is now."""


class Loop:
    """The state of a run, and its steps.

    Randomness has no state of its own: step n seeds every generator from (seed, n, rank), and the loader's sampler is a function
    of the seed and the step. So a checkpoint continues the same sequence.

    Args:
        task: What is trained.
        loader: Its ``next()`` gives the batch of the next step; its ``clock`` counts.
        settings: How it computes.
        ranks: The processes of the run.
        schedule: The learning rate, and the number of steps.
        optimizer: Class of the optimizer, and its options.
        seed: Of all random numbers.
        clip: Largest norm of all gradients of the network together.
        decay: Of the averaged weights.
        epoch: Steps of an epoch; a loss that stays above its start for so long is said. 0: it is not watched.
        warn: Gets a line about such a loss; training goes on.
    """

    def __init__(
        self,
        task: Task,
        loader: Any,
        settings: Settings,
        ranks: Ranks,
        schedule: Schedule,
        *,
        optimizer: tuple[type[torch.optim.Optimizer], dict[str, Any]],
        seed: int = 0,
        clip: float = 10.0,
        decay: float = 0.9995,
        epoch: int = 0,
        warn: Callable[[str], None] = print,
    ) -> None:
        if settings.deterministic:
            make_deterministic()
        self.task, self.loader, self.settings, self.ranks, self.schedule = task, loader, settings, ranks, schedule
        self.seed, self.clip, self.step, self.stopped = seed, clip, 0, ""
        self.precision = Precision(settings, ranks.device.type)
        self.mode = Mode(task.module, settings, ranks)
        kind, options = optimizer
        self.optimizer = self.mode.optimizer(kind, task.groups(), lr=schedule.peak, **options)
        self.average = Average(task.network, decay)
        self._clipped = list(task.network.parameters())
        cuda = [torch.cuda.default_generators[torch.cuda.current_device()]] if ranks.device.type == "cuda" else []
        self._generators = [torch.default_generator, *cuda]
        self.measured = torch.full((len(task.parts) + 1,), math.nan, device=ranks.device)
        """Running means of the figures, and of the gradient's norm; NaN before the first value that is finite."""
        self.last = self.measured
        """Those of the last step."""
        self._bad = torch.full((2,), -1, dtype=torch.int64, device=ranks.device)
        """First steps without a finite loss, and gradient."""
        self._losses = torch.zeros(2, device=ranks.device)
        """Mean loss of the first steps, and running mean."""
        self._above = torch.zeros(1, dtype=torch.int64, device=ranks.device)
        """Steps one behind the other whose running mean was above that of the first steps."""
        self._first_steps = max(1, min(SYNC, int(schedule.steps * schedule.warm_up / 2)))  # whose rates are small
        self._epoch, self._warn, self._warned = epoch, warn, False
        self._keys: deque[tuple[int, Sequence[str]]] = deque(maxlen=SYNC + 1)
        self._compute: Callable[..., Tensor] = self._gradients
        if settings.cuda_graphs:
            self._compute = Graphs(self._gradients, task.module, self.mode.warm_ups)

    def advance(self) -> None:
        """Do one step."""
        batch = self.loader.next()
        with self.loader.clock.stage("step"):
            self._seed_generators(self.step)
            shape, inputs = self.task.inputs(batch, self.step)
            figures = self._compute(shape, *inputs)
            for group in self.optimizer.param_groups:
                group["lr"] = self.schedule.rate(self.step)
            norm = self.precision.update(self.optimizer, self._clipped, self.clip)
            self.average.update(self.step)
            self._measure(figures, norm)
        self._keys.append((self.step, getattr(batch, "keys", ())))
        self.step += 1

    def _seed_generators(self, step: int) -> None:
        """Seed the generators for a step of this rank; torch.manual_seed would visit those of all kinds of device."""
        for generator in self._generators:
            generator.manual_seed((self.seed * 1_000_003 + step + 1) + self.ranks.rank * 7_368_787_777)

    def _gradients(self, shape: Hashable, *inputs: Tensor) -> Tensor:
        """Compute the gradients of a rank's batch in micro-batches; returns the mean of their losses and figures."""
        count, parts = self.settings.accumulate, []
        drawn = self.task.draw(shape, *inputs)
        for i, part in enumerate(zip(*(tensor.chunk(count) for tensor in drawn), strict=True)):
            with self.mode.exchange(i == count - 1):
                with self.precision.autocast():
                    loss, figures = self.mode.forward(*part)
                self.precision.scaler.scale(loss / count).backward()
            parts.append(torch.cat([loss.detach()[None], figures.detach()]))
        return torch.stack(parts).mean(0)

    @torch.no_grad()
    def _measure(self, loss_and_figures: Tensor, norm: Tensor) -> None:
        """Update the running means, and notice a step that is not finite, without waiting for the device."""
        norm = norm[None].to(loss_and_figures)
        scaled = self.precision.scaler.is_enabled()  # whose gradients overflow at times, without harm
        finite = torch.cat([loss_and_figures[:1], torch.zeros_like(norm) if scaled else norm]).isfinite()
        self._bad = torch.where(finite | (self._bad >= 0), self._bad, self.step)
        now = self.last = torch.cat([loss_and_figures[1:], norm]).to(self.measured)
        mean = torch.lerp(now, self.measured, MEMORY)
        mean = torch.where(self.measured.isnan(), now, mean)
        self.measured = torch.where(now.isfinite(), mean, self.measured)
        self._watch(loss_and_figures[:1].to(self._losses))

    def _watch(self, loss: Tensor) -> None:
        """Compare the running mean of the loss with the mean of the first steps."""
        start, mean = self._losses.split(1)
        mean = torch.lerp(mean, loss, max(1 - MEMORY, 1 / (self.step + 1)))
        self._losses = torch.cat([mean if self.step < self._first_steps else start, mean])
        if self.schedule.progress(self.step) >= self.schedule.warm_up:
            self._above = torch.where(mean > start, self._above + 1, 0)

    def figures(self) -> list[float]:
        """Running means of the figures, and of the gradient's norm, over all ranks; all ranks must ask."""
        self._share_means()
        return self.measured.tolist()

    def _share_means(self) -> None:
        """Average the running means over all ranks; those of independent networks stay separate."""
        if self.settings.variable_update != "independent":
            self.measured, self._losses = self.ranks.mean(self.measured), self.ranks.mean(self._losses)

    def run(
        self,
        *,
        seconds: float,
        look: Callable[[], None],
        save: Callable[[], None],
        every: float = 120,
        signals: Sequence[int] = (),
    ) -> None:
        """Run to the end of the schedule, for ``seconds``, or until a signal; ``stopped`` says why it ended early.

        Args:
            seconds: From now on; at least one step is done.
            look: Called after every step, on all ranks at the same steps.
            save: Called when ``every`` seconds have passed since the last time, on all ranks at the same step.
            every: Seconds between two checkpoints.
            signals: Those that :func:`noted_signals` has noted so far.

        Raises:
            ExecutionError: a loss or a gradient is not finite.
        """
        begin, saved, first = time.monotonic(), time.monotonic(), self.step
        while self.step < self.schedule.steps and not self.stopped:
            self.advance()
            if self.step == first + 1 or self.is_looking:
                self.check()
                now = time.monotonic()
                late, due, signalled = self.ranks.max_over_ranks(
                    [now - begin > seconds, now - saved > every, bool(signals)]
                )
                self.stopped = "signal" if signalled else "time" if late else ""
                if due:
                    save()
                    saved = time.monotonic()
            look()

    @property
    def is_looking(self) -> bool:
        """Whether the host reads results from the device after this step."""
        return self.ranks.device.type == "cpu" or self.step % SYNC == 0 or self.step == self.schedule.steps

    def check(self) -> None:
        """Wait for all steps so far, and warn once if the loss has exceeded its start for an epoch; all ranks must call it.

        Raises:
            ExecutionError: one of them had a loss or a gradient that is not finite, on any rank.
        """
        loss, gradient, above = torch.cat([self._bad, self._above]).tolist()
        elsewhere, step, above = map(int, self.ranks.max_over_ranks([loss, max(loss, gradient), above]))
        if step < 0:
            if self._epoch and above >= max(self._epoch, SYNC):
                self._say_divergence(above)
            return
        if loss < 0 and elsewhere >= 0:
            raise ExecutionError(
                f"step {step}: the loss of another rank is not a finite number; it names its photos", step=step
            )
        step, what = (loss, "loss") if loss >= 0 else (step, "gradient")
        self._seed_generators(step)
        keys = self.task.drawn(next((keys for number, keys in self._keys if number == step), ()), step)
        raise ExecutionError(
            f"step {step} of rank {self.ranks.rank}: the {what} is not a finite number; photos: {', '.join(keys) or 'unknown'}.\n"
            "Do: look at these photos and their boxes, or give a smaller learning rate; then run the same command with --resume, "
            "which continues from the last good checkpoint",
            step=step,
            keys=tuple(keys),
        )

    def _say_divergence(self, steps: int) -> None:
        start, mean = self._losses.tolist()
        if self.ranks.is_first and not self._warned:
            self._warn(
                f"step {self.step}: the loss has been larger than at the start for {steps} steps, an epoch or more "
                f"(mean {mean:.4g}, in the first {self._first_steps} steps {start:.4g}): the training diverges.\n"
                f"Do: stop it, and begin anew with a smaller learning rate than {self.schedule.peak:g}"
            )
        self._warned = True

    def release(self) -> None:
        """Free captured graphs: NCCL ends a process group only when no graph uses it."""
        self._compute = self._gradients

    # --- what a checkpoint has ---------------------------------------------------------------------------------------------

    def save(self, checkpoints: Checkpoints, facts: dict[str, Any]) -> None:
        """Write everything that continues the run, in the background; all ranks must.

        Raises:
            ExecutionError: a loss was not finite: nothing is written.
        """
        self.check()
        self._share_means()
        scaler = self.precision.scaler.state_dict()
        checkpoints.save(self.step, self._tensors(), facts | {"scaler": scaler, "world": self.ranks.world})

    def resume(self, checkpoints: Checkpoints, path: Any, facts: dict[str, Any]) -> None:
        """Continue from a checkpoint of this number of ranks or of another.

        Raises:
            FormatError: its facts are not those of a run, or its tensors not those of this one.
        """
        world, scaler = facts.get("world"), facts.get("scaler")
        if type(world) is not int or world < 1 or not isinstance(scaler, dict):
            raise FormatError(
                f"{path}/facts.json: expected the number of ranks as 'world' and the loss scale as 'scaler', "
                f"found {world!r} and {scaler!r}",
                path=path,
            )
        prefix, tensors = self._prefix(world), self._tensors(of=world)
        checkpoints.load(path, tensors)  # into the place where each of them lies
        if self.mode.staged is not None:
            begin = f"{prefix}staged."
            self.mode.staged.load({n.removeprefix(begin): t for n, t in tensors.items() if n.startswith(begin)})
        try:
            self.precision.restore(scaler)
        except FormatError as error:
            raise FormatError(f"{path}/facts.json: {error}", path=path) from error
        self.step = int(facts["step"])

    def _prefix(self, world: int) -> str:
        """Networks that share nothing are kept one by one; ranks beyond those of the checkpoint begin with one of its networks."""
        return f"rank{self.ranks.rank % world}." if self.settings.variable_update == "independent" else ""

    def _tensors(self, of: int = 0) -> dict[str, Tensor]:
        """The tensors of a checkpoint, by names that no number of ranks changes."""
        tensors = {f"module.{name}": tensor for name, tensor in self.task.module.state_dict().items()}
        tensors |= {f"average.{name}": tensor for name, tensor in self.average.state.items()}
        tensors |= {
            f"optimizer.{name}": value for name, value in self._optimizer_state().items() if torch.is_tensor(value)
        }
        if self.mode.staged is not None:
            tensors |= {f"staged.{name}": tensor for name, tensor in self.mode.staged.state().items()}
        tensors |= {"measured": self.measured, "losses": self._losses}
        prefix = self._prefix(of or self.ranks.world)
        return {prefix + name: tensor for name, tensor in tensors.items()}

    def _optimizer_state(self) -> dict[str, Any]:
        """The optimizer's state by parameter names; only of parameters that this rank updates."""
        options = state_dict.StateDictOptions(flatten_optimizer_state_dict=True)
        return state_dict.get_optimizer_state_dict(self.task.module, own_part(self.optimizer), options=options)


def decay_groups(module: nn.Module, decay: float) -> list[dict[str, Any]]:
    """An optimizer's groups of parameters: weights decay; biases and norms, which are vectors, do not."""
    parameters = list(module.parameters())
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]


@contextmanager
def noted_signals() -> Iterator[list[int]]:
    """Notes SIGINT and SIGTERM, so that a run ends between two steps and is saved; the second Ctrl-C ends it at once.

    Ranks of torchrun get each signal several times: from the terminal, and from torchrun. They wait for its SIGKILL.
    """
    caught: list[int] = []

    def note(number: int, _: Any) -> None:
        if number == signal.SIGINT and caught and not is_launched():
            raise KeyboardInterrupt
        caught.append(number)

    if threading.current_thread() is not threading.main_thread():  # where no handler can be set
        yield caught
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
