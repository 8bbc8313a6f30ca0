"""The command ``pytrt``."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from ..errors import MissingExtraError, PytrtpluginsError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; errors of this package are printed without a traceback, with exit code 2.

    Args:
        arguments: The words after ``pytrt``; None: the process's.

    Raises:
        SystemExit: always; code 0, or 1 where a check failed, or 2 after an error.
    """
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    try:
        from .app import app
    except MissingExtraError as error:
        sys.exit(f"MissingExtraError: {error}")
    from .tables import print_error

    try:
        app(args=None if arguments is None else list(arguments), prog_name="pytrt")
    except PytrtpluginsError as error:
        print_error(type(error).__name__, str(error))
        raise SystemExit(2) from None
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except OSError as error:
        print_error(str(error.filename or "file"), error.strerror or str(error))
        raise SystemExit(2) from None
