"""Kernels compiled before they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import PytrtpluginsError
from ..tensor import TensorDesc
from .record import LaunchRecord, SymbolicArray, record_launches

__all__ = ["prepare_plugin", "recorded_launches"]


def recorded_launches(
    plugin: Any, inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc], workspace_bytes: int = 0
) -> list[LaunchRecord]:
    """The launches of a configured plugin's `enqueue`, for tensors of these dims and types.

    Raises:
        Exception: `enqueue` does something that cannot be recorded.
    """
    arrays = [
        [SymbolicArray(role, index, desc.dims, desc.dtype) for index, desc in enumerate(descs)]
        for role, descs in (("input", inputs), ("output", outputs))
    ]
    workspace = SymbolicArray("workspace", 0, (workspace_bytes,), "uint8") if workspace_bytes else None
    with record_launches() as launches:
        plugin.enqueue(arrays[0], arrays[1], workspace, None)
    return launches


def prepare_plugin(
    plugin: Any, inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc], workspace_bytes: int = 0
) -> int:
    """Compile for the current GPU what the plugin's `enqueue` will launch; without a GPU nothing is compiled.

    Returns:
        How many launches were found: 0 too where `enqueue` cannot be recorded, whose kernels are compiled when first used.

    Raises:
        KernelError: a kernel does not compile.
    """
    try:
        launches = recorded_launches(plugin, inputs, outputs, workspace_bytes)
    except PytrtpluginsError:
        raise
    except Exception:  # it does more than to launch kernels
        return 0
    for launch in launches:
        launch.prepare()
    return len(launches)
