"""Who is right where oracles differ, by ONNX's text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .formulas import LEGACY, NEWEST

if TYPE_CHECKING:
    from .form import Form

__all__ = ["VERDICTS", "Verdict", "verdict"]


@dataclass(frozen=True)
class Verdict:
    """One kind of form on which oracles differ.

    Attributes:
        operators: Operators.
        right: The oracle that is right; or, beginning with ``undefined``, why no result is.
        why: By which sentence of ONNX's text.
        applies: Whether a form is of this kind.
    """

    operators: tuple[str, ...]
    right: str
    why: str
    applies: Callable[[Form], bool] = lambda form: True


VERDICTS: tuple[Verdict, ...] = (
    Verdict(
        tuple(LEGACY),
        "formula",
        "before opset 7 (softmaxes 13, Concat 4, Tile 6) the operator means something else, which the libraries do not compute",
        lambda form: form.version <= NEWEST.get(form.operator, 6),
    ),
)


def verdict(form: Form, answers: Mapping[str, Any]) -> str:
    """The oracle that is right for a form by the table; empty where the table does not speak of it."""
    for row in VERDICTS:
        if (
            form.operator in row.operators
            and row.applies(form)
            and (row.right in answers or row.right.startswith("undefined"))
        ):
            return row.right
    return ""
