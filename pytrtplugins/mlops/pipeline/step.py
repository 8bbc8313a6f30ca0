"""A step of a pipeline: what it runs, its inputs and its outputs."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from ...errors import PipelineError
from ...utils.text_formats import shorten
from .gate import Gate
from .record import Scalar
from .units import is_number, is_whole

__all__ = ["NAME", "Resources", "Retry", "Step", "folders_of", "is_inside"]

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""Of pipelines and steps: a label of DNS, which Argo asks for."""
_FUNCTION = re.compile(r"([\w./-]+\.py|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):[A-Za-z_]\w*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PRIVATE = ".pytrt"


@dataclass(frozen=True)
class Resources:
    """Resources that a step needs.

    Attributes:
        cpu: Cores; 0.5 is half of one. None: as many as there are.
        memory: Bytes. None: not limited.
        gpu: GPUs.
    """

    cpu: float | None = None
    memory: int | None = None
    gpu: int = 0


@dataclass(frozen=True)
class Retry:
    """How often a failed step is started again.

    Attributes:
        limit: How many times after the first.
        backoff: Seconds before the second attempt; twice as many before each that follows.
    """

    limit: int = 0
    backoff: float = 1.0


@dataclass(frozen=True)
class Step:
    """One step, with a command, a function or a gate.

    A step runs in a folder of its own, which holds its inputs at their paths and gets its outputs at theirs. Paths are relative to
    the pipeline's folder, with ``/`` between their parts.

    Attributes:
        name: Lower-case letters, digits and dashes.
        command: Program and words. ``pytrt``, ``darknet2caffe`` and ``python`` are those of this package and its interpreter.
        function: ``module:name`` or ``path/file.py:name``; it is called with the tuples ``inputs`` and ``outputs`` of paths, and with the
            parameters. Its own file is not among the inputs that it gets.
        gate: What figures of the inputs, which are JSON files, must hold, or else the pipeline stops; see `Gate`.
        inputs: Files and folders: the user's, or outputs of other steps. The file of a function, and the script of a ``python``, come last.
        outputs: Files and folders that it makes, metrics and ``stdout`` among them.
        metrics: Outputs that hold figures, as JSON.
        stdout: The output that gets what the command prints; empty: the log gets it.
        parameters: Values that outputs depend on, by name.
        environment: Variables of the environment that outputs depend on.
        secrets: Variables of the environment that it needs, whose values are never stored.
        resources: What it needs of a machine.
        retry: How often it is started again.
        time_limit: Seconds of one attempt. None: not limited.
        approval: Whether a person must agree before it runs.
        stateful: Whether it reads or changes more than its inputs and outputs, such as a registry.
        matrix: The values of this one of several similar steps, by name.
        family: The name that such steps have in common; otherwise its own.
    """

    name: str
    command: tuple[str, ...] = ()
    function: str = ""
    gate: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    stdout: str = ""
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    environment: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    resources: Resources = Resources()
    retry: Retry = Retry()
    time_limit: float | None = None
    approval: bool = False
    stateful: bool = False
    matrix: Mapping[str, Scalar] = field(default_factory=dict)
    family: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "family", self.family or self.name)
        if all(map(_are_texts, (self.inputs, self.outputs, self.metrics, self.command))):
            also = (*self.metrics, *([self.stdout] if self.stdout else ()))
            object.__setattr__(self, "outputs", tuple(dict.fromkeys((*self.outputs, *also))))
            code = [path for path in _code(self) if not any(is_inside(path, declared) for declared in self.inputs)]
            object.__setattr__(self, "inputs", (*self.inputs, *code))
        if problems := list(_problems(self)):
            text = "\n".join(f"  {where}: {what}" for where, what in problems)
            raise PipelineError(f"step {shorten(self.name)}:\n{text}", step=self.name, problems=tuple(problems))

    @property
    def restorable(self) -> bool:
        """Whether outputs of any earlier run may be reused: then the step has no other effects, and nobody's approval is needed."""
        return not (self.stateful or self.approval)

    def argv(self) -> tuple[str, ...]:
        """The command line of the step, in a folder with its inputs; it works wherever this package is installed."""
        if self.command:
            return self.command
        if self.gate:
            return (
                "python",
                "-m",
                "pytrtplugins.mlops.pipeline.run_gate",
                self.gate,
                *self.inputs,
                "--output",
                self.outputs[0],
            )
        inputs = [path for path in self.inputs if path not in _code(self)]
        call = {"inputs": inputs, "outputs": self.outputs, "parameters": dict(self.parameters)}
        return (
            "python",
            "-m",
            "pytrtplugins.mlops.pipeline.run_function",
            self.function,
            json.dumps(call, sort_keys=True),
        )


def is_inside(path: str, folder: str) -> bool:
    """Whether a path is a folder, or is in it."""
    return path == folder or path.startswith(f"{folder}/")


def folders_of(path: str) -> list[str]:
    """The folders that a path is in, from the nearest on."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(len(parts) - 1, 0, -1)]


def _code(step: Step) -> tuple[str, ...]:
    """The file that a step's own code is in, where it names one."""
    if step.function:
        file = step.function.rpartition(":")[0]
        return (file,) if file.endswith(".py") else ()
    return tuple(word for word in step.command[1:2] if step.command[0] == "python" and word.endswith(".py"))


def _problems(step: Step) -> Iterator[tuple[str, str]]:
    if not isinstance(step.name, str) or not NAME.fullmatch(step.name):
        yield "name", f"expected lower-case letters, digits and dashes, at most 63, found {shorten(step.name)}"
    if sum(map(bool, (step.command, step.function, step.gate))) != 1:
        yield "command", "expected one of command, function and gate"
    texts = ("command", "inputs", "outputs", "metrics", "environment", "secrets")
    wrong = [name for name in texts if not _are_texts(getattr(step, name))]
    yield from ((name, "expected a tuple of texts") for name in wrong)
    if wrong:
        return
    yield from _path_problems(step)
    if step.function and not _FUNCTION.fullmatch(step.function):
        yield "function", f"expected module:name or path/file.py:name, found {shorten(step.function)}"
    if step.gate:
        yield from _gate_problems(step)
    if step.stdout and not step.command:
        yield "stdout", "needs a command, whose output it gets"
    for name in ("environment", "secrets"):
        for variable in getattr(step, name):
            if not _VARIABLE.fullmatch(variable):
                yield name, f"expected the name of a variable of the environment, found {shorten(variable)}"
    for variable in sorted(set(step.environment) & set(step.secrets)):
        yield "environment", f"{variable} is also a secret"
    for name in ("parameters", "matrix"):
        for key, value in getattr(step, name).items():
            if not isinstance(key, str) or not isinstance(value, (bool, int, float, str)) or value != value:
                yield name, f"{shorten(key)}: expected a text, a number or a truth value, found {shorten(value)}"
    yield from _limit_problems(step)


def _path_problems(step: Step) -> Iterator[tuple[str, str]]:
    for name in ("inputs", "outputs"):
        for path, count in Counter(getattr(step, name)).items():
            if what := _path_problem(path, name == "inputs"):
                yield name, f"{shorten(path)}: {what}"
            elif count > 1:
                yield name, f"{path} appears twice"
    outputs = set(step.outputs)
    yield from (("outputs", f"{path} is also an input") for path in step.inputs if path in outputs)
    for path in (*step.inputs, *step.outputs):
        for folder in folders_of(path):
            if folder in outputs:
                yield "outputs", f"{path} is inside of the output {folder}"


def _path_problem(path: str, is_input: bool) -> str:
    if not path or "\0" in path or "\n" in path or len(path) > 1024:
        return "expected the path of a file or a folder"
    if "://" in path:
        return "expected a path on this machine; a step may fetch what is elsewhere"
    parts = PurePosixPath(path)
    if parts.is_absolute() and not is_input:
        return "expected a path in the pipeline's folder"
    if ".." in parts.parts or str(parts) in (".", "/"):
        return "expected a path below the pipeline's folder (the key `folder` may name another)"
    if _PRIVATE in parts.parts:
        return f"{_PRIVATE} is where pipelines keep their state"
    return "" if str(parts) == path else f"write {parts}"


def _gate_problems(step: Step) -> Iterator[tuple[str, str]]:
    try:
        Gate.parse(step.gate)
    except PipelineError as error:
        yield "gate", str(error)
    if not step.inputs:
        yield "inputs", "a gate needs the files that its figures are in"
    if len(step.outputs) != 1:
        yield "outputs", "a gate has one: a JSON file that says what it found"


def _limit_problems(step: Step) -> Iterator[tuple[str, str]]:
    cpu, memory, gpu = step.resources.cpu, step.resources.memory, step.resources.gpu
    if cpu is not None and not (is_number(cpu) and 0 < cpu <= 4096):
        yield "resources", f"cpu: expected more than 0 and at most 4,096 cores, found {shorten(cpu)}"
    if memory is not None and not (is_whole(memory) and 1 <= memory < 1 << 63):
        yield "resources", f"memory: expected a number of bytes, found {shorten(memory)}"
    if not is_whole(gpu) or not 0 <= gpu <= 1024:
        yield "resources", f"gpu: expected a whole number from 0 to 1,024, found {shorten(gpu)}"
    if not is_whole(step.retry.limit) or not 0 <= step.retry.limit <= 100:
        yield "retry", f"limit: expected a whole number from 0 to 100, found {shorten(step.retry.limit)}"
    if not (is_number(step.retry.backoff) and 0 <= step.retry.backoff <= 86_400):
        yield "retry", f"backoff: expected 0 to 86,400 seconds, found {shorten(step.retry.backoff)}"
    if step.time_limit is not None and not (is_number(step.time_limit) and 0 < step.time_limit <= 31_536_000):
        yield "time_limit", f"expected more than 0 seconds and at most a year, found {shorten(step.time_limit)}"


def _are_texts(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(item, str) for item in value)
