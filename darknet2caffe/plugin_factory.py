"""Create the plugins of a caffe network's layers, like TensorRT's nvcaffeparser1::IPluginFactory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import pytrtplugins.layers  # noqa: F401  registers darknet's layers
from pytrtplugins.errors import FieldError, RegistryError
from pytrtplugins.plugin.base import Plugin
from pytrtplugins.plugin.registry import lookup, registered

__all__ = ["PluginFactory", "RegistryFactory"]


@runtime_checkable
class PluginFactory(Protocol):
    """Interface that `from_caffe` uses for layer types that caffe does not have.

    Example:
        >>> class Shuffles:
        ...     def is_plugin(self, layer_type):
        ...         return layer_type == "ShuffleChannel"
        ...     def create_plugin(self, layer_type, parameters):
        ...         return ChannelShuffle(groups=parameters["group"])
        >>> from_caffe("net.prototxt", "net.caffemodel", plugin_factory=Shuffles())  # doctest: +SKIP
    """

    def is_plugin(self, layer_type: str) -> bool:
        """Whether layers of this type are plugins of this factory."""
        ...

    def create_plugin(self, layer_type: str, parameters: Mapping[str, Any]) -> Plugin:
        """Make the plugin of one layer.

        Args:
            layer_type: The layer's ``type``.
            parameters: What stands in its ``..._param { }``: a field written once is its value, one written several
                times a list; words are text, true and false are bools. Where the .caffemodel has weights for the layer,
                they are the tuple ``blobs``.
        """
        ...


class RegistryFactory:
    """Creates registered plugins by name; the default, also tried after any other factory.

    `pytrtplugins.native.layers` are the same layers once more: they are taken only where no other has the name.
    """

    def is_plugin(self, layer_type: str) -> bool:
        """Whether a plugin of this name is registered."""
        return any(key.name == layer_type for key in registered())

    def create_plugin(self, layer_type: str, parameters: Mapping[str, Any]) -> Plugin:
        """Make the plugin from its declared fields.

        Raises:
            RegistryError: none is registered, or several of this name.
            FieldError: a parameter is not a declared field, or of another type.
        """
        named = [key for key in registered() if key.name == layer_type]
        keys = [key for key in named if key.namespace != "native"] or named
        if len(keys) > 1:
            raise RegistryError(
                f"several plugins are named {layer_type}: {', '.join(map(str, keys))}.\n"
                "Do: from_caffe(..., plugin_factory=...), which chooses one.",
                wanted=layer_type,
            )
        cls = lookup(*keys[0]) if keys else lookup("", layer_type)
        specs = {spec.name: spec for spec in cls.field_specs()}
        unknown = sorted(parameters.keys() - specs.keys())
        if unknown:
            raise FieldError(f"unknown parameters {unknown}; declared are {list(specs) or 'none'}", name=unknown[0])
        return cls(**{name: specs[name].field_kind.from_caffe(value) for name, value in parameters.items()})
