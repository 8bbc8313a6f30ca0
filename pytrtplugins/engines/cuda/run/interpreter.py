"""Interpreter of nodes that cannot be planned: it runs them one by one from the host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ....errors import BuildError, ExecutionError, PytrtpluginsError
from ....model.ir import array_of, is_op
from ....model.proto import node_name
from ....passes.functions import definition
from ....plugin.onnx_node import from_node, is_plugin_node, scales_of
from ....plugin.policy import GPU_FORMS, RUNNING, chosen_form
from ....plugin.runner import PluginRunner
from ....tensor import DType, TensorDesc
from ....utils.optional import ir
from ..device.device import Device, Tensor
from ..device.elements import decoded, encoded, stored
from ..lower.data_dependent import values_read_by
from ..lower.fits import check_dims
from ..lower.rewrite import DOMAIN
from ..operators import HOST_INPUTS, OPS, RAW
from ..operators.attributes import operator_attributes
from ..plan.tail import Tail
from .inference import OutputDims, infer
from .values import Value, stacked

__all__ = ["Interpreter"]

Scope = dict["ir.Value", Value]


class Interpreter:
    """Runs the tail of a plan.

    Args:
        device: Where arrays live.
        tail: The nodes.
        constants: Arrays of the model.
        tensors: The plan's tensors in memory.

    Attributes:
        outputs: The network's outputs that the last run gave, by name.
    """

    def __init__(
        self, device: Device, tail: Tail, constants: Mapping[str, np.ndarray[Any, Any]], tensors: Mapping[str, Tensor]
    ) -> None:
        self._device, self._tail, self._xp = device, tail, device.xp
        self._tensors = {value: tensors[name] for value, name in tail.reads.items() if name in tensors}
        known = ((value, constants[name]) for value, name in tail.reads.items() if name not in tensors)
        self._constants: Scope = {value: Value.of(device, array) for value, array in known}
        self._attributes: dict[ir.Node, dict[str, Any]] = {}
        self._definitions: dict[ir.Node, ir.Graph] = {}
        self._runners: dict[ir.Node, PluginRunner] = {}
        self._last_reads: dict[ir.Graph | None, dict[ir.Node, list[ir.Value]]] = {}
        self.outputs: Mapping[str, Value] = {}

    def run(self, stream: Any) -> None:
        """Run once, behind what is queued on the stream, which is CuPy's current one."""
        self._stream = stream
        scope = {
            value: Value(self._device, tensor.format.dtype, tensor.view, False)
            for value, tensor in self._tensors.items()
        }
        kept = set(self._tail.outputs.values())
        self._run_nodes(None, self._tail.nodes, scope, kept)
        self.outputs = {name: self._value(value, scope) for name, value in self._tail.outputs.items()}

    def close(self) -> None:
        """Terminate the plugins."""
        for runner in self._runners.values():
            runner.close()
        self._runners.clear()

    # -- graphs ----------------------------------------------------------------------------------------------------------

    def _run_nodes(self, owner: ir.Graph | None, nodes: Iterable[ir.Node], scope: Scope, kept: set[ir.Value]) -> None:
        """Run nodes in order, and release values that no later node reads."""
        if owner not in self._last_reads:
            self._last_reads[owner] = _last_reads(list(nodes), kept)
        last = self._last_reads[owner]
        for node in nodes:
            self._run_node(node, scope)
            for value in last.get(node, ()):
                scope.pop(value, None)

    def _run_graph(self, graph: ir.Graph, inputs: Sequence[Value | None], scope: Scope) -> list[Value]:
        """Run a branch, a loop body or a function definition in the scope around it."""
        for value, given in zip(graph.inputs, inputs, strict=False):
            if given is not None:
                scope[value] = given
        self._run_nodes(graph, graph, scope, set(graph.outputs))
        return [self._value(value, scope) for value in graph.outputs]

    def _value(self, value: ir.Value, scope: Scope) -> Value:
        known = scope.get(value) or self._constants.get(value)
        if known is None:
            array = array_of(value)
            if array is None:
                raise ExecutionError(f"engine 'cuda': tensor {value.name!r} is read and nothing computes it")
            known = self._constants[value] = Value.of(self._device, array)
        return known

    # -- nodes -----------------------------------------------------------------------------------------------------------

    def _run_node(self, node: ir.Node, scope: Scope) -> None:
        given = [None if value is None else self._value(value, scope) for value in node.inputs]
        try:
            results = self._results(node, given, scope)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            if isinstance(error, PytrtpluginsError):
                raise
            raise ExecutionError(
                f"engine 'cuda': node {node_name(node)!r} ({node.op_type}) cannot run on tensors of the dims "
                f"{', '.join(str(each.dims) for each in given if each is not None)}: {error}",
                node=node_name(node),
                op=node.op_type,
            ) from error
        scope.update((value, result) for value, result in zip(node.outputs, results, strict=False) if value.name)

    def _results(self, node: ir.Node, given: Sequence[Value | None], scope: Scope) -> Sequence[Value]:
        if is_op(node, "If"):
            return self._branch(node, given, scope)
        if is_op(node, "Loop"):
            return self._loop(node, given, scope)
        if is_op(node, "Scan"):
            return self._scan(node, given, scope)
        if node.domain != DOMAIN and is_plugin_node(node):
            return self._plugin(node, given)
        if is_op(node, "Constant"):
            return [self._value(node.outputs[0], scope)]
        if node.op_type in OPS:
            return self._function(node, given)
        if node not in self._definitions:
            _note_types(node, given)
            found = definition(node, self._tail.version)
            if found is None:
                raise BuildError(
                    f"engine 'cuda' does not have the operator {node.domain or 'ai.onnx'}::{node.op_type} "
                    f"(node {node_name(node)!r})",
                    engine="cuda",
                    op=node.op_type,
                )
            self._definitions[node] = found
        return self._run_graph(self._definitions[node], given, {})

    def _function(self, node: ir.Node, given: Sequence[Value | None]) -> list[Value]:
        """Run an operator: on the host if all inputs are there and small, as shapes are, else on the device."""
        dtypes = self._dtypes(node, given)
        attributes = self._attributes.setdefault(node, operator_attributes(node))
        here = all(value is None or value.is_small_and_here for value in given) and any(given)
        xp, kept = np if here else self._xp, HOST_INPUTS.get(node.op_type, ())

        def operand(index: int, value: Value | None) -> Any:
            if value is None:
                return None
            if index in kept:
                return value.numbers()
            array = value.stored(here)
            return array if node.op_type in RAW else decoded(xp, array, value.dtype)

        check_dims(node, self._tail.version, [None if value is None else value.dims for value in given])
        dims = OutputDims(node, given, self._tail.version)
        if any(value is not None and 0 in value.dims for value in given) and dims.are_empty:
            arrays = (np.zeros(shape, stored(dtype)) for shape, dtype in zip(dims, dtypes, strict=True))
            return [Value(self._device, dtype, array, True) for dtype, array in zip(dtypes, arrays, strict=True)]
        found = OPS[node.op_type](xp, attributes, dims, *(operand(*pair) for pair in enumerate(given)))
        results = []
        for result, dtype in zip(found if isinstance(found, (list, tuple)) else [found], dtypes, strict=False):
            host = here or (isinstance(result, (np.ndarray, np.generic)) and xp is not np and self._xp is not np)
            array = encoded(np if host else xp, result, dtype, attributes, node.op_type in RAW)
            results.append(Value(self._device, dtype, array.astype(stored(dtype), copy=False), host))
        return results

    def _dtypes(self, node: ir.Node, given: Sequence[Value | None]) -> list[DType]:
        if any(value.name and value.dtype is None for value in node.outputs):
            infer(node, given, self._tail.version)
        first = next((value.dtype for value in given if value is not None), DType.FLOAT32)
        return [first if value.dtype is None else DType.of(value.dtype.numpy()) for value in node.outputs]

    def _plugin(self, node: ir.Node, given: Sequence[Value | None]) -> list[Value]:
        runner = self._runners.get(node)
        if runner is None:
            plugin = from_node(node)
            form = chosen_form(type(plugin), GPU_FORMS, self._tail.requested, RUNNING)
            runner = PluginRunner(
                plugin.clone(), node_name(node), form=form, allocate=self._device.allocate, scales=scales_of(node)
            )
            self._runners[node] = runner
        values = [value for value in given if value is not None]
        arrays = [self._xp.ascontiguousarray(value.stored(False)) for value in values]
        dims = runner.plugin.all_output_dims([value.dims for value in values])
        dtypes = runner.plugin.all_output_dtypes([value.dtype for value in values], len(dims))
        forms = [*((value.dims, value.dtype) for value in values), *zip(dims, dtypes, strict=True)]
        descs = [TensorDesc(f"{runner.name}.{index}", *form) for index, form in enumerate(forms)]
        if not all(runner.plugin.supports_format(index, descs) for index in range(len(descs))):
            raise BuildError(f"engine 'cuda': plugin {runner.plugin!r} (node {runner.name!r}) does not take {descs}")
        outputs = [self._xp.empty(shape, stored(dtype)) for shape, dtype in zip(dims, dtypes, strict=True)]
        runner.run(arrays, outputs, self._stream)
        return [Value(self._device, dtype, array, False) for dtype, array in zip(dtypes, outputs, strict=True)]

    # -- control flow ------------------------------------------------------------------------------------------------------

    def _branch(self, node: ir.Node, given: Sequence[Value | None], scope: Scope) -> list[Value]:
        name = "then_branch" if given[0] is not None and given[0].is_true() else "else_branch"
        return self._run_graph(node.attributes[name].as_graph(), (), scope)

    def _loop(self, node: ir.Node, given: Sequence[Value | None], scope: Scope) -> list[Value]:
        body = node.attributes["body"].as_graph()
        limit = None if given[0] is None else int(given[0].numbers().reshape(()))
        going, states = given[1] if len(given) > 1 else None, list(given[2:])
        gathered: list[list[Value]] = [[] for _ in body.outputs[1 + len(states) :]]
        turn, ranks = 0, [len(value.shape or ()) for value in body.inputs[:2]]
        while (limit is None or turn < limit) and (going is None or going.is_true()):
            counters = [np.full((1,) * rank, value) for rank, value in zip(ranks, (turn, True), strict=True)]
            number, truth = (Value.of(self._device, counter) for counter in counters)
            going, *results = self._run_graph(body, [number, truth, *states], scope)
            states = list(results[: len(states)])
            for slices, result in zip(gathered, results[len(states) :], strict=True):
                slices.append(result)
            turn += 1
        ends = [state for state in states if state is not None]
        return ends + [
            self._stacked(slices, 0, value)
            for slices, value in zip(gathered, body.outputs[1 + len(states) :], strict=True)
        ]

    def _scan(self, node: ir.Node, given: Sequence[Value | None], scope: Scope) -> list[Value]:
        body, at = node.attributes["body"].as_graph(), self._attributes.setdefault(node, _scan_attributes(node))
        values = [value for value in given if value is not None]
        count = len(values) - at["num_scan_inputs"]
        states, scanned = values[:count], values[count:]
        axes = _per_place(at, "scan_input_axes", len(scanned))
        backwards = _per_place(at, "scan_input_directions", len(scanned))
        length = scanned[0].dims[axes[0]]
        gathered: list[list[Value]] = [[] for _ in body.outputs[count:]]
        for turn in range(length):
            slices = [
                value.slice_at(axis % len(value.dims), length - 1 - turn if backward else turn)
                for value, axis, backward in zip(scanned, axes, backwards, strict=True)
            ]
            results = self._run_graph(body, [*states, *slices], scope)
            states = results[:count]
            for parts, result in zip(gathered, results[count:], strict=True):
                parts.append(result)
        turned = _per_place(at, "scan_output_directions", len(gathered))
        places = _per_place(at, "scan_output_axes", len(gathered))
        return states + [
            self._stacked(parts[::-1] if backward else parts, axis, value)
            for parts, backward, axis, value in zip(gathered, turned, places, body.outputs[count:], strict=True)
        ]

    def _stacked(self, slices: list[Value], axis: int, value: ir.Value) -> Value:
        dims = tuple(dim if isinstance(dim, int) else 0 for dim in value.shape or ())
        dtype = DType.FLOAT32 if value.dtype is None else DType.of(value.dtype.numpy())
        return stacked(self._device, self._xp, slices, axis, dims, dtype)


def _scan_attributes(node: ir.Node) -> dict[str, Any]:
    names = (
        "num_scan_inputs",
        *(f"scan_{side}_{what}" for side in ("input", "output") for what in ("axes", "directions")),
    )
    return {name: node.attributes[name].value for name in names if name in node.attributes}


def _per_place(attributes: Mapping[str, Any], name: str, count: int) -> list[int]:
    return list(attributes.get(name) or [0] * count)


def _note_types(node: ir.Node, given: Sequence[Value | None]) -> None:
    """Types of a node's inputs that nobody said, for what asks the node for them."""
    for value, found in zip(node.inputs, given, strict=True):
        if value is not None and found is not None and value.type is None:
            value.type = ir.TensorType(ir.DataType.from_numpy(found.dtype.numpy))


def _last_reads(nodes: Sequence[ir.Node], kept: set[ir.Value]) -> dict[ir.Node, list[ir.Value]]:
    """Node → values that these nodes make and that none behind it reads."""
    made = {value for node in nodes for value in node.outputs} - kept
    last: dict[ir.Value, ir.Node] = {}
    for node in nodes:
        last.update((value, node) for value in (*node.outputs, *values_read_by(node)) if value in made)
    found: dict[ir.Node, list[ir.Value]] = {}
    for value, node in last.items():
        found.setdefault(node, []).append(value)
    return found
