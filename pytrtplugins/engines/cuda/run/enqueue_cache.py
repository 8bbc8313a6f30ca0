"""Cache of `enqueue` calls: arrays of a known dtype, shape and stride skip all checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ....cuda.array_keys import READERS, reader_of, writers
from ....tensor import Array
from ..device.device import Copies
from .execution import Execution

__all__ = ["CachedEnqueue", "Call", "Routes", "call_key"]

_KEPT = 32
_OFTEN, _MOST_GRAPHS, _MOST_PLACES = 16, 4, 64

Addresses = tuple[int, ...]
Call = tuple[tuple[Any, ...], Addresses]
"""Names and forms of a call's arrays, which its route depends on, and their addresses, inputs first."""


class CachedEnqueue:
    """A run from arrays to arrays of certain forms, in one graph.

    Arrays at the same addresses often come again, such as two pairs of buffers that take turns. They get a graph that makes the copies too,
    which costs the host less than to queue each of them. It is launched only for arrays at these very addresses, so it does not matter
    what became of the ones before.

    Args:
        shapes: Of the inputs, as the context knows their execution by.
        execution: Of one graph.
        inputs: Names of the call's inputs, in its order.
        outputs: Likewise.
        writers: What `writers` gives for the arrays.

    Attributes:
        shapes: As given.
        writers: As given.
    """

    def __init__(
        self,
        shapes: tuple[tuple[int, ...], ...],
        execution: Execution,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
        writers: tuple[Callable[[], int], ...],
    ) -> None:
        (segment,) = execution.segments
        self._graph = segment.graph  # graphs go before the execution, which keeps their kernels loaded
        self._graphs: dict[Addresses, Any] = {}
        self._counts: dict[Addresses, int] = {}
        self.shapes, self.writers, self._execution = shapes, writers, execution
        self._steps = segment.queue_steps
        self._inputs, self._copy_in = _addresses_and_copier(execution, map(execution.input, inputs))
        self._outputs, self._copy_out = _addresses_and_copier(execution, map(execution.output, outputs))

    def launch(self, addresses: Addresses, stream: Any, capture: Callable[[Callable[[Any], None]], Any]) -> None:
        """Queue the run on a stream that is not being captured.

        Args:
            addresses: Of the arrays.
            stream: With its number as ``ptr``.
            capture: Makes a graph of what a function queues on a stream.
        """
        graph = self._graphs.get(addresses)
        if graph is None and self._is_frequent(addresses):
            graph = self._graphs[addresses] = capture(lambda inside: self.queue(addresses, inside))
        if graph is not None:
            graph.launch(stream)
        else:
            self._queue(addresses, stream, self._graph.launch)

    def queue(self, addresses: Addresses, stream: Any) -> None:
        """Queue the run without a graph, on a stream whose work is being captured: no graph is launched into another."""
        with self._execution.allocating():
            self._queue(addresses, stream, self._steps)

    def _queue(self, addresses: Addresses, stream: Any, steps: Callable[[Any], None]) -> None:
        number, count = stream.ptr, len(self._inputs)
        self._copy_in.queue(self._inputs, addresses[:count], number)
        steps(stream)
        self._copy_out.queue(addresses[count:], self._outputs, number)

    def _is_frequent(self, addresses: Addresses) -> bool:
        """Count the use of these addresses; True once they are frequent enough for a graph of their own."""
        if len(self._counts) >= _MOST_PLACES:
            self._counts.clear()
            self._graphs.clear()
        count = self._counts[addresses] = self._counts.get(addresses, 0) + 1
        return count >= _OFTEN and len(self._graphs) < _MOST_GRAPHS


def _addresses_and_copier(execution: Execution, arrays: Iterable[Any]) -> tuple[Addresses, Copies]:
    """Addresses of some of an execution's arrays, and a copier for their sizes."""
    found = list(arrays)
    return tuple(array.data.ptr for array in found), execution.device.copier([array.nbytes for array in found])


class Routes:
    """The cached `enqueue` calls of one context."""

    def __init__(self) -> None:
        self._routes: dict[tuple[Any, ...], CachedEnqueue] = {}

    def find(self, call: Call) -> CachedEnqueue | None:
        """The cached run of a call; None if there is none."""
        return self._routes.get(call[0])

    def remember(
        self,
        call: Call,
        shapes: tuple[tuple[int, ...], ...],
        execution: Execution,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
    ) -> None:
        """Cache the run of a checked call, if its network is one graph."""
        if len(execution.segments) != 1 or execution.segments[0].graph is None:
            return
        if len(self._routes) >= _KEPT:
            self.forget()
        forms = tuple(part for part in call[0] if isinstance(part, tuple))
        self._routes[call[0]] = CachedEnqueue(shapes, execution, inputs, outputs, writers(forms))

    def forget(self) -> None:
        """Clear the cache, such as when an execution is closed."""
        self._routes.clear()


def call_key(inputs: Mapping[str, Array], outputs: Mapping[str, Array], stream: int) -> Call | None:
    """The key and the addresses of a call's arrays; None if one is of a kind whose addresses take longer to find.

    Args:
        inputs: By name.
        outputs: Likewise.
        stream: Number of the stream that will use them.
    """
    key: list[Any] = [len(inputs)]
    addresses: list[int] = []
    for arrays in (inputs, outputs):
        for name, array in arrays.items():
            seen = (READERS.get(type(array)) or reader_of(array))(array, stream)
            if seen is None:
                return None
            address, form = seen
            addresses.append(address)
            key += name, form
    return tuple(key), tuple(addresses)
