"""Exceptions raised for one node become errors that name the node, its operator and the reason."""

from __future__ import annotations

from ...errors import PytrtpluginsError
from ..base.failures import as_error

__all__ = ["naming"]


class naming:
    """Raise what is raised while a node is lowered, planned or built as an error that names the node.

    Args:
        name: Name of the node.
        op: Its operator.

    Raises:
        BuildError: a library raised an exception of its own type.
        PytrtpluginsError: an error of this package, of the same class and with the same facts.
    """

    __slots__ = ("_name", "_op")

    def __init__(self, name: str, op: str) -> None:
        self._name, self._op = name, op

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception):
            return
        name, op = self._name, self._op
        what = f"engine 'cuda' cannot compute node {name!r} ({op})"
        try:
            with as_error(what, "cuda"):
                raise error
        except PytrtpluginsError as explained:
            if not name or repr(name) in str(explained):
                raise
            raise type(explained)(f"{what}: {explained}", **{"node": name, "op": op, **explained.facts}) from explained
