"""The caller's own inputs for a check: arrays, or ranges of random values."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..plugin.base import Plugin
from ..tensor import PLUGIN_DTYPES, DType

__all__ = ["Samples", "input_names", "own_inputs"]


@dataclass(frozen=True, eq=False)
class Samples:
    """The source of one input's values: an array or a range.

    Attributes:
        array: The user's own; None where there is a range.
        low: Smallest value of a range.
        high: Largest value of a range, itself included for integers.
    """

    array: npt.NDArray[Any] | None = None
    low: float = 0
    high: float = 0

    @property
    def dtype(self) -> DType:
        """The element type of the array; of a range int64 if both bounds are integers, else float32."""
        if self.array is not None:
            return DType.of(self.array)
        return DType.INT64 if type(self.low) is type(self.high) is int else DType.FLOAT32

    def draw(self, dims: Sequence[int], dtype: DType, seed: tuple[int, ...], *, other: bool) -> Any:
        """A new array: the user's own, cut to smaller dims; or, for other dims or ``other`` values, drawn from its values or the range."""
        rng = np.random.default_rng(seed)
        if self.array is None:
            return np.asarray(self._from_range(dims, dtype, rng)).astype(dtype.numpy)
        if not other and self.array.ndim == len(dims) and all(map(int.__le__, dims, self.array.shape)):
            return self.array[tuple(map(slice, dims))].astype(dtype.numpy)
        return rng.choice(self.array.reshape(-1), tuple(dims)).astype(dtype.numpy)

    def _from_range(self, dims: Sequence[int], dtype: DType, rng: np.random.Generator) -> npt.NDArray[Any]:
        kind = np.dtype(dtype.numpy).kind
        if kind not in "iu":
            values = rng.uniform(self.low, self.high, dims)
            return values >= (self.low + self.high) / 2 if kind == "b" else values
        limits = np.iinfo(dtype.numpy)
        low, high = max(math.ceil(self.low), int(limits.min)), min(math.floor(self.high), int(limits.max))
        if low > high:
            raise UsageError(f"inputs: no {dtype} lies between {self.low} and {self.high}")
        return rng.integers(low, high, dims, endpoint=True)


def input_names(plugin: Plugin) -> list[str]:
    """Names of the inputs: the parameters of `compute`, or x0, x1 and so on if it takes any number."""
    parameters = [*inspect.signature(plugin.compute).parameters.values()]
    count = plugin.num_inputs
    named = count is not None and not any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    return (
        [parameter.name for parameter in parameters[:count]] if named else [f"x{index}" for index in range(count or 64)]
    )


def own_inputs(plugin: Plugin, inputs: Mapping[str, Any] | Sequence[Any] | None) -> tuple[Samples | None, ...]:
    """Parse the caller's inputs, by name or in order: each an array, a range ``(low, high)``, or None.

    Raises:
        UsageError: there is no such input, or what is given for it is something else.
    """
    if inputs is None:
        return ()
    names = input_names(plugin)
    name_list = ", ".join(names[: plugin.num_inputs or 2]) + (", ..." if plugin.num_inputs is None else "")
    if not isinstance(inputs, Mapping):
        if len(inputs) > len(names):
            raise UsageError(f"inputs: {len(inputs)} are given; {plugin!r} has {len(names)}: {name_list}.")
        inputs = dict(zip(names, inputs, strict=False))
    unknown = [name for name in inputs if name not in names]
    if unknown:
        raise UsageError(f"inputs: {plugin!r} has no input {unknown[0]!r}. Inputs: {name_list}.")
    samples = [_samples(name, inputs.get(name)) for name in names]
    last = max((index for index, sample in enumerate(samples) if sample), default=-1)
    return tuple(samples[: last + 1])


def _samples(name: str, value: Any) -> Samples | None:
    if value is None:
        return None
    if type(value) is tuple and len(value) == 2 and all(isinstance(bound, (int, float)) for bound in value):
        if not (all(map(math.isfinite, value)) and value[0] <= value[1]):
            raise UsageError(f"inputs: {name}: expected a range (low, high), found {value!r}")
        return Samples(low=value[0], high=value[1])
    array = np.asarray(value)
    array = array.astype(np.float32) if array.dtype == np.float64 else array
    try:
        is_supported = DType.of(array) in PLUGIN_DTYPES
    except Exception:  # NumPy's types are many
        is_supported = False
    if not is_supported or not array.size:
        raise UsageError(
            f"inputs: {name}: expected an array of {', '.join(map(str, PLUGIN_DTYPES))} with elements, or a range (low, high); "
            f"found {array.dtype}{list(array.shape)}"
        )
    return Samples(array)
