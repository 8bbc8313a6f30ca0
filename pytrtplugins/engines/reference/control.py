"""Operators that run graphs of their own: If, Loop and Scan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ...errors import EngineError

__all__ = ["CONTROL_OPS", "OLDEST_SCAN", "Body", "Control"]

OLDEST_SCAN = 9  # before it, Scan ran over batches


class Body(Protocol):
    """A graph inside a node, as `Program` makes it.

    Attributes:
        outputs: Names of its outputs.
        captured: Names of the outer tensors that it reads.
    """

    outputs: tuple[str, ...]
    captured: tuple[str, ...]

    def described(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Dims, 0 where unknown, and element type of one of its tensors."""


Graph = TypeVar("Graph", bound=Body)
Run = Callable[[Graph, Sequence[Any]], list[Any]]
"""Runs a graph on its inputs, in order; outer tensors that it reads are the caller's matter."""


@dataclass(frozen=True)
class Control(Generic[Graph]):
    """A node with graphs inside.

    Attributes:
        op_type: If, Loop or Scan.
        attributes: Those that are no graphs.
        programs: Name of an attribute → the graph in it.
    """

    op_type: str
    attributes: Mapping[str, Any]
    programs: Mapping[str, Graph]

    @property
    def captured(self) -> tuple[str, ...]:
        """Names of the outer tensors that the graphs read."""
        return tuple(dict.fromkeys(name for program in self.programs.values() for name in program.captured))

    def run(self, given: Sequence[Any], run: Run[Graph]) -> list[Any]:
        """The node's outputs."""
        return CONTROL_OPS[self.op_type](self, given, run)


def _if(control: Control[Graph], given: Sequence[Any], run: Run[Graph]) -> list[Any]:
    return run(control.programs["then_branch" if given[0].item() else "else_branch"], [])


def _loop(control: Control[Graph], given: Sequence[Any], run: Run[Graph]) -> list[Any]:
    body = control.programs["body"]
    limit, going, *states = (*given, None, None)[: max(len(given), 2)]
    max_trips = None if limit is None else int(limit.item())
    goes_on = going is None or bool(going.item())
    scans: list[list[Any]] = [[] for _ in body.outputs[1 + len(states) :]]
    index = 0
    while goes_on and (max_trips is None or index < max_trips):
        outputs = run(body, [np.array(index, np.int64), np.array(goes_on), *states])
        goes_on, states = bool(outputs[0].item()), outputs[1 : 1 + len(states)]
        for values, value in zip(scans, outputs[1 + len(states) :], strict=True):
            values.append(value)
        index += 1
    return [*states, *(_stacked(body, 1 + len(states) + k, values) for k, values in enumerate(scans))]


def _scan(control: Control[Graph], given: Sequence[Any], run: Run[Graph]) -> list[Any]:
    a, body = control.attributes, control.programs["body"]
    count = len(given) - a["num_scan_inputs"]
    states, inputs = list(given[:count]), given[count:]
    scanned = [
        _along(x, axis)[:: -1 if backward else 1]
        for x, axis, backward in zip(
            inputs, *(a.get(f"scan_input_{kind}", [0] * len(inputs)) for kind in ("axes", "directions")), strict=True
        )
    ]
    lengths = {len(x) for x in scanned}
    if len(lengths) != 1:
        raise EngineError(f"Scan: its inputs have different lengths along their axes: {sorted(lengths)}")
    results: list[list[Any]] = [[] for _ in body.outputs[count:]]
    for parts in zip(*scanned, strict=True):
        outputs = run(body, [*states, *parts])
        states = outputs[:count]
        for values, value in zip(results, outputs[count:], strict=True):
            values.append(value)
    axes, backward = (a.get(f"scan_output_{kind}", [0] * len(results)) for kind in ("axes", "directions"))
    stacked = [_stacked(body, count + k, values[:: -1 if backward[k] else 1]) for k, values in enumerate(results)]
    return [*states, *(np.moveaxis(value, 0, axis) for value, axis in zip(stacked, axes, strict=True))]


def _along(x: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
    return np.moveaxis(x, axis, 0)


def _stacked(body: Body, output: int, values: Sequence[Any]) -> npt.NDArray[Any]:
    """What the runs of a body gave, along a new first axis; after none, dims that are not known are 0, as in onnxruntime."""
    if values:
        return np.stack(values)
    dims, dtype = body.described(body.outputs[output])
    return np.zeros((0, *dims), dtype)


CONTROL_OPS: dict[str, Callable[[Control[Any], Sequence[Any], Run[Any]], list[Any]]] = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
}
"""Name of an operator → function (control, inputs, run) → outputs."""
