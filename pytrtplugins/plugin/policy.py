"""Select the form of a plugin that an engine runs: its own `enqueue`, its decomposition, or `compute`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ..cuda import launches_kernels
from ..errors import UsageError
from ..utils.optional import ir, onnx
from ..validation.dataflow import walk
from .base import Plugin
from .onnx_node import from_node, is_plugin_node

__all__ = [
    "FORMS",
    "GPU_FORMS",
    "HOST_ENQUEUE",
    "HOST_FORMS",
    "NO_REQUESTS",
    "RUNNING",
    "check_forms",
    "chosen_form",
    "forms_of",
    "has_enqueue",
    "plugin_classes",
    "requested_forms",
    "requested_forms_in",
]

FORMS = ("enqueue", "decomposition", "compute")
"""What a user may ask for."""

RUNNING = ("enqueue", "compute")
"""Forms of a node that stays a plugin's."""

HOST_ENQUEUE = "enqueue without kernels"
"""`enqueue`, unless it launches kernels: these come on a CPU only where the user asks for them. `compute` is faster there, and needs
no C++ compiler."""

GPU_FORMS: tuple[str, ...] = ("enqueue", "decomposition", "compute")
HOST_FORMS: tuple[str, ...] = ("decomposition", HOST_ENQUEUE, "compute")
"""What `Engine.plugin_forms` is for most engines: the forms that it runs; a plugin runs in the first that its class has."""

NO_REQUESTS: Mapping[str, str] = MappingProxyType({})
"""The user leaves every form to the engine."""


def has_enqueue(cls: type[Plugin]) -> bool:
    """Whether a plugin class queues its work itself."""
    return cls.enqueue is not Plugin.enqueue


def forms_of(cls: type[Plugin]) -> tuple[str, ...]:
    """The forms that a plugin class has; every class has `compute`."""
    has = {"enqueue": has_enqueue(cls), "decomposition": cls.has_decomposition(), "compute": True}
    return tuple(form for form in FORMS if has[form])


def chosen_form(
    cls: type[Plugin],
    forms: Sequence[str],
    requested: Mapping[str, str] = NO_REQUESTS,
    among: Collection[str] = FORMS,
) -> str:
    """The form in which an engine with these ``plugin_forms`` runs a class: what the user requested, else the first that the class has.

    ``requested`` has names such as ``"acme::Scale"``. ``among`` is what can be chosen: `RUNNING` for a node whose decomposition could
    not be written.
    """
    possible = [form for form in forms_of(cls) if form in among]
    if requested.get(_name(cls)) in possible:
        return requested[_name(cls)]
    for entry in forms:
        form = entry.partition(" ")[0]
        if form in possible and not (entry == HOST_ENQUEUE and launches_kernels(cls)):
            return form
    return "compute"


def plugin_classes(model: onnx.ModelProto | ir.Model) -> dict[str, type[Plugin]]:
    """The classes of a model's plugin nodes, by name, such as ``"acme::Scale"``."""
    graph: Any = model.graph
    nodes = graph.all_nodes() if hasattr(graph, "all_nodes") else walk(graph.node)
    classes = (type(from_node(node)) for node in nodes if is_plugin_node(node))
    return {_name(cls): cls for cls in classes}


def requested_forms_in(model: onnx.ModelProto, requested: Mapping[str, str]) -> dict[str, str]:
    """The user's requested forms, for those plugins that are in a model or in a part of one."""
    classes = plugin_classes(model) if requested else {}
    return {name: form for name, form in requested.items() if name in classes}


def requested_forms(requested: Mapping[str, str]) -> dict[str, str]:
    """The user's requested forms as a dictionary.

    Raises:
        UsageError: it is not a mapping, or a form is unknown.
    """
    if not isinstance(requested, Mapping):
        raise UsageError(f"plugins: expected forms by name, such as {{'acme::Scale': 'compute'}}, found {requested!r}")
    for name, form in requested.items():
        if form not in FORMS:
            raise UsageError(f"plugins: {name}: form {form!r} is unknown; there are {', '.join(FORMS)}", form=form)
    return dict(requested)


def check_forms(model: onnx.ModelProto, engine: str, forms: Sequence[str], requested: Mapping[str, str]) -> None:
    """Check requested forms: the model has the plugins, they have the forms, and the engine can run them (``forms``)."""
    classes = plugin_classes(model) if requested else {}
    for name, form in requested.items():
        if name not in classes:
            plugin_names = ", ".join(sorted(classes)) or "none"
            raise UsageError(f"plugins: the model has no plugin {name!r}; it has {plugin_names}", plugin=name)
        runs = {entry.partition(" ")[0] for entry in forms} or set(FORMS)
        possible = [candidate for candidate in forms_of(classes[name]) if candidate in runs]
        if form not in possible:
            why = "has none of its own" if form in runs else f"is never run by engine {engine!r}"
            raise UsageError(
                f"plugins: {name} cannot run as {form!r}: it {why}.\n"
                f"Do: " + " or ".join(f"plugins={{{name!r}: {candidate!r}}}" for candidate in possible),
                plugin=name,
                form=form,
            )


def _name(cls: type[Plugin]) -> str:
    key = cls.plugin_key()
    return f"{key.namespace}::{key.name}"
