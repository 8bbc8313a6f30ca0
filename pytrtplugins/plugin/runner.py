"""One plugin node while an engine runs: the life cycle's calls in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import PluginError
from ..tensor import DType, TensorDesc
from .base import Plugin

__all__ = ["PluginRunner", "naming_node"]


@contextmanager
def naming_node(name: str) -> Iterator[None]:
    """Put the node's name, if it is known, before what `Plugin.all_outputs` finds wrong; what else a plugin raises passes as it is.

    Raises:
        PluginError: of the same class, for outputs of `compute` that are not what the plugin said.
    """
    try:
        yield
    except PluginError as error:
        if not name or "plugin" not in error.facts:
            raise
        raise type(error)(f"node {name!r}: {error}", node=name, **error.facts) from None


def host_memory(size: int) -> npt.NDArray[np.uint8]:
    """A workspace in the process's own memory."""
    return np.empty(size, np.uint8)


class PluginRunner:
    """Drives a plugin through its life: `configure`, `workspace_size`, `initialize`, `enqueue`, `terminate`.

    Engines for CPUs call `run`, which describes NumPy arrays itself. Others call `configure` where dims are new, then `enqueue`.

    Args:
        plugin: A clone that nobody else uses.
        name: The node's name; its tensors are described as ``name.input0`` and so on. Empty: it is not known.
        form: ``"enqueue"``: that of the plugin's class; ``"compute"``: `Plugin.enqueue`, which calls `compute`.
        allocate: Makes a workspace of so many bytes; None: whoever calls `enqueue` has one.

    Attributes:
        workspace_bytes: Size of the workspace for the dims of the last `configure`.
        initialized: Whether `terminate` is due.
    """

    def __init__(
        self,
        plugin: Plugin,
        name: str = "",
        *,
        form: str = "enqueue",
        allocate: Callable[[int], Any] | None = host_memory,
    ) -> None:
        self.plugin, self.name, self._allocate = plugin, name, allocate
        self._enqueue = Plugin.enqueue if form == "compute" else type(plugin).enqueue
        self._shapes: Any = None
        self._workspace: Any = None
        self.workspace_bytes, self.initialized = 0, False

    def configure(self, inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc]) -> None:
        """Tell the plugin dims, dtypes and layouts, allocate its workspace, and initialize it the first time."""
        self.plugin.configure(inputs, outputs)
        self.workspace_bytes = self.plugin.workspace_size(inputs, outputs)
        self._workspace = self._allocate(self.workspace_bytes) if self._allocate and self.workspace_bytes else None
        if not self.initialized:
            self.plugin.initialize()
            self.initialized = True

    def enqueue(self, inputs: Sequence[Any], outputs: Sequence[Any], stream: Any = None, workspace: Any = None) -> None:
        """Queue the plugin's work; ``workspace`` is the caller's, where the runner allocates none."""
        with naming_node(self.name):
            self._enqueue(self.plugin, inputs, outputs, self._workspace if workspace is None else workspace, stream)

    def run(
        self, inputs: Sequence[npt.NDArray[Any]], outputs: Sequence[npt.NDArray[Any]] = ()
    ) -> Sequence[npt.NDArray[Any]]:
        """Enqueue once on NumPy arrays, configured before where dims or dtypes are new.

        Args:
            inputs: What the plugin reads.
            outputs: Arrays to write; empty: new ones are made.

        Returns:
            The outputs.

        Raises:
            DimsError: the plugin refuses the dims.
        """
        shapes = [(array.shape, array.dtype) for array in inputs]
        if not outputs or shapes != self._shapes:
            dims = self.plugin.all_output_dims([array.shape for array in inputs])
        if not outputs:
            dtypes = self.plugin.all_output_dtypes([DType.of(array) for array in inputs], len(dims))
            outputs = [np.empty(shape, dtype.numpy) for shape, dtype in zip(dims, dtypes, strict=True)]
        if shapes != self._shapes:
            self.configure(self._described("input", inputs), self._described("output", outputs))
            self._shapes = shapes
        self.enqueue(list(inputs), list(outputs))
        return outputs

    def close(self) -> None:
        """Terminate the plugin, if it was initialized."""
        if self.initialized:
            self.initialized, self._shapes = False, None
            self.plugin.terminate()

    def _described(self, kind: str, arrays: Sequence[Any]) -> list[TensorDesc]:
        return [
            TensorDesc(f"{self.name}.{kind}{index}", array.shape, DType.of(array)) for index, array in enumerate(arrays)
        ]
