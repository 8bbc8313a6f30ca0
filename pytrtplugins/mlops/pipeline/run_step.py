"""Entry point of one step, in the pipeline's private folder: ``python -m pytrtplugins.mlops.pipeline.run_step STEP``; DVC starts it.

Its outputs are taken as a whole, or not at all. What it came to is noted in ``attempts/STEP.json``; the exit code is 0 only where the
outputs were taken.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from ...errors import StepError
from ...utils.inside import holder
from ...utils.terminal import exit_on_error
from .approval import ask, is_approved
from .folder import Attempt, PipelineFolder
from .full_disk import is_disk_full, tell_full_disk
from .machine import check_machine, limited_environment, use_cores
from .process import ProcessLimits, Stopped, run_watched
from .scratch import Scratch
from .step import Step

__all__ = ["RUN", "WAITING", "main", "program"]

RUN = "PYTRT_PIPELINE_RUN"
"""The variable that has the run's id."""
WAITING = 75
"""The exit code of a step that a person must approve; EX_TEMPFAIL in sysexits.h."""
_OURS = {"pytrt": "pytrtplugins", "darknet2caffe": "darknet2caffe"}
_LAST_LINES, _LAST_BYTES = 16, 4096


def main() -> None:
    """Run the step that the command line names, in the working directory, which is a pipeline's folder."""
    with exit_on_error():
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _stop)
        folder = PipelineFolder.at(Path.cwd())
        step, inputs = folder.read_step(sys.argv[1])
        sys.exit(_Run(folder, step, inputs, os.environ.get(RUN, "")).run())


def program(argv: tuple[str, ...]) -> list[str]:
    """The words as they are started here: ``pytrt``, ``darknet2caffe`` and ``python`` are those of this interpreter."""
    if argv[0] == "python":
        return [sys.executable, *argv[1:]]
    return [sys.executable, "-m", _OURS[argv[0]], *argv[1:]] if argv[0] in _OURS else list(argv)


def _stop(number: int, frame: object) -> NoReturn:
    raise Stopped(f"was stopped by {signal.Signals(number).name}")


@dataclass
class _Run:
    """Runs a step until it succeeds or its retries are used up."""

    folder: PipelineFolder
    step: Step
    inputs: Mapping[str, Path]
    run_id: str
    attempts: int = 0

    def run(self) -> int:
        log = self.folder.log(self.run_id, self.step.name)
        begun = Attempt(self.run_id, "failed", time.time(), time.time(), log=str(log), message="was killed")
        self.folder.note(self.step.name, begun)
        try:
            if self.step.approval and not is_approved(self.step.name) and not ask(self.step, self.inputs):
                return self._end(begun, "waiting for approval", "waits for a person's approval", WAITING)
            check_machine(self.step)
            use_cores(self.step)
            self._retry(self.folder.path / log)
        except (StepError, OSError, Stopped) as error:
            return self._end(begun, "failed", self._failure_text(error), 1)
        return self._end(begun, "done", "", 0)

    def _end(self, begun: Attempt, state: str, message: str, code: int) -> int:
        self.folder.note(
            self.step.name, replace(begun, state=state, end=time.time(), attempts=self.attempts, message=message)
        )
        return code

    def _retry(self, log: Path) -> None:
        with holder(log, self.folder.root, error=StepError, make=True):
            pass
        pause = self.step.retry.backoff
        while True:
            self.attempts += 1
            try:
                return self._attempt(log)
            except StepError as error:
                if error.facts.get("contract") or self.attempts > self.step.retry.limit:
                    raise
                with log.open("a") as file:
                    file.write(f"\nAttempt {self.attempts}: {error}\nThe next one begins in {pause:g} s.\n")
            time.sleep(pause)
            pause *= 2

    def _attempt(self, log: Path) -> None:
        step = self.step
        with Scratch.opened(self.folder, step, self.inputs) as scratch:
            environment = {
                "PYTRT_MODEL_REGISTRY": str(self.folder.base / ".pytrt" / "models"),
                "PYTHONPYCACHEPREFIX": str(self.folder.pycache),
                **limited_environment(step, os.environ),
                "TMPDIR": str(scratch.temporary),
            }
            secrets = [os.environ.get(name, "") for name in step.secrets]
            limits = ProcessLimits(step.time_limit, step.resources.memory)
            stdout = scratch.path / step.stdout if step.stdout else None
            try:
                ended = run_watched(
                    program(step.argv()), scratch.path, environment, log, limits, stdout=stdout, secrets=secrets
                )
            except (FileNotFoundError, PermissionError) as error:
                if str(error.filename) != program(step.argv())[0]:
                    raise
                what = f"step {step.name}: there is no program {step.command[0]!r} that can be started"
                raise StepError(
                    f"{what}.\nDo: install it, or correct `command`", step=step.name, contract=True
                ) from error
            if ended.reason:
                raise StepError(f"step {step.name} {ended.reason}{_last_lines(log)}", step=step.name)
            if ended.code:
                how = (
                    f"was ended by {signal.Signals(-ended.code).name}"
                    if ended.code < 0
                    else f"ended with exit code {ended.code}"
                )
                raise StepError(f"step {step.name} {how}{_last_lines(log)}", step=step.name)
            scratch.check()
            scratch.take(self.folder)

    def _failure_text(self, error: BaseException) -> str:
        """Why a step failed, for the run's record."""
        if is_disk_full(error, self.folder.path):
            return tell_full_disk(f"step {self.step.name}", self.folder.path)
        if isinstance(error, StepError):
            return str(error)
        name = getattr(error, "filename", None)
        what = f"{name}: {error.strerror}" if isinstance(error, OSError) and name else str(error)
        return f"step {self.step.name}{':' if isinstance(error, OSError) else ''} {what}"


def _last_lines(log: Path) -> str:
    """The end of a log, for a message."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
        lines = file.read().decode("utf-8", "replace").rstrip().splitlines()[-_LAST_LINES:]
    return "".join(f"\n  | {line}" for line in lines)


if __name__ == "__main__":
    main()
