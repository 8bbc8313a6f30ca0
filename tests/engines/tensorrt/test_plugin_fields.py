"""Fields → PluginField objects → fields."""

from __future__ import annotations

import base64
import gc
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pytrtplugins as ptp
from pytrtplugins.engines.tensorrt.creators import creator
from pytrtplugins.engines.tensorrt.plugin_fields import (
    EXTRAS,
    Extras,
    declared_fields,
    field_collection,
    from_fields,
    needs_bytes,
    to_fields,
)
from pytrtplugins.errors import FieldError, SerializationError
from pytrtplugins.layers import Region
from tests.user_plugins import Copy

from .user_plugins import Everything, Scale

INTS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(width=32, allow_nan=False)
PLUGINS = st.builds(
    Everything,
    required=INTS,
    flag=st.booleans(),
    number=INTS,
    ratio=FLOATS,
    text=st.text(st.characters(codec="utf-8"), max_size=5),
    flags=st.lists(st.booleans(), max_size=3),
    numbers=st.lists(INTS, max_size=3),
    ratios=st.lists(FLOATS, max_size=3),
    texts=st.lists(st.text(st.characters(codec="utf-8"), max_size=3), max_size=2),
    table=st.sampled_from(
        [
            np.zeros((0, 2), np.int64),
            np.eye(2, dtype=np.float16),
            np.arange(3, dtype=np.uint8),
            np.float32([0.1, -2]),
            np.zeros(0, np.float32),
            np.float32(3),
        ]
    ),
)


@ptp.plugin(namespace="test.tensorrt")
class Weights(Copy):
    slope: npt.NDArray[np.float32]
    wide: npt.NDArray[np.float64] = np.zeros(2)
    codes: npt.NDArray[np.int8] = np.zeros(1, np.int8)
    index: npt.NDArray[np.int32] = np.zeros(1, np.int32)
    any: np.ndarray = np.zeros(1, np.int64)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    plugin=PLUGINS,
    outputs=st.integers(0, 5),
    scales=st.lists(st.floats(0.0078125, 1, width=32), max_size=3),
    form=st.sampled_from(["", "compute"]),
)
def test_every_value_survives(api, plugin, outputs, scales, form):
    extras = Extras(outputs, tuple(scales), form)
    made = to_fields(api, plugin, extras)
    gc.collect(0)
    assert from_fields(Everything, made) == (plugin, extras)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(anchors=st.lists(FLOATS, min_size=2, max_size=2), classes=st.integers(0, 90), softmax=st.booleans())
def test_values_that_fields_hold_need_no_bytes(api, anchors, classes, softmax):
    plugin = Region(anchors=tuple(anchors), classes=classes, softmax=softmax, tree=(-1,) * classes)
    made = to_fields(api, plugin, Extras())
    assert needs_bytes(plugin) == (classes == 0)
    assert from_fields(Region, made)[0] == plugin


def test_kinds_and_order_follow_the_class(api):
    declared = [(field.name, field.type.name) for field in declared_fields(api, Everything)]
    names = ("required", "flag", "number", "ratio", "text", "flags", "numbers", "ratios", "table")
    kinds = ("INT32", "INT32", "INT32", "FLOAT32", "CHAR", "INT32", "INT32", "FLOAT32", "FLOAT32")
    kinds_of_extras = ("CHAR", "INT32", "FLOAT32", "CHAR")
    assert declared == list(zip((*names, *EXTRAS), (*kinds, *kinds_of_extras), strict=True))


def test_arrays_with_one_axis_are_fields_of_their_type(api):
    plugin = Weights(slope=[0.1, -2, 3], codes=[-128, 127], any=[7, 8, 9])
    assert [(field.name, field.type.name) for field in declared_fields(api, Weights)][:5] == [
        ("slope", "FLOAT32"), ("wide", "FLOAT64"), ("codes", "INT8"), ("index", "INT32"), ("any", "INT32"),
    ]  # fmt: skip
    made = to_fields(api, plugin, Extras())
    assert [(field.name, field.type.name, field.data.tolist()) for field in made][:4] == [
        ("slope", "FLOAT32", np.float32([0.1, -2, 3]).tolist()), ("wide", "FLOAT64", [0, 0]), ("codes", "INT8", [-128, 127]),
        ("index", "INT32", [0]),
    ]  # fmt: skip
    assert from_fields(Weights, made)[0] == plugin
    assert needs_bytes(plugin)
    assert not needs_bytes(Weights(slope=[1], any=np.float32([1])))
    assert needs_bytes(Weights(slope=[[1]], any=np.float32([1])))


def test_lists_of_a_parser_become_arrays_of_the_declared_type(api):
    fields = given_fields(api, slope=int32(1, -2), codes=int32(3, 4), any=np.float32([0.5]))
    assert from_fields(Weights, fields)[0] == Weights(slope=[1, -2], codes=[3, 4], any=np.float32([0.5]))


def test_a_creator_announces_the_fields_and_where_it_belongs(api):
    made = creator(Scale)
    assert [field.name for field in made.field_names] == ["factor", *EXTRAS]
    assert (made.plugin_namespace, made.name, made.plugin_version) == Scale.plugin_key()


def given_fields(api, **values):
    kinds = {"f": "FLOAT32", "i": "INT32", "b": "CHAR", "h": "FLOAT16"}
    items = []
    for name, value in values.items():
        array = np.frombuffer(value, np.int8) if isinstance(value, bytes) else np.asarray(value)
        kind = kinds["b" if isinstance(value, bytes) else {"float32": "f", "float16": "h"}.get(array.dtype.name, "i")]
        items.append((name, kind, array))
    return field_collection(api, items)


def int32(*values):
    return np.array(values, np.int32)


def test_what_a_parser_leaves_out_has_its_default(api):
    given = {"required": int32(4), "text": b"edge\0", "plugin_version": b"1", "plugin_namespace": b"test.tensorrt"}
    fields = given_fields(api, **given)
    assert from_fields(Everything, fields)[0] == Everything(required=4)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, r"field 'required' is missing and has no default; given: none[\s\S]*Do: pytrtplugins\.build"),
        ({"required": int32(1), "colour": int32(1)}, r"unknown fields \['colour'\]; the class declares"),
        ({"required": int32(1, 2)}, "Everything.required: expected one value, found 2"),
        ({"required": np.float32([1.5])}, r"Everything.required: expected int, found 1.5 \(float\)"),
        ({"required": int32(1), "flag": int32(2)}, "Everything.flag: expected bool, found 2"),
        ({"required": int32(1), "text": b"\xff"}, "Everything.text: not UTF-8"),
        ({"required": b"x"}, "Everything.required: expected int, found 'x'"),
        ({"required": np.float16([1])}, "field 'required': its type PluginFieldType.FLOAT16 cannot be read"),
    ],
)
def test_wrong_fields_are_named(api, values, words):
    with pytest.raises(FieldError, match=words):
        from_fields(Everything, given_fields(api, **values))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "field 'slope' is missing and has no default"),
        ({"slope": b"12"}, r"Weights.slope: expected numpy.ndarray of float32, found '12' \(str\), from TensorRT's field"),
        ({"slope": np.float32([1]), "index": np.float32([1])}, "Weights.index: expected an array of int32, found an array of float32"),
        ({"slope": np.float32([1]), "codes": int32(1, 200)}, "Weights.codes: expected an array of int8, found 200, which does not fit"),
    ],
)  # fmt: skip
def test_wrong_arrays_are_named(api, values, words):
    with pytest.raises(FieldError, match=words):
        from_fields(Weights, given_fields(api, **values))


@pytest.mark.parametrize("data", [b"%%%", b"AAAA"])
def test_damaged_bytes_are_refused(api, data):
    with pytest.raises(SerializationError):
        from_fields(Everything, given_fields(api, pytrtplugins_serialized=data))


def test_bytes_of_another_plugin_are_refused(api):
    other = to_fields(api, Everything(required=2**40), Extras())
    with pytest.raises(SerializationError, match=r"expected test\.tensorrt::Scale version 1"):
        from_fields(Scale, [field for field in other if field.name == EXTRAS[0]])


def test_a_plugin_without_fields_has_none(api):
    @ptp.plugin(namespace="test.tensorrt")
    class Bare(Copy):
        """No fields."""

    assert from_fields(Bare, to_fields(api, Bare(), Extras())) == (Bare(), Extras())


def test_bytes_with_something_between_them_are_refused():
    """Base64 that skips what it does not know would read damaged bytes as others."""
    data = base64.b64encode(Everything(required=1).serialize())

    def field(value):
        return SimpleNamespace(name="pytrtplugins_serialized", data=value, type=SimpleNamespace(name="CHAR"))

    assert from_fields(Everything, [field(data)])[0] == Everything(required=1)
    with pytest.raises(SerializationError, match="not Base64"):
        from_fields(Everything, [field(data[:8] + b"%" + data[8:])])
