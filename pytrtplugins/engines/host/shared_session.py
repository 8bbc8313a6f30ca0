"""An onnxruntime session that threads share, and that a forked child makes again."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...model.proto import numpy_type
from ...utils.forks import ForkLock, call_after_fork, keep_until_exit
from ...utils.optional import onnx, require

__all__ = ["Session"]


class Session:
    """An onnxruntime session that threads share. A forked child makes it again, since it lacks the parent's threads."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._making = make, ForkLock()
        self._made: Any = make()
        tensors = (*self._made.get_inputs(), *self._made.get_outputs())
        self._bfloat16 = any(tensor.type == "tensor(bfloat16)" for tensor in tensors)
        _SESSIONS.add(self)

    def run(self, outputs: Sequence[str], inputs: Mapping[str, Any]) -> list[Any]:
        """Run once; gives the outputs of these names."""
        session = self._made or self._anew()
        if self._bfloat16:  # which its NumPy interface does not know
            return _run_values(session, outputs, inputs)
        arrays: list[Any] = session.run(outputs, inputs)
        return arrays

    def _anew(self) -> Any:
        with self._making:
            if self._made is None:
                self._made = self._make()
            return self._made

    def _leave_parent(self) -> None:
        if self._made is not None:
            keep_until_exit(self._made)
            self._made = None


def _run_values(session: Any, outputs: Sequence[str], inputs: Mapping[str, Any]) -> list[Any]:
    """Run a session on onnxruntime's own tensors, which may be of bfloat16."""
    values = {name: _to_value(array) for name, array in inputs.items()}
    return [_to_array(value) for value in session.run_with_ort_values(outputs, values)]


def _to_value(array: npt.NDArray[Any]) -> Any:
    ort = require("onnxruntime", extra="cpu")
    if array.dtype.name != "bfloat16":
        return ort.OrtValue.ortvalue_from_numpy(array)
    kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), kind)


def _to_array(value: Any) -> npt.NDArray[Any]:
    dtype = numpy_type(value.element_type())
    if dtype.name != "bfloat16":
        array: npt.NDArray[Any] = value.numpy()
        return array
    count = math.prod(value.shape())
    data = ctypes.string_at(value.data_ptr(), count * dtype.itemsize) if count else b""
    return np.frombuffer(bytearray(data), dtype).reshape(value.shape())


_SESSIONS: weakref.WeakSet[Session] = weakref.WeakSet()


def _leave_parents() -> None:
    for session in list(_SESSIONS):
        session._leave_parent()


call_after_fork(_leave_parents)
