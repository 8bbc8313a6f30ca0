"""Start and end a command: streams that accept any text, and messages instead of tracebacks."""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import PytrtpluginsError

__all__ = ["COMMAND", "be_quiet", "be_verbose", "exit_on_error", "hide_libraries_at_exit", "is_quiet"]

_LONGEST_PATH = 4096
_LONGEST = 9000  # characters of a line of a message: two paths as long as systems take
_PACKAGE = logging.getLogger("pytrtplugins")

COMMAND: dict[str, Any] = {
    "no_args_is_help": True,
    "add_completion": False,
    "rich_markup_mode": "rich",
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
"""How typer makes a command."""


def be_verbose() -> None:
    """Show the package's log messages, and after an error also what libraries reported."""
    _PACKAGE.setLevel(logging.INFO)


def be_quiet() -> None:
    """Show errors only: no warnings, no progress."""
    _PACKAGE.setLevel(logging.ERROR)


def is_quiet() -> bool:
    """Whether the command that runs shows errors only."""
    return _PACKAGE.level == logging.ERROR


def _print(title: str, message: str) -> None:
    print(f"{title}: {message}", file=sys.stderr)


def _shorten_lines(text: str) -> str:
    """Cut the middle out of long lines, such as those with a path of thousands of characters."""
    lines = (
        line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} ... {line[-_LONGEST // 2 :]}"
        for line in text.split("\n")
    )
    return "\n".join(lines)


@contextmanager
def exit_on_error(show: Callable[[str, str], None] = _print) -> Iterator[None]:
    r"""Show this package's errors, and those of files, without a traceback, and end with exit code 2.

    ``show`` takes the error's title and its message.

    Text that the terminal's encoding lacks is written as ``\u2192`` and the like; where stdout or stderr is closed, nothing is.
    The exit code is 0 where the reader of a pipe has seen enough, 130 after Ctrl-C.
    """
    _open_streams()
    _end_quickly()
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    before = _PACKAGE.level  # options of a command are not those of the process that it is called in
    _PACKAGE.setLevel(logging.NOTSET)
    try:
        try:
            yield
        except SystemExit as end:
            if isinstance(end.__context__, BrokenPipeError):  # typer and rich make code 1 of it
                raise _exit_after(_code_behind(end.__context__)) from None
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    except PytrtpluginsError as error:
        raise _exit_after(2, show, type(error).__name__, _error_text(error)) from None
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        raise _exit_after(0) from None
    except OSError as error:
        title = str(error.filename2 or error.filename or "output")
        title = title if len(title) <= _LONGEST_PATH else f"{title[:60]}..."
        raise _exit_after(2, show, title, error.strerror or str(error)) from None
    except KeyboardInterrupt:
        raise _exit_after(130) from None
    finally:
        _PACKAGE.setLevel(before)


def _error_text(error: PytrtpluginsError) -> str:
    """The message of an error; with `be_verbose` also what a library reported."""
    message, text = str(error), str(error.facts.get("text") or "").strip()
    if not text or text in message:
        return message
    if _PACKAGE.level == logging.INFO:
        return f"{message}\n\nWhat the library reported:\n{text}"
    return message.replace("the whole text is in .text", "--verbose shows all")


def _open_streams() -> None:
    """Reopen closed standard streams, and let all of them accept any text."""
    for number in range(3):  # else the next file to be opened would become stdout, and get what libraries print
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  for as long as the process lives
        elif getattr(stream, "errors", "") in ("strict", "surrogateescape") and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _end_quickly() -> None:
    """Skip garbage collection at the end of the process, which takes a sixth of a short command's time."""
    atexit.unregister(gc.freeze)  # of an earlier command in this process
    atexit.register(gc.freeze)


def hide_libraries_at_exit() -> None:
    """Drop what libraries write to standard error while Python itself is taken down, such as nanobind's lists of what was leaked.

    It is the last function of `atexit` to run, if it is called before others are registered.
    """
    atexit.register(_drop_stderr)


def _drop_stderr() -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _exit_after(
    code: int, show: Callable[[str, str], None] | None = None, title: str = "", message: str = ""
) -> SystemExit:
    """Write a message, and return the SystemExit to raise; output that cannot be written is dropped, or Python would report it."""
    if show is not None:
        with contextlib.suppress(OSError, SystemExit):  # rich ends the process where its reader is gone
            show(_shorten_lines(title), _shorten_lines(message))
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            stream.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    return SystemExit(code)


def _code_behind(error: BaseException | None) -> int:
    """The exit code of typer's own error that was being shown; 0 where there is none."""
    while error is not None and not hasattr(error, "exit_code"):
        error = error.__context__
    return int(getattr(error, "exit_code", 0))
