"""PyTorch tensors ↔ arrays, over the same memory; and PyTorch itself, imported when it is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..tensor import DType
from ..utils.optional import require

__all__ = ["dtype_of", "from_numpy", "require_torch", "to_numpy", "torch_dtype"]


def require_torch(feature: str) -> Any:
    """PyTorch's module.

    Raises:
        MissingExtraError: it is not installed.
    """
    return require("torch", extra="torch", feature=feature)


def dtype_of(dtype: Any) -> DType:
    """PyTorch's element type as this package's.

    Raises:
        PluginError: there is none.
    """
    return DType.of(str(dtype).removeprefix("torch."))


def torch_dtype(dtype: DType) -> Any:
    """The other way."""
    return getattr(require_torch("an element type"), dtype.value)


def to_numpy(tensor: Any) -> npt.NDArray[Any]:
    """A tensor of the host as a NumPy array: the same memory, or a copy where it is not contiguous."""
    torch = require_torch("a tensor")
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        return np.asarray(tensor.view(torch.int16).numpy()).view(DType.BFLOAT16.numpy)
    return np.asarray(tensor.numpy())


def from_numpy(array: npt.NDArray[Any]) -> Any:
    """An array as a tensor: the same memory, or a copy where PyTorch could not write it."""
    torch = require_torch("a tensor")
    array = np.require(array, requirements=["C_CONTIGUOUS", "WRITEABLE"])
    if array.dtype.name == DType.BFLOAT16.value:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
