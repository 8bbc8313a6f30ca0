"""The element types and layouts that a plugin accepts: one case for each combination."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..tensor import PLUGIN_DTYPES, DType, TensorDesc
from .cases import NOT_RUN, OTHER_FORMAT, Case

__all__ = ["MOST", "accepted", "in_accepted_types", "other_formats"]

MOST = 48
"""Combinations that are run; more are named as not run."""
_ASKED = 20_000  # times that supports_format is asked for one case
_FLOATS = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)


def accepted(case: Case) -> list[Case]:
    """The case in each combination of types and layouts that its plugin accepts; few different types, and few NHWC, first.

    Tensors are described one after the other, as `Plugin.supports_format` says: what it refuses for the first ones is not tried further.
    """
    return case.keep("accepted", lambda: _find_accepted(case))


def in_accepted_types(case: Case) -> list[Case]:
    """The case in each other combination of types that `compute` must take, in linear layout, as many as are run."""
    found = (typed for typed in accepted(case) if not typed.layouts and typed.dtypes != case.dtypes)
    return [typed for typed in found if not typed.requantizes][:MOST]  # whose codes compute never gets


def other_formats(cases: Sequence[Case]) -> list[Case]:
    """Up to three cases of the first plugin, the smallest and the largest among them, in all combinations but their own.

    `MOST` combinations of each are to be run, the others only named, which their role says.
    """
    mine = [case for case in cases if case.plugin == cases[0].plugin]
    found: list[Case] = []
    for place in sorted({0, len(mine) // 2, len(mine) - 1}):
        own = mine[place].dtypes, mine[place].layouts
        others = [one for one in accepted(mine[place]) if (one.dtypes, one.layouts) != own]
        found += (replace(one, role=OTHER_FORMAT if at < MOST else NOT_RUN) for at, one in enumerate(others))
    return found


# -- inside ----------------------------------------------------------------------------------------------------------------


def _find_accepted(case: Case) -> list[Case]:
    left = [_ASKED]
    typed = (replace(case, dtypes=dtypes, layouts=()) for dtypes in _types(case, left))
    found = [one for each in typed for one in _layouts(each, left)]
    return sorted(
        found, key=lambda one: (len(set(one.dtypes)), one.layouts.count("nhwc"), one.dtypes[0] not in _FLOATS)
    )


def _types(case: Case, left: list[int]) -> Iterator[tuple[DType, ...]]:
    """Types of all inputs that are accepted in some layout."""

    def extend(chosen: tuple[DType, ...]) -> Iterator[tuple[DType, ...]]:
        if len(chosen) == len(case.dims):
            yield chosen
            return
        for dtype in PLUGIN_DTYPES:
            described = [*chosen, dtype, *[chosen[0] if chosen else dtype] * (len(case.dims) - len(chosen) - 1)]
            layouts = {"linear", "nhwc"} if any(len(dims) == 4 for dims in case.dims) else {"linear"}
            if any(_takes(case, described, layout, len(chosen), left) for layout in sorted(layouts)):
                yield from extend((*chosen, dtype))

    yield from extend(())


def _takes(case: Case, dtypes: Sequence[DType], layout: str, position: int, left: list[int]) -> bool:
    """Whether a plugin takes one input, with the tensors before it of the same layout where they have four axes."""
    layouts = tuple(layout if len(dims) == 4 else "linear" for dims in case.dims)
    return _supports(replace(case, dtypes=tuple(dtypes), layouts=layouts), [position], left)


def _layouts(case: Case, left: list[int]) -> Iterator[Case]:
    """A case in all layouts that are accepted; tensors without four axes are linear."""
    try:
        inputs, outputs = case.descs()
    except Exception:  # types that output_dtypes refuses
        return
    choices = [("linear", "nhwc") if len(desc.dims) == 4 else ("linear",) for desc in (*inputs, *outputs)]
    for layouts in itertools.product(*choices):
        one = replace(case, layouts=layouts if "nhwc" in layouts else ())
        if _supports(one, range(len(choices)), left):
            yield one


def _supports(case: Case, positions: Sequence[int], left: list[int]) -> bool:
    try:
        inputs, outputs = case.descs()
    except Exception:
        return False
    descs: list[TensorDesc] = [*inputs, *outputs]
    for position in positions:
        if not left[0]:
            return False
        left[0] -= 1
        try:
            if not case.plugin.supports_format(position, descs):
                return False
        except Exception:  # the rule `formats` reports it
            return False
    return True
