"""Convert between PyTorch tensors and arrays over the same memory; PyTorch is imported lazily."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..tensor import DType
from ..utils.optional import require

__all__ = ["dtype_of", "from_numpy", "require_torch", "to_numpy", "torch_dtype"]


def require_torch(feature: str) -> Any:
    """Import and return PyTorch."""
    return require("torch", extra="torch", feature=feature)


def dtype_of(dtype: Any) -> DType:
    """Return the `DType` of a PyTorch dtype."""
    return DType.of(str(dtype).removeprefix("torch."))


def torch_dtype(dtype: DType) -> Any:
    """Return the PyTorch dtype of a `DType`."""
    return getattr(require_torch("an element type"), dtype.value)


def to_numpy(tensor: Any) -> npt.NDArray[Any]:
    """Return a host tensor as a NumPy array over the same memory, or a copy if it is not contiguous."""
    torch = require_torch("a tensor")
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        return np.asarray(tensor.view(torch.int16).numpy()).view(DType.BFLOAT16.numpy)
    return np.asarray(tensor.numpy())


def from_numpy(array: npt.NDArray[Any]) -> Any:
    """Return an array as a tensor over the same memory, or a copy if the array is read-only or not contiguous."""
    torch = require_torch("a tensor")
    array = np.require(array, requirements=["C_CONTIGUOUS", "WRITEABLE"])
    if array.dtype.name == DType.BFLOAT16.value:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
