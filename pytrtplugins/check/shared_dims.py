"""Find inputs that share a dim, rather than have the same size by chance."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import replace

from ..tensor import Dims, SymbolicDim
from .cases import Case, outputs_of

__all__ = ["inputs_that_share", "with_axis"]

_MAX_INPUTS = 5


def inputs_that_share(case: Case, axis: int) -> tuple[int, ...]:
    """Indices of the inputs whose dim at an axis is the first input's: the smallest set that can get another size together.

    Empty where the first input has no such axis, or none of the other sizes works.
    """
    return case.keep(("inputs_that_share", axis), lambda: _find_sharing(case, axis))


def _find_sharing(case: Case, axis: int) -> tuple[int, ...]:
    if len(case.dims[0]) <= axis:
        return ()
    size = case.dims[0][axis]
    for chosen, other in itertools.product(_groups(case, axis), (size + 1, 2 * size, size + 2)):
        changed = replace(case, dims=with_axis(case.dims, axis, other, chosen))  # type: ignore[arg-type]
        try:
            expected = changed.plugin.all_output_dims(changed.dims)
            outputs = outputs_of(changed.plugin, changed.inputs())
        except Exception:  # whatever a user's rule raises, it is a refusal
            continue
        if [tuple(array.shape) for array in outputs] == list(expected):
            return chosen
    return ()


def with_axis(dims: tuple[Dims, ...], axis: int, value: int | SymbolicDim, chosen: Collection[int]) -> tuple[Dims, ...]:
    """The dims with another value at an axis of the chosen inputs."""
    return tuple(
        (*input_dims[:axis], value, *input_dims[axis + 1 :]) if index in chosen else input_dims
        for index, input_dims in enumerate(dims)
    )


def _groups(case: Case, axis: int) -> Iterator[tuple[int, ...]]:
    """The first input with others that have its size at the axis, small groups first."""
    size = case.dims[0][axis]
    same = [
        index
        for index, input_dims in enumerate(case.dims)
        if index and len(input_dims) > axis and input_dims[axis] == size
    ]
    for count in range(len(same[:_MAX_INPUTS]) + 1):
        for others in itertools.combinations(same[:_MAX_INPUTS], count):
            yield (0, *others)
    if len(same) > _MAX_INPUTS:
        yield (0, *same)
