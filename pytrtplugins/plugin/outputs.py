"""Check a plugin's outputs against its own rules: dims, element types and arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import DimsError, PluginError
from ..tensor import PLUGIN_DTYPES, Array, Dims, DType, SymbolicDim

__all__ = ["check_dtypes", "check_elements", "checked_arrays", "checked_dims"]


def check_elements(plugin: object, most: int | None, tensors: Iterable[Dims]) -> None:
    """Refuse tensors with more elements than the plugin allows; symbolic dims pass, and are checked when their sizes are known."""
    for dims in () if most is None else tensors:
        count: Any = math.prod(dims)
        if not isinstance(count, SymbolicDim) and count > most:
            raise DimsError(
                f"{plugin!r}: ({', '.join(map(str, dims))}) are {count:,} elements; it takes {most:,} at most",
                expected=most,
                found=count,
            )


def checked_dims(plugin: object, dims: Any) -> Dims:
    """The dims that `Plugin.output_dims` returned for one output, checked.

    Raises:
        DimsError: they are not dims.
    """
    checked = tuple(dim if isinstance(dim, SymbolicDim) else _as_int(dim) for dim in dims)
    if any(dim is None or (not isinstance(dim, SymbolicDim) and dim < 0) for dim in checked):
        raise DimsError(
            f"{plugin!r}: output_dims gave {tuple(dims)!r}: dims are ints of at least 0, or symbolic"
            + (".\nDo: divide with //" if any(isinstance(dim, float) for dim in dims) else ""),
            found=dims,
        )
    return checked  # type: ignore[return-value]


def check_dtypes(plugin: object, verb: str, dtypes: Sequence[DType]) -> None:
    """Require element types that plugins may have; ``verb`` is what this one does with them: ``"reads"``, ``"gives"``."""
    for dtype in dtypes:
        if dtype not in PLUGIN_DTYPES:
            raise PluginError(
                f"{plugin!r} {verb} {dtype}, which is not an element type of plugins: {', '.join(PLUGIN_DTYPES)}.\n"
                "Do: put a Cast beside it in the model",
                dtype=dtype,
            )


def checked_arrays(
    plugin: object, inputs: Sequence[Array], result: Any, dims: Sequence[Dims], dtypes: Sequence[DType]
) -> tuple[Array, ...]:
    """The result of `Plugin.compute` as a tuple of arrays, whose dims and types are checked against the plugin's rules.

    Raises:
        DimsError: there are more or fewer outputs, or one has another shape.
        PluginError: an output is not an array, or has another element type.
    """

    def wrong(kind: type[PluginError], problem: str, expected: object, found: object) -> PluginError:
        return kind(f"{plugin!r}: {problem}", plugin=plugin, expected=expected, found=found)

    arrays = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    expected = [f"{dtype}[{', '.join(map(str, shape))}]" for shape, dtype in zip(dims, dtypes, strict=True)]
    if result is None:
        problem = f"compute gave None, expected {', '.join(expected)}.\nDo: let compute return its outputs"
        raise wrong(PluginError, problem, expected, None)
    if len(arrays) != len(dims):
        problem = f"compute gave {len(arrays)} outputs, output_dims {len(dims)}"
        raise wrong(DimsError, problem, len(dims), len(arrays))
    for index, (array, shape, dtype) in enumerate(zip(arrays, dims, dtypes, strict=True)):
        where = f"output {index} of compute"
        if not isinstance(getattr(array, "dtype", None), np.dtype):
            problem = f"{where} is of type {type(array).__name__}, expected an array {expected[index]}"
            raise wrong(PluginError, problem, expected[index], type(array))
        if tuple(array.shape) != shape:
            input_dims = [tuple(x.shape) for x in inputs]
            problem = f"{where} has shape {tuple(array.shape)}, output_dims says {shape} for inputs {input_dims}"
            raise wrong(DimsError, problem, shape, tuple(array.shape))
        if array.dtype.name != dtype.value:
            do = f"Do: return array.astype(numpy.{dtype}), or override output_dtypes."
            raise wrong(PluginError, f"{where} is {array.dtype}, output_dtypes says {dtype}.\n{do}", dtype, array.dtype)
    return arrays


def _as_int(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, np.integer)) and not isinstance(value, bool) else None
