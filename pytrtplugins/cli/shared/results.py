"""Show a command's result, as text, or as JSON with ``--json``."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, TextIO, TypeVar

import numpy as np

from ...version import __version__
from .option import typer

__all__ = ["Output", "Result", "current_output", "option_name", "output", "show", "to_json"]

Found = TypeVar("Found")
_output: ContextVar[Output] = ContextVar("output")


class Output:
    """The output of the running command, from its first option to its end.

    Attributes:
        stdout: Standard output as the process has it.
        command: The context of the command whose result is shown as JSON; None where text is.
        quiet: Whether errors alone are printed.
        verbose: Whether all is printed.

    Args:
        stack: What it opens is closed with it.
        restore: Give the process its standard output back at the end; without it what libraries and plugins print while the process
            ends does not get behind the JSON.
    """

    def __init__(self, stack: ExitStack, restore: bool = True) -> None:
        self.stdout, self.command, self._stack = sys.stdout, None, stack
        self.quiet = self.verbose = False
        self._restore = restore

    def be_quiet(self) -> None:
        """Discard printed text."""
        self.quiet = True
        nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  the stack closes it
        self._stack.enter_context(redirect_stdout(self._stack.enter_context(nowhere)))

    def be_json(self, command: Any) -> None:
        """Write only the result to standard output, as JSON; printed text goes to standard error, or is discarded.

        That holds for what libraries and plugins write to the file descriptor, too.
        """
        if self.command is None:
            self._keep_descriptor()
        self.command = command
        if sys.stdout is not sys.stderr and not self.quiet:
            self._stack.enter_context(redirect_stdout(sys.stderr))

    def _keep_descriptor(self) -> None:
        """Write to a copy of the descriptor of standard output, which itself becomes that of standard error."""
        original = self.stdout
        try:
            if (original.fileno(), sys.stderr.fileno()) != (1, 2):
                return
        except (AttributeError, OSError, ValueError):  # something else took their place
            return
        original.flush()
        descriptor = os.dup(1)
        os.dup2(2, 1)
        self.stdout = self._stack.enter_context(open(descriptor, "w", encoding="utf-8"))  # noqa: SIM115
        if self._restore:
            self._stack.callback(os.dup2, descriptor, 1)
        self._stack.callback(_flush_all, original)
        self._stack.callback(self.stdout.flush)


def _flush_all(stream: TextIO) -> None:
    """Write what a stream, and the standard output of C, still hold, to where the descriptor leads."""
    with contextlib.suppress(OSError, ValueError):
        stream.flush()
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).fflush(None)


@contextmanager
def output(*, restore: bool = True) -> Iterator[None]:
    """Context that restores the output options when the command ends; ``restore`` is passed to `Output`."""
    with ExitStack() as stack:
        token = _output.set(Output(stack, restore))
        stack.callback(_output.reset, token)
        yield


def current_output() -> Output:
    """The output of the command that runs."""
    return _output.get()


@dataclass(frozen=True)
class Result(Generic[Found]):
    """The result of a command; its type determines the keys of the JSON.

    Attributes:
        found: A dataclass: its fields are the keys of ``result``.
        text: Prints the same for people.
        ok: Whether what was checked holds; if not, the exit code is not 0.
        problem: What does not hold, for those who want to see errors only.
        code: The exit code where it does not hold.
    """

    found: Found
    text: Callable[[Found], object]
    ok: bool = True
    problem: str = ""
    code: int = 1


def show(result: Result[Any] | None, **_: object) -> None:
    """Print the result of a command. Click calls it as the result callback of groups.

    Raises:
        typer.Exit: with the result's code, where it is not ok.
    """
    if result is None:
        return
    out = current_output()
    if out.command is None:
        result.text(result.found)
    else:
        params = [parameter for parameter in out.command.command.params if parameter.expose_value]
        shown = {
            "command": out.command.command_path,
            "version": __version__,
            "ok": result.ok,
            "options": {option_name(parameter): out.command.params.get(parameter.name) for parameter in params},
            "result": result.found,
        }
        out.stdout.write(json.dumps(to_json(shown), indent=2, allow_nan=False) + "\n")
    if not result.ok:
        if out.quiet and out.command is None and result.problem:
            print(result.problem, file=sys.stderr)
        raise typer.Exit(result.code)


def option_name(parameter: Any) -> str:
    """An option's long name without its dashes, or an argument's name: what it is called in JSON and in pytrt.toml."""
    return str(max(parameter.opts, key=len)).lstrip("-").lower()


def to_json(value: Any) -> Any:
    """A value in JSON's types: a dataclass as an object of its fields, numbers that are not finite as null, what JSON lacks as text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return to_json(value.tolist())
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Iterable):
        return [to_json(item) for item in value]
    return str(value)
