"""Run one plugin node in an engine: calls the methods of the life cycle in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..cuda.record import LaunchRecord, SymbolicArray, record_launches
from ..errors import PluginError, PytrtpluginsError
from ..tensor import DType, TensorDesc
from .base import Plugin
from .outputs import check_elements

__all__ = ["PluginRunner", "host_workspace", "naming_node"]


@contextmanager
def naming_node(name: str) -> Iterator[None]:
    """Put the node's name, if it is known, before what `Plugin.all_outputs` finds wrong; what else a plugin raises passes as it is.

    Raises:
        PluginError: of the same class, for outputs of `compute` that are not what the plugin declares.
    """
    try:
        yield
    except PluginError as error:
        if not name or "plugin" not in error.facts:
            raise
        raise type(error)(f"node {name!r}: {error}", node=name, **error.facts) from None


def host_workspace(size: int) -> npt.NDArray[np.uint8]:
    """Allocate a workspace of ``size`` bytes in host memory."""
    return np.empty(size, np.uint8)


class PluginRunner:
    """Calls a plugin's methods in order: `configure`, `workspace_size`, `initialize`, `enqueue`, `terminate`.

    Engines for CPUs call `run`, which describes NumPy arrays itself. Others call `prepare` where dims are new, then `enqueue`.
    Nothing else calls these methods of a plugin.

    Args:
        plugin: A clone that nobody else uses.
        name: The node's name; its tensors are described as ``name.input0`` and so on. Empty: it is not known.
        form: ``"enqueue"``: that of the plugin's class; ``"compute"``: `Plugin.enqueue`, which calls `compute`.
        allocate: Makes a workspace of so many bytes; None: whoever calls `enqueue` has one.
        scales: Values of a step of each input, then of each output, where they are int8 codes; the descriptions get them.

    Attributes:
        workspace_bytes: Size of the workspace for the dims of the last `prepare`.
        initialized: Whether `terminate` is due.
    """

    def __init__(
        self,
        plugin: Plugin,
        name: str = "",
        *,
        form: str = "enqueue",
        allocate: Callable[[int], Any] | None = host_workspace,
        scales: Sequence[float] = (),
    ) -> None:
        self.plugin, self.name, self._allocate, self._scales = plugin, name, allocate, scales
        self._enqueue = Plugin.enqueue if form == "compute" else type(plugin).enqueue
        self._shapes: Any = None
        self._descs: tuple[Sequence[TensorDesc], Sequence[TensorDesc]] = ((), ())
        self._workspace: Any = None
        self.workspace_bytes, self.initialized = 0, False

    def prepare(self, inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc]) -> None:
        """Configure the plugin, allocate its workspace, and initialize it the first time."""
        if self._scales:
            scaled = [replace(desc, scale=scale) for desc, scale in zip((*inputs, *outputs), self._scales, strict=True)]
            inputs, outputs = scaled[: len(inputs)], scaled[len(inputs) :]
        self.configure(inputs, outputs)
        self.workspace_bytes = self.workspace_size(inputs, outputs)
        self._workspace = self._allocate(self.workspace_bytes) if self._allocate and self.workspace_bytes else None
        self.initialize()

    def configure(self, inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc]) -> None:
        """Tell the plugin dims, dtypes and layouts; the first step of `prepare`."""
        self._descs = inputs, outputs
        check_elements(self.plugin, self.plugin.max_elements, (desc.dims for desc in (*inputs, *outputs)))
        self.plugin.configure(inputs, outputs)

    def workspace_size(self, inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc]) -> int:
        """Bytes of workspace for tensors of these dims."""
        return self.plugin.workspace_size(inputs, outputs)

    def initialize(self) -> None:
        """Initialize the plugin, if it is not; the last step of `prepare`."""
        if not self.initialized:
            self.plugin.initialize()
            self.initialized = True

    def recorded_launches(self) -> list[LaunchRecord]:
        """The launches of `enqueue` for the tensors of the last `prepare`.

        Raises:
            Exception: `enqueue` does something that cannot be recorded.
        """
        inputs, outputs = (
            [SymbolicArray(role, index, desc.dims, desc.dtype) for index, desc in enumerate(descs)]
            for role, descs in zip(("input", "output"), self._descs, strict=True)
        )
        size = int(self.workspace_bytes)
        workspace = SymbolicArray("workspace", 0, (size,), "uint8") if size else None
        with record_launches() as launches:
            self.enqueue(inputs, outputs, None, workspace)
        return launches

    def compile(self) -> int:
        """Compile for the current GPU what `enqueue` will launch; without a GPU nothing is compiled.

        Returns:
            How many launches were found: 0 too where `enqueue` cannot be recorded, whose kernels are compiled when first used.

        Raises:
            KernelError: a kernel does not compile.
        """
        try:
            launches = self.recorded_launches()
        except PytrtpluginsError:
            raise
        except Exception:  # it does more than to launch kernels
            return 0
        for launch in launches:
            launch.prepare()
        return len(launches)

    def enqueue(self, inputs: Sequence[Any], outputs: Sequence[Any], stream: Any = None, workspace: Any = None) -> None:
        """Queue the plugin's work; ``workspace`` is the caller's, where the runner allocates none."""
        with naming_node(self.name):
            self._enqueue(self.plugin, inputs, outputs, self._workspace if workspace is None else workspace, stream)

    def run(
        self, inputs: Sequence[npt.NDArray[Any]], outputs: Sequence[npt.NDArray[Any]] = (), stream: Any = None
    ) -> Sequence[npt.NDArray[Any]]:
        """Enqueue once, configured before where dims or dtypes are new.

        Args:
            inputs: What the plugin reads: NumPy arrays, or where outputs are given CuPy's.
            outputs: Arrays to write; empty: new ones are made.
            stream: Where the arrays are a GPU's.

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
            self.prepare(self._described("input", inputs), self._described("output", outputs))
            self._shapes = shapes
        self.enqueue(list(inputs), list(outputs), stream)
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
