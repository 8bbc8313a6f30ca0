"""The rule about tensors with more than 2^31 elements: kernels run on sparse memory, with a few blocks of the grid."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace

from ..cuda.watch import Watch, watching
from ..errors import PytrtpluginsError, UnavailableError
from . import isolate
from .cases import Case
from .enqueue import allocate_arrays
from .guard import Memory
from .shared_dims import inputs_that_share

__all__ = ["large_tensors"]

_ELEMENTS = 2**31
_GUARD_BYTES = 32 << 30
_BLOCKS = 6
_TIME_S = 10.0


def large_tensors(case: Case) -> str:
    """Kernels stay inside tensors of more than 2^31 elements, or the plugin refuses such dims; see `Plugin.max_elements`.

    Only the first, the last and a few blocks run, on memory that is there where it is touched; results are not compared.

    Raises:
        UnavailableError: the system gives no addresses for such arrays.
    """
    for large in _large_cases(case):
        try:
            with isolate.unlimited_memory(), isolate.limited(_TIME_S):
                _enqueue(large)
        except UnavailableError:
            raise
        except isolate.TimeUpError:
            continue
        except PytrtpluginsError as error:  # a refusal, or a defect
            if error.facts.get("defect") not in (None, "hang"):
                shapes = ", ".join(f"{dtype}{list(dims)}" for dims, dtype in zip(large.dims, large.dtypes, strict=True))
                most = case.plugin.max_elements
                limit = "above 2^31 elements" if most is None else f"within max_elements = {most}"
                return f"integer overflow {limit}, with {shapes}: {error}"
        except Exception:  # `enqueue` does more than to launch kernels, which might touch all elements
            return ""
    return ""


def _large_cases(case: Case) -> Iterator[Case]:
    """The case with more than 2^31 elements in a tensor, or with the plugin's maximum, one for each axis that can grow.

    The axis grows in all inputs, or in those that share it. Above 2^31 the case's own elements fit in once more, so that the
    last image begins there, too.
    """
    most = case.plugin.max_elements
    factor = _ELEMENTS // max(1, _largest_count(case)) + 2 if most is None else most // max(1, _largest_count(case))
    for axis in range(max(map(len, case.dims))):
        every = tuple(index for index, shape in enumerate(case.dims) if len(shape) > axis)
        for group in dict.fromkeys((every, inputs_that_share(case, axis))):
            dims = tuple(
                (*shape[:axis], shape[axis] * factor, *shape[axis + 1 :]) if index in group else shape
                for index, shape in enumerate(case.dims)
            )
            with contextlib.suppress(Exception):  # output_dims refuses them
                large = replace(case, dims=dims)
                if _largest_count(large) > (most or _ELEMENTS) // 2:
                    yield large


def _largest_count(case: Case) -> int:
    """Number of elements of the largest tensor."""
    return max(math.prod(map(int, desc.dims)) for some in case.descs() for desc in some)


def _enqueue(case: Case) -> None:
    with case.runner() as runner:
        runner.recorded_launches()
        with Memory(at_end=True, guard_bytes=_GUARD_BYTES, track=False, sparse=True) as memory:
            inputs, outputs, workspace = allocate_arrays(case.descs(), runner.workspace_bytes, memory)
            with watching(Watch(memory.regions, sample=_BLOCKS)) as watch:
                runner.enqueue(inputs, outputs, workspace=workspace)
            if watch.unwatched:
                raise UnavailableError("the C++ compiler has no -fsanitize=thread: memory accesses are not checked")
