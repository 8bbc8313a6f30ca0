"""Creators, and TensorRT's plugin registry, which finds them by name, version and namespace."""

from __future__ import annotations

import functools
from typing import Any

from ...errors import RegistryError, UnavailableError, UsageError
from ...plugin import registry
from ...plugin.base import Plugin
from ...plugin.registry import PluginKey
from ...utils.forks import ForkLock
from ._api import Api, load
from .collected import guarded
from .host import PluginHost
from .plugin_fields import declared_fields, from_fields
from .plugin_v2 import v2_class
from .plugin_v3 import v3_class

__all__ = ["creator", "register", "unregister"]

_registered: dict[tuple[str, PluginKey], Any] = {}  # package and key → creator: TensorRT does not keep creators alive
_lock = ForkLock()


def creator(cls: type[Plugin], *, interface: str = "v3", package: str = "tensorrt") -> Any:
    """Make TensorRT's creator of a plugin class, without registering it.

    Args:
        cls: The plugin.
        interface: ``"v3"``, or ``"v2"`` for IPluginV2DynamicExt in TensorRT 10.
        package: ``"tensorrt"``, or ``"tensorrt_rtx"`` for TensorRT for RTX.

    Returns:
        An ``IPluginCreatorV3One`` or ``IPluginCreator``.

    Raises:
        MissingExtraError: TensorRT is not installed.
        UnavailableError: this TensorRT does not have the interface.
        UsageError: there is no such interface.
    """
    api = load(package)
    if interface not in ("v3", "v2"):
        raise UsageError(f"interface: expected 'v3' or 'v2', found {interface!r}", interface=interface)
    if interface == "v2" and not api.has_v2:
        reason = (
            "its parser takes IPluginV3 alone" if api.is_rtx else "deprecated, and offered here for TensorRT 10 only"
        )
        raise UnavailableError(f'{api.title}: IPluginV2DynamicExt: {reason}.\nDo: leave out interface="v2"')
    return _creator_class(api, interface)(cls)


def register(cls: type[Plugin], *, interface: str = "v3", package: str = "tensorrt") -> Any:
    """Make a plugin class known to TensorRT: to its ONNX parser, and to engines that are loaded.

    Registering a class again changes nothing; a class that was defined anew takes its predecessor's place.

    Args:
        cls: The plugin.
        interface: ``"v3"``, or ``"v2"`` for IPluginV2DynamicExt in TensorRT 10.
        package: ``"tensorrt"``, or ``"tensorrt_rtx"`` for the registry of TensorRT for RTX.

    Returns:
        The creator in TensorRT's registry.

    Raises:
        RegistryError: somebody else's creator has the name, version and namespace.
        MissingExtraError: TensorRT is not installed.
        UnavailableError: this TensorRT does not have the interface.
    """
    key = cls.plugin_key()
    with _lock:
        known = _registered.get((package, key))
        if known is not None and known.cls is cls and known.interface == interface:
            return known
        made, api = creator(cls, interface=interface, package=package), load(package)
        plugins = api.trt.get_plugin_registry()
        if known is not None:
            plugins.deregister_creator(known)
            del _registered[package, key]
        taken = any((each.plugin_namespace, each.name, each.plugin_version) == tuple(key) for each in api.creators())
        if taken or not plugins.register_creator(made, key.namespace):
            raise RegistryError(
                f"plugin {key}: TensorRT's registry has a creator of this key that another library registered.\n"
                f'Do: give the class another version, @plugin(namespace="{key.namespace}", version="2"), or another namespace',
                key=key,
            )
        _registered[package, key] = made
        return made


def unregister(cls: type[Plugin], *, package: str = "tensorrt") -> None:
    """Take a plugin class out of TensorRT's registry; nothing happens if it is not there."""
    with _lock:
        known = _registered.pop((package, cls.plugin_key()), None)
        if known is not None:
            load(package).trt.get_plugin_registry().deregister_creator(known)


def register_key(key: PluginKey, package: str = "tensorrt") -> Any:
    """Register the class of a key.

    Raises:
        RegistryError: no class has the key.
    """
    return register(registry.lookup(*key), package=package)


@functools.cache
def _creator_class(api: Api, interface: str) -> type:
    base = api.trt.IPluginCreatorV3One if interface == "v3" else api.trt.IPluginCreator
    adapter = v3_class(api) if interface == "v3" else v2_class(api)

    class Creator(base):  # type: ignore[misc, valid-type]
        """Makes TensorRT's objects of one plugin class."""

        def __init__(self, cls: type[Plugin]) -> None:
            base.__init__(self)
            self.cls, self.interface = cls, interface
            # the registry reads these, and would crash without a namespace
            self.plugin_namespace, self.name, self.plugin_version = cls.plugin_key()
            self.declared = declared_fields(api, cls)  # kept: the C++ half has a pointer to it
            self.field_names = self.declared

        @guarded
        def create_plugin(self, name: str, field_collection: Any, phase: Any = None) -> Any:
            return adapter(PluginHost(api, *from_fields(self.cls, field_collection)))

        @guarded
        def deserialize_plugin(self, name: str, serialized_plugin: bytes) -> Any:
            """What ``IPluginCreator`` has besides: IPluginV3 is made of its fields again."""
            return adapter(PluginHost(api, self.cls.deserialize(bytes(serialized_plugin))))

    return Creator
