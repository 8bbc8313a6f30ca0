"""Explore all paths through a function, by the answers to its queries about traced values."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from ..errors import DimsError, ExportError, FieldError, KernelError, PluginError
from ._values import Expr, answering, parts_of, readable

__all__ = ["Fork", "Raised", "Returned", "Tree", "Unreachable", "explore", "leaves", "user_line"]

_MAX_PATHS = 512
_PACKAGE = Path(__file__).parents[1]
_NOT_THE_USERS = ("numpy", "cupy", "contextlib.py", "functools.py")


@dataclass(frozen=True)
class Returned:
    """A path that ends in a return value."""

    value: Any


@dataclass(frozen=True)
class Raised:
    """A path that ends in an exception: its kind (``"DimsError"``) and its message, as texts and expressions."""

    error: str
    message: tuple[str | Expr, ...]


@dataclass(frozen=True)
class Unreachable:
    """A path that is never taken, since an earlier method raises there."""


@dataclass(frozen=True)
class Fork:
    """A branch by the answer to a query."""

    question: Expr
    yes: Tree
    no: Tree


Tree: TypeAlias = Returned | Raised | Unreachable | Fork


class OtherError(ExportError):
    """The function raised an exception that is no refusal of a plugin."""


def leaves(tree: Tree) -> list[Tree]:
    """The ends of all ways."""
    return [*leaves(tree.yes), *leaves(tree.no)] if isinstance(tree, Fork) else [tree]


def ends(tree: Tree) -> list[Any]:
    """The values at the ends of a tree's paths."""
    return [leaf.value for leaf in leaves(tree) if isinstance(leaf, Returned)]


def map_ends(tree: Tree, function: Callable[[Any], Any]) -> Tree:
    """The tree with ``function`` applied to the values at the ends of its paths."""
    if isinstance(tree, Fork):
        return Fork(tree.question, map_ends(tree.yes, function), map_ends(tree.no, function))
    return Returned(function(tree.value)) if isinstance(tree, Returned) else tree


def explore(function: Callable[[], Any], what: str) -> Tree:
    """Run a deterministic function once for each path through it; ``what`` names it in messages.

    Raises:
        ExportError: it needs a traced value as a number, it does not do the same each time, or has too many ways.
        OtherError: it raised an exception that is none of a plugin's.
    """
    explorer = _Explorer(function, what)
    tree = explorer.grow([])
    if explorer.other and not ends(tree):
        raise explorer.other
    return tree


class _Explorer:
    """The search over paths: answers recorded so far."""

    def __init__(self, function: Callable[[], Any], what: str) -> None:
        self._function, self._what, self._runs = function, what, 0
        self.other: ExportError | None = None  # what was taken for a refusal of arrays with other numbers of axes

    def grow(self, begin: list[tuple[Expr, bool]]) -> Tree:
        path, tree = self._run(begin)
        for place in reversed(range(len(begin), len(path))):
            question, answer = path[place]
            other = self.grow([*path[:place], (question, not answer)])
            tree = _fork(question, tree, other) if answer else _fork(question, other, tree)
        return tree

    def _run(self, begin: list[tuple[Expr, bool]]) -> tuple[list[tuple[Expr, bool]], Tree]:
        self._runs += 1
        if self._runs > _MAX_PATHS:
            raise ExportError(
                f"{self._what} branches in more than {_MAX_PATHS} ways.\n"
                "Do: give the fields on which it branches their values in the export, --set NAME=VALUE"
            )
        path: list[tuple[Expr, bool]] = []
        answers: dict[Expr, bool] = {}

        def answer(question: Expr) -> bool:
            if question not in answers:
                place = len(path)
                if place < len(begin) and begin[place][0] != question:
                    raise ExportError(
                        f"{self._what} does not do the same each time: it asks something else than in the run before.\n"
                        f"Do: {_FACTS}"
                    )
                answers[question] = begin[place][1] if place < len(begin) else False
                path.append((question, answers[question]))
            return answers[question]

        with answering(answer):
            try:
                return path, Returned(self._function())
            except _Unreachable:
                return path, Unreachable()
            except ExportError as error:
                raise _error_with_line(self._what, error, str(error), _NUMBERS) from error
            except KernelError as error:
                action = _ARRAYS if "no values" in str(error) else _LAUNCH
                raise _error_with_line(self._what, error, str(error), action) from error
            except PluginError as error:
                kind = next(kind.__name__ for kind in (DimsError, FieldError, PluginError) if isinstance(error, kind))
                return path, Raised(kind, parts_of(str(error)))
            except Exception as error:
                message = f"{type(error).__name__}: {error}"
                other = _error_with_line(self._what, error, message, f"{_FACTS}; {_ARRAYS}", OtherError)
                if not any(question.op == "==" and question.args[0].op == "rank" for question, _ in path):
                    raise other from error
                self.other = self.other or other
                return path, Raised("FieldError", (f"{self._what}: {error}",))


class _Unreachable(Exception):
    """Raised to end a path that is never taken."""


def unreachable_where_refused(function: Callable[[], Any]) -> Any:
    """Call a function that an earlier method has already called: paths on which it raises are unreachable."""
    try:
        return function()
    except (ExportError, KernelError):
        raise
    except PluginError:
        raise _Unreachable from None


def _fork(question: Expr, yes: Tree, no: Tree) -> Tree:
    if yes == no or isinstance(no, Unreachable):
        return yes
    return no if isinstance(yes, Unreachable) else Fork(question, yes, no)


def user_line(error: BaseException) -> tuple[str, int, str] | None:
    """File, number and text of the line of the user's code where an exception began."""
    line = None
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        inside = path.is_relative_to(_PACKAGE) and not path.is_relative_to(_PACKAGE / "layers")
        if not inside and not any(part in frame.filename for part in _NOT_THE_USERS):
            line = frame.filename, frame.lineno or 0, linecache.getline(frame.filename, frame.lineno or 0).strip()
    return line


_ARRAYS = "only launch kernels in enqueue: in an export arrays have dims and a type, but no values"
_FACTS = "let it depend on fields, dims and types alone"
_LAUNCH = "correct the launch; pytrt check-plugin tries it on this machine"
_NUMBERS = f"{_FACTS}, or give fields their values, --set NAME=VALUE"


def _error_with_line(
    what: str, error: Exception, message: str, action: str, kind: type[ExportError] = ExportError
) -> ExportError:
    """The error with the method and the line of the user's code; the message's own action comes before the usual one."""
    line = user_line(error)
    message, _, own = readable(message).partition("\nDo: ")
    where, facts = "", {}
    if line is not None:
        path, number, text = line
        where, facts = f"\n{path}:{number}\n    {text}", {"path": path, "line": number}
    return kind(f"{what} cannot be exported: {message.rstrip('.')}.{where}\nDo: {own or action}", **facts)
