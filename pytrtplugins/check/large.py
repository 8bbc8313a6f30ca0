"""The rule about more elements than an int can count: kernels run on sparse memory, with a few blocks of the grid."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace

from ..cuda.watch import Watch, watching
from ..errors import PytrtpluginsError, UnavailableError
from . import isolate
from .cases import Case
from .enqueue import allocated
from .guard import Memory
from .shared_dims import sharing

__all__ = ["large_tensors"]

_ELEMENTS = 2**31
_GUARD_BYTES = 32 << 30
_BLOCKS = 6
_TIME_S = 10.0


def large_tensors(case: Case) -> str:
    """Kernels that are given more than 2^31 elements stay inside of them, or the plugin refuses such dims; see `Plugin.max_elements`.

    Only the first, the last and a few blocks run, on memory that is there where it is touched; results are not compared.

    Raises:
        UnavailableError: the system gives no addresses for such arrays.
    """
    for large in _larger(case):
        try:
            with isolate.much_memory(), isolate.limited(_TIME_S):
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


def _larger(case: Case) -> Iterator[Case]:
    """The case with more than 2^31 elements in a tensor, or with as many as the plugin takes, by way of each axis that may grow.

    The axis grows in all inputs, or in those that share it. Above 2^31 the case's own elements fit in once more, so that the
    last image begins there, too.
    """
    most = case.plugin.max_elements
    factor = _ELEMENTS // max(1, _elements(case)) + 2 if most is None else most // max(1, _elements(case))
    for axis in range(max(map(len, case.dims))):
        every = tuple(index for index, one in enumerate(case.dims) if len(one) > axis)
        for group in dict.fromkeys((every, sharing(case, axis))):
            dims = tuple(
                (*one[:axis], one[axis] * factor, *one[axis + 1 :]) if index in group else one
                for index, one in enumerate(case.dims)
            )
            with contextlib.suppress(Exception):  # output_dims refuses them
                large = replace(case, dims=dims)
                if _elements(large) > (most or _ELEMENTS) // 2:
                    yield large


def _elements(case: Case) -> int:
    """Of the largest tensor."""
    return max(math.prod(map(int, desc.dims)) for some in case.descs() for desc in some)


def _enqueue(case: Case) -> None:
    with case.runner() as runner:
        runner.recorded_launches()
        with Memory(at_end=True, guard_bytes=_GUARD_BYTES, track=False, sparse=True) as memory:
            inputs, outputs, workspace = allocated(case.descs(), runner.workspace_bytes, memory)
            with watching(Watch(memory.regions, sample=_BLOCKS)) as watch:
                runner.enqueue(inputs, outputs, workspace=workspace)
            if watch.unwatched:
                raise UnavailableError("the C++ compiler has no -fsanitize=thread: memory accesses are not checked")
