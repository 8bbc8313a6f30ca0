"""Infer the dims, also free ones, and element types of a plugin's outputs for fake tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..plugin.base import Plugin
from ..tensor import Dim, DType, SymbolicDim
from .tensors import dtype_of

__all__ = ["output_descriptions"]


def output_descriptions(plugin: Plugin, tensors: Sequence[Any]) -> list[tuple[list[Any], DType]]:
    """Return dims and element type of each output; PyTorch's symbolic sizes become `SymbolicDim` for `output_dims`."""
    sizes: dict[str, Any] = {}

    def dim(size: Any) -> Dim:
        if isinstance(size, int):
            return size
        sizes[str(size)] = size
        return SymbolicDim(str(size))

    dims = plugin.all_output_dims([tuple(map(dim, tensor.shape)) for tensor in tensors])
    dtypes = plugin.all_output_dtypes([dtype_of(tensor.dtype) for tensor in tensors], len(dims))
    output_sizes = [
        [output_dim.evaluate(sizes) if isinstance(output_dim, SymbolicDim) else output_dim for output_dim in shape]
        for shape in dims
    ]
    return list(zip(output_sizes, dtypes, strict=True))
