"""A run with fixed arrays: the result of `ExecutionContext.bind`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from ...tensor import Array
from .exclusive import Exclusive
from .types import OwningEngine

__all__ = ["BoundRun"]


class BoundRun(Exclusive[None]):
    """Runs a network on arrays that its caller keeps; one thread at a time. Close it, or use it in a ``with`` block.

    It has buffers of its own: it may outlive its context, and several may run at the same time.

    Attributes:
        inputs: The arrays that a run reads, by name; they stay alive until this is closed.
        outputs: Output arrays by name.
    """

    made_by: ClassVar[str] = "context.bind(inputs, outputs)"

    def __init__(self, engine: OwningEngine, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        super().__init__(engine)
        self.inputs: dict[str, Array] = dict(inputs)
        self.outputs: dict[str, Array] = dict(outputs)

    @abstractmethod
    def launch(self, stream: Any = None) -> None:
        """Queue a run, and return at once; nothing is checked or copied any more.

        The run begins when the work that is queued on the stream is done, and after the last launch of this one on any stream;
        work queued later waits for it.

        Args:
            stream: Of CuPy, PyTorch or PyCUDA, or its number; None: CuPy's current one.

        Raises:
            EngineError: this is closed, or another thread is launching it.
        """
