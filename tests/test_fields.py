"""Typed attributes ↔ values ↔ bytes."""

from __future__ import annotations

import struct
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from pytrtplugins.errors import FieldError, SerializationError
from pytrtplugins.fields import (
    MISSING,
    FieldSpec,
    collect_field_specs,
    fields_equal,
    format_value,
    pack_fields,
    unpack_fields,
)


class Base:
    first: int
    shared: ClassVar[int] = 3
    _private: int = 0


class Declared(Base):
    second: float = 1
    third: tuple[str, ...] = ("a",)
    fourth: np.ndarray = np.zeros(2, np.float32)
    unannotated = 5


def test_fields_are_collected_base_class_first_without_classvars_and_private_names():
    specs = collect_field_specs(Declared)
    assert [spec.name for spec in specs] == ["first", "second", "third", "fourth"]
    assert specs[0].default is MISSING
    assert specs[1].default == 1.0
    assert isinstance(specs[1].default, float)


class Unsupported:
    table: dict[str, int] = {}  # noqa: RUF012


class WrongDefault:
    count: int = "three"


@pytest.mark.parametrize("cls", [Unsupported, WrongDefault])
def test_an_unusable_declaration_is_refused_with_the_field_name(cls):
    with pytest.raises(FieldError) as caught:
        collect_field_specs(cls)
    assert caught.value.name in cls.__annotations__


INT, FLOAT, FLAG = FieldSpec("i", int), FieldSpec("f", float), FieldSpec("b", bool)


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        (INT, 1.0),
        (INT, True),
        (INT, "1"),
        (INT, 2**63),
        (FLOAT, "x"),
        (FLOAT, True),
        (FLOAT, 1e39),
        (FLOAT, 10**400),
        (FLAG, 2),
        (FLAG, None),
    ]
    + [(FieldSpec("t", int, is_tuple=True), value) for value in (3, "12", (1, 2.5))]
    + [(FieldSpec("a", np.ndarray), value) for value in (["x"], np.zeros(1, np.complex64), object())],
)
def test_a_value_of_another_type_is_refused(spec, value):
    with pytest.raises(FieldError, match=f"Layer.{spec.name}"):
        spec.convert(value, "Layer")


def test_values_are_brought_to_one_form():
    assert FLOAT.convert(0.1, "L") == float(np.float32(0.1))
    assert FieldSpec("t", float, is_tuple=True).convert([1, np.float64(2)], "L") == (1.0, 2.0)
    assert INT.convert(np.int32(7), "L") == 7
    assert FLAG.convert(1, "L") is True
    source = np.arange(6.0).reshape(2, 3).T
    array = FieldSpec("a", np.ndarray).convert(source, "L")
    assert array.flags.c_contiguous
    assert not array.flags.writeable
    source[0, 0] = 9
    assert array[0, 0] == 0


SPECS = (
    FieldSpec("i", int),
    FieldSpec("f", float),
    FieldSpec("b", bool),
    FieldSpec("s", str),
    FieldSpec("ints", int, is_tuple=True),
    FieldSpec("floats", float, is_tuple=True),
    FieldSpec("bools", bool, is_tuple=True),
    FieldSpec("strs", str, is_tuple=True),
    FieldSpec("a", np.ndarray),
)
INTS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(width=32)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ARRAYS = st.sampled_from(["float32", "int8", "bool", "int64", "float16"]).flatmap(
    lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
VALUES = st.tuples(
    INTS, FLOATS, st.booleans(), TEXTS, *(st.lists(s, max_size=3) for s in (INTS, FLOATS, st.booleans(), TEXTS)), ARRAYS
)


@given(VALUES)
def test_fields_survive_packing(values):
    fields = {spec.name: spec.convert(value, "L") for spec, value in zip(SPECS, values, strict=True)}
    again = unpack_fields(SPECS, pack_fields(SPECS, fields), "L")
    assert pack_fields(SPECS, again) == pack_fields(SPECS, fields)
    fields.pop("f"), again.pop("f")  # NaN is not equal to itself
    fields.pop("floats"), again.pop("floats")
    assert fields_equal(fields, again)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_and_nothing_else_is_raised(data):
    with pytest.raises(SerializationError):
        unpack_fields(SPECS, data, "L")


def test_an_array_larger_than_its_data_is_refused_before_it_is_made():
    spec = (FieldSpec("a", np.ndarray),)
    whole = pack_fields(spec, {"a": np.zeros((2, 2), np.float32)})
    huge = whole.replace(struct.pack("<2Q", 2, 2), struct.pack("<2Q", 2**40, 2**40))
    with pytest.raises(SerializationError, match="ends early"):
        unpack_fields(spec, huge, "L")


def test_left_over_and_missing_fields_are_refused():
    spec = (FieldSpec("i", int),)
    data = pack_fields(spec, {"i": 3})
    for wrong, text in ((data + b"\0", "left over"), (data[:-1], "ends early")):
        with pytest.raises(SerializationError, match=text):
            unpack_fields(spec, wrong, "L")
    with pytest.raises(SerializationError, match="holds 1 fields, the class declares 0"):
        unpack_fields((), data, "L")
    with pytest.raises(SerializationError, match="expected field 'j'"):
        unpack_fields((FieldSpec("j", int),), data, "L")


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_printed_float_reads_back_as_the_same_float32(value):
    assert np.float32(format_value(value)) == np.float32(value)


def test_values_print_as_a_person_writes_them():
    assert format_value((float(np.float32(0.1)), 2.0)) == "(0.1, 2.0)"
    assert format_value((1,)) == "(1,)"
    assert format_value(()) == "()"
    assert format_value(np.zeros((2, 3), np.int8)) == "array(int8, shape=(2, 3))"


def test_types_are_named_as_they_are_written():
    assert FieldSpec("scale", float).type_name == "float"
    assert FieldSpec("sizes", int, is_tuple=True).type_name == "tuple[int, ...]"
    assert FieldSpec("table", np.ndarray).type_name == "numpy.ndarray"
