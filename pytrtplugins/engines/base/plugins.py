"""Rewrite the plugins of a model to the forms that an engine runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...errors import BuildError
from ...model.decompose import add_shapes, inline_plugins
from ...model.fit import node_type
from ...model.skeleton import guide, unknown_nodes
from ...plugin.base import Plugin
from ...plugin.policy import RUNNING, chosen_form, plugin_classes
from ...utils.optional import ir, onnx
from .engine import Engine
from .operator_support import probe_unsupported_nodes

__all__ = ["check_operators", "forms_run", "write_decompositions"]


def check_operators(model: onnx.ModelProto, engine: type[Engine]) -> None:
    """Refuse nodes of a domain that neither a library nor a plugin is known for.

    Raises:
        BuildError: there is one; the message has its signature, and a plugin class to begin with.
    """
    for node in () if engine.foreign_operators else unknown_nodes(model):
        others = (*unknown_nodes(model), *probe_unsupported_nodes(model, engine))
        raise BuildError(
            f"engine {engine.name!r}: the operator {node_type(node)} is not known {guide(model, node, engine.name, others)}",
            engine=engine.name,
            op=node.op_type,
            node=node.name,
        )


def write_decompositions(model: onnx.ModelProto, forms: Sequence[str], requested: Mapping[str, str]) -> onnx.ModelProto:
    """Write the decompositions that an engine with these ``plugin_forms`` runs into a prepared model; those that need free dims stay.

    Returns:
        A new model with the types and dims of the tensors inside, or this very one where no plugin runs so.
    """

    def decomposes(cls: type[Plugin]) -> bool:
        return chosen_form(cls, forms, requested) == "decomposition"

    if not any(map(decomposes, plugin_classes(model).values())):
        return model
    return add_shapes(inline_plugins(model, chosen=decomposes))


def forms_run(
    model: onnx.ModelProto, written: onnx.ModelProto | ir.Model, forms: Sequence[str], requested: Mapping[str, str]
) -> dict[str, str]:
    """The forms in which requested plugins run, for `Engine.choices`; ``written`` has the decompositions."""
    if not requested:
        return {}
    classes, remaining = plugin_classes(model), plugin_classes(written)
    choices = {}
    for name in requested:
        form = chosen_form(classes[name], forms, requested)
        if form == "decomposition" and name in remaining:
            running = chosen_form(classes[name], forms, requested, RUNNING)
            form = f"{running}, since its decomposition needs dims that are free"
        choices[f"plugin {name}"] = form
    return choices
