"""A graph made ready to run: its nodes in order, each with what computes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...errors import BuildError
from ...model.proto import arrays_of, node_name, numpy_type
from ...plugin.base import Plugin
from ...plugin.onnx_node import from_node, is_plugin_node, node_attributes
from ...utils.optional import require
from ...validation.operators import standard_domain
from ..base.context import Arrays
from .control import CONTROL_OPS, OLDEST_SCAN, Control
from .coverage import PLAIN_TYPES, covers
from .delegate import Delegated
from .refusals import check_delegable, renamed
from .spec import check_opsets, checked_schema

if TYPE_CHECKING:
    import onnx

__all__ = ["Program", "Step"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Step:
    """One node, ready to run; one of the three that compute it is there, or else a function of `OPS` does."""

    node: onnx.NodeProto
    attributes: dict[str, Any]
    plugin: Plugin | None = None
    control: Control[Program] | None = None
    delegated: Delegated | None = None
    last_use: tuple[str, ...] = ()


class Program:
    """A graph, ready to run.

    Attributes:
        inputs: Names of its inputs, in order.
        outputs: Names of its outputs, in order.
        captured: Names of tensors of the graphs around it that it reads.
        constants: Initializers and constant nodes, by name.
        steps: Its nodes.

    Args:
        graph: The graph.
        opsets: Domain → version.
        outer: Types of the tensors of the graphs around it.

    Raises:
        BuildError: a node cannot be computed here.
    """

    def __init__(
        self, graph: onnx.GraphProto, opsets: Mapping[str, int], outer: Mapping[str, onnx.TypeProto] | None = None
    ) -> None:
        package = require("onnx", extra="onnx", feature="engine 'reference'")
        check_opsets(opsets)
        self._opsets, self._helper = dict(opsets), package.helper
        self._types: dict[str, onnx.TypeProto] = dict(outer or {})
        self._types.update(
            (tensor.name, self._helper.make_tensor_type_proto(tensor.data_type, tensor.dims))
            for tensor in graph.initializer
        )
        self._types.update((info.name, info.type) for info in (*graph.value_info, *graph.output, *graph.input))
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
            steps[index] = Step(step.node, step.attributes, step.plugin, step.control, step.delegated, last)
        return steps

    def _step(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> Step:
        if is_plugin_node(node):
            return Step(node, attributes, plugin=from_node(node))
        where = f"engine 'reference': node {node_name(node)!r}"
        schema = checked_schema(node, self._opsets, attributes, where)
        self._check_types(node, where)
        if schema.domain == "" and node.op_type in CONTROL_OPS:
            return Step(node, attributes, control=self._control(node, attributes, schema, where))
        if node.op_type == "Split":
            attributes.setdefault("num_outputs", len(node.output))
        trains = node.op_type == "Dropout" and any(
            name and self.constants.get(name, np.True_).any() for name in node.input[2:]
        )
        ours = schema.domain == "" and covers(node.op_type, schema.since_version, attributes, len(node.output))
        if ours and not trains and self._is_plain(node, attributes):
            return Step(node, attributes)
        check_delegable(node, schema, attributes, where)
        delegated = Delegated(renamed(node, schema), self._opsets, self._types, where)
        return Step(node, attributes, delegated=delegated)

    def _control(
        self, node: onnx.NodeProto, attributes: dict[str, Any], schema: onnx.defs.OpSchema, where: str
    ) -> Control[Program]:
        if node.op_type == "Scan" and schema.since_version < OLDEST_SCAN:
            raise BuildError(
                f"{where}: Scan over batches, of opset 8, is not computed here.\n"
                "Do: onnx.version_converter.convert_version(model, 18)",
                node=node.name,
                op_type=node.op_type,
            )
        graphs = {item.name: item.g for item in node.attribute if item.HasField("g")}
        plain = {name: value for name, value in attributes.items() if name not in graphs}
        programs = {name: Program(graph, self._opsets, self._types) for name, graph in graphs.items()}
        return Control(node.op_type, plain, programs)

    def _check_types(self, node: onnx.NodeProto, where: str) -> None:
        text = require("onnx", extra="onnx").TensorProto.STRING
        for name in (*node.input, *node.output):
            if name in self._types and self._types[name].tensor_type.elem_type == text:
                raise BuildError(
                    f'{where}: tensor {name!r} holds text, which is not computed here.\nDo: engine="onnxruntime"',
                    node=node.name,
                    op_type=node.op_type,
                )

    def _is_plain(self, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> bool:
        """Whether all tensors have types that the functions here take, as far as they are known."""
        kinds = [self._types[name].tensor_type.elem_type for name in (*node.input, *node.output) if name in self._types]
        if node.op_type == "Cast":
            kinds.append(attributes["to"])
        return all(not kind or numpy_type(kind).name in PLAIN_TYPES for kind in kinds)


def _read_by(step: Step) -> tuple[str, ...]:
    return (*step.node.input, *(step.control.captured if step.control is not None else ()))


def _constant(node: onnx.NodeProto, attributes: dict[str, Any]) -> Array:
    kinds = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
    for name, value in attributes.items():
        if name == "value":
            return np.asarray(value)
        if name in kinds:
            return np.asarray(value, kinds[name])
    raise BuildError(
        f"engine 'reference': constant {node.output[0]!r} has no value that is known here: {sorted(attributes)}"
    )
