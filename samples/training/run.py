"""A training run: data, loop and task together, log lines and results. Subclasses define what is trained."""

from __future__ import annotations

import argparse
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pytrtplugins.errors import ExecutionError, FormatError, UsageError

from .checkpoint import Checkpoints, complete, step_of
from .clock import Clock
from .curve import draw_curve, write_log
from .data import Records, changes, split
from .loader import Loader, Options, make_loader
from .loop import Loop, Task, noted_signals
from .ranks import Ranks, is_restarted, join
from .recipe import Recipe
from .run_lock import check_unlocked, locked_run
from .sampler import StepSampler
from .schedule import Schedule
from .settings import Settings
from .trace import draw_stages, write_trace

__all__ = ["Run", "check_folder", "check_unused", "train"]

LINES = 60  # progress lines of a whole schedule


def train(kind: type[Run], options: argparse.Namespace, signals: Sequence[int] | None = None) -> None:
    """Advance a run by ``--seconds`` or to its end, then write its results.

    Args:
        kind: Which run.
        options: Of the command line.
        signals: Fills when the run is to end, where another process gets the signals; None: this one notes them.
    """
    settings = Settings.from_options(options, options.device.partition(":")[0])
    ranks = join(options.device, settings)
    torch.backends.cudnn.benchmark = True
    try:
        with ExitStack() as stack:
            kind(options, settings, ranks, stack).finish(signals)
    finally:
        ranks.leave()


def check_unused(options: argparse.Namespace) -> None:
    """Refuse a folder that already has a run, or cannot have one, before any rank starts.

    Raises:
        UsageError: there are checkpoints, and no ``--resume``; or a file is in the place of the folder, or another run writes there now.
    """
    check_folder(options.out)
    check_unlocked(options.out)
    folder = options.out / "checkpoints"
    if not options.resume and (checkpoints := complete(folder)):
        raise _in_use_error(folder, step_of(checkpoints[0]))


def check_folder(path: Path) -> None:
    """Require that a path is a folder, or can become one.

    Raises:
        UsageError: it, or a folder above it, is something else.
    """
    place = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not place.is_dir():
        raise UsageError(
            f"--output {path}: {place} is a file, not a folder.\nDo: give another --output, or move the file"
        )


def _in_use_error(folder: Path, step: int) -> UsageError:
    return UsageError(
        f"{folder}: a run of {step} steps is there.\nDo: add --resume to continue it, or give another --output"
    )


class Run(ABC):
    """One run, in this process.

    Args:
        options: Of the command line.
        settings: How it computes.
        ranks: The processes of the run.
        held: Keeps the lock of the run's folder.
    """

    recipes: type[Recipe]
    """Of this kind of run."""
    score: str
    """The figure that held-back photos are measured by; curve.png has it."""
    results: str
    """Files of a run that has ended, in words."""

    def __init__(self, options: argparse.Namespace, settings: Settings, ranks: Ranks, stack: ExitStack) -> None:
        begin = time.monotonic()
        check_folder(options.out)
        self.options, self.settings, self.ranks = options, settings, ranks
        self.recipe = self.recipes.from_dict(vars(options))
        self.recipe.check(ranks.world, settings.accumulate)
        data = self.open()
        self.data, self.held_back = split(data, options.hold_back)
        self.prepare()
        stack.enter_context(locked_run(options.out, ranks))
        if self.held_back is not None and ranks.is_first:
            self.load_held_back(self.held_back)
        self.checkpoints = Checkpoints(options.out / "checkpoints", ranks)
        self.rows: list[dict[str, float]] = []
        checkpoint = self._newest_checkpoint()
        self.task = self.make_task()
        self.loop = self._loop()
        if checkpoint is not None:
            self.loop.resume(self.checkpoints, *checkpoint)
            self.rows = checkpoint[1]["rows"]
        self.loader = self.loop.loader = self._load(self.loop.step)
        self.task.draw_from(self.loader.pool, lambda number: self.data.read(number).key)
        self._say(
            f"{len(self.data)} photos, {len(self.held_back or ())} held back; {self._size()}; loader {options.loader}, "
            f"{settings.precision}, {settings.variable_update}, {ranks.world} rank{'s' * (ranks.world > 1)}"
        )
        for what, count in changes(data).items():
            self._say(f"{count:,} {what}")
        for note in (*self.notes(), *self.loader.notes):
            self._say(note)
        self._say(
            f"step {self.loop.step} of {self.recipe.steps} on {ranks.device}; {time.monotonic() - begin:.0f} s to get ready"
        )

    # --- what is trained ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def open(self) -> Records:
        """All photos of the run."""

    @abstractmethod
    def prepare(self) -> None:
        """Read and compare what else the options name, before the run's folder is written."""

    @abstractmethod
    def load_held_back(self, photos: Records) -> None:
        """Prepare measurements on these photos, on the first rank."""

    @abstractmethod
    def make_task(self) -> Task:
        """Make the task with its initial weights."""

    @abstractmethod
    def stored_side(self) -> int:
        """Width and height of the square in which photos are stored."""

    def most_boxes(self) -> int:
        """Boxes of a photo that are learned."""
        return 1

    def optimizer(self) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
        """Class of the optimizer, and its options."""
        return torch.optim.AdamW, {"fused": True}

    def notes(self) -> Sequence[str]:
        """Lines about the data and the task, at the start."""
        return ()

    def identity(self) -> dict[str, Any]:
        """What a checkpoint depends on besides recipe and photos."""
        return {}

    @abstractmethod
    def measure(self, average: dict[str, Tensor]) -> tuple[dict[str, float], str]:
        """Figures of these weights on the held-out photos, for the log, and as a line."""

    @abstractmethod
    def write(self, average: dict[str, Tensor]) -> None:
        """Write a network with these weights into the run's folder."""

    # --- the parts ---------------------------------------------------------------------------------------------------------

    def _newest_checkpoint(self) -> tuple[Path, dict[str, Any]] | None:
        """The checkpoint to continue from, and its facts."""
        newest = self.checkpoints.newest(lambda facts: _check_facts(facts, ("recipe", "rows", *self._identity())))
        if newest is None or self.options.resume or is_restarted():
            if newest is not None:
                self._compare(*newest)
            return newest
        raise _in_use_error(self.checkpoints.folder, newest[1]["step"])

    def _compare(self, path: Path, facts: dict[str, Any]) -> None:
        theirs, ours = self.recipes.from_dict(facts["recipe"]).to_dict(), self.recipe.to_dict()
        if wrong := [f"--{k.replace('_', '-')} {theirs[k]} (now {ours[k]})" for k in ours if ours[k] != theirs[k]]:
            raise UsageError(f"{path}: made with another recipe: {', '.join(wrong)}.\nDo: give the same options")
        for what, now in self._identity().items():
            if what == "digest" and facts[what] != now:
                raise UsageError(
                    f"{path}: the photos' names or labels have changed since it was written.\n"
                    "Do: put the old ones back, or give another --output"
                )
            if facts[what] != now:
                raise UsageError(
                    f"{path}: made with other {what}: {facts[what]}, now {now}.\nDo: give the same options"
                )

    def _identity(self) -> dict[str, Any]:
        """What a checkpoint depends on besides the recipe."""
        return {
            "photos": len(self.data),
            "classes": list(self.data.classes),
            "digest": getattr(self.data, "digest", ""),
            "independent ranks": self.options.variable_update == "independent",
            **self.identity(),
        }

    def _loop(self) -> Loop:
        recipe = self.recipe
        return Loop(
            self.task,
            None,
            self.settings,
            self.ranks,
            Schedule(recipe.steps, recipe.learning_rate),
            optimizer=self.optimizer(),
            seed=recipe.seed,
            decay=recipe.ema,
            epoch=-(-len(self.data) // recipe.batch),
        )

    def _load(self, start: int) -> Loader:
        recipe, options, ranks = self.recipe, self.options, self.ranks
        sampler = StepSampler(len(self.data), recipe.batch, seed=recipe.seed, rank=ranks.rank, world=ranks.world)
        return make_loader(
            options.loader,
            self.data,
            sampler,
            ranks.device,
            size=self.stored_side(),
            start=start,
            stop=recipe.steps,
            skip_bad=options.skip_bad,
            clock=Clock(trace=options.trace),
            options=Options(
                options.readers, options.decoders, options.workers, boxes=self.most_boxes(), decoder=options.decoder
            ),
        )

    def _size(self) -> str:
        numbers = sum(p.numel() for p in self.task.network.state_dict().values() if p.dtype.is_floating_point)
        return f"{numbers:,} numbers, {numbers * 4 / 1e6:.2f} MB as float32"

    def finish(self, signals: Sequence[int] | None = None) -> None:
        """Run the loop to its end, and write the results; a signal ends the loop, and not the writing."""
        try:
            with noted_signals() if signals is None else nullcontext(signals) as noted:
                self._finish(noted)
        finally:
            self.loop.release()

    def _finish(self, signals: Sequence[int]) -> None:
        """Run the loop to its end, then write the last checkpoint and the results."""
        steps = self.recipe.steps
        try:
            with self.loader:
                self.loop.run(
                    seconds=self.options.seconds,
                    look=self._look,
                    save=self._save,
                    every=self.options.save_every,
                    signals=signals,
                )
                if self.loop.stopped:
                    figures = self.loop.figures()
                    has_row = bool(self.rows) and self.rows[-1]["step"] == self.loop.step
                    if self.ranks.is_first and not has_row:
                        self._report(figures, None)  # the log ends with the step at which the run stopped
            self._save()
        finally:
            saved = self.checkpoints.wait()
        if not saved:
            raise ExecutionError(
                f"step {self.loop.step} could not be saved.\nDo: make room, then run the same command with --resume"
            )
        try:
            self._write()
        except OSError as error:
            raise ExecutionError(
                f"--output {self.options.out}: the results could not be written: {error}.\n"
                "Do: make room, then run the same command with --resume, which writes them again"
            ) from error
        if skipped := self.loader.skipped:
            first = next(iter(skipped.values())).splitlines()[0]
            self._say(f"{len(skipped)} photos did not decode, and others took their place. One of them: {first}")
        if self.loop.step < steps:
            why = {"signal": "by a signal", "time": "after --seconds"}[self.loop.stopped]
            self._say(f"stopped at step {self.loop.step} of {steps} {why}. Do: run the same command with --resume")
        else:
            self._say(f"the schedule is done: {self.options.out}/{self.results}, curve.png")

    def _say(self, text: str) -> None:
        if self.ranks.is_first:
            print(text, flush=True)

    # --- while it runs -----------------------------------------------------------------------------------------------------

    def _save(self) -> None:
        """Write a checkpoint."""
        self.loop.save(self.checkpoints, {"recipe": self.recipe.to_dict(), "rows": self.rows, **self._identity()})

    def _look(self) -> None:
        """Print a line now and then, and measure the held-out photos; all ranks call it after the same steps."""
        step, steps = self.loop.step, self.recipe.steps
        measure = max(1, steps // self.options.evaluations)
        due = self.options.hold_back > 0 and (step % measure == 0 or step == steps)
        if due or step % max(1, steps // LINES) == 0 or step == steps:
            self.loop.check()
            average, figures = self.loop.average.full() if due else None, self.loop.figures()
            if self.ranks.is_first:
                self._report(figures, average)

    def _report(self, figures: Sequence[float], average: dict[str, Tensor] | None) -> None:
        """Print a line and add a row to the log; with averaged weights, also their figures on held-out photos."""
        loop, recipe, lap = self.loop, self.recipe, self.loader.clock.lap()
        speed = recipe.batch / lap.step_time if lap.seconds else 0.0
        row = {
            "step": loop.step,
            "epoch": loop.step * recipe.batch / len(self.data),
            "rate": loop.schedule.rate(loop.step - 1),
            **dict(zip((*self.task.parts, "gradient"), figures, strict=True)),
            "images/s": speed,
            "data_time": lap.data_time,
        }
        scores, line = self.measure(average) if average is not None else ({}, "")
        row |= scores
        self.rows.append(row)
        text = " ".join(f"{name} {row[name]:.3f}" for name in (*self.task.parts, "gradient"))
        left = (recipe.steps - loop.step) * lap.step_time / 60
        self._say(
            f"step {loop.step}/{recipe.steps} epoch {row['epoch']:.0f} | {text} | {speed:.0f} images/s, {lap}, {left:.1f} min left"
        )
        if line:
            self._say(f"    {line}")
        self.loader.clock.lap()  # the measurement is no part of the next steps

    def _write(self) -> None:
        """Write the averaged network the log, the curve and the trace."""
        state, out = self.loop.average.full(), self.options.out
        if self.options.trace:
            write_trace(out / f"trace{self.ranks.rank or ''}.json", self.loader.clock, rank=self.ranks.rank)
        if not self.ranks.is_first:
            return
        self.write(state)
        if self.rows:
            write_log(out / "log.csv", self.rows)
            draw_curve(out / "curve.png", {"this run": self.rows}, self.task.parts, self.score)
        if self.options.trace:
            draw_stages(out / "stages.png", self.loader.clock)


def _check_facts(facts: Mapping[str, Any], names: Sequence[str]) -> None:
    """Check the values of a checkpoint other than tensors.

    Raises:
        FormatError: it lacks one of the names; or its recipe or its rows are something else.
    """
    if lacking := [name for name in names if name not in facts]:
        raise FormatError(f"it lacks {', '.join(lacking)}")
    rows = facts["rows"]
    is_list = isinstance(rows, list) and all(isinstance(row, dict) and "step" in row for row in rows)
    if not is_list or not all(type(value) in (int, float) for row in rows for value in row.values()):
        raise FormatError("its rows are not those of a log")
    if not isinstance(facts["recipe"], dict):
        raise FormatError("its recipe is none")
