"""The decorator: with and without parentheses, and the words that it refuses because nobody would hear them."""

from __future__ import annotations

import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import PluginError
from tests.user_plugins import Copy


def made(**members):
    return type("Made", (Copy,), {"__module__": __name__, **members})


def nothing(self, *arguments):
    return None


def test_without_parentheses_a_plugin_has_the_namespace_custom():
    @ptp.plugin
    class Bare(Copy):
        factor: float = 2.0

    assert str(Bare.plugin_key()) == "custom::Bare version 1"
    assert Bare(factor=3).fields() == {"factor": 3.0}
    assert Bare().as_node(["x"], ["y"]).domain == "custom"


@pytest.mark.parametrize("mode", ["requantise", 7, None, "INT8"])
def test_an_unknown_int8_is_refused_with_the_known_ones(mode):
    with pytest.raises(PluginError, match=r"Made.int8 is .*\nDo: take one of 'float', 'pass_through', 'requantize'"):
        ptp.plugin(namespace="decorator")(made(int8=mode))


@pytest.mark.parametrize(
    ("name", "hook"),
    [
        ("supports_formats", "supports_format"),
        ("workspace", "workspace_size"),
        ("output_dim", "output_dims"),
        ("output_dtype", "output_dtypes"),
        ("outputDims", "output_dims"),
        ("enqueu", "enqueue"),
        ("initialise", "initialize"),
        ("decomposes", "decompose"),
        ("get_output_shapes", "output_dims"),
        ("supports_format_combination", "supports_format"),
        ("on_shape_change", "configure"),
    ],
)
def test_a_method_that_is_almost_a_hook_is_refused_with_the_near_name(name, hook):
    for member in (nothing, staticmethod(nothing), classmethod(nothing)):
        with pytest.raises(PluginError) as caught:
            ptp.plugin(namespace="decorator")(made(**{name: member}))
        assert caught.value.facts["expected"] == hook
        assert f"Do: call it {hook!r}, or, if it is a method of your own, _{name}" in str(caught.value)


def test_methods_of_ones_own_are_taken():
    names = ("helper", "computed", "output", "size", "computer", "shape_of")
    others = ("_workspace", "kernel", "format", "dims", "clipped")
    ptp.plugin(namespace="decorator", name="Own")(made(**dict.fromkeys((*names, *others), nothing)))
