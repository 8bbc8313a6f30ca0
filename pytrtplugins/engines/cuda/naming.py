"""Exceptions raised for one node become errors that name the node, its operator and the reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import PytrtpluginsError
from ..base.failures import as_error

__all__ = ["naming"]


@contextmanager
def naming(name: str, op: str) -> Iterator[None]:
    """Raise what is raised while a node is lowered, planned or built as an error that names the node.

    Args:
        name: Name of the node.
        op: Its operator.

    Raises:
        BuildError: a library raised an exception of its own type.
        PytrtpluginsError: an error of this package, of the same class and with the same facts.
    """
    what = f"engine 'cuda' cannot compute node {name!r} ({op})"
    try:
        with as_error(what, "cuda"):
            yield
    except PytrtpluginsError as error:
        if not name or repr(name) in str(error):
            raise
        raise type(error)(f"{what}: {error}", **{"node": name, "op": op, **error.facts}) from error
