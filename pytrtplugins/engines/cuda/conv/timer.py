"""Times convolution kernels on a GPU, and rejects those whose results are wrong.

In a network a layer's weights come from the GPU's memory, since those of the other layers have passed through the cache
meanwhile. So large weights are timed with several copies that take turns.
"""

from __future__ import annotations

import gc
import itertools
import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from ....errors import PytrtpluginsError
from ....tensor import DType
from ..device.device import CudaDevice, Tensor, tensor_at
from ..device.elements import decoded, encoded
from ..device.layout import FP8
from .cache import Choice, choose
from .cublaslt import CublasLtProvider
from .cudnn import CudnnProvider
from .delayed_copy import DelayedCopy
from .problem import ConvLaunch, ConvProblem, ConvProvider, DirectProvider, Operands, Scratch
from .unfused import UnfusedProvider

__all__ = ["LIBRARIES", "Timer", "hold_stream", "pseudo_random_values"]

LIBRARIES = (CudnnProvider.name, CublasLtProvider.name)
"""Families of kernels that are not ours."""

_REPEATS, _LAUNCHES = 16, 3
_HELD_S = 0.1
"""How long a stream is held at most; to queue some graphs takes a thousandth of that."""
_WAIT = 1.0
"""Microseconds. Launches of NVIDIA's libraries begin when the kernel before has ended, and so does the launch behind them;
those of this package begin while it ends. Of both waits around one kernel in a network a chain of that kernel alone shows but one."""
_PATIENCE = 3
"""Libraries name their kernels in the order of the times that they expect, and take longer to build one than to run it."""
_DIRECT_FLOPS = 1e8
"""Operations up to which the direct kernel is timed; more take it 0.03 ms or longer, and each of its measurements 64 times that."""
_STRICT, _ROUNDED = 1e-5, 2e-3
"""Relative errors of norms: of true FP32, and of what is rounded to TF32 or FP16 on the way."""
_APART = 0.05
"""Of all values in FP8, those that may be a code apart: of a result that is 1 % off, 12 % are."""
_ALONE, _ALONE_IN_FP8 = 25, 5
"""How much larger the error of one value may be, beside the largest value: among many, a norm does not show it. In FP8 it comes on
top of a code, for sums that are small after they were large."""


class Timer:
    """Times kernels on a GPU, and compares their results with those of the direct kernel.

    Args:
        device: The GPU.
        oracle: The kernel whose results count as right.
    """

    def __init__(self, device: CudaDevice, oracle: ConvProvider) -> None:
        self.device, self.oracle = device, oracle
        self.stream = device.xp.cuda.Stream(non_blocking=True)
        self._delayed_copy = DelayedCopy(device.capability) if device.capability >= 90 else None

    def fastest(self, problem: ConvProblem, operands: Operands, providers: Sequence[ConvProvider]) -> Choice:
        """The fastest kernel that gives right numbers.

        Raises:
            ValueError: none does.
        """
        with self.stream:
            tensors = self._tensors(problem)
            wanted = self._expected(problem, operands, tensors)
            by_name = {provider.name: provider for provider in providers}
            families = ((provider.name, provider.tactics(problem)) for provider in providers)

            def measure(name: str, tactic: str) -> float:
                return self._measure(by_name[name], tactic, problem, operands, tensors, wanted)

            waiting = LIBRARIES if self.device.capability >= 90 else ()
            waits, patience = dict.fromkeys(waiting, _WAIT), dict.fromkeys(LIBRARIES, _PATIENCE)
            return choose(families, measure, waits, patience, _unlikely(problem))

    def is_right(self, problem: ConvProblem, operands: Operands, provider: ConvProvider, tactic: str) -> bool:
        """Whether a kernel works, and gives right numbers."""
        with self.stream:
            tensors = self._tensors(problem)
            wanted = self._expected(problem, operands, tensors)
            try:
                (launch,) = self._launches(provider, tactic, problem, [operands])
                return self._agrees(problem, self._result(launch, tensors), wanted)
            except (RuntimeError, PytrtpluginsError):
                return False

    def _oracle(self, problem: ConvProblem, operands: Operands, scratch: Scratch) -> ConvLaunch:
        return self.oracle.prepare(problem, next(iter(self.oracle.tactics(problem))), operands, scratch)

    # -- inside ----------------------------------------------------------------------------------------------------------

    def _expected(self, problem: ConvProblem, operands: Operands, tensors: Any) -> Any:
        oracle: ConvProvider = UnfusedProvider(self.device, self._oracle) if problem.fused else self.oracle
        (launch,) = self._launches(oracle, next(iter(oracle.tactics(problem))), problem, [operands])
        return self._result(launch, tensors)

    def _tensors(self, problem: ConvProblem) -> list[Tensor | None]:
        xp, tensors = self.device.xp, list[Tensor | None]()
        for form in (problem.x, problem.y, problem.residual):
            if form is None:
                tensors.append(None)
                continue
            tensor = tensor_at(xp, self.device.allocate(form.bytes + 256), 0, form)
            tensor.flat.fill(0)  # padding
            values = pseudo_random_values(xp, form.dims)
            if form.dtype is FP8:
                values = encoded(xp, values * 448, FP8, {})
            tensor.view[...] = xp.rint(values * 127) if form.dtype is DType.INT8 else values
            tensors.append(tensor)
        return tensors

    def _launches(
        self, provider: ConvProvider, tactic: str, problem: ConvProblem, each: Iterable[Operands]
    ) -> list[ConvLaunch]:
        scratch = Scratch()
        launches = [provider.prepare(problem, tactic, operands, scratch) for operands in each]
        scratch.fill(self.device)
        return launches

    def _result(self, launch: ConvLaunch, tensors: Any) -> Any:
        """Run a kernel and return its output; on Hopper, delayed copies write its inputs, to expose a missing wait."""
        x, y, residual = tensors
        y.flat.fill(77)
        launch(x, y, residual, self.stream)  # loads what it needs, too, which would take longer than the copies
        self.stream.synchronize()
        if self._delayed_copy is not None:
            written = [(tensor.flat, tensor.flat.copy()) for tensor in (x, residual) if tensor is not None]
            for array in (y.flat, *(flat for flat, _ in written)):
                array.fill(77)
            with hold_stream(self.stream):
                for flat, values in written:
                    self._delayed_copy.queue(values, flat, self.stream)
                launch(x, y, residual, self.stream)
        return decoded(self.device.xp, y.view, y.format.dtype).astype(np.float32)

    def _measure(
        self,
        provider: ConvProvider,
        tactic: str,
        problem: ConvProblem,
        operands: Operands,
        tensors: Any,
        wanted: Any,
    ) -> float:
        try:
            launches = self._launches(provider, tactic, problem, self._copies(problem, operands))
            if not self._agrees(problem, self._result(launches[0], tensors), wanted):
                return math.inf
            return self._time(launches, tensors)
        except (RuntimeError, PytrtpluginsError):  # libraries raise at what they cannot do after all
            return math.inf

    def _agrees(self, problem: ConvProblem, found: Any, wanted: Any) -> bool:
        xp = self.device.xp
        if problem.y.dtype is DType.INT8:
            wrong = float((found != wanted).mean())
            return wrong < 0.002 and float(xp.abs(found - wanted).max()) <= 1
        if problem.y.dtype is FP8:
            return self._agrees_in_fp8(found, wanted)
        difference, limit = found - wanted, _ROUNDED if problem.tensor_cores else _STRICT
        error = float(xp.linalg.norm(difference) / xp.maximum(xp.linalg.norm(wanted), 1e-30))
        largest = float(xp.abs(difference).max() / xp.maximum(xp.abs(wanted).max(), 1e-30))
        return error < limit and largest < _ALONE * limit

    def _agrees_in_fp8(self, found: Any, wanted: Any) -> bool:
        """Whether values are the same or one code apart, but for what sums of some 14 bits lose, and most are the same.

        Codes are an eighth of a value apart: one that is off by that tells less than how many are.
        """
        xp = self.device.xp
        difference, size = xp.abs(found - wanted), xp.abs(wanted)
        lost = _ROUNDED * float(size.max())
        near = bool((difference <= size / 8 * 1.001 + _ALONE_IN_FP8 * lost).all())
        return near and float((difference > lost).mean()) < _APART

    def _copies(self, problem: ConvProblem, operands: Operands) -> Iterator[Operands]:
        """The operands, and copies of them until the cache does not hold all; the same alone where too many were needed."""
        yield operands  # is packed before the copies are made
        size, wanted = operands.weights.size * problem.x.dtype.itemsize, 3 * self.device.cache // 2
        count = -(-wanted // size) if size * _REPEATS > wanted // 2 else 1
        for _ in range(1, min(count, _REPEATS)):
            yield replace(operands, packed={form: one.copy() for form, one in operands.packed.items()})

    def _time(self, launches: Sequence[ConvLaunch], tensors: Any) -> float:
        cuda = self.device.xp.cuda
        self.stream.begin_capture()
        try:
            for launch in itertools.islice(itertools.cycle(launches), _REPEATS):
                launch(tensors[0], tensors[1], tensors[2], self.stream)
        finally:
            graph = self.stream.end_capture()
        graph.launch(self.stream)
        events = [cuda.Event() for _ in range(_LAUNCHES + 1)]
        with hold_stream(self.stream):
            events[0].record(self.stream)
            for event in events[1:]:
                graph.launch(self.stream)
                event.record(self.stream)
        spans = [float(cuda.get_elapsed_time(a, b)) for a, b in itertools.pairwise(events)]
        return 1e3 * min(spans) / _REPEATS


def _unlikely(problem: ConvProblem) -> tuple[str, ...]:
    """Providers that are timed only if no other works: the direct kernel, but for groups and small problems."""
    return (DirectProvider.name,) if problem.groups == 1 and problem.flops > _DIRECT_FLOPS else ()


@contextmanager
def hold_stream(stream: Any) -> Iterator[None]:
    """Let a stream begin with what the block queues when the block ends, and wait until all of it is done.

    Else a host that compiles on all its cores may be slower in queueing a small kernel than the GPU in running it.
    It lets go by itself: the driver may wait for the stream before the block ends, to free memory, or where it has no room for
    more graphs. Python collects no garbage meanwhile: where that happened in the function that the stream waits in, it could
    destroy a graph, and CUDA permits no calls there.
    """
    queueing, collects = threading.Lock(), gc.isenabled()
    queueing.acquire()
    gc.disable()
    try:
        stream.launch_host_func(lambda _: queueing.acquire(timeout=_HELD_S), None)
        try:
            yield
        finally:
            queueing.release()
            stream.synchronize()
    finally:
        if collects:
            gc.enable()


def pseudo_random_values(xp: Any, dims: tuple[int, ...]) -> Any:
    """Float32 numbers from -1 to 1 without order; no random numbers, which would need one library more."""
    index = xp.arange(math.prod(dims), dtype=np.int64) % 65521
    return (2 * ((index * 7919 + 104729) % 65521).astype(np.float32) / 65521 - 1).reshape(dims)
