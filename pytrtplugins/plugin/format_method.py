"""Source text of a `supports_format`, for plugins whose tensors differ in element type."""

from __future__ import annotations

from collections.abc import Sequence

from ..tensor import DType
from .base import Plugin

__all__ = ["has_default_formats", "supports_format_source"]


def has_default_formats(plugin: Plugin) -> bool:
    """Whether the plugin does not override `Plugin.supports_format`: all its tensors have one element type."""
    return type(plugin).supports_format is Plugin.supports_format


def supports_format_source(plugin: Plugin, inputs: Sequence[DType], outputs: Sequence[DType]) -> str:
    """The line ``Do:`` with a `Plugin.supports_format` for these types."""
    dtypes = ", ".join(f"ptp.DType.{dtype.name}" for dtype in (*inputs, *outputs))
    return (
        f"The default supports_format wants one type for all tensors, float32 or float16.\nDo: write it in {type(plugin).__name__}:\n"
        f"    def supports_format(self, position, descs):\n"
        f"        dtypes = ({dtypes}{',' if len(inputs) + len(outputs) == 1 else ''})  # of the inputs, then of the outputs\n"
        f'        return descs[position].layout == "linear" and descs[position].dtype == dtypes[position]'
    )
