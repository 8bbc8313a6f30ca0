"""TensorRT's registry."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import pytrtplugins as ptp
import pytrtplugins.tensorrt
from pytrtplugins.engines.tensorrt import creators
from pytrtplugins.engines.tensorrt.creators import creator, register, register_key, unregister
from pytrtplugins.errors import RegistryError, UnavailableError, UsageError
from pytrtplugins.layers import Reorg
from pytrtplugins.plugin.registry import PluginKey
from tests.interleaving import Interleaving
from tests.user_plugins import Copy

from .user_plugins import Scale


def define(version="1", number=1):
    @ptp.plugin(namespace="test.tensorrt.creators", version=version)
    class Layer(Copy):
        value: int = number

    return Layer


def find(api, key):
    return api.trt.get_plugin_registry().get_creator(key.name, key.version, key.namespace)


def test_a_registered_class_is_found_by_its_key_alone(api):
    made = pytrtplugins.tensorrt.register(Reorg)
    assert find(api, Reorg.plugin_key()) is made
    assert find(api, PluginKey("darknet", "Reorg", "2")) is None
    assert find(api, PluginKey("", "Reorg", "1")) is None


def test_registering_again_changes_nothing(api):
    assert register(Scale) is register(Scale)


def test_a_class_defined_anew_takes_its_predecessors_place(api):
    old, new = define(number=1), define(number=2)
    register(old)
    made = register(new)
    assert find(api, new.plugin_key()) is made
    assert made.create_plugin("layer", [], api.trt.TensorRTPhase.BUILD).host.plugin.value == 2
    unregister(new)
    unregister(new)
    assert find(api, new.plugin_key()) is None


def test_versions_stand_side_by_side(api):
    first, second = register(define("1")), register(define("2"))
    assert find(api, PluginKey("test.tensorrt.creators", "Layer", "2")) is second
    assert find(api, PluginKey("test.tensorrt.creators", "Layer", "1")) is first


def test_a_key_that_another_library_registered_is_refused(api):
    layer = define("taken")
    foreign = creator(layer)
    assert api.trt.get_plugin_registry().register_creator(foreign, "test.tensorrt.creators")
    with pytest.raises(RegistryError, match=r"another library registered[\s\S]*Do: give the class another version"):
        register(layer)
    assert api.trt.get_plugin_registry().deregister_creator(foreign)
    register(layer)


def test_both_interfaces_share_a_key_so_one_replaces_the_other(api):
    if not api.has_v2:
        with pytest.raises(UnavailableError, match="for TensorRT 10 only"):
            creator(Scale, interface="v2")
        return
    layer = define("both")
    assert register(layer, interface="v2").interface == "v2"
    made = register(layer)
    assert made.interface == "v3"
    assert find(api, layer.plugin_key()) is made


def test_an_unknown_interface_is_a_usage_error(api):
    with pytest.raises(UsageError, match="'v3' or 'v2', found 'v1'"):
        creator(Scale, interface="v1")


def test_a_key_that_an_engine_names_is_looked_up_with_near_matches(api):
    assert register_key(PluginKey("test.tensorrt", "Scale", "1")).cls is Scale
    with pytest.raises(RegistryError, match=r"Near: test\.tensorrt::Scale"):
        register_key(PluginKey("test.tensorrt", "Scal", "1"))


@pytest.fixture
def calls(monkeypatch):
    """Calls of a registry that notes them, where TensorRT is not installed."""
    calls: list[tuple[object, ...]] = []
    registry = SimpleNamespace(
        register_creator=lambda made, namespace: calls.append(("register", made.cls, namespace)) or True,
        deregister_creator=lambda made: calls.append(("deregister", made.cls)),
    )
    trt = SimpleNamespace(get_plugin_registry=lambda: registry)
    monkeypatch.setattr(creators, "_registered", {})
    monkeypatch.setattr(creators, "load", lambda package: SimpleNamespace(trt=trt, creators=list))
    monkeypatch.setattr(
        creators, "creator", lambda cls, interface, package: SimpleNamespace(cls=cls, interface=interface)
    )
    return calls


@pytest.mark.parametrize("change", [register, unregister])
def test_one_thread_alone_changes_the_registry(monkeypatch, calls, change):
    class Registered(dict):
        def get(self, *key):
            both.inside()
            return super().get(*key)

        def pop(self, *key):
            both.inside()
            return super().pop(*key)

    both, layer = Interleaving(creators._lock), define()
    monkeypatch.setattr(creators, "_lock", both.lock)
    monkeypatch.setattr(creators, "_registered", Registered())
    both.run(*[lambda: change(layer, package="anothers")] * 2)
    assert both.order == ["first", "second"]


def test_what_takes_anothers_place_is_kept_alone(calls):
    old, new, other = define(number=1), define(number=2), define("2")
    namespace = "test.tensorrt.creators"
    for cls in (old, other, new):
        register(cls, package="anothers")
    first = [("register", old, namespace), ("register", other, namespace)]
    assert calls == [*first, ("deregister", old), ("register", new, namespace)]
    assert {key: made.cls for key, made in creators._registered.items()} == {
        ("anothers", new.plugin_key()): new,
        ("anothers", other.plugin_key()): other,
    }
