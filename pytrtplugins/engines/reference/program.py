"""A graph that is ready to run: its nodes in order, each with its function; If, Loop and Scan run their own graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import BuildError
from ...model.proto import arrays_of, node_name, numpy_type, tensors_of
from ...plugin.base import Plugin
from ...plugin.onnx_node import from_node, is_plugin_node, node_attributes
from ...tensor import Array
from ...utils.optional import onnx
from ...validation.operators import standard_domain
from ..base.context import Arrays
from .coverage import covers, is_plain
from .delegate import Delegated
from .refusals import check_delegable
from .spec import check_opsets, checked_schema, refusal

__all__ = ["Control", "Program", "Step"]

_OLDEST_SCAN = 9  # before it, Scan ran over batches


Run = Callable[["Program", Sequence[Any]], list[Any]]
"""Runs a graph on its inputs, in order; outer tensors that it reads are the caller's matter."""


@dataclass(frozen=True)
class Step:
    """One node, ready to run; one of the three that compute it is there, or else a function of `OPS` does."""

    node: onnx.NodeProto
    attributes: dict[str, Any]
    plugin: Plugin | None = None
    control: Control | None = None
    delegated: Delegated | None = None
    last_use: tuple[str, ...] = ()


@dataclass(frozen=True)
class Control:
    """A node with graphs inside.

    Attributes:
        op_type: If, Loop or Scan.
        attributes: Those that are not graphs.
        programs: Name of an attribute → the graph in it.
    """

    op_type: str
    attributes: Mapping[str, Any]
    programs: Mapping[str, Program]

    @property
    def captured(self) -> tuple[str, ...]:
        """Names of the outer tensors that the graphs read."""
        return tuple(dict.fromkeys(name for program in self.programs.values() for name in program.captured))

    def run(self, given: Sequence[Any], run: Run) -> list[Any]:
        """The node's outputs."""
        return CONTROL_OPS[self.op_type](self, given, run)


class Program:
    """A graph, ready to run.

    Attributes:
        inputs: Names of its inputs, in order.
        outputs: Names of its outputs, in order.
        captured: Names of tensors of the graphs around it that it reads.
        constants: Initializers and constant nodes, by name.
        steps: Its nodes.

    Raises:
        BuildError: a node cannot be computed here.
    """

    def __init__(
        self, graph: onnx.GraphProto, opsets: Mapping[str, int], outer: Mapping[str, onnx.TypeProto] | None = None
    ) -> None:
        check_opsets(opsets)
        self._opsets = dict(opsets)
        self._types: dict[str, onnx.TypeProto] = dict(outer or {})
        self._types.update((name, info.type) for name, info in tensors_of(graph).items())
        self.inputs = tuple(info.name for info in graph.input)
        self.outputs = tuple(info.name for info in graph.output)
        self.constants: Arrays = arrays_of(graph.initializer)
        self.steps = self._plan(graph)
        made = {*self.inputs, *self.constants, *(name for step in self.steps for name in step.node.output)}
        self.captured = tuple(name for name in self._reads() if name not in made)

    def walk(self) -> Iterator[Step]:
        """All steps, those of graphs inside too."""
        for step in self.steps:
            yield step
            if step.control is not None:
                for program in step.control.programs.values():
                    yield from program.walk()

    def described(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Dims and dtype of a tensor; dims that are not known are 0."""
        tensor = self._types[name].tensor_type
        return tuple(dim.dim_value for dim in tensor.shape.dim), numpy_type(tensor.elem_type)

    def _reads(self) -> dict[str, None]:
        """Names that its nodes and its outputs read, in order."""
        names = [name for step in self.steps for name in _read_by(step) if name]
        return dict.fromkeys((*names, *self.outputs))

    def _plan(self, graph: onnx.GraphProto) -> list[Step]:
        steps = []
        for node in graph.node:
            attributes = node_attributes(node)
            if node.op_type == "Constant" and standard_domain(node.domain) == "":
                self.constants[node.output[0]] = _constant(node, attributes)
                continue
            steps.append(self._step(node, attributes))
        uses = Counter(name for step in steps for name in _read_by(step))
        uses.update(info.name for info in graph.output)
        for index, step in enumerate(steps):
            read = set(_read_by(step))
            uses.subtract(_read_by(step))
            last = tuple(name for name in read if name and not uses[name] and name not in self.constants)
            steps[index] = replace(step, last_use=last)
        return steps

    def _step(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> Step:
        if is_plugin_node(node):
            return Step(node, attributes, plugin=from_node(node))
        where = f"engine 'reference': node {node_name(node)!r}"
        schema = checked_schema(node, self._opsets, attributes, where)
        self._check_types(node, where)
        if schema.domain == "" and node.op_type in CONTROL_OPS:
            return Step(node, attributes, control=self._control(node, attributes, schema, where))
        if node.op_type == "Split" and "num_outputs" not in attributes:
            attributes["equal"] = 1
        if node.op_type in ("MaxPool", "Split"):
            attributes.setdefault("num_outputs", len(node.output))
        trains = node.op_type == "Dropout" and any(
            name and self.constants.get(name, np.True_).any() for name in node.input[2:]
        )
        ours = schema.domain == "" and covers(node.op_type, schema.since_version, attributes, len(node.output))
        if ours and not trains and self._is_plain(node, attributes):
            return Step(node, attributes)
        check_delegable(node, schema, attributes, where)
        delegated = Delegated(node, self._opsets, self._types, where)
        return Step(node, attributes, delegated=delegated)

    def _control(
        self, node: onnx.NodeProto, attributes: dict[str, Any], schema: onnx.defs.OpSchema, where: str
    ) -> Control:
        if node.op_type == "Scan" and schema.since_version < _OLDEST_SCAN:
            raise refusal(
                node,
                f"{where}: Scan over batches, of opset 8, is not computed here.\n"
                "Do: onnx.version_converter.convert_version(model, 18)",
            )
        graphs = {item.name: item.g for item in node.attribute if item.HasField("g")}
        plain = {name: value for name, value in attributes.items() if name not in graphs}
        programs = {name: Program(graph, self._opsets, self._types) for name, graph in graphs.items()}
        return Control(node.op_type, plain, programs)

    def _check_types(self, node: onnx.NodeProto, where: str) -> None:
        for name in (*node.input, *node.output):
            if name in self._types and self._types[name].tensor_type.elem_type == onnx.TensorProto.STRING:
                raise refusal(
                    node, f'{where}: tensor {name!r} holds text, which is not computed here.\nDo: engine="onnxruntime"'
                )

    def _is_plain(self, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> bool:
        """Whether all tensors have types that the functions here take, as far as they are known."""
        kinds = [self._types[name].tensor_type.elem_type for name in (*node.input, *node.output) if name in self._types]
        if node.op_type == "Cast":
            kinds.append(attributes["to"])
        return all(not kind or is_plain(numpy_type(kind)) for kind in kinds)


def _read_by(step: Step) -> tuple[str, ...]:
    return (*step.node.input, *(step.control.captured if step.control is not None else ()))


def _constant(node: onnx.NodeProto, attributes: dict[str, Any]) -> Array:
    kinds = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
    for name, value in attributes.items():
        if name == "value" or name in kinds:
            return np.asarray(value, kinds.get(name))
    raise BuildError(
        f"engine 'reference': constant {node.output[0]!r} has no value that is known here: {sorted(attributes)}"
    )


def _if(control: Control, given: Sequence[Any], run: Run) -> list[Any]:
    return run(control.programs["then_branch" if given[0].item() else "else_branch"], [])


def _loop(control: Control, given: Sequence[Any], run: Run) -> list[Any]:
    body = control.programs["body"]
    limit, going, *states = (*given, None, None)[: max(len(given), 2)]
    max_trips = None if limit is None else int(limit.item())
    goes_on = going is None or bool(going.item())
    scans: list[list[Any]] = [[] for _ in body.outputs[1 + len(states) :]]
    index, ranks = 0, [len(body.described(name)[0]) for name in body.inputs[:2]]
    while goes_on and (max_trips is None or index < max_trips):
        counters = (np.full((1,) * rank, value) for rank, value in zip(ranks, (index, goes_on), strict=False))
        outputs = run(body, [*counters, *states])
        goes_on, states = bool(outputs[0].item()), outputs[1 : 1 + len(states)]
        for values, value in zip(scans, outputs[1 + len(states) :], strict=True):
            values.append(value)
        index += 1
    return [*states, *(_stacked(body, 1 + len(states) + k, values) for k, values in enumerate(scans))]


def _scan(control: Control, given: Sequence[Any], run: Run) -> list[Any]:
    a, body = control.attributes, control.programs["body"]
    count = len(given) - a["num_scan_inputs"]
    for side, places in (("input", a["num_scan_inputs"]), ("output", len(body.outputs) - count)):
        for name in (f"scan_{side}_axes", f"scan_{side}_directions"):
            if len(a.get(name, [0] * places)) != places:
                raise ValueError(f"{name} has {len(a[name])} numbers, and there are {places} scanned {side}s")
    states, inputs = list(given[:count]), given[count:]
    scanned = [
        _along(x, axis)[:: -1 if backward else 1]
        for x, axis, backward in zip(
            inputs, *(a.get(f"scan_input_{kind}", [0] * len(inputs)) for kind in ("axes", "directions")), strict=True
        )
    ]
    lengths = {len(x) for x in scanned}
    if len(lengths) != 1:
        raise ValueError(f"its inputs have different lengths along their axes: {sorted(lengths)}")
    results: list[list[Any]] = [[] for _ in body.outputs[count:]]
    for parts in zip(*scanned, strict=True):
        outputs = run(body, [*states, *parts])
        states = outputs[:count]
        for values, value in zip(results, outputs[count:], strict=True):
            values.append(value)
    axes, backward = (a.get(f"scan_output_{kind}", [0] * len(results)) for kind in ("axes", "directions"))
    stacked = [_stacked(body, count + k, values[:: -1 if backward[k] else 1]) for k, values in enumerate(results)]
    return [*states, *(np.moveaxis(value, 0, axis) for value, axis in zip(stacked, axes, strict=True))]


def _along(x: Array, axis: int) -> Array:
    return np.moveaxis(x, axis, 0)


def _stacked(body: Program, output: int, values: Sequence[Any]) -> Array:
    """What the runs of a body gave, along a new first axis; after none, dims that are not known are 0, as in onnxruntime."""
    if values:
        return np.stack(values)
    dims, dtype = body.described(body.outputs[output])
    return np.zeros((0, *dims), dtype)


CONTROL_OPS: dict[str, Callable[[Control, Sequence[Any], Run], list[Any]]] = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
}
"""Name of an operator → function (control, inputs, run) → outputs."""
