"""One plugin node while an engine runs: the life cycle's calls in their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from ..cuda import launches_kernels
from ..errors import PluginError
from ..tensor import DType, TensorDesc
from .base import Plugin

__all__ = ["PluginRunner", "naming_node"]


@contextmanager
def naming_node(name: str) -> Iterator[None]:
    """Put the node's name before what `Plugin.all_outputs` finds wrong; what else a plugin raises passes as it is.

    Raises:
        PluginError: of the same class, for outputs of `compute` that are not what the plugin said.
    """
    try:
        yield
    except PluginError as error:
        if "plugin" not in error.facts:
            raise
        raise type(error)(f"node {name!r}: {error}", node=name, **error.facts) from None


class PluginRunner:
    """A clone of a node's plugin, for one thread, on NumPy arrays.

    A plugin whose `enqueue` launches CUDA kernels computes through `Plugin.compute` instead: on a CPU that is faster, and
    needs no C++ compiler.

    Args:
        plugin: The node's plugin; it is cloned.
        name: The node's name; its tensors are described as ``name.input0`` and so on.
    """

    def __init__(self, plugin: Plugin, name: str) -> None:
        self.plugin, self.name = plugin.clone(), name
        self._enqueue = Plugin.enqueue if launches_kernels(type(plugin)) else type(plugin).enqueue
        self._configured: Any = None
        self._initialized = False
        self._workspace: npt.NDArray[np.uint8] | None = None

    def run(
        self, inputs: Sequence[npt.NDArray[Any]], outputs: Sequence[npt.NDArray[Any]] = ()
    ) -> Sequence[npt.NDArray[Any]]:
        """Enqueue once; `configure` and `initialize` come before, where dims or dtypes are new.

        Args:
            inputs: What the plugin reads.
            outputs: Arrays to write; empty: new ones are made.

        Returns:
            The outputs.

        Raises:
            DimsError: the plugin refuses the dims.
        """
        shapes = [(array.shape, array.dtype) for array in inputs]
        if not outputs or shapes != self._configured:
            dims = self.plugin.all_output_dims([array.shape for array in inputs])
        if not outputs:
            dtypes = self.plugin.all_output_dtypes([DType.of(array) for array in inputs], len(dims))
            outputs = [np.empty(shape, dtype.numpy) for shape, dtype in zip(dims, dtypes, strict=True)]
        if shapes != self._configured:
            self._configure(inputs, outputs)
            self._configured = shapes
        with naming_node(self.name):
            self._enqueue(self.plugin, list(inputs), list(outputs), self._workspace, None)
        return outputs

    def close(self) -> None:
        """Terminate the plugin, if it was initialized."""
        if self._initialized:
            self._initialized, self._configured = False, None
            self.plugin.terminate()

    def _configure(self, inputs: Sequence[npt.NDArray[Any]], outputs: Sequence[npt.NDArray[Any]]) -> None:
        ins, outs = (
            [
                TensorDesc(f"{self.name}.{kind}{index}", array.shape, DType.of(array))
                for index, array in enumerate(arrays)
            ]
            for kind, arrays in (("input", inputs), ("output", outputs))
        )
        self.plugin.configure(ins, outs)
        size = self.plugin.workspace_size(ins, outs)
        self._workspace = np.empty(size, np.uint8) if size else None
        if not self._initialized:
            self.plugin.initialize()
            self._initialized = True
