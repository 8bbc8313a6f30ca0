"""Arrays in the element type of their field, and where a refused value came from."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import FieldError
from pytrtplugins.plugin.field_values import as_array, value_origin
from pytrtplugins.plugin.fields import collect_field_specs
from pytrtplugins.plugin.onnx_node import from_node
from tests.user_plugins import Copy

Scalar = TypeVar("Scalar", bound=np.generic)


@ptp.plugin(namespace="test.given")
class Slopes(Copy):
    slope: npt.NDArray[np.float32]
    offset: float = 0.0


def test_the_element_type_is_the_annotations_where_it_names_one():
    class Typed:
        a: npt.NDArray[np.int8]
        b: np.ndarray
        c: npt.NDArray[np.floating[Any]]
        d: npt.NDArray[Any]

    assert [spec.dtype for spec in collect_field_specs(Typed)] == ["int8", "", "", ""]
    assert collect_field_specs(Typed)[0].type_name == "numpy.ndarray of int8"


def test_an_alias_is_what_it_stands_for():
    extensions = pytest.importorskip("typing_extensions")
    array = np.ndarray[tuple[Any, ...], np.dtype[Scalar]]
    alias = extensions.TypeAliasType("alias", array, type_params=(Scalar,))  # as NumPy's NDArray is one from 2.5 on
    weights, sides = (
        extensions.TypeAliasType(*given) for given in (("weights", alias[np.int8]), ("sides", tuple[int, ...]))
    )

    class Typed:
        pass

    Typed.__annotations__ = {"a": alias[np.float32], "b": alias[Any], "c": weights, "d": sides}
    found = collect_field_specs(Typed)
    assert [spec.type_name for spec in found] == [
        "numpy.ndarray of float32",
        "numpy.ndarray",
        "numpy.ndarray of int8",
        "tuple[int, ...]",
    ]


def test_an_element_type_that_no_field_has_is_refused():
    class Complex:
        a: npt.NDArray[np.complex64]

    with pytest.raises(FieldError, match=r"Complex\.a: type .*complex64.* cannot be a field"):
        collect_field_specs(Complex)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        ([0.1, 2], "float32", np.array([0.1, 2], np.float32)),
        (0.25, "float32", np.array(0.25, np.float32)),
        ([1, 2], "float32", np.array([1, 2], np.float32)),
        (np.array([0.1]), "float32", np.array([0.1], np.float32)),
        (np.array([np.inf, np.nan]), "float16", np.array([np.inf, np.nan], np.float16)),
        ([200, 0], "uint8", np.array([200, 0], np.uint8)),
        (np.array([-128], np.int64), "int8", np.array([-128], np.int8)),
        ([], "int32", np.zeros(0, np.int32)),
        ([0.1, 0.2], "", np.array([0.1, 0.2], np.float32)),
        (np.array([0.1]), "", np.array([0.1])),
        ([1, 2], "", np.array([1, 2], np.int64)),
        ([[True]], "", np.array([[True]])),
    ],
)
def test_numbers_become_the_fields_type_where_it_can_hold_them(value, dtype, expected):
    found = as_array(value, dtype)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("value", "dtype", "found"),
    [
        ([1.5], "int32", "an array of float64"),
        ([True], "float32", "an array of bool"),
        ([0, 1], "bool", "an array of int64"),
        ([3, 300], "uint8", "300, which does not fit into uint8"),
        ([-1], "uint8", "-1, which does not fit into uint8"),
        ([1.0, 1e39], "float32", r"1e\+39, which does not fit into float32"),
        (np.zeros(1, np.complex64), "float32", "an array of complex64"),
        (["x"], "", "an array of <U1"),
    ],
)
def test_numbers_that_the_type_cannot_hold_are_refused(value, dtype, found):
    with pytest.raises(ValueError, match=found):
        as_array(value, dtype)


def test_a_float32_field_takes_pythons_floats_and_every_form_holds_the_same():
    plugin = Slopes(slope=[0.1, 0.2])
    assert plugin.slope.dtype == np.float32
    assert ptp.Plugin.deserialize(plugin.serialize()) == plugin
    assert from_node(plugin.as_node(["x"], ["y"])) == plugin


def test_a_refusal_says_where_the_value_came_from():
    for given, words in (
        ({"offset": "x"}, r"Slopes\.offset: expected float, found 'x' \(str\), from the argument offset"),
        ({"slope": ["x"]}, "expected an array of float32, found an array of <U1, from the argument slope"),
    ):
        with pytest.raises(FieldError, match=words):
            Slopes(**{"slope": [1.0], **given})
    with value_origin("the table's column {}"), pytest.raises(FieldError, match="from the table's column offset"):
        Slopes(slope=[1.0], offset="x")
    node = Slopes(slope=[1.0]).as_node(["x"], ["y"], "prelu")
    node.attribute.remove(next(item for item in node.attribute if item.name == "offset"))
    node.attribute.append(onnx.helper.make_attribute("offset", "wide"))
    with pytest.raises(FieldError, match=r"found 'wide' \(str\), from attribute 'offset' of node 'prelu'"):
        from_node(node)

    class Wrong:
        count: int = "three"  # type: ignore[assignment]

    with pytest.raises(FieldError, match=r"Wrong\.count: expected int, found 'three' \(str\), from the class"):
        collect_field_specs(Wrong)
