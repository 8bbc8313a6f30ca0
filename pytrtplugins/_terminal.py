"""How commands end: messages instead of tracebacks."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .errors import PytrtpluginsError

__all__ = ["exit_on_error"]


def _print(title: str, message: str) -> None:
    print(f"{title}: {message}", file=sys.stderr)


@contextmanager
def exit_on_error(show: Callable[[str, str], None] = _print) -> Iterator[None]:
    """Show this package's errors, and those of files, without a traceback, and end with exit code 2.

    Args:
        show: Takes the error's title and its message.
    """
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    try:
        yield
    except PytrtpluginsError as error:
        show(type(error).__name__, str(error))
        raise SystemExit(2) from None
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except OSError as error:
        show(str(error.filename2 or error.filename or "file"), error.strerror or str(error))
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
