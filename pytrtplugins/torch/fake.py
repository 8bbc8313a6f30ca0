"""The outputs of a plugin for tensors without values: dims, including free ones, and element types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..plugin.base import Plugin
from ..tensor import Dim, DType, SymbolicDim
from .tensors import dtype_of

__all__ = ["output_descriptions"]


def output_descriptions(plugin: Plugin, tensors: Sequence[Any]) -> list[tuple[list[Any], DType]]:
    """Dims and element type of each output; PyTorch's symbolic sizes go through the plugin's shape rule as `SymbolicDim`."""
    sizes: dict[str, Any] = {}

    def dim(size: Any) -> Dim:
        if isinstance(size, int):
            return size
        sizes[str(size)] = size
        return SymbolicDim(str(size))

    dims = plugin.all_output_dims([tuple(map(dim, tensor.shape)) for tensor in tensors])
    dtypes = plugin.all_output_dtypes([dtype_of(tensor.dtype) for tensor in tensors], len(dims))
    found = [[each.evaluate(sizes) if isinstance(each, SymbolicDim) else each for each in shape] for shape in dims]
    return list(zip(found, dtypes, strict=True))
