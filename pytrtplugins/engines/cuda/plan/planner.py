"""Make a plan of a lowered model and the dims of its inputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ....cuda import launches_kernels
from ....errors import BuildError
from ....model.ir import dims_of, dtype_of, is_op, names_of
from ....model.proto import node_name
from ....passes import PropagateConstants
from ....plugin.base import Plugin
from ....plugin.onnx_node import from_node, is_plugin_node, scales_of
from ....plugin.policy import GPU_FORMS, NO_REQUESTS, RUNNING, chosen_form
from ....tensor import DType, evaluate_dims
from ....utils.heap import no_collection
from ....utils.optional import ir
from ..device.activation import PLAIN
from ..device.expression import Expression
from ..device.indexed import INDEXED
from ..device.layout import FP8, Format, as_rows, channels_last, linear
from ..lower.dims import fused_dims
from ..lower.einsum import WriteEinsums
from ..lower.fits import find_misfit
from ..lower.group_norm import GroupNormToLayerNorm
from ..lower.long_rows import SplitLongRows
from ..lower.padded_results import PADDED
from ..lower.pipeline import FREE_CASTS, OptionalStep
from ..lower.pointwise import GroupPointwise
from ..lower.resampling import linear_blend
from ..lower.rewrite import DOMAIN
from ..naming import naming
from ..operators import OPS, can_be_captured, unsupported_reason
from ..operators.attributes import operator_attributes
from . import kinds
from .attention import place_attention
from .constants import constant_results
from .images import image_tensors
from .in_place import cast_alias, dense_alias, linear_copy, product_step
from .indexed import indexed_steps
from .memory import check_sizes, plan_memory, plan_order
from .moves import is_only_moved, node_moves, write_moved
from .plan import Plan, Step
from .plugin_formats import agree_formats
from .tail import Tail, check_operator, check_operators, check_types, outer_reads, unplannable_nodes
from .tensors import FLOATS, Tensors
from .views import ChannelViews
from .weights import read_constants

__all__ = ["make_plan"]


@no_collection()
def make_plan(
    model: ir.Model,
    bindings: Mapping[str, int],
    disable: Collection[OptionalStep] = (),
    requested: Mapping[str, str] = NO_REQUESTS,
) -> Plan:
    """Plan a run of a lowered model with inputs of some dims.

    Args:
        model: What `lower` gave.
        bindings: Sizes of the free dims.
        disable: Steps to leave out: ``"pointwise"``, ``"outputs"``, ``"concat"``, ``"reuse"``, ``"schedule"``; without
            ``"cublaslt-kernels"`` products of computed tensors cannot be captured.
        requested: Plugin → the form that the user asks for.

    Raises:
        BuildError: an operator is not supported, or dims cannot be told.
        DimsError: dims do not fit each other, or a plugin refuses them.
    """
    bound = model.clone()
    PropagateConstants(bindings, lambda op_type: op_type not in OPS, _plugin_or_fused_dims)(bound)
    if misfit := find_misfit(bound):
        for node in bound.graph:  # an operator that is missing is told first: it is missing with other dims too
            check_operator(node)
        raise misfit
    check_types(bound.graph)
    WriteEinsums()(bound)
    place_attention(bound, bindings)
    if "pointwise" not in disable:
        GroupNormToLayerNorm()(bound)
        SplitLongRows()(bound)
    late = unplannable_nodes(bound.graph, bindings)
    if "pointwise" not in disable:
        GroupPointwise(late)(bound)
    return _Planner(bound, bindings, frozenset(disable), requested, late).plan()


@dataclass
class _Planner:
    model: ir.Model
    bindings: Mapping[str, int]
    disabled: frozenset[OptionalStep]
    requested: Mapping[str, str]
    late: list[ir.Node]
    steps: list[Step] = field(default_factory=list)

    def plan(self) -> Plan:
        graph = self.model.graph
        made = (value for node in graph for value in node.outputs)
        values = (*graph.inputs, *graph.initializers.values(), *made)
        known = {str(value.name): (dims_of(value), dtype_of(value)) for value in values}
        pixels = [node for node in graph if _is_plugin(node) and self._wants_pixels(from_node(node))]
        images = image_tensors(graph, lambda node: node in pixels)
        self.tensors = Tensors(known, read_constants(self.model), self.bindings, images, self.steps)
        self.constants, self.formats = self.tensors.constants, self.tensors.formats
        results = names_of(graph.outputs)
        self.results = set(results)
        dense = {name for node in pixels for name in names_of(node.inputs)}
        self.views = ChannelViews(self.formats, self.steps, self.results, dense, "concat" not in self.disabled)
        inputs = tuple(name for name in names_of(graph.inputs) if name not in self.constants)
        for name in inputs:
            self.formats[name] = linear(*self.tensors.described(name))
        self.tensors.alias = lambda name, move: self._add_alias(name, dense_alias(name, move, self.tensors))
        late = set(self.late)
        for node in graph:
            if node not in late:
                with naming(node_name(node), node.op_type):
                    self._add(node)
        tail = self._make_tail() if late else None
        planned = [name for name in results if tail is None or name not in tail.outputs]
        outputs = {name: self.tensors.as_format(name, linear(*self.tensors.described(name))) for name in planned}
        if tail is not None:
            read = tuple(name for name in tail.reads.values() if name in self.formats)
            self.steps.append(Step("tail", "tail", "Tail", {"nodes": len(late)}, read, (), capturable=False))
        if "outputs" not in self.disabled:
            self._write_linear(set(outputs.values()))
        write_moved(self.steps, self.formats, {*self.views.names, *self.results, *outputs.values()})
        tensors = {name: self.views.placed(name) for name in self.formats}
        check_sizes(self.steps, tensors)
        order = plan_order(self.steps, tensors, is_parallel="schedule" not in self.disabled)
        layout = plan_memory(
            self.steps, tensors, order, (inputs, tuple(outputs.values())), "reuse" not in self.disabled
        )
        return Plan(tuple(self.steps), tensors, self.constants, inputs, outputs, layout, order, tail)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _add(self, node: ir.Node) -> None:
        inputs, outputs = names_of(node.inputs), names_of(node.outputs)
        step = Step("generic", node_name(node), node.op_type, operator_attributes(node), inputs, outputs)
        op, own, tensors = step.op, node.domain == DOMAIN, self.tensors
        if _is_plugin(node):
            self._add_plugin(
                from_node(node), replace(step, kind="plugin", name=node.name or op, attributes=_plugin_scales(node))
            )
        elif op == "Constant" and not node.domain:
            value = next(iter(step.attributes.values()))  # a number, or several, may be said without a type
            self.constants[outputs[0]] = np.asarray(value, tensors.dtype(outputs[0]).numpy)
        elif not node.domain and (results := constant_results(step, tensors)):
            self.constants.update(results)
        elif op in PADDED and own and any(0 in tensors.dims(name) for name in inputs):  # nothing to choose from
            self.constants.update(
                {name: np.zeros(tensors.dims(name), tensors.dtype(name).numpy) for name in filter(None, outputs)}
            )
        elif op in ("Pointwise", "Rows") and own:
            self._add_generated(step)
        elif op in PLAIN and (own or not node.domain) and kinds.is_plain_activation(step, tensors):
            self._add_step(replace(step, kind="activation", inputs=self._inputs_as_nhwc(step)))
        elif op == "Conv" and own and step.attributes["rows"]:
            self._add_rows(step)
        elif op == "Conv" and own:
            indices = (3,) if step.attributes["image"] else (0, 3)  # an image is read as it is
            self._add_step(replace(step, kind="conv", inputs=self._inputs_as_nhwc(step, indices)))
        elif op == "Patches" and own:
            self._add_step(replace(step, kind="reformat"))
        elif op == "Attention" and own:
            self._add_attention(step)
        elif op == "Recurrent" and own:
            self._add_recurrent(step)
        elif op == "SqueezeExcite" and own:
            self._add_step(replace(step, kind="squeeze-excite", inputs=self._inputs_as_nhwc(step)))
            self.formats[outputs[0]] = tensors.image(outputs[0])
        elif op == "MatMul" and not node.domain and kinds.is_float_product(step, tensors):
            made = product_step(step, tensors, self.views)
            self.steps.append(replace(made, capturable="cublaslt-kernels" not in self.disabled))
        elif self._moves_enabled and kinds.is_linear_pool(step, tensors) and self._add_indexed(node, step):
            pass
        elif (own and op == "VolumePool") or (op in ("MaxPool", "AveragePool") and kinds.is_plain_pool(step, tensors)):
            self._add_step(replace(kinds.with_pads(step, tensors), kind="pool", inputs=self._inputs_as_nhwc(step)))
            self.formats[outputs[0]] = tensors.image(outputs[0])
        elif op == "Cast" and kinds.is_plain_cast(step, tensors):
            move = tensors.moves[inputs[0]] if outputs[0] in self.results and tensors.is_moved(inputs[0]) else None
            if move is None or not self._add_alias(outputs[0], linear_copy(outputs[0], move, tensors, self.views)):
                tensors.casts[outputs[0]] = tensors.materialized(inputs[0])
        elif op in ("QuantizeLinear", "DequantizeLinear") and kinds.is_plain_cast(step, tensors):
            source = tensors.stored(inputs[0])
            scale = kinds.step_scale(step, tensors)
            self._add_step(replace(step, kind="reformat", attributes=scale, inputs=(source,)))
        elif (
            op == "Concat"
            and kinds.is_channel_concat(step, tensors)
            and not (self._moves_enabled and is_only_moved(node))
        ):
            parts = [(tensors.stored(name), tensors.dims(name)[1]) for name in inputs]
            self.views.concat(step.name, outputs[0], tensors.natural(outputs[0]), parts)
        elif op == "Split" and kinds.is_view_split(step, tensors):
            self.views.split(tensors.materialized(inputs[0]), {name: tensors.dims(name)[1] for name in outputs})
        elif self._moves_enabled and (
            self._add_moves(node, step) or self._add_blend(node, step) or self._add_indexed(node, step)
        ):
            pass
        elif node.domain in ("", DOMAIN) and op in OPS:
            self._add_generic(step)
        else:
            check_operator(node)

    def _make_tail(self) -> Tail:
        """Make the tail: the nodes that cannot be planned, and the tensors that they read."""
        nodes, version = self.late, self.model.opset_imports.get("", 1)
        check_operators(nodes, version)
        computed = {value for node in nodes for value in node.outputs}
        reads = {value: self.tensors.materialized(str(value.name)) for value in outer_reads(nodes)}
        outputs = {str(value.name): value for value in self.model.graph.outputs if value in computed}
        return Tail(tuple(nodes), reads, outputs, version, self.requested)

    def _add_step(self, step: Step) -> None:
        for name in filter(None, step.outputs):
            self.formats[name] = self.tensors.natural(name)
        self.steps.append(step)

    def _add_generated(self, step: Step) -> None:
        """Add a generated kernel; after one of rows, a step that zeroes the channel padding, which other ones write themselves."""
        tensors, names = self.tensors, step.inputs
        if any(map(tensors.is_moved, names)):
            names, reads = tensors.read([tensors.move(name) for name in names])
            step = replace(step, attributes={**step.attributes, "reads": reads})
        self._add_step(replace(step, kind="pointwise", inputs=tuple(map(tensors.source_before_cast, names))))
        for name in step.outputs if step.op == "Rows" else ():
            self._clear_padding(step, name)

    @property
    def _moves_enabled(self) -> bool:
        return "pointwise" not in self.disabled

    def _add_moves(self, node: ir.Node, step: Step) -> bool:
        """Note the moves or aliases of a data movement node instead of adding a step; return whether that was possible."""
        tensors = self.tensors
        form, goes_on = self.formats.get(step.inputs[0]), is_only_moved(node)
        if form is not None and not goes_on and kinds.alias_format(step, form, tensors) is not None:
            return False
        moves = node_moves(node, tensors)
        if moves is None:
            return False
        for name, move in moves.items():
            if not goes_on and self._add_alias(f"{name}@cast", cast_alias(move, tensors)):
                tensors.casts[name] = f"{name}@cast"
                continue
            alias = None if goes_on else dense_alias(name, move, tensors)
            copy = linear_copy(name, move, tensors, self.views) if alias is None and name in self.results else None
            if not self._add_alias(name, alias or copy):
                tensors.moves[name] = move
        return True

    def _add_alias(self, name: str, alias: tuple[str, Format] | None) -> bool:
        """Note that a tensor is an alias of another, if one is given; return whether it is."""
        if alias is not None:
            self.views.alias(name, *alias)
        return alias is not None

    def _add_blend(self, node: ir.Node, step: Step) -> bool:
        """Add one generated kernel for a linear Resize; return False for other nodes."""
        tensors, name = self.tensors, step.outputs[0]
        if not is_op(node, "Resize") or step.inputs[0] in self.constants:
            return False
        (given, _), (dims, _) = map(tensors.described, (step.inputs[0], name))
        blend = linear_blend(node, tensors.move(step.inputs[0]), dims) if 0 not in (*given, *dims) else None
        if blend is None:
            return False
        weights = {f"{name}.weights{index}": array for index, array in enumerate(blend.weights)}
        self.constants.update(weights)
        names, reads = tensors.read([*blend.moves, *map(tensors.move, weights)])
        lines = Expression(len(reads), blend.operations, ()).lines()
        result = len(reads) + len(lines) - 1
        attributes = {"operations": lines, "results": (result,), "reads": reads}
        self._add_step(replace(step, kind="pointwise", attributes=attributes, inputs=names))
        return True

    def _add_indexed(self, node: ir.Node, step: Step) -> bool:
        """Add the kernel of an operator that reads or writes at computed positions; return False if there is none."""
        steps = indexed_steps(step, self.tensors) if node.domain in ("", DOMAIN) else []
        for each in steps:
            self._add_step(each)
        filled = int(bool(steps) and INDEXED[step.op].fills)  # the first output, by the kernel itself
        for name in filter(None, step.outputs[filled:] if steps else ()):
            self._clear_padding(step, name)
        return bool(steps)

    def _clear_padding(self, step: Step, name: str) -> None:
        """Add a step that zeroes the channel padding of an output, if the step's kernel does not write it."""
        form = self.formats[name]
        if form.nhwc and form.dims[1] % form.vector:
            self.steps.append(Step("zero", f"{step.name}.padding", step.op, {"from": form.dims[1]}, (), (name,)))

    def _add_generic(self, step: Step) -> None:
        """Add an array function, or only an alias where the output can share the input's memory."""
        if why := unsupported_reason(step.op, step.attributes, step.inputs, self.constants):
            raise BuildError(
                f"engine 'cuda' does not run {step.op} {why} (node {step.name!r}).\nDo: build with engine=\"cpu\"",
                engine="cuda",
                op=step.op,
            )
        read = tuple(self.tensors.materialized(name) for name in step.inputs)
        form = self.formats.get(read[0]) if read else None
        alias = None if form is None else kinds.alias_format(step, form, self.tensors)
        if alias is None:
            capturable = can_be_captured(step.op, step.attributes, step.inputs, self.constants)
            self._add_step(replace(step, inputs=read, capturable=capturable))
        else:
            self.views.alias(step.outputs[0], read[0], alias)

    def _add_rows(self, step: Step) -> None:
        """Add a product of rows with x, residual and y linear; rows of x that do not fill 16 bytes are copied with padding."""
        names, result = list(step.inputs), linear(*self.tensors.described(step.outputs[0]))
        for index in (0, 3):
            if index < len(names) and names[index]:
                form = linear(*self.tensors.described(names[index]))
                names[index] = self.tensors.as_format(names[index], form, exact=True)
        form = self.formats[names[0]]
        if form.dims[-1] % form.vector:
            copy = f"{names[0]}@rows"
            if copy not in self.formats:
                self.formats[copy] = channels_last(as_rows(form).dims, form.dtype)
                self.steps.append(Step("reformat", copy, "Reformat", {"rows": 1}, (names[0],), (copy,)))
            names[0] = copy
        self.formats[step.outputs[0]] = result
        if result.elements:
            self.steps.append(replace(step, kind="conv", inputs=tuple(names)))

    def _add_attention(self, step: Step) -> None:
        """Add an Attention: its tensors are row-major, q, k, v and y of one type; a constant bias stays a constant."""
        result = linear(*self.tensors.described(step.outputs[0]))
        names = list(step.inputs)
        for index, name in enumerate(names):
            dims, dtype = self.tensors.described(name)
            if index < 3 or name not in self.constants:
                names[index] = self.tensors.as_format(name, linear(dims, result.dtype if index < 3 else dtype))
        self.formats[step.outputs[0]] = result
        self.steps.append(replace(step, kind="attention", inputs=tuple(names)))

    def _add_recurrent(self, step: Step) -> None:
        """Add a recurrence: its tensors are row-major and of one type; constants stay constants."""
        names, outputs = list(step.inputs), [name for name in step.outputs if name]
        dtype = self.tensors.dtype(outputs[0])
        for index, name in enumerate(names):
            if name and name not in self.constants:
                form = linear(self.tensors.dims(name), DType.INT32 if index == 3 else dtype)
                names[index] = self.tensors.as_format(name, form, exact=True)
        self.formats.update((name, linear(self.tensors.dims(name), dtype)) for name in outputs)
        self.steps.append(replace(step, kind="recurrent", inputs=tuple(names)))

    def _inputs_as_nhwc(self, step: Step, indices: tuple[int, ...] = (0,)) -> tuple[str, ...]:
        """Names of a step's inputs, with those of some indices converted to NHWC."""
        names = list(step.inputs)
        for data in indices:
            if data < len(names) and names[data]:
                names[data] = self.tensors.as_format(names[data], self.tensors.image(names[data]))
        return tuple(names)

    def _add_plugin(self, plugin: Plugin, step: Step) -> None:
        is_output = any(name in self.results for name in step.outputs)
        layouts = ["nhwc", "linear"] if self._wants_pixels(plugin) and not is_output else ["linear", "nhwc"]
        if not self._enqueues(plugin):  # compute gets arrays, whose order is that of their axes
            layouts = ["linear"]
        dims, dtypes = zip(*map(self.tensors.described, step.inputs), strict=True)
        chosen = agree_formats(step.name, plugin, dims, dtypes, layouts)
        if FP8 in dtypes:  # codes that it moves
            chosen = [replace(form, dtype=FP8) if form.dtype is DType.INT8 else form for form in chosen]
        forms = zip(step.inputs, chosen, strict=False)
        inputs = tuple(self.tensors.as_format(name, form, exact=True) for name, form in forms)
        self.formats.update(zip(step.outputs, chosen[len(dims) :], strict=False))
        capturable = self._enqueues(plugin)  # compute allocates
        self.steps.append(replace(step, inputs=inputs, plugin=plugin, capturable=capturable))

    def _enqueues(self, plugin: Plugin) -> bool:
        """Whether a plugin runs through its own `enqueue`."""
        return chosen_form(type(plugin), GPU_FORMS, self.requested, RUNNING) == "enqueue"

    def _wants_pixels(self, plugin: Plugin) -> bool:
        """Whether a plugin is asked for NHWC before linear: it runs `enqueue` and has kernels."""
        return self._enqueues(plugin) and launches_kernels(type(plugin))

    def _write_linear(self, results: Collection[str]) -> None:
        """Let convolutions and linear Resizes write linear floats directly where a Reformat to them is the only reader."""
        own = [step for step in self.steps if step.kind == "conv" or (step.kind, step.op) == ("pointwise", "Resize")]
        writers = {name: step for step in own for name in step.outputs}
        for copy in [step for step in self.steps if step.op == "Reformat" and step.inputs[0] in writers]:
            name, target = copy.inputs[0], copy.outputs[0]
            step, form = writers[name], self.formats[target]
            alone = sum(name in each.inputs for each in self.steps) == 1 and name not in {*self.views.names, *results}
            plain = not any(step.attributes.get(name) for name in ("reorg", "blocks", "image"))
            plain &= self.formats[name].dtype is form.dtype or FREE_CASTS in self.model.metadata_props
            if alone and plain and form.dtype in FLOATS and not form.nhwc:
                self.steps[self.steps.index(step)] = replace(step, outputs=(target,))
                self.steps.remove(copy)
                del self.formats[name]


def _plugin_scales(node: ir.Node) -> dict[str, Any]:
    """The attribute ``scales`` of the step of a plugin on int8 codes; empty for others."""
    return {"scales": scales} if (scales := scales_of(node)) else {}


def _is_plugin(node: ir.Node) -> bool:
    return node.domain != DOMAIN and is_plugin_node(node)


def _plugin_or_fused_dims(node: ir.Node) -> Sequence[Sequence[int]] | None:
    """Infer the output dims of a plugin or a fused node; None where they are unknown."""
    if not _is_plugin(node):
        return fused_dims(node)
    dims = [dims_of(value) or (None,) for value in node.inputs]
    if not all(isinstance(dim, int) for each in dims for dim in each):
        return None
    return [evaluate_dims(each, {}) for each in from_node(node).all_output_dims(dims)]
