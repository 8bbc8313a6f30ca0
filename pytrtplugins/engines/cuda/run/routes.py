"""What is remembered of arrays that were enqueued: others of their forms need no checks, only copies and a launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ....cuda.bindings import seen_array
from ....tensor import Array
from .execution import Execution

__all__ = ["Call", "Route", "Routes"]

_KEPT = 32


class Route(NamedTuple):
    """A run from arrays to arrays of certain forms, in one graph.

    Attributes:
        shapes: Of the inputs, as the context knows their execution by.
        graph: The network's.
        steps: Queues the same without the graph, on a stream whose work is being captured: no graph is launched into another.
        inputs: Address and bytes of the tensor that each input is copied to.
        outputs: The same of the tensor that each output is copied from.
    """

    shapes: tuple[tuple[int, ...], ...]
    graph: Any
    steps: Callable[[Any], None]
    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[tuple[int, int], ...]


class Call(NamedTuple):
    """The arrays of a call, looked at.

    Attributes:
        key: Names and forms: what the route depends on.
        addresses: Of the arrays, inputs first.
        devices: PyTorch's, whose current streams may still be writing the arrays.
    """

    key: tuple[Any, ...]
    addresses: list[int]
    devices: set[Any]


class Routes:
    """Those of one context."""

    def __init__(self) -> None:
        self._routes: dict[tuple[Any, ...], Route] = {}

    @staticmethod
    def look(inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Call | None:
        """Look at the arrays of a call; None where one is of a kind that takes longer to look at."""
        key: list[Any] = [len(inputs)]
        addresses, devices = [], set()
        for arrays in (inputs, outputs):
            for name, array in arrays.items():
                seen = seen_array(array)
                if seen is None:
                    return None
                address, form = seen
                addresses.append(address)
                key += name, form
                if len(form) == 4:
                    devices.add(form[3])
        return Call(tuple(key), addresses, devices)

    def find(self, call: Call | None) -> Route | None:
        """The route of a call; None where there was none like it."""
        return None if call is None else self._routes.get(call.key)

    def remember(
        self,
        call: Call | None,
        shapes: tuple[tuple[int, ...], ...],
        execution: Execution,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
    ) -> None:
        """Keep the route of a call that fitted, if its network is one graph."""
        if call is None or len(execution.segments) != 1 or execution.segments[0].graph is None:
            return
        if len(self._routes) >= _KEPT:
            self.forget()
        places = [[execution.input(name) for name in inputs], [execution.output(name) for name in outputs]]
        ins, outs = (tuple((array.data.ptr, array.nbytes) for array in arrays) for arrays in places)
        (segment,) = execution.segments
        self._routes[call.key] = Route(shapes, segment.graph, segment.queue_steps, ins, outs)

    def forget(self) -> None:
        """Forget all, such as when an execution goes."""
        self._routes.clear()
