"""A fused model and the dims of its inputs → a plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ....cuda import launches_kernels
from ....errors import BuildError, DimsError
from ....model.ir import dims_of, dtype_of, names_of
from ....model.proto import node_name
from ....passes import PropagateConstants
from ....plugin.base import Plugin
from ....plugin.onnx_node import from_node, is_plugin_node, node_attributes
from ....plugin.policy import NO_REQUESTS, RUNNING, chosen_form
from ....tensor import DType, TensorDesc, evaluate_dims
from ..device.layout import Format, channels_last, linear
from ..lower.pipeline import FREE_CASTS, OptionalStep
from ..lower.rewrite import DOMAIN
from ..operators import ACTIVATIONS, OPS, UNCAPTURED, refusal
from .arena import Block, Layout, place
from .plan import Placed, Plan, Step, step_accesses
from .schedule import Schedule, one_stream, schedule
from .views import ChannelViews
from .weights import read_constants

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["make_plan"]

Dims = tuple[int, ...]
_FLOATS = (DType.FLOAT32, DType.FLOAT16)
_IMAGE_TYPES = (*_FLOATS, DType.INT8, DType.UINT8)
"""What lies in NHWC; kernels that change layouts know these types."""
_MAX_VALUES = (1 << 32) - 1
"""What a thread's number goes up to."""


def make_plan(
    model: ir.Model,
    bindings: Mapping[str, int],
    disable: Collection[OptionalStep] = (),
    requested: Mapping[str, str] = NO_REQUESTS,
) -> Plan:
    """Plan a run.

    Args:
        model: What `lower` gave.
        bindings: Sizes of the free dims.
        disable: Steps to leave out: ``"outputs"``, ``"concat"``, ``"reuse"``, ``"schedule"``.
        requested: Plugin → the form that the user asks for.

    Raises:
        BuildError: an operator is not supported, or dims cannot be told.
        DimsError: a plugin refuses the dims.
    """
    bound = model.clone()
    PropagateConstants(bindings, lambda op_type: op_type not in OPS)(bound)
    return _Planner(bound, bindings, frozenset(disable), requested).plan()


@dataclass
class _Planner:
    model: ir.Model
    bindings: Mapping[str, int]
    disabled: frozenset[OptionalStep]
    requested: Mapping[str, str]
    steps: list[Step] = field(default_factory=list)
    formats: dict[str, Format] = field(default_factory=dict)
    copies: dict[tuple[str, Format], str] = field(default_factory=dict)
    casts: dict[str, str] = field(default_factory=dict)
    """A tensor that is only another tensor in another float type → that: the copy that a reader wants converts as well."""

    def plan(self) -> Plan:
        graph = self.model.graph
        made = (value for node in graph for value in node.outputs)
        values = (*graph.inputs, *graph.initializers.values(), *made)
        self.known = {value.name: (dims_of(value), dtype_of(value)) for value in values}
        self.constants = read_constants(self.model)
        results = names_of(graph.outputs)
        self.results = set(results)
        plugins = [node for node in graph if _is_plugin(node)]
        dense = {name for node in plugins if self._wants_pixels(from_node(node)) for name in names_of(node.inputs)}
        self.views = ChannelViews(self.formats, self.steps, self.results, dense, "concat" not in self.disabled)
        inputs = tuple(name for name in names_of(graph.inputs) if name not in self.constants)
        for name in inputs:
            dims, dtype = self._described(name)
            self.formats[name] = linear(dims, dtype)
        for node in graph:
            self._add(node)
        outputs = {name: self._as(name, linear(*self._described(name))) for name in results}
        if "outputs" not in self.disabled:
            self._write_linear(set(outputs.values()))
        tensors = {name: self.views.placed(name) for name in self.formats}
        self._check_sizes(tensors)
        order = self._schedule(tensors)
        layout = self._memory(tensors, order, inputs, tuple(outputs.values()))
        return Plan(tuple(self.steps), tensors, self.constants, inputs, outputs, layout, order)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _add(self, node: ir.Node) -> None:
        inputs, outputs = names_of(node.inputs), names_of(node.outputs)
        step = Step("generic", node_name(node), node.op_type, node_attributes(node), inputs, outputs)
        op, own = step.op, node.domain == DOMAIN
        if _is_plugin(node):
            self._add_plugin(from_node(node), replace(step, kind="plugin", name=node.name or op, attributes={}))
        elif op == "Constant" and not node.domain:
            self.constants[outputs[0]] = np.asarray(next(iter(step.attributes.values())))
        elif op in ACTIVATIONS and (own or not node.domain) and self._is_plain_activation(step):
            self._add_step(replace(step, kind="activation", inputs=self._images(step)))
        elif op == "Conv" and own:
            indices = (3,) if step.attributes["image"] else (0, 3)  # an image is read as it is
            self._add_step(replace(step, kind="conv", inputs=self._images(step, indices)))
        elif op in ("MaxPool", "AveragePool") and self._is_plain_pool(step):
            self._add_step(replace(step, kind="pool", inputs=self._images(step)))
        elif op == "Cast" and self._is_plain_cast(step):
            self.casts[outputs[0]] = self._materialized(inputs[0])
        elif op in ("QuantizeLinear", "DequantizeLinear") and self._is_plain_cast(step):
            source = self.casts.get(inputs[0], inputs[0])
            self._add_step(replace(step, kind="reformat", attributes=self._scales(step), inputs=(source,)))
        elif op == "Concat" and self._is_channel_concat(step):
            parts = [(self.casts.get(name, name), self._dims(name)[1]) for name in inputs]
            self.views.concat(step.name, outputs[0], self._natural(outputs[0]), parts)
        elif op == "Split" and self._is_view_split(step):
            self.views.split(self._materialized(inputs[0]), {name: self._dims(name)[1] for name in outputs})
        elif node.domain in ("", DOMAIN) and op in OPS:
            if why := refusal(op, step.attributes, inputs, self.constants):
                raise BuildError(
                    f"engine 'cuda' does not run {op} {why} (node {step.name!r}).\nDo: build with engine=\"cpu\"",
                    engine="cuda",
                    op=op,
                )
            read = tuple(self._materialized(name) for name in inputs)
            self._add_step(replace(step, inputs=read, captured=op not in UNCAPTURED))
        else:
            raise BuildError(
                f"engine 'cuda' does not have the operator {node.domain or 'ai.onnx'}::{op} (node {step.name!r}).\n"
                'Do: write it as a plugin, or build with engine="cpu"',
                engine="cuda",
                op=op,
            )

    def _add_step(self, step: Step) -> None:
        for name in filter(None, step.outputs):
            self.formats[name] = self._natural(name)
        self.steps.append(step)

    def _materialized(self, name: str) -> str:
        """A tensor that is there in its own type."""
        return self._as(name, self._natural(name)) if name in self.casts else name

    def _images(self, step: Step, indices: tuple[int, ...] = (0,)) -> tuple[str, ...]:
        """A step's inputs, those of some indices in NHWC."""
        names = list(step.inputs)
        for data in indices:
            if data < len(names) and names[data]:
                names[data] = self._as(names[data], self._natural(names[data]))
        return tuple(names)

    def _add_plugin(self, plugin: Plugin, step: Step) -> None:
        dims = [self._dims(name) for name in step.inputs]
        out_dims = plugin.all_output_dims(dims)
        chosen = self._agree(step, plugin, dims, out_dims)
        inputs = tuple(self._as(name, form, exact=True) for name, form in zip(step.inputs, chosen, strict=False))
        self.formats.update(zip(step.outputs, chosen[len(dims) :], strict=False))
        captured = self._enqueues(plugin)  # compute allocates
        self.steps.append(replace(step, inputs=inputs, plugin=plugin, captured=captured))

    def _enqueues(self, plugin: Plugin) -> bool:
        """Whether a plugin runs through an `enqueue` of its own."""
        return chosen_form(type(plugin), "cuda", self.requested, RUNNING) == "enqueue"

    def _wants_pixels(self, plugin: Plugin) -> bool:
        """Whether a plugin is asked first if it takes NHWC, as all around it lies."""
        return self._enqueues(plugin) and launches_kernels(type(plugin))

    def _agree(self, step: Step, plugin: Plugin, dims: list[Dims], out_dims: Any) -> list[Format]:
        """The first combination of type and layout that a plugin takes, those without copies first."""
        is_output = any(name in self.results for name in step.outputs)
        given = [self._dtype(name) for name in step.inputs]
        own = next((dtype for dtype in given if dtype in _FLOATS), DType.FLOAT32)
        layouts = ["nhwc", "linear"] if self._wants_pixels(plugin) and not is_output else ["linear", "nhwc"]
        if not self._enqueues(plugin):  # compute gets arrays, whose order is that of their axes
            layouts = ["linear"]
        for layout in layouts:
            for kind in dict.fromkeys((own, DType.FLOAT32)):
                dtypes = [kind if dtype in _FLOATS else dtype for dtype in given]
                outs = plugin.all_output_dtypes(dtypes, len(out_dims))
                forms = [
                    _form(shape, dtype, layout)
                    for shape, dtype in zip((*dims, *out_dims), (*dtypes, *outs), strict=True)
                ]
                if all(form is not None for form in forms):
                    known = [form for form in forms if form is not None]
                    descs = [
                        TensorDesc(f"{step.name}.{index}", form.dims, form.dtype, "nhwc" if form.nhwc else "linear")
                        for index, form in enumerate(known)
                    ]
                    if all(plugin.supports_format(index, descs) for index in range(len(descs))):
                        return known
        raise BuildError(
            f"engine 'cuda': plugin {plugin!r} (node {step.name!r}) takes none of linear and NHWC in float32, "
            f"{own}{', int8' if DType.INT8 in given else ''}: supports_format refuses all.",
            engine="cuda",
        )

    def _write_linear(self, results: Collection[str]) -> None:
        """Convolutions whose output is only made linear float32 → they write that themselves."""
        writers = {name: step for step in self.steps if step.kind == "conv" for name in step.outputs}
        for copy in [step for step in self.steps if step.op == "Reformat" and step.inputs[0] in writers]:
            name, target = copy.inputs[0], copy.outputs[0]
            conv, form = writers[name], self.formats[target]
            alone = sum(name in step.inputs for step in self.steps) == 1 and name not in {*self.views.names, *results}
            plain = not (conv.attributes["reorg"] or conv.attributes["image"])
            plain &= self.formats[name].dtype is form.dtype or FREE_CASTS in self.model.metadata_props
            if alone and plain and form.dtype is DType.FLOAT32 and not form.nhwc:
                self.steps[self.steps.index(conv)] = replace(conv, outputs=(target,))
                self.steps.remove(copy)
                del self.formats[name]

    # -- what nodes are --------------------------------------------------------------------------------------------------

    def _is_plain_pool(self, step: Step) -> bool:
        return (
            len(self._dims(step.inputs[0])) == 4
            and len(step.outputs) == 1
            and set(step.attributes.get("dilations", (1,))) == {1}
            and step.attributes.get("auto_pad", "NOTSET") in ("NOTSET", "VALID")
        )

    def _is_plain_activation(self, step: Step) -> bool:
        forms = [self._natural(name) for name in (step.inputs[0], step.outputs[0])]
        return (
            step.inputs[0] not in self.constants
            and all(form.nhwc and form.dtype in _FLOATS for form in forms)
            and forms[0].dtype is forms[1].dtype
        )

    def _is_plain_cast(self, step: Step) -> bool:
        types = {self._dtype(step.inputs[0]), self._dtype(step.outputs[0])}
        if not types <= {DType.FLOAT32, DType.FLOAT16, DType.INT8, DType.UINT8} or step.inputs[0] in self.constants:
            return False
        if step.op == "Cast":
            return types <= set(_FLOATS)
        scale, zero = (self.constants.get(name) for name in (*step.inputs[1:], "")[:2])
        return (
            1 <= len(self._dims(step.inputs[0])) <= 4
            and scale is not None
            and scale.size == 1
            and (zero is None or not zero.any())
        )

    def _scales(self, step: Step) -> dict[str, Any]:
        scale = float(self.constants[step.inputs[1]].reshape(()))
        return {"y_scale" if step.op == "QuantizeLinear" else "x_scale": scale}

    def _is_channel_concat(self, step: Step) -> bool:
        dims = self._dims(step.outputs[0])
        form = self._natural(step.outputs[0])
        return (
            len(dims) == 4
            and step.attributes.get("axis") in (1, -3)
            and form.dtype in (DType.FLOAT32, DType.FLOAT16, DType.INT8)
            and not any(name in self.constants for name in step.inputs)
        )

    def _is_view_split(self, step: Step) -> bool:
        name = step.inputs[0]
        form = self._natural(name) if name in self.casts else self.formats.get(name)
        sizes = [self._dims(part)[1] for part in step.outputs if len(self._dims(part)) == 4]
        return (
            form is not None
            and form.nhwc
            and step.attributes.get("axis", 0) in (1, -3)
            and len(sizes) == len(step.outputs)
            and all(size % form.vector == 0 for size in sizes)
        )

    # -- tensors ---------------------------------------------------------------------------------------------------------

    def _described(self, name: str) -> tuple[Dims, DType]:
        if name in self.constants:
            array = self.constants[name]
            return tuple(array.shape), DType.of(array)
        dims, dtype = self.known.get(name, (None, None))
        if dims is None or dtype is None or any(dim is None for dim in dims):
            raise BuildError(
                f"engine 'cuda': the dims or the type of tensor {name!r} cannot be told before the network runs.\n"
                'Do: build with engine="cpu"',
                engine="cuda",
            )
        try:
            return evaluate_dims(dims, self.bindings), dtype
        except DimsError as error:
            known = ", ".join(f"{free}={size}" for free, size in self.bindings.items())
            raise BuildError(
                f"engine 'cuda': the dims of tensor {name!r} do not follow from {known}: only the batch may be free.\n"
                'Do: give the inputs fixed dims beside it, or build with engine="cpu"',
                engine="cuda",
            ) from error

    def _dims(self, name: str) -> Dims:
        return self._described(name)[0]

    def _dtype(self, name: str) -> DType:
        return self._described(name)[1]

    def _natural(self, name: str) -> Format:
        """The form that this engine's kernels give and take."""
        dims, dtype = self._described(name)
        image = len(dims) == 4 and 0 not in dims and dtype in _IMAGE_TYPES
        return channels_last(dims, dtype) if image else linear(dims, dtype)

    def _as(self, name: str, wanted: Format, exact: bool = False) -> str:
        """The tensor in another form: itself, or a copy that a step makes, as of a constant. ``exact``: no gaps but the form's own."""
        source = self.casts.get(name, name)
        found = self.formats.get(source)
        if found is None and name not in self.constants:
            raise BuildError(f"engine 'cuda': tensor {name!r} is read and nothing computes it", engine="cuda")
        if found == wanted or (found is not None and not exact and self._reads_strided(found, wanted)):
            return source
        key = (name, wanted)
        if key not in self.copies:
            copy = f"{name}@{wanted.dtype}{'-nhwc' if wanted.nhwc else ''}{wanted.pitch or ''}"
            self.formats[copy] = wanted
            self.copies[key] = copy
            plain = found is None or wanted.dtype not in _IMAGE_TYPES
            kind, op = ("generic", "Identity") if plain else ("reformat", "Reformat")
            self.steps.append(Step(kind, copy, op, {}, (source,), (copy,)))
        return self.copies[key]

    @staticmethod
    def _reads_strided(found: Format, wanted: Format) -> bool:
        """Whether a run of channels of a larger tensor serves where a tensor of its own is wanted: not for plugins."""
        return (
            found.nhwc
            and wanted.nhwc
            and found.dtype == wanted.dtype
            and found.dims[1] % found.vector == 0
            and found.pitch >= wanted.pitch
        )

    def _check_sizes(self, tensors: Mapping[str, Placed]) -> None:
        pooled = {name for step in self.steps if step.attributes.get("pool") for name in step.outputs}
        for name, placed in tensors.items():
            if placed.format.elements * (4 if name in pooled else 1) > _MAX_VALUES:
                raise BuildError(
                    f"engine 'cuda': tensor {name!r}, {placed.format}, has more values than kernels of this engine count.\n"
                    "Do: run smaller batches",
                    engine="cuda",
                )

    def _schedule(self, tensors: Mapping[str, Placed]) -> Schedule:
        if "schedule" in self.disabled or not all(step.captured for step in self.steps):
            return one_stream(len(self.steps))
        return schedule([step_accesses(step, tensors) for step in self.steps])

    def _memory(
        self, tensors: Mapping[str, Placed], order: Schedule, inputs: Collection[str], outputs: Collection[str]
    ) -> Layout:
        written = {tensors[name].storage for name in outputs}
        given = {tensors[name].storage for name in inputs}
        users: dict[str, list[int]] = {storage: [] for storage in (*given, *written)}
        for index, step in enumerate(self.steps):
            for name in (*step.inputs, *step.outputs):
                if name in tensors:
                    users.setdefault(tensors[name].storage, []).append(index)
        blocks = {
            storage: Block(self.formats[storage].bytes, min(steps, default=-1), max(steps, default=-1))
            for storage, steps in users.items()
        }

        def done_before(one: str, other: str) -> bool:
            if one in written or other in given or one in given:
                return False
            return all(order.ordered(i, j) for i in users[one] for j in users[other])

        return place(
            blocks, "reuse" not in self.disabled, lambda one, other: done_before(one, other) or done_before(other, one)
        )


def _is_plugin(node: ir.Node) -> bool:
    return is_plugin_node(node) and node.domain != DOMAIN


def _form(dims: Dims, dtype: DType, layout: str) -> Format | None:
    if layout == "linear":
        return linear(dims, dtype)
    return channels_last(dims, dtype, dense=True) if len(dims) == 4 else None
