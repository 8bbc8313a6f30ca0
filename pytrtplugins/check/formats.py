"""Types and layouts that a plugin supports: one case for each combination."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..tensor import PLUGIN_DTYPES, DType, TensorDesc
from .cases import NOT_RUN, OTHER_FORMAT, Case

__all__ = ["MOST", "accepted_cases", "cases_in_other_types", "other_formats"]

MOST = 48
"""Combinations that are run; more are named as not run."""
_ASKED = 20_000  # times that supports_format is asked for one case
_FLOATS = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)


def accepted_cases(case: Case) -> list[Case]:
    """The case in each combination of types and layouts that its plugin supports; those with few different types or NHWC first.

    Tensors are described one after the other, as `Plugin.supports_format` says: what it refuses for the first ones is not tried further.
    """
    return case.keep("accepted_cases", lambda: _find_accepted(case))


def cases_in_other_types(case: Case) -> list[Case]:
    """The case in the other combinations of types that `compute` must take, in linear layout, at most ``MOST``."""
    others = (typed for typed in accepted_cases(case) if not typed.layouts and typed.dtypes != case.dtypes)
    return [typed for typed in others if not typed.requantizes][:MOST]  # whose codes compute never gets


def other_formats(cases: Sequence[Case]) -> list[Case]:
    """Up to three cases of the first plugin, with the smallest and the largest, in all other combinations of types and layouts.

    `MOST` combinations of each are to be run, the others only named, which their role says.
    """
    mine = [case for case in cases if case.plugin == cases[0].plugin]
    selected: list[Case] = []
    for place in sorted({0, len(mine) // 2, len(mine) - 1}):
        own_formats = mine[place].dtypes, mine[place].layouts
        others = [
            accepted for accepted in accepted_cases(mine[place]) if (accepted.dtypes, accepted.layouts) != own_formats
        ]
        selected += (
            replace(accepted, role=OTHER_FORMAT if index < MOST else NOT_RUN) for index, accepted in enumerate(others)
        )
    return selected


# -- inside ----------------------------------------------------------------------------------------------------------------


def _find_accepted(case: Case) -> list[Case]:
    budget = [_ASKED]
    typed = (replace(case, dtypes=dtypes, layouts=()) for dtypes in _types(case, budget))
    accepted_cases = [accepted for typed_case in typed for accepted in _layouts(typed_case, budget)]
    return sorted(
        accepted_cases,
        key=lambda accepted: (
            len(set(accepted.dtypes)),
            accepted.layouts.count("nhwc"),
            accepted.dtypes[0] not in _FLOATS,
        ),
    )


def _types(case: Case, budget: list[int]) -> Iterator[tuple[DType, ...]]:
    """Types of all inputs that are accepted in some layout."""

    def extend(chosen: tuple[DType, ...]) -> Iterator[tuple[DType, ...]]:
        if len(chosen) == len(case.dims):
            yield chosen
            return
        for dtype in PLUGIN_DTYPES:
            described = [*chosen, dtype, *[chosen[0] if chosen else dtype] * (len(case.dims) - len(chosen) - 1)]
            layouts = {"linear", "nhwc"} if any(len(dims) == 4 for dims in case.dims) else {"linear"}
            if any(_supports_input(case, described, layout, len(chosen), budget) for layout in sorted(layouts)):
                yield from extend((*chosen, dtype))

    yield from extend(())


def _supports_input(case: Case, dtypes: Sequence[DType], layout: str, position: int, budget: list[int]) -> bool:
    """Whether a plugin supports one input, if the 4-D tensors before it have the same layout."""
    layouts = tuple(layout if len(dims) == 4 else "linear" for dims in case.dims)
    return _supports(replace(case, dtypes=tuple(dtypes), layouts=layouts), [position], budget)


def _layouts(case: Case, budget: list[int]) -> Iterator[Case]:
    """A case in all layouts that are accepted; tensors without four axes are linear."""
    try:
        inputs, outputs = case.descs()
    except Exception:  # types that output_dtypes refuses
        return
    choices = [("linear", "nhwc") if len(desc.dims) == 4 else ("linear",) for desc in (*inputs, *outputs)]
    for layouts in itertools.product(*choices):
        candidate = replace(case, layouts=layouts if "nhwc" in layouts else ())
        if _supports(candidate, range(len(choices)), budget):
            yield candidate


def _supports(case: Case, positions: Sequence[int], budget: list[int]) -> bool:
    try:
        inputs, outputs = case.descs()
    except Exception:
        return False
    descs: list[TensorDesc] = [*inputs, *outputs]
    for position in positions:
        if not budget[0]:
            return False
        budget[0] -= 1
        try:
            if not case.plugin.supports_format(position, descs):
                return False
        except Exception:  # the rule `formats` reports it
            return False
    return True
