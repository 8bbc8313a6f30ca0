"""Every kind of fields, in every form of a plugin: what goes in comes out again."""

import numpy as np
import onnx
import pytest

from pytrtplugins.plugin.field_kind import TupleKind, UnfitValueError
from pytrtplugins.plugin.field_kinds import KINDS, kind_like, kind_of
from pytrtplugins.plugin.packing import Reader

ARRAYS = (np.arange(3, dtype=np.float32), np.ones((2, 1), np.int8), np.zeros(0), np.array([True, False]))
CASES = [(kind, value) for kind in KINDS for value in kind.samples or ARRAYS]
each_value = pytest.mark.parametrize(
    ("kind", "value"), [pytest.param(*case, id=f"{case[0].type_name}-{case[1]!r}"[-40:]) for case in CASES]
)


def assert_same(left, right):
    assert type(left) is type(right)
    np.testing.assert_array_equal(left, right, strict=True)


def test_codes_and_names_are_those_of_one_kind():
    for names in ("code", "type_name", "annotation", "source", "cpp"):
        assert len({getattr(kind, names) for kind in KINDS}) == len(KINDS), names
    assert {kind.type_name: kind.code for kind in KINDS} == {
        "bool": 1,
        "int": 2,
        "float": 3,
        "str": 4,
        "tuple[bool, ...]": 17,
        "tuple[int, ...]": 18,
        "tuple[float, ...]": 19,
        "tuple[str, ...]": 20,
        "numpy.ndarray": 33,
    }


@each_value
def test_a_stored_value_is_stored_as_it_is(kind, value):
    assert_same(kind.convert(kind.convert(value)), value)


@each_value
def test_bytes_give_the_value_again_and_no_byte_is_left(kind, value):
    reader = Reader(kind.pack(value), "Layer")
    assert_same(kind.unpack(reader, "Layer.field"), value)
    reader.finish()


@each_value
def test_an_attribute_of_onnx_gives_the_value_again(kind, value):
    found = kind.to_onnx(value)
    if kind.onnx == "TENSOR":
        found = onnx.numpy_helper.from_array(found)
    made = onnx.helper.make_attribute("a", found, attr_type=getattr(onnx.AttributeProto, kind.onnx))
    back = onnx.helper.get_attribute_value(made)
    if kind.onnx == "TENSOR":
        back = onnx.numpy_helper.to_array(back)
    texts = {"STRING": lambda item: item.decode(), "STRINGS": lambda items: [item.decode() for item in items]}
    assert_same(kind.convert(texts.get(kind.onnx, lambda item: item)(back)), value)


@each_value
def test_a_plugin_field_gives_the_value_again_or_there_is_none(kind, value):
    found = kind.to_plugin_field(value)
    if found is None:
        return
    name, elements = found
    assert name in ("INT8", "INT32", "FLOAT32", "FLOAT64", "CHAR")
    back = elements.tobytes().decode() if name == "CHAR" else kind.from_plugin_field(elements)
    assert_same(kind.convert(back), value)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.type_name)
def test_what_is_announced_has_a_type_and_a_placeholder_that_fits(kind):
    declared = kind.declared_plugin_field(None)
    assert declared is not None or kind.annotation == tuple[str, ...]
    if declared is not None:
        kind.convert(kind.placeholder(None))
        is_float = np.asarray(kind.placeholder(None)).dtype.kind == "f"
        assert is_float == declared[0].startswith("FLOAT") == (np.dtype(declared[1]).kind == "f")


@pytest.mark.parametrize("numbers", [True, False])
@each_value
def test_attributes_of_a_quick_plugin_give_the_value_again(kind, value, numbers):
    attributes = kind.to_quick(value, numbers)
    assert len(attributes) == len(kind.quick_types(numbers))
    assert_same(kind.convert(kind.from_quick(*attributes)), value)


@each_value
def test_a_value_says_its_kind(kind, value):
    empty = value == () if isinstance(value, tuple) else False
    found = kind_like(value)
    assert found is None if empty else (found is not None and found.code == kind.code)


def test_an_arrays_kind_has_its_type_of_elements():
    kind = kind_of(np.ndarray, dtype="int8")
    assert (kind.type_name, kind.cpp_empty) == ("numpy.ndarray of int8", '{"int8", {0}, {}}')
    assert kind.convert([1, 2]).dtype == np.int8


FORMS = {  # in fields.h: type, value of a member that is not given, function; in PyTorch: type, letter; in caffe's schema
    "bool": ("bool", " = {}", "b", "bool", "b", "bool"),
    "int": ("int64_t", " = {}", "i", "int", "i", "int64"),
    "float": ("float", " = {}", "f", "float", "f", "float"),
    "str": ("std::string", "", "s", "str", "s", "string"),
}


@pytest.mark.parametrize("name", FORMS)
def test_scalars_have_the_types_of_other_languages(name):
    (kind,) = (kind for kind in KINDS if kind.type_name == name)
    found = (kind.cpp, kind.cpp_empty, kind.expression, kind.torch, kind.torch_letter, kind.caffe)
    assert found == FORMS[name]
    assert kind.is_torch_list == (name in ("int", "float"))
    empty = {"bool": 0, "int": 0, "float": 0.0, "str": ""}[name]
    assert (kind.placeholder(None), TupleKind(kind).placeholder(None)) == (empty, (empty,))


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (kind_of(int), (-(2**63), 2**63 - 1), (-(2**63) - 1, 2**63)),
        (kind_of(float), (3.4028234663852886e38, -3.4028234663852886e38, float("inf")), (3.5e38, -3.5e38)),
    ],
)
def test_numbers_reach_the_limits_of_their_types(kind, good, bad):
    for value in good:
        assert kind.convert(value) == value
    for value in bad:
        with pytest.raises(UnfitValueError, match="does not fit into"):
            kind.convert(value)


def test_whole_numbers_of_32_bits_are_fields_of_plugins():
    kind = kind_of(int)
    for value, fits in ((2**31 - 1, True), (2**31, False), (-(2**31), True), (-(2**31) - 1, False)):
        assert (kind.to_plugin_field(value) is not None) == fits


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e-4, "0.0001"), (9.9e-5, "9.9e-05"), (0.1, "0.1"), (1e15, "1000000000000000.0"), (1e16, "1e+16")],
)
def test_a_float_is_shown_with_the_fewest_digits(value, text):
    assert kind_of(float).shown(value) == text


@pytest.mark.parametrize(
    ("annotation", "options", "found"),
    [
        (int, {}, "int"),
        (int, {"is_tuple": True}, "tuple[int, ...]"),
        (np.ndarray, {}, "numpy.ndarray"),
        (str, {"is_tuple": False}, "str"),
    ],
)
def test_a_kind_is_found_by_its_type(annotation, options, found):
    assert kind_of(annotation, **options).type_name == found
