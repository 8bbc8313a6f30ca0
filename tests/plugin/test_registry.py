"""Keys and classes."""

import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import RegistryError
from pytrtplugins.plugin import registry
from tests.interleaving import Interleaving
from tests.user_plugins import Copy


def declare(name, version="1"):
    body = {"__module__": "somewhere", "__qualname__": name}
    return ptp.plugin(namespace="test.registry", version=version, name="Same")(type(name, (Copy,), body))


def test_a_taken_key_is_refused_and_the_first_class_stays():
    first = declare("First")
    with pytest.raises(RegistryError, match=r"belongs to somewhere\.First") as caught:
        declare("Second")
    assert caught.value.taken_by is first
    assert ptp.lookup("test.registry", "Same", "1") is first


def test_the_same_class_defined_again_replaces_the_old_one():
    declare("First")
    again = declare("First")
    assert ptp.lookup("test.registry", "Same", "1") is again


@pytest.mark.parametrize(
    "ask", [ptp.registered, lambda: registry.is_registered("test.registry", "Nobody"), lambda: declare("First")]
)
def test_classes_are_looked_through_while_nobody_registers_more(monkeypatch, ask):
    both = Interleaving(registry._lock)

    class Classes(dict):
        def __iter__(self):
            both.inside()
            return super().__iter__()

        def get(self, key, default=None):
            both.inside()
            return super().get(key, default)

    monkeypatch.setattr(registry, "_classes", Classes(registry._classes))
    monkeypatch.setattr(registry, "_lock", both.lock)
    both.run(ask, ask)
    assert both.order == ["first", "second"]


def test_several_versions_need_to_be_named():
    declare("First")
    second = declare("Third", version="2")
    assert ptp.lookup("test.registry", "Same", "2") is second
    with pytest.raises(RegistryError, match="several versions: 1, 2"):
        ptp.lookup("test.registry", "Same")
    with pytest.raises(RegistryError, match=r"Near: test\.registry::Same version"):
        ptp.lookup("test.registry", "Same", "9")


@pytest.mark.parametrize(
    ("namespace", "name", "near"), [("darknet", "reorg", "darknet::Reorg"), ("darkent", "Reorg", "darknet::Reorg")]
)
def test_an_unknown_key_names_near_matches_and_the_next_step(namespace, name, near):
    ptp.lookup("darknet", "Reorg")
    with pytest.raises(RegistryError) as caught:
        ptp.lookup(namespace, name)
    assert near in str(caught.value)
    assert "Do: import the module" in str(caught.value)


def test_shipped_layers_are_found_without_an_import():
    assert ptp.lookup("darknet", "Region").plugin_key() in ptp.registered()


def test_a_plugin_is_registered_under_both_parts_of_its_name():
    declare("First")
    pairs = [("test.registry", "Same"), ("test.other", "Same"), ("test.registry", "Other"), ("", "Same")]
    assert [registry.is_registered(*pair) for pair in pairs] == [True, False, False, False]
