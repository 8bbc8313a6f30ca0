"""The plugin base class and its decorator."""

from __future__ import annotations

import re
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pytrtplugins as ptp
from pytrtplugins.errors import DimsError, FieldError, PluginError, RegistryError, SerializationError
from pytrtplugins.plugin.notebook import plugin_view
from pytrtplugins.plugin.outputs import checked_dims
from pytrtplugins.plugin.runner import PluginRunner
from pytrtplugins.tensor import DType, SymbolicDim, TensorDesc
from tests import user_plugins


@ptp.plugin(namespace="test.plugin", version="3")
class Scale(user_plugins.Scale):
    offsets: tuple[int, ...] = ()
    weights: np.ndarray = np.zeros((0,), np.float32)
    label: str = ""

    def validate(self):
        if self.factor == 0:
            raise FieldError("factor must not be 0", name="factor")
            raise FieldError("factor must not be 0", name="factor")


@ptp.plugin(namespace="test.plugin")
class Halves(ptp.Plugin):
    def output_dims(self, x):
        n, c = x
        return (n, c // 2), (n, c - c // 2)

    def compute(self, x):
        half = x.shape[1] // 2
        return x[:, :half], x[:, half:]


def test_fields_make_constructor_repr_equality_and_hash():
    assert Scale(3.0, label="a") == Scale(factor=3, label="a")
    assert Scale(3.0) != Scale()
    assert hash(Scale(3.0)) == hash(Scale(3))
    assert (
        repr(Scale(0.1, offsets=[1, 2]))
        == "Scale(factor=0.1, offsets=(1, 2), weights=array(float32, shape=(0,)), label='')"
    )
    assert len({Scale(), Scale(2.0), Scale(1.0)}) == 2


@pytest.mark.parametrize("arguments", [{"factors": 1.0}, {"factor": "x"}, {"factor": 0.0}])
def test_wrong_arguments_are_field_errors(arguments):
    with pytest.raises(FieldError):
        Scale(**arguments)


def test_a_field_cannot_change_but_other_state_can():
    scale = Scale()
    with pytest.raises(FieldError, match="make another one"):
        scale.factor = 3.0
    scale.state = [1]
    assert scale.state == [1]


def test_a_constructor_of_its_own_that_sets_a_field_is_told_what_constructs_plugins():
    @ptp.plugin(namespace="tests.plugin.init")
    class Own(Scale):
        def __init__(self, factor):
            self.factor = factor

    with pytest.raises(FieldError, match=r"^Own: its own __init__ sets the field 'factor'.*\nDo: leave __init__ out"):
        Own(2.0)


def test_dims_that_are_no_whole_numbers_are_refused_with_the_division_to_write():
    with pytest.raises(DimsError, match=r"gave \(1, 8\.5\): dims are ints .*\nDo: divide with //$"):
        checked_dims("P()", (1, 17 / 2))


def test_a_class_without_its_methods_or_decorator_is_refused():
    with pytest.raises(PluginError, match="lacks output_dims and compute"):
        ptp.plugin(namespace="test.plugin")(type("Empty", (ptp.Plugin,), {}))
    with pytest.raises(PluginError, match="subclass of Plugin"):
        ptp.plugin(namespace="test.plugin")(int)  # type: ignore[type-var]
    with pytest.raises(PluginError, match="not registered"):
        type("Child", (Scale,), {})()
    with pytest.raises(PluginError, match="must not be empty"):
        ptp.plugin(namespace="")(Scale)
    body = {"__annotations__": {"compute_": int, "plugin_version": str}}
    with pytest.raises(FieldError, match="plugin_version"):
        ptp.plugin(namespace="test.plugin")(type("Clash", (user_plugins.Copy,), body))


def test_one_output_and_several_are_normalised():
    n = SymbolicDim("N")
    assert Scale().all_output_dims([(n, 4)]) == ((n, 4),)
    assert Halves().all_output_dims([(n, 5)]) == ((n, 2), (n, 3))
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    first, second = Halves().all_outputs([x])
    np.testing.assert_array_equal(np.concatenate([first, second], 1), x)
    assert Scale().num_inputs == 1


def test_the_number_of_inputs_is_checked():
    with pytest.raises(DimsError, match="expected 1 inputs, found 2"):
        Scale().all_output_dims([(1,), (1,)])


@ptp.plugin(namespace="test.plugin")
class Liar(ptp.Plugin):
    """Computes something else than it says."""

    what: str = "shape"

    def output_dims(self, x):
        return {"dims": "none", "negative": (-1,), "count": (x, x)}.get(self.what, x)

    def compute(self, x):
        return {"shape": x[:1], "dtype": x.astype(np.float64)}.get(self.what, x)


@pytest.mark.parametrize("what", ["shape", "dtype", "dims", "negative", "count"])
def test_what_compute_returns_is_checked_against_the_rules(what):
    with pytest.raises(PluginError) as caught:
        Liar(what).all_outputs([np.zeros((2, 2), np.float32)])
    assert "Liar" in str(caught.value)


@ptp.plugin(namespace="test.plugin")
class Silent(ptp.Plugin):
    """Computes nothing, and says that it gives two outputs."""

    def output_dims(self, x):
        return x, (3,)

    def compute(self, x):
        pass


def test_outputs_that_are_missing_are_named_with_their_types_and_dims():
    with pytest.raises(PluginError, match="compute gave None, expected ") as caught:
        Silent().all_outputs([np.zeros((2, 4), np.float32)])
    assert "expected float32[2, 4], float32[3].\nDo: let compute return its outputs" in str(caught.value)
    assert (caught.value.expected, caught.value.found) == (["float32[2, 4]", "float32[3]"], None)


def test_enqueue_writes_what_compute_returns():
    x, out = np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)
    Scale(3).enqueue([x], [out], None, None)
    np.testing.assert_array_equal(out, 3 * x)


def test_the_default_formats_are_linear_floats_all_the_same():
    def accepts(*dtypes, layout="linear"):
        descs = [TensorDesc("t", (1,), dtype, layout) for dtype in dtypes]
        return all(Scale().supports_format(i, descs) for i in range(len(descs)))

    assert accepts(DType.FLOAT32, DType.FLOAT32)
    assert accepts(DType.FLOAT16, DType.FLOAT16)
    assert not accepts(DType.FLOAT16, DType.FLOAT32)
    assert not accepts(DType.INT8, DType.INT8)
    assert not accepts(DType.FLOAT32, DType.FLOAT32, layout="nhwc")


@given(
    st.floats(width=32, allow_nan=False).filter(bool),
    st.lists(st.integers(-5, 5)),
    st.text(st.characters(exclude_categories=["Cs"])),
)
def test_serialization_round_trips(factor, offsets, label):
    scale = Scale(factor, offsets, np.arange(3, dtype=np.int8), label)
    assert ptp.Plugin.deserialize(scale.serialize()) == scale
    assert Scale.deserialize(scale.serialize()) == scale


def test_every_damaged_byte_and_every_cut_is_noticed():
    data = Scale(label="x", weights=np.ones(2, np.float32)).serialize()
    for i in range(len(data)):
        for wrong in (data[:i] + bytes([data[i] ^ 0x40]) + data[i + 1 :], data[:i], data[:i] + b"\0" + data[i:]):
            with pytest.raises(SerializationError):
                ptp.Plugin.deserialize(wrong)


def test_bytes_of_another_plugin_are_refused():
    with pytest.raises(SerializationError, match="Halves"):
        Scale.deserialize(Halves().serialize())


def test_bytes_of_an_unknown_plugin_name_what_to_import():
    data = Scale().serialize()[:-4].replace(b"Scale", b"Scald")
    with pytest.raises(RegistryError, match=r"Near: test\.plugin::Scale"):
        ptp.Plugin.deserialize(data + struct.pack("<I", zlib.crc32(data)))


def test_a_clone_is_equal_and_shares_no_state():
    scale = Scale(3)
    scale.seen = [1]
    twin = scale.clone()
    twin.seen.append(2)
    assert twin == scale
    assert scale.seen == [1]


@ptp.plugin(namespace="test.plugin")
class AtMostTen(ptp.Plugin):
    max_elements = 10

    def output_dims(self, x):
        return (*x[:-1], 2 * x[-1])

    def compute(self, x):
        return np.concatenate([x, x], -1)


def test_more_elements_than_a_plugin_takes_are_refused_at_build_and_in_a_run():
    plugin, n = AtMostTen(), SymbolicDim("N")
    assert plugin.all_output_dims([(1, 5)]) == ((1, 10),)
    assert plugin.all_output_dims([(n, 5)]) == ((n, 10),)
    with pytest.raises(DimsError, match=r"AtMostTen\(\): \(1, 12\) are 12 elements; it takes 10 at most"):
        plugin.all_output_dims([(1, 6)])
    runner = PluginRunner(plugin.clone())
    descs = [[TensorDesc("x", (2, 5))], [TensorDesc("y", (2, 10))]]
    with pytest.raises(DimsError, match="20 elements"):
        runner.prepare(*descs)


def test_a_notebook_shows_fields_of_a_class_and_values_of_an_instance():
    @ptp.plugin(namespace="tests.notebook")
    class Shown(ptp.Plugin):
        """What it does.

        More.
        """

        size: int
        slope: float = 0.5

        def output_dims(self, x):
            return x

        def compute(self, x):
            return x

    def cells(page):
        return re.findall(r"<t[hd] [^>]*>(.*?)</t[hd]>", page)

    page = plugin_view(Shown)
    assert cells(page) == ["field", "type", "default", "size", "int", "must be given", "slope", "float", "0.5"]
    assert "plugin tests.notebook::Shown" in page
    assert ", an instance" not in page
    assert page.endswith("<p>What it does.</p></div>")
    page = plugin_view(Shown(3))
    assert cells(page) == ["field", "type", "value", "size", "int", "3", "slope", "float", "0.5"]
    assert ", an instance" in page
    assert "a class without @plugin" in plugin_view(ptp.Plugin)
