"""The decorator that registers a class as a plugin."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, overload

from ..errors import FieldError, PluginError
from .base import Plugin, PluginKey, hooks
from .fields import MISSING, collect_field_specs

__all__ = ["NAMESPACE", "plugin"]

NAMESPACE = "custom"
"""Of a plugin for which none is given."""
_INT8 = ("float", "pass_through", "requantize")
# TensorRT's parser and ONNX give them a meaning
_RESERVED = {"name", "plugin_namespace", "plugin_version", "plugin_id", "aliased_io"}
_HOOKS = (
    *(
        "validate",
        "output_dims",
        "compute",
        "output_dtypes",
        "supports_format",
        "configure",
        "workspace_size",
        "initialize",
    ),
    *("enqueue", "terminate", "decompose", "tactics"),
)
_OF_TENSORRT = {
    **dict.fromkeys(("get_output_shapes", "get_output_dimensions"), "output_dims"),
    **dict.fromkeys(("get_output_data_types", "get_output_data_type"), "output_dtypes"),
    "supports_format_combination": "supports_format",
    **dict.fromkeys(("configure_plugin", "on_shape_change"), "configure"),
    "get_workspace_size": "workspace_size",
}
"""Methods of TensorRT's plugins and what they are called here."""
_ALIKE = 0.9  # share of equal letters; "computed" and "compute" have more, so a "d" more is let pass
P = TypeVar("P", bound="type[Plugin]")


@overload
def plugin(cls: P, /) -> P: ...


@overload
def plugin(*, namespace: str = NAMESPACE, version: str = "1", name: str | None = None) -> Callable[[P], P]: ...


def plugin(cls: Any = None, /, *, namespace: str = NAMESPACE, version: str = "1", name: str | None = None) -> Any:
    """Turn a `Plugin` subclass into a registered plugin.

    Its typed attributes become constructor arguments, checked values, repr, equality, hash, serialized bytes and ONNX attributes.

    Args:
        cls: The class, where the decorator stands without parentheses.
        namespace: Who defines the layer; it becomes the domain of the ONNX node. Not empty.
        version: Version of the layer's meaning and attributes; change it when either changes.
        name: The layer's type name; the class's name by default.

    Raises:
        PluginError: the class lacks `Plugin.output_dims` or `Plugin.compute`, a name is empty, its `Plugin.int8` is no mode, or a method is
            named almost as one that engines call.
        FieldError: an attribute's type cannot be a field.
        RegistryError: another class has the key.

    Example:
        >>> @plugin(namespace="example")
        ... class Scale(Plugin):
        ...     factor: float = 2.0
        ...     def output_dims(self, x):
        ...         return x
        ...     def compute(self, x):
        ...         return x * x.dtype.type(self.factor)
        >>> Scale(factor=3), Scale() == Scale(2.0)
        (Scale(factor=3.0), True)
    """

    def decorate(cls: P) -> P:
        if not (isinstance(cls, type) and issubclass(cls, Plugin)):
            raise PluginError(f"@plugin: {getattr(cls, '__name__', cls)} must be a subclass of Plugin")
        missing = [method for method in ("output_dims", "compute") if getattr(cls, method) is getattr(Plugin, method)]
        if missing:
            raise PluginError(
                f"{cls.__name__} lacks {' and '.join(missing)}: a plugin is complete with output_dims and compute"
            )
        _check_names(cls)
        key = PluginKey(namespace, cls.__name__ if name is None else name, str(version))
        if not all(key):
            raise PluginError(
                f"@plugin on {cls.__name__}: namespace, name and version must not be empty, found {tuple(key)}"
            )
        specs = collect_field_specs(cls)
        clash = [spec.name for spec in specs if spec.name in _RESERVED or hasattr(Plugin, spec.name)]
        if clash:
            raise FieldError(
                f"{cls.__name__}.{clash[0]}: this name has a meaning of its own; choose another", name=clash[0]
            )
        cls._key, cls._specs = key, specs
        cls.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(
                    spec.name,
                    inspect.Parameter.POSITIONAL_OR_KEYWORD,
                    default=inspect.Parameter.empty if spec.default is MISSING else spec.default,
                )
                for spec in sorted(specs, key=lambda spec: spec.default is not MISSING)
            ]
        )
        hooks.register(cls)
        return cls

    return decorate if cls is None else decorate(cls)


# -- inside ----------------------------------------------------------------------------------------------------------------


def _check_names(cls: type[Plugin]) -> None:
    """Refuse an unknown `Plugin.int8`, and misspelled names of methods."""
    if cls.int8 not in _INT8:
        raise PluginError(
            f"{cls.__name__}.int8 is {cls.int8!r}.\nDo: take one of {', '.join(map(repr, _INT8))}",
            expected=_INT8,
            found=cls.int8,
        )
    for name in _own_methods(cls):
        if hook := _OF_TENSORRT.get(name) or _similar_hook(name):
            whose = "is TensorRT's name for" if name in _OF_TENSORRT else "is almost"
            raise PluginError(
                f"{cls.__name__}.{name} {whose} {hook!r}, and nothing calls it.\n"
                f"Do: call it {hook!r}, or, if it is a method of your own, _{name}",
                expected=hook,
                found=name,
            )


def _own_methods(cls: type[Plugin]) -> Iterator[str]:
    for base in cls.__mro__[: cls.__mro__.index(Plugin)]:
        for name, value in vars(base).items():
            is_method = inspect.isfunction(value) or isinstance(value, (staticmethod, classmethod))
            if is_method and not name.startswith("_") and not hasattr(Plugin, name) and name not in _HOOKS:
                yield name


def _similar_hook(name: str) -> str:
    """The method of `Plugin` whose name is similar; empty if there is none."""
    for hook in _HOOKS:
        same, begins = _letters(name) == _letters(hook), len(name) >= 8 and hook.startswith(f"{name}_")
        alike = difflib.SequenceMatcher(None, name, hook).ratio() >= _ALIKE and name not in (f"{hook}d", f"{hook}r")
        if same or begins or alike:
            return hook
    return ""


def _letters(name: str) -> str:
    return name.replace("_", "").lower().rstrip("s")
