"""A prepared model → the form that TensorRT's ONNX parser accepts, in two steps: `written_out`, then `ParserForm`."""

from __future__ import annotations

from collections.abc import Mapping
from string import ascii_lowercase
from typing import ClassVar

from ...model.decompose import add_shapes
from ...model.ir import names_in, remove_unused, set_attributes, unused_name
from ...model.proto import copy_of
from ...passes import Pass, PassResult
from ...plugin.base import Plugin
from ...plugin.onnx_node import from_node, is_plugin_node
from ...plugin.policy import GPU_FORMS, NO_REQUESTS, RUNNING, chosen_form, has_enqueue
from ...plugin.registry import PluginKey
from ...utils.optional import ir, onnx
from ...utils.override import override
from ..base.plugin_codes import on_codes
from ..base.plugins import write_decompositions
from .plugin_fields import Extras, attribute_values, left_out

__all__ = ["ParserForm", "plugin_keys", "written_out"]


class ParserForm(Pass):
    """Complete what `written_out` gave, so that the parser finds every plugin with everything that belongs to it.

    Plugin nodes carry how many outputs they have, and as bytes what attributes cannot carry. A plugin between Q/DQ that
    takes int8 gets int8 and gives int8, with the scales as attributes: TensorRT does not fuse Q/DQ into plugins. Equations of Einsum
    have small letters, the only ones that it reads.
    """

    name: ClassVar[str] = "parser-form"

    def __init__(self, requested: Mapping[str, str] = NO_REQUESTS) -> None:
        self._requested = requested

    @override
    def call(self, model: ir.Model) -> PassResult:
        model.functions.clear()  # those of plugins; the parser might prefer them
        taken = names_in(model.graph)
        for node in list(model.graph):
            if is_plugin_node(node):
                plugin = from_node(node)
                _name_outputs(node, taken)
                scales = on_codes(model.graph, node, lambda plugin: plugin.int8 != "float")
                _complete(node, plugin, scales, self._requested)
            elif node.op_type == "Einsum" and not node.domain:
                set_attributes(node, {"equation": _small_letters(node.attributes["equation"].as_string())})
        remove_unused(model)
        return PassResult(model, True)


def plugin_keys(model: onnx.ModelProto) -> tuple[PluginKey, ...]:
    """Keys of the plugins of a model, sorted."""
    return tuple(sorted({from_node(node).plugin_key() for node in model.graph.node if is_plugin_node(node)}))


def written_out(model: onnx.ModelProto, requested: Mapping[str, str] = NO_REQUESTS) -> onnx.ModelProto:
    """Write out the plugins that TensorRT computes with its own layers, as `pytrtplugins.plugin.policy` says, and name the others.

    The model is a prepared one, and not changed; ``requested``: plugin → the form that the user asks for.
    """
    named = copy_of(model)
    for index, node in enumerate(node for node in named.graph.node if is_plugin_node(node)):
        node.name = node.name or f"plugin{index}_{node.output[0]}"
    written = write_decompositions(named, GPU_FORMS, requested)
    return add_shapes(named) if written is named else written


def _name_outputs(node: ir.Node, taken: set[str | None]) -> None:
    """Name the outputs that nobody reads: the parser expects as many names as the plugin has outputs."""
    for index, output in enumerate(node.outputs):
        output.name = output.name or unused_name(f"{node.name}_output{index}", taken)


def _small_letters(equation: str) -> str:
    """An equation with other names of the same axes, where it has capital letters, and 26 letters are enough."""
    letters = sorted({letter for letter in equation if letter.isalpha()})
    if not any(map(str.isupper, letters)) or len(letters) > len(ascii_lowercase):
        return equation
    names = "".join(letters)
    return equation.translate(str.maketrans(names, ascii_lowercase[: len(names)]))


def _complete(node: ir.Node, plugin: Plugin, scales: list[float], requested: Mapping[str, str]) -> None:
    for name in left_out(plugin):  # the bytes have them
        node.attributes.pop(name, None)
    form = chosen_form(type(plugin), GPU_FORMS, requested, RUNNING)
    told = form if form == "compute" and has_enqueue(type(plugin)) else ""
    extras = Extras(len(node.outputs), tuple(scales), told)
    set_attributes(node, attribute_values(plugin, extras, len(node.inputs) + len(node.outputs)))
