"""A tensor of the interpreter: on the device, on the host, or on both."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ....tensor import DType
from ..device.device import Device
from ..device.elements import from_stored, stored, to_stored

__all__ = ["Value", "stacked"]

_SMALL = 1024
"""Elements of what is computed on the host, if all that it is computed from is there."""


class Value:
    """A tensor, copied to the other side when it is first wanted there.

    Args:
        device: Where arrays live.
        dtype: Element type.
        array: As the device stores it: on the device, or NumPy's.
        on_host: Which of both.
    """

    __slots__ = ("_device", "_here", "_there", "dtype")

    def __init__(self, device: Device, dtype: DType, array: Any, on_host: bool) -> None:
        self._device, self.dtype = device, dtype
        self._here: Any = array if on_host else None
        self._there: Any = None if on_host else array

    @classmethod
    def of(cls, device: Device, array: npt.NDArray[Any]) -> Value:
        """Make a value of a host array in its own type."""
        return cls(device, DType.of(array), to_stored(array), True)

    @property
    def dims(self) -> tuple[int, ...]:
        """Dims of the tensor."""
        return tuple((self._there if self._here is None else self._here).shape)

    @property
    def is_small_and_here(self) -> bool:
        """Whether the host has it, and computes with it faster than the device."""
        return self._here is not None and self._here.size <= _SMALL

    def stored(self, on_host: bool) -> Any:
        """Its array on one side, as it is stored."""
        if on_host:
            if self._here is None:
                self._here = self._device.download(self._there)
            return self._here
        if self._there is None:
            self._there = self._device.upload(self._here)
        return self._there

    def numbers(self) -> npt.NDArray[Any]:
        """Its array on the host, in its own type."""
        return from_stored(self.stored(True), self.dtype)

    def is_true(self) -> bool:
        """The truth of its one element."""
        return bool(self.stored(True).reshape(-1)[0])

    def slice_at(self, axis: int, place: int) -> Value:
        """One slice along an axis, which goes."""
        on_host = self._here is not None
        index = (slice(None),) * axis + (place,)
        return Value(self._device, self.dtype, self.stored(on_host)[index], on_host)


def stacked(device: Device, xp: Any, values: list[Value], axis: int, empty: tuple[int, ...], dtype: DType) -> Value:
    """Values as the slices of one, along a new axis; without any, dims ``empty`` with no slice."""
    if not values:
        dims = list(empty)
        dims.insert(axis % (len(dims) + 1), 0)
        return Value(device, dtype, np.zeros(dims, stored(dtype)), True)
    on_host = all(value.is_small_and_here for value in values)
    module: Any = np if on_host else xp
    arrays = [value.stored(on_host) for value in values]
    return Value(device, values[0].dtype, module.stack(arrays, axis=axis), on_host)
