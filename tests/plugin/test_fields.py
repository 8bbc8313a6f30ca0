"""Typed attributes ↔ values ↔ bytes."""

from __future__ import annotations

import dataclasses
import struct
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from pytrtplugins.errors import FieldError, SerializationError
from pytrtplugins.plugin.fields import (
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
    CONSTANT = 5
    _hidden = 6
    shared = 4  # of the base, where it has a type


def test_fields_are_collected_base_class_first_without_classvars_and_private_names():
    specs = collect_field_specs(Declared)
    assert [spec.name for spec in specs] == ["first", "second", "third", "fourth"]
    assert specs[0].default is MISSING
    assert specs[1].default == 1.0
    assert isinstance(specs[1].default, float)


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        (dict[str, int], {}),
        (int, "three"),
        (tuple[()], ()),
        *((kind, MISSING) for kind in (tuple[int, str], tuple[bytes, ...], tuple)),
    ],
)
def test_an_unusable_declaration_is_refused_with_the_field_name(kind, default):
    given = {} if default is MISSING else {"field": default}
    with pytest.raises(FieldError) as caught:
        collect_field_specs(type("Declared", (), {"__annotations__": {"field": kind}, **given}))
    assert caught.value.name == "field"


@pytest.mark.parametrize(
    ("annotation", "words"),
    [("(int, float)", r"(?s:.*)Do: (?s:.*) as in count: int"), ("Nowhere", "name 'Nowhere' is not defined")],
)
def test_an_annotation_that_is_no_type_is_refused_with_class_and_reason(annotation, words):
    cls = type("Wrong", (), {"__annotations__": {"count": annotation}})
    with pytest.raises(FieldError, match=f"^Wrong: .* cannot be resolved: {words}") as caught:
        collect_field_specs(cls)
    assert caught.value.cls is cls


class Slotted:
    __slots__ = ("count", "ratio")
    count: int
    ratio: float


class Computed(Slotted):
    constant: ClassVar = 2
    _hidden: int = 1
    matrix: np.ndarray[tuple[int, ...], np.dtype[np.float32]]
    corners: tuple[float, float] = (0, 1)

    @property
    def count(self):  # type: ignore[override]
        return 3


def test_slots_and_properties_are_no_defaults_and_typed_arrays_and_fixed_tuples_are_fields():
    specs = collect_field_specs(Computed)
    assert [(spec.name, spec.kind, spec.is_tuple, spec.default) for spec in specs] == [
        ("count", int, False, MISSING),
        ("ratio", float, False, MISSING),
        ("matrix", np.ndarray, False, MISSING),
        ("corners", float, True, (0.0, 1.0)),
    ]


def test_a_field_that_several_classes_share_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        collect_field_specs(Declared)[0].default = 1


class NoArray:
    def __array__(self, dtype=None, copy=None):
        raise TypeError("not an array")


LARGEST_INT = 2**128 - 2**104  # float32's largest number
INT, FLOAT, FLAG = FieldSpec("i", int), FieldSpec("f", float), FieldSpec("b", bool)


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        (INT, 1.0),
        (INT, True),
        (INT, "1"),
        (INT, 2**63),
        (INT, -(2**63) - 1),
        (FLOAT, "x"),
        (FLOAT, True),
        (FLOAT, 1e39),
        (FLOAT, 10**400),
        (FLOAT, -(10**400)),
        (FLOAT, LARGEST_INT + 1),
        (FLOAT, np.nextafter(float(LARGEST_INT), np.inf)),
        (FLAG, 2),
        (FLAG, 1.0),
        (FLAG, None),
        (FLAG, np.array([True, False])),
        (FLAG, np.zeros(0, np.bool_)),
    ]
    + [(FieldSpec("t", int, is_tuple=True), value) for value in (3, "12", (1, 2.5))]
    + [
        (FieldSpec("a", np.ndarray), value)
        for value in (["x"], [[1], [1, 2]], np.zeros(1, np.complex64), object(), NoArray())
    ],
)
def test_a_value_of_another_type_is_refused(spec, value):
    with pytest.raises(FieldError, match=f"Layer.{spec.name}"):
        spec.convert(value, "Layer")


def test_the_message_says_the_field_its_type_and_what_was_given():
    with pytest.raises(FieldError, match=r"^L\.t: expected tuple\[int, \.\.\.\], found 'x' \(str\)") as caught:
        FieldSpec("t", int, is_tuple=True).convert("x", "L")
    assert (caught.value.name, caught.value.expected, caught.value.found) == ("t", "tuple[int, ...]", "x")
    with pytest.raises(FieldError, match=r"^L\.f: 1e\+300 does not fit into float32"):
        FLOAT.convert(10**400, "L")
    with pytest.raises(FieldError, match=r"^L\.f: -1e\+300 does not fit into float32"):
        FLOAT.convert(-(10**400), "L")


def test_the_largest_and_smallest_values_fit():
    assert INT.convert(2**63 - 1, "L") == 2**63 - 1
    assert INT.convert(-(2**63), "L") == -(2**63)
    for sign in (1, -1):
        assert FLOAT.convert(sign * LARGEST_INT, "L") == sign * LARGEST_INT
        assert FLOAT.convert(float(sign * LARGEST_INT), "L") == sign * LARGEST_INT
        assert FLOAT.convert(sign * float("inf"), "L") == sign * float("inf")
    assert np.isnan(FLOAT.convert(float("nan"), "L"))


def test_values_are_brought_to_one_form():
    assert FLOAT.convert(0.1, "L") == float(np.float32(0.1))
    assert FieldSpec("t", float, is_tuple=True).convert([1, np.float64(2)], "L") == (1.0, 2.0)
    assert INT.convert(np.int32(7), "L") == 7
    assert FLAG.convert(1, "L") is True
    assert FLAG.convert(0, "L") is False
    assert FLAG.convert(np.True_, "L") is True
    source = np.arange(6.0).reshape(2, 3).T
    array = FieldSpec("a", np.ndarray).convert(source, "L")
    assert array.flags.c_contiguous
    assert not array.flags.writeable
    source[0, 0] = 9
    assert array[0, 0] == 0


KINDS = {"i": int, "f": float, "b": bool, "s": str}
SPECS = (
    *(FieldSpec(name, kind) for name, kind in KINDS.items()),
    *(FieldSpec(f"{kind.__name__}s", kind, is_tuple=True) for kind in KINDS.values()),
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


ARRAY = b"\5\0\0\0int32\2\0\0\0\1\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0\1\0\0\0\2\0\0\0\2\1\0\0"
# The layout of docs/reference/format.md, written by hand: type code, value, bytes.
LAYOUT = {
    "bool": (bool, False, True, 1, b"\1"),
    "int": (int, False, -2, 2, b"\xfe" + 7 * b"\xff"),
    "float": (float, False, 0.5, 3, b"\0\0\0\x3f"),
    "str": (str, False, "é", 4, b"\2\0\0\0\xc3\xa9"),
    "bools": (bool, True, (True, False), 17, b"\2\0\0\0\1\0"),
    "ints": (int, True, (1, 258), 18, b"\2\0\0\0\1\0\0\0\0\0\0\0\2\1\0\0\0\0\0\0"),
    "floats": (float, True, (), 19, b"\0\0\0\0"),
    "strs": (str, True, ("a", ""), 20, b"\2\0\0\0\1\0\0\0a\0\0\0\0"),
    "array": (np.ndarray, False, np.array([[1, 2, 258]], np.int32), 33, ARRAY),
}


@pytest.mark.parametrize("name", LAYOUT)
def test_bytes_are_those_of_the_documented_layout(name):
    kind, is_tuple, value, code, payload = LAYOUT[name]
    specs = (FieldSpec(name, kind, is_tuple=is_tuple),)
    data = b"\1\0\0\0" + bytes([len(name), 0, 0, 0]) + name.encode() + bytes([code]) + payload
    assert pack_fields(specs, {name: value}) == data
    (found,) = unpack_fields(specs, data, "L").values()
    assert type(found) is type(value)
    np.testing.assert_array_equal(found, value)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "int32", "int64", "bool", "float64"])
def test_arrays_of_each_type_survive_and_cannot_be_written(dtype):
    spec = (FieldSpec("a", np.ndarray),)
    given = np.array([[0, 1, 1], [1, 0, 1]], dtype)
    found = unpack_fields(spec, pack_fields(spec, {"a": given}), "L")["a"]
    assert found.dtype == given.dtype
    np.testing.assert_array_equal(found, given)
    with pytest.raises(ValueError, match="read-only"):
        found[0, 0] = 1


def array_data(dtype, shape, elements=b""):
    head = b"\1\0\0\0\1\0\0\0a\x21" + bytes([len(dtype), 0, 0, 0]) + dtype
    return head + struct.pack(f"<I{len(shape)}Q", len(shape), *shape) + elements


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (array_data(b"complex64", (1,), bytes(8)), r"array of type 'complex64' with 1 axes"),
        (array_data(b"int8", (1,) * 65, b"\0"), r"array of type 'int8' with 65 axes"),
        (array_data(b"int8", (0, 2**63)), r"array of shape \(0, 9223372036854775808\)"),
        (array_data(b"int8", (0, 2**62, 2**62)), r"array of shape \(0, 46"),
    ],
)
def test_an_array_that_numpy_cannot_have_is_refused(data, words):
    with pytest.raises(SerializationError, match=rf"^L\.a: {words}"):
        unpack_fields((FieldSpec("a", np.ndarray),), data, "L")


def test_an_array_of_most_axes_is_read():
    most = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32
    data = array_data(b"int8", (1,) * most, b"\7")
    assert unpack_fields((FieldSpec("a", np.ndarray),), data, "L")["a"].shape == (1,) * most


@pytest.mark.parametrize(
    ("data", "offset", "words"),
    [
        (b"\1\0\0", 0, "4 bytes expected at offset 0, 3 left"),
        (b"\1\0\0\0\1\0\0\0i\2" + bytes(7), 10, "8 bytes expected at offset 10, 7 left"),
        (b"\1\0\0\0\1\0\0\0i\2" + bytes(28), 18, "20 bytes are left over"),
        (b"\1\0\0\0\2\0\0\0\xc3\x28", 8, "text at offset 8 is not UTF-8"),
    ],
)
def test_a_refusal_says_where_in_the_data(data, offset, words):
    with pytest.raises(SerializationError, match=f"^L: .*{words}") as caught:
        unpack_fields((INT,), data, "L")
    assert caught.value.offset == offset


def test_fields_are_equal_in_names_values_and_types_shapes_and_bytes_of_arrays():
    array = np.zeros((2, 3), np.float32)
    assert fields_equal({"i": 1, "a": array}, {"a": array.copy(), "i": 1})
    for other in ({"a": array}, {"a": array, "i": 2}, {"a": array, "i": 1, "j": 1}):
        assert not fields_equal({"i": 1, "a": array}, other)
        assert not fields_equal(other, {"i": 1, "a": array})
    for changed in (array.view(np.int32), array.reshape(3, 2), array + 1):
        assert not fields_equal({"a": array}, {"a": changed})


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
    data = pack_fields((INT,), {"i": 3})
    for specs, given_data, text in (
        ((INT,), data + b"\0", "left over"),
        ((INT,), data[:-1], "ends early"),
        ((), data, r"holds 1 fields, the class declares 0 \(none\)"),
        ((INT, FLOAT), data, r"declares 2 \(i, f\)"),
        ((FieldSpec("i", float),), data, r"'i' of type float \(code 3\), found 'i' \(code 2\)"),
        ((FieldSpec("j", int),), data, "expected field 'j'"),
    ):
        with pytest.raises(SerializationError, match=text):
            unpack_fields(specs, given_data, "L")


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_printed_float_reads_back_as_the_same_float32(value):
    assert np.float32(format_value(value)) == np.float32(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (-2.5, "-2.5"),
        (1e-4, "0.0001"),
        (9e-5, "9e-05"),
        (97474816.0, "97474820.0"),
        (-1e15, "-1000000000000000.0"),
        (1e16, "1e+16"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
        ((float(np.float32(0.1)), 2.0), "(0.1, 2.0)"),
        ((1,), "(1,)"),
        ((), "()"),
        (np.zeros((2, 3), np.int8), "array(int8, shape=(2, 3))"),
    ],
)
def test_values_print_as_a_person_writes_them(value, text):
    """Only very large and very small numbers have an exponent."""
    assert format_value(value) == text


def test_types_are_named_as_they_are_written():
    assert FieldSpec("scale", float).type_name == "float"
    assert FieldSpec("sizes", int, is_tuple=True).type_name == "tuple[int, ...]"
    assert FieldSpec("table", np.ndarray).type_name == "numpy.ndarray"
