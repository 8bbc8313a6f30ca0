"""Convert arrays to and from OpenVINO."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import BindingError, ExecutionError
from ...tensor import DType, TensorDesc
from ...utils.optional import require
from ..base.context import Arrays
from .bounds import LONGEST

__all__ = [
    "check_indices",
    "from_openvino",
    "is_long",
    "is_peculiar",
    "refuse_long",
    "refuse_short_floats",
    "to_openvino",
]


def is_peculiar(array: npt.NDArray[Any]) -> bool:
    """Whether OpenVINO loses something of an input.

    It reads arrays without elements as scalars, NaN as numbers in places, and counts along an axis in float32.
    """
    if max(array.shape, default=0) > LONGEST:
        return True
    if array.dtype.kind not in "fV":  # bfloat16, which NumPy does not have, is V
        return not array.size
    return not (array.size and np.isfinite(array.sum())) and not (array.size and np.isfinite(array).all())


def refuse_short_floats(inputs: Arrays) -> None:
    """Require that bfloat16 inputs are finite: OpenVINO loses NaN and infinities."""
    for name, array in inputs.items():
        if array.dtype.kind == "V" and array.size and not np.isfinite(array.astype(np.float32)).all():
            raise ExecutionError(
                f"input {name!r} holds NaN or infinities in bfloat16, which OpenVINO loses, and onnxruntime cannot run the network.\n"
                'Do: give finite numbers, or build with engine="reference"'
            )


def to_openvino(array: npt.NDArray[Any]) -> Any:
    """An array for OpenVINO, which shares scalars only if they are writable, and copies other arrays itself."""
    if array.dtype.kind == "V":  # it does not know ml_dtypes' bfloat16
        ov = require("openvino", extra="cpu")
        return ov.Tensor(array.view(np.uint16).ravel(), ov.Shape(array.shape), ov.Type.bf16)
    return array if array.ndim or array.flags.writeable else array.copy()


def is_long(array: npt.NDArray[Any]) -> bool:
    """Whether whole numbers need more than the 32 bits in which OpenVINO stores them."""
    return bool(array.size and not (array.min() >= -(2**31) and array.max() < 2**31))


def refuse_long(inputs: Arrays) -> None:
    """Refuse inputs for which `is_long` is true."""
    for name, array in inputs.items():
        raise BindingError(
            f"input {name!r}: OpenVINO keeps int64 in 32 bits, and the numbers are {array.min()} to {array.max()}.\n"
            'Do: build with engine="onnxruntime"'
        )


def check_indices(name: str, array: npt.NDArray[Any], size: int) -> None:
    """Require that indices lie in an axis: OpenVINO's Gather gives 0 for others."""
    if array.size and not (-size <= array.min() and array.max() < size):
        raise BindingError(
            f"input {name!r}: it holds indices along an axis of {size}, expected {-size} to {size - 1}, found {array.min()} to "
            f"{array.max()}.\nDo: give indices that the table has, such as those of the network's own tokenizer"
        )


def from_openvino(value: Any, desc: TensorDesc) -> npt.NDArray[Any]:
    """The array of an output."""
    array: npt.NDArray[Any] = np.asarray(value)
    return array.view(desc.dtype.numpy) if desc.dtype is DType.BFLOAT16 else array  # OpenVINO calls it float16
