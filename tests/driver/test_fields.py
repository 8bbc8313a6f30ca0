"""Fields between the languages: what one writes into an engine, the other reads."""

import base64

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytrtplugins.engines.tensorrt.creators import register, unregister
from pytrtplugins.layers import Region, Reorg, Yolo

from .driver import Refused
from .user_plugins import Everything, Scale

INTS = st.integers(-(2**31), 2**31 - 1) | st.sampled_from([2**31, -(2**63), 2**63 - 1])
FLOATS = st.floats(width=32, allow_nan=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


@pytest.fixture
def in_cpp(driver):
    with driver.offered(Everything, "c++"):
        yield driver


def assert_same_items(found, expected):
    assert [item[:2] for item in found] == [item[:2] for item in expected]
    for (name, _, ours), (_, _, theirs) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=name)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    factor=FLOATS, flag=st.booleans(), number=INTS, text=TEXTS, flags=st.lists(st.booleans(), max_size=3),
    numbers=st.lists(INTS, max_size=3), ratios=st.lists(FLOATS, max_size=3), texts=st.lists(TEXTS, max_size=2))  # fmt: skip
def test_cpp_writes_the_fields_that_it_read_as_python_does(in_cpp, **values):
    plugin = Everything(**values, table=np.arange(4, dtype=np.float16).reshape(2, 2))
    items = in_cpp.items(plugin)
    made = in_cpp.create(Everything, items)
    assert_same_items(in_cpp.save(made), items)
    in_cpp.destroy(made)


@pytest.mark.parametrize("plugin", [
    Everything(texts=(), table=np.zeros(3)), Scale(), Reorg(stride=3, reverse=True), Region(), Region(anchors=(1, 2), num=1),
    Yolo(anchors=(1, 2), mask=(0,), scale_x_y=1.1),
    Everything(table=np.float32([1, -2])), Everything(table=np.int8([1, -2])), Everything(table=np.array([1], np.int64)),
    Everything(texts=("a",), text="a\0")], ids=repr)  # fmt: skip
def test_both_languages_write_the_same_fields(driver, plugin):
    saved = []
    for language in ("python", "c++"):
        with driver.offered(type(plugin), language):
            made = driver.create(type(plugin), driver.items(plugin))
            saved.append(driver.save(made))
            driver.destroy(made)
    assert_same_items(*saved)


@pytest.mark.parametrize("cls", [Everything, Reorg, Region, Yolo])
def test_both_creators_announce_the_same_fields(driver, cls):
    register(cls)
    declared = driver.declared(cls)
    unregister(cls)
    with driver.offered(cls, "c++"):  # plugins in C++ have one form, an enqueue
        assert driver.declared(cls) == [field for field in declared if field[0] != "pytrtplugins_form"]
    assert "pytrtplugins_form" in {name for name, *_ in declared}


def test_fields_are_taken_as_a_parser_gives_them(in_cpp):
    given = [
        ("text", "CHAR", np.frombuffer(b"edge\0", np.int8)), ("number", "INT64", np.array([-5])),
        ("flag", "INT32", np.array([0], np.int32)), ("factor", "INT32", np.array([4], np.int32)),
        ("ratios", "FLOAT64", np.array([0.5, 0.25])), ("table", "FLOAT64", np.array([0.1, 3])),
        ("plugin_version", "CHAR", np.frombuffer(b"1", np.int8))]  # fmt: skip
    made = in_cpp.create(Everything, given)
    expected = in_cpp.items(Everything(number=-5, flag=False, factor=4, ratios=(0.5, 0.25), table=np.array([0.1, 3])))
    assert_same_items(in_cpp.save(made), expected)
    in_cpp.destroy(made)


def serialized(data):
    return [("pytrtplugins_serialized", "CHAR", np.frombuffer(data, np.int8))]


@pytest.mark.parametrize(("items", "reason"), [
    ([("other", "INT32", np.ones(1, np.int32))], "has no field 'other'. Fields: factor, flag"),
    ([("number", "FLOAT32", np.ones(1, np.float32))], "Everything.number: expected whole numbers"),
    ([("number", "INT32", np.ones(2, np.int32))], "Everything.number: expected one value, found 2"),
    ([("number", "CHAR", np.ones(1, np.int8))], "Everything.number: expected numbers"),
    ([("flag", "INT32", np.full(1, 2, np.int32))], "Everything.flag: expected 0 or 1"),
    ([("text", "INT32", np.ones(1, np.int32))], "Everything.text: expected text"),
    ([("table", "CHAR", np.ones(1, np.int8))], "Everything.table: expected numbers"),
    ([("texts", "CHAR", np.ones(1, np.int8))], "which only serialized bytes hold"),
    (serialized(b"abc"), "is not Base64"),
    (serialized(b"ab!="), "is not Base64"),
    (serialized(base64.b64encode(b"PTRP" + bytes(40))), "format version 0"),
    (serialized(base64.b64encode(Everything().serialize()[:-1])), "header says"),
    (serialized(base64.b64encode(Scale().serialize())), r"test.driver::Scale version 1, expected test.driver::Everything"),
])  # fmt: skip
def test_wrong_fields_are_refused_with_the_reason(in_cpp, items, reason):
    with pytest.raises(Refused) as refused:
        in_cpp.create(Everything, items)
    assert reason in str(refused.value)
    assert "test.driver::Everything version 1: createPlugin: " in str(refused.value)


def test_fields_that_fit_the_types_and_not_each_other_are_refused(driver):
    with driver.offered(Reorg, "c++"), pytest.raises(Refused, match="stride: expected at least 1, found 0"):
        driver.create(Reorg, [("stride", "INT32", np.zeros(1, np.int32))])


def test_fields_without_a_default_are_required(driver):
    with driver.offered(Yolo, "c++"), pytest.raises(Refused, match=r"Yolo\.mask: expected indices of the 0 anchors"):
        driver.create(Yolo, [])
