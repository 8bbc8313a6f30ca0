"""What TensorRT for RTX calls while it builds, in which order and on which objects, and which objects outlive the build."""

from __future__ import annotations

import functools
import gc
import threading
import weakref
from itertools import groupby
from typing import Any, NamedTuple

import pytest

from pytrtplugins.engines.tensorrt import _api
from pytrtplugins.engines.tensorrt.creators import creator
from pytrtplugins.engines.tensorrt.host import PluginHost

from .plugin_cases import CASES, network
from .rtx_builds import build_on_rtx, needs_rtx
from .user_plugins import MeanAndRest, TwoWays

pytestmark = needs_rtx
QUESTIONS = (
    *("clone", "get_output_data_types", "get_output_shapes", "supports_format_combination", "configure_plugin"),
    *("get_workspace_size", "get_valid_tactics", "set_tactic", "on_shape_change", "enqueue", "attach_to_context"),
    *("get_fields_to_serialize", "destroy"),
)
"""Methods of IPluginV3 besides `get_capability_interface`, which TensorRT calls before each of them."""


class Call(NamedTuple):
    """A call of TensorRT's.

    Attributes:
        method: Its name.
        number: The object's, in the order in which they were made.
        thread: The thread that it was made in.
    """

    method: str
    number: int
    thread: int


@pytest.fixture
def calls(monkeypatch):
    """All calls of the adapters and creators of TensorRT for RTX, in their order."""
    recorded: list[Call] = []
    objects: list[Any] = []  # kept, so that no two have one id

    def number(item):
        if not any(item is other for other in objects):
            objects.append(item)
        return next(index for index, other in enumerate(objects) if item is other)

    def record(cls, name):
        original = getattr(cls, name)

        @functools.wraps(original)
        def method(self, *args, **named):
            result = original(self, *args, **named)
            if name == "create_plugin":
                recorded.append(Call(name, number(result), threading.get_ident()))
            else:
                recorded.append(Call(name, number(self), threading.get_ident()))
            if name == "clone":
                number(result)
            return result

        monkeypatch.setattr(cls, name, method)

    made = creator(TwoWays, package=_api.RTX)
    adapter = type(made.deserialize_plugin("", TwoWays().serialize()))
    record(type(made), "create_plugin")
    for name in QUESTIONS:
        record(adapter, name)
    return recorded


def order(calls, number=None):
    """Names of the methods, each once where it is called several times in a row."""
    return [name for name, _ in groupby(call.method for call in calls if number in (None, call.number))]


def test_the_parser_asks_one_object_and_the_builder_clones_of_it(calls):
    build_on_rtx(network(CASES["TwoWays"]))
    assert order(calls, 0) == ["create_plugin", "get_output_data_types", "clone", "destroy"]
    assert {call.number for call in calls} == {0, 1, 2, 3}
    assert order(calls, 2) == ["get_output_shapes", "clone", "destroy"]
    last = [*order(calls, 3)]
    assert last == [
        *("supports_format_combination", "configure_plugin", "get_workspace_size", "get_valid_tactics"),
        *("get_fields_to_serialize", "destroy"),
    ]


def test_each_object_is_destroyed_once_and_asked_nothing_behind_that(calls):
    build_on_rtx(network(CASES["MeanAndRest"]))
    for number in {call.number for call in calls}:
        methods = [call.method for call in calls if call.number == number]
        assert methods.count("destroy") == 1
        assert methods[-1] == "destroy"


def test_nothing_is_run_while_an_engine_is_built_and_all_calls_come_from_the_callers_thread(calls):
    build_on_rtx(network(CASES["TwoWays"]))
    assert {call.method for call in calls}.isdisjoint({"enqueue", "on_shape_change", "attach_to_context"})
    assert {call.thread for call in calls} == {threading.get_ident()}


def test_formats_are_asked_for_each_position_with_the_ones_before(calls, monkeypatch):
    asked = []

    def supports(self, position, descs):
        asked.append((position, descs[position].layout, str(descs[position].dtype)))
        return descs[position].layout == "linear"

    monkeypatch.setattr(TwoWays, "supports_format", supports)
    build_on_rtx(network(CASES["TwoWays"]))
    assert asked[0] == (0, "linear", "float32")
    assert {position for position, _, _ in asked} == {0, 1}
    assert {dtype for _, _, dtype in asked} == {"float32"}  # the network is strongly typed
    assert {layout for _, layout, _ in asked} > {"linear", "nhwc"}


# -- lifetimes -------------------------------------------------------------------------------------------------------


@pytest.fixture
def hosts(monkeypatch):
    """Weak references to the hosts of all plugins, and to their plugins."""
    references: list[weakref.ref[Any]] = []
    init = PluginHost.__init__

    def record(self, *args, **named):
        init(self, *args, **named)
        references.extend((weakref.ref(self), weakref.ref(self.plugin)))

    monkeypatch.setattr(PluginHost, "__init__", record)
    return references


def alive(references):
    gc.collect()
    return [item for item in (reference() for reference in references) if item is not None]


@pytest.mark.parametrize("case", ["TwoWays", "MeanAndRest", "Offsets"])
def test_no_plugin_outlives_the_build(hosts, case):
    build_on_rtx(network(CASES[case]))
    assert len(hosts) >= 4
    assert alive(hosts) == []


def test_each_clone_has_a_plugin_of_its_own(monkeypatch):
    plugins = []
    init = PluginHost.__init__

    def record(self, api, plugin, *args, **named):
        plugins.append(plugin)
        init(self, api, plugin, *args, **named)

    monkeypatch.setattr(PluginHost, "__init__", record)
    build_on_rtx(network(CASES["MeanAndRest"]))
    assert len({id(plugin) for plugin in plugins}) == len(plugins) >= 4
    assert set(map(type, plugins)) == {MeanAndRest}
