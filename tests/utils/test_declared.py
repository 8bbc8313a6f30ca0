"""Values and the types that are declared for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.utils.declared import check_fields, field_limits, mismatch
from pytrtplugins.utils.numbers import FloatRange, IntRange


@pytest.mark.parametrize(
    ("value", "hint", "said"),
    [
        ("a", str, None),
        (1, str, "text"),
        (True, int, "a whole number"),
        (1, float, None),
        ("1", float | None, "a number"),
        ("a", Path, None),
        ("c", Literal["a", "b"], "'a' or 'b'"),
        (3, Annotated[int | None, IntRange(1, 2)], "a whole number from 1 to 2"),
        (float("nan"), Annotated[float, FloatRange(0, 1)], "a number from 0 to 1"),
        ([1, 2], Annotated[tuple[int, ...], IntRange(1, 2)], None),
        ([1, 3], Annotated[tuple[int, ...], IntRange(1, 2)], "a list of a whole number from 1 to 2"),
        ("ab", list[str], "a list"),
        (["a", 1], tuple[str | int, ...], None),
        ([1.5], tuple[str | int, ...], "a list of text or a whole number"),
    ],
)
def test_a_value_that_does_not_fit_is_told_what_is_expected(value, hint, said):
    assert mismatch(value, hint) == said


@dataclass(frozen=True)
class Size:
    name: str | None = None
    rows: Annotated[int, IntRange(1, 9)] = 1
    most: Annotated[int | None, IntRange(1, 9)] = None

    def __post_init__(self):
        check_fields(self)


def test_a_dataclass_holds_the_types_and_limits_that_it_declares():
    assert Size(None, 9) == Size(rows=9)
    assert field_limits(Size, "rows") == IntRange(1, 9)
    assert (Size().most, Size(most=9).most) == (None, 9)
    for values in ({"rows": 0}, {"rows": None}, {"name": 1}, {"most": 10}):
        with pytest.raises(UsageError, match=rf"Size\.{next(iter(values))}: expected .*, found"):
            Size(**values)
