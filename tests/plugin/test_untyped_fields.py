"""Class attributes without a type: refused where they could be fields."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pytrtplugins.errors import FieldError
from pytrtplugins.plugin.fields import collect_field_specs


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (2, "groups: int = 2;"), (0.5, "groups: float = 0.5;"), (True, "groups: bool = True;"), ("a", "groups: str = 'a';"),
        ((1, 2), "groups: tuple[int, ...] = (1, 2);"), (np.zeros(3, np.float32), "groups: np.ndarray = array(float32, shape=(3,));"),
        ("x" * 100, "groups: str = ...;"),
    ],
)  # fmt: skip
def test_a_value_without_a_type_is_refused_with_what_to_write(value, written):
    with pytest.raises(FieldError, match=r"^Grouped\.groups = .* has no type, so it is not a field\.") as caught:
        collect_field_specs(type("Grouped", (), {"groups": value}))
    assert f"Do: annotate it: {written} or, for a constant, groups: ClassVar[" in str(caught.value)
    assert str(caught.value).endswith("or _groups")


@pytest.mark.parametrize(
    "kind",
    [np.generic, np.number, np.floating, np.integer, np.signedinteger, np.unsignedinteger, np.inexact, Any],
)
def test_an_array_of_some_kind_of_number_leaves_its_type_open(kind):
    annotations = {"table": npt.NDArray[kind], "exact": npt.NDArray[np.float16]}  # type: ignore[valid-type]
    specs = collect_field_specs(type("Looked", (), {"__annotations__": annotations, "__module__": __name__}))
    assert [spec.dtype for spec in specs] == ["", "float16"]


@pytest.mark.parametrize("value", [None, (), (1, "a"), [1], {}, len, property(len), np.int64(3)])
def test_what_could_be_no_field_needs_no_type(value):
    assert collect_field_specs(type("Stateful", (), {"state": value})) == ()
