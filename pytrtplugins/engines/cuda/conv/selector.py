"""Select the kernel of each convolution of an engine: from the engine's file, the disk cache, or by timing."""

from __future__ import annotations

import functools
import logging
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from ....errors import BuildError, KernelError
from ....utils.cpu_features import default_threads
from ....utils.progress import progress_bar
from ..device.device import Device
from ..plan.plan import Plan, Step
from .cache import Choice, TacticCache
from .cudnn import CudnnProvider
from .problem import Compiles, ConvLaunch, ConvProblem, ConvProvider, Operands, Scratch
from .search_time import SearchTime
from .step import conv_operands, conv_problem
from .timer import LIBRARIES, Timer
from .unfused import UnfusedProvider

__all__ = ["ConvSelector", "LayerKernel"]

_log = logging.getLogger(__name__)
_HELD_UP = (
    "engine 'cuda': this run has a new shape, for which kernels are timed first, once (convolutions: %d); that can take a minute. "
    'Do: name batches while building: settings={"batch": [1, 8]}, or pytrt build --setting batch=1,8'
)


@dataclass(frozen=True)
class LayerKernel:
    """The kernel that runs a convolution.

    Attributes:
        layers: Names of the layers that are this convolution.
        problem: What it computes, in words.
        choice: The kernel.
    """

    layers: tuple[str, ...]
    problem: str
    choice: Choice


class ConvSelector:
    """Makes the launches of an engine's convolutions.

    Args:
        device: Where arrays live.
        providers: Families of kernels; the last one can run every convolution from NHWC to NHWC.
        known: Choices that need no timing, from an engine file.
        cache: Gives the choices on disk, when one is needed that is not known.
        timer: Chooses by timing; None: the first kernel of the first family that has one.
        is_right: Whether a kernel of a library gives right numbers, which is asked where nothing is timed; None: all do.
        tf32: Whether float32 may be rounded to TF32.
        weights: Gives weights by name; None: plans hold them.
        packed: Operands on the device, by convolution and form, from an engine file.
        search_time: How long a library's plans may be built and timed, which the library knows too; None: without limit.

    Attributes:
        choices: What was chosen, by problem.
        built: Whether the engine is, so that kernels that are chosen now hold up a run.
        search_time: How long a library's plans may be built and timed.
    """

    def __init__(
        self,
        device: Device,
        providers: Sequence[ConvProvider],
        known: Mapping[str, Choice] | None = None,
        cache: Callable[[], TacticCache] | None = None,
        timer: Timer | None = None,
        tf32: bool = True,
        weights: Callable[[str], npt.NDArray[Any]] | None = None,
        packed: Mapping[str, Mapping[str, Any]] | None = None,
        is_right: Callable[[ConvProblem, Operands, ConvProvider, str], bool] | None = None,
        search_time: SearchTime | None = None,
    ) -> None:
        self.providers, self.timer, self.tf32, self._is_right = list(providers), timer, tf32, is_right
        self._open_cache = cache
        self.providers.append(UnfusedProvider(device, self._prepare))
        self.choices: dict[str, Choice] = dict(known or {})
        self.built = False
        self.search_time = SearchTime(math.inf) if search_time is None else search_time
        self._device, self._weights, self._packed = device, weights, dict(packed or {})
        self._from_disk = set[str]()
        self._layers: dict[str, tuple[ConvProblem, list[str]]] = {}
        self._operands: dict[str, Operands] = {}
        self._lock = threading.RLock()

    def choose(self, plan: Plan, progress: bool = False) -> None:
        """Choose kernels for all convolutions of a plan, and compile what that needs side by side.

        Args:
            plan: The plan.
            progress: Show a progress bar while kernels are timed, if the output is a terminal.

        Raises:
            BuildError: no kernel can run one of them.
        """
        convolutions = [step for step in plan.steps if step.kind == "conv"]
        with self._lock:
            if self.timer is None:  # so that only what is taken is compiled
                for step in convolutions:
                    self._choose(self.problem(step, plan), step, plan)
            wanted = {problem.key: (problem, step) for step in convolutions for problem in self._problems(step, plan)}
            unknown = [(problem, step) for key, (problem, step) in wanted.items() if self._known(key) is None]
            timed = bool(unknown) and self.timer is not None
            if timed and self.built:
                _log.warning(_HELD_UP, len(unknown))
            shown = progress and timed
            self.search_time.begin()
            with (
                _compiling(self._compile_jobs([problem for problem, _ in wanted.values()])),
                progress_bar("choosing kernels", len(unknown), shown) as advance,
                self.cache.batched() if timed and self.cache is not None else nullcontext(),
            ):
                for index, (problem, step) in enumerate(unknown):
                    self.search_time.expect(len(unknown) - index)
                    advance(0, problem.title)
                    self._choose(problem, step, plan)
                    advance(1, "")

    def launch(self, step: Step, plan: Plan, scratch: Scratch) -> ConvLaunch:
        """The launch of a step, for one context.

        Raises:
            BuildError: no kernel can run it.
        """
        problem = self.problem(step, plan)
        with self._lock, _naming_step(step, problem):
            layers = self._layers.setdefault(problem.key, (problem, []))[1]
            if step.name not in layers:
                layers.append(step.name)
            return self._prepare(problem, self._operands_of(step, plan), scratch)

    def problem(self, step: Step, plan: Plan) -> ConvProblem:
        """The problem of a step."""
        return conv_problem(step, plan, self.tf32)

    def rehearsal(self) -> ConvSelector:
        """One with the same kernels and choices, and operands of its own: for launches that are only tried."""
        return ConvSelector(self._device, self.providers[:-1], self.choices, tf32=self.tf32, weights=self._weights)

    def kernels(self) -> list[LayerKernel]:
        """What runs the convolutions that were prepared, one row for each that differs, in the network's order."""
        rows: dict[str, LayerKernel] = {}
        for problem, layers in self._layers.values():
            for each, choice in self.chosen(problem):
                before = rows[each.key].layers if each.key in rows else ()
                names = (*before, *(name for name in layers if name not in before))
                rows[each.key] = LayerKernel(names, each.title, choice)
        return list(rows.values())

    def chosen(self, problem: ConvProblem) -> list[tuple[ConvProblem, Choice]]:
        """What runs a problem; where that is steps, with the convolution alone behind it."""
        choice = self.choices[problem.key]
        parts = [problem.unfused] if choice.provider == UnfusedProvider.name else []
        return [(problem, choice), *((part, self.choices[part.key]) for part in parts)]

    def packed(self) -> dict[str, dict[str, npt.NDArray[Any]]]:
        """Copies of the operands as they lie on the device, by convolution and form."""
        with self._lock:
            return {
                name: {form: self._device.download(array).reshape(-1) for form, array in forms.items()}
                for name, forms in self._packed_by_name().items()
            }

    def weight_bytes(self) -> int:
        """Bytes of the operands on the device, in all forms."""
        with self._lock:
            return sum(int(array.nbytes) for forms in self._packed_by_name().values() for array in forms.values())

    def _packed_by_name(self) -> dict[str, Mapping[str, Any]]:
        return {**self._packed, **{name: operands.packed for name, operands in self._operands.items()}}

    @functools.cached_property
    def cache(self) -> TacticCache | None:
        """The disk cache of choices; None if there is none."""
        return None if self._open_cache is None else self._open_cache()

    # -- inside ----------------------------------------------------------------------------------------------------------

    def _problems(self, step: Step, plan: Plan) -> list[ConvProblem]:
        """The problem of a step; before a fused one also the unfused convolution, if it may run unfused."""
        problem = self.problem(step, plan)
        known = self._known(problem.key)
        families = [] if known is None else [known.provider, *(name for name, _, _ in known.runners_up)]
        parts = problem.fused and (known is None or UnfusedProvider.name in families)
        return [problem.unfused, problem] if parts else [problem]

    def _operands_of(self, step: Step, plan: Plan) -> Operands:
        name = step.outputs[0]
        if name not in self._operands:
            operands = conv_operands(step, plan.constants, self._weights)
            self._operands[name] = replace(operands, packed=dict(self._packed.pop(name, {})))
        return self._operands[name]

    def _prepare(self, problem: ConvProblem, operands: Operands, scratch: Scratch) -> ConvLaunch:
        choice = self._choice(problem, operands)
        try:
            provider = self._provider(choice)
            launch = provider.prepare(problem, choice.tactic, operands, scratch)
            if isinstance(provider, CudnnProvider) and self._open_cache is not None:
                provider.keep(problem, choice.tactic)
            return launch
        except (BuildError, KernelError, ValueError) as error:
            if problem.key not in self._from_disk:
                raise
            _log.info("engine 'cuda': %s, chosen before, does not work any more: %s", choice, error)
        self._from_disk.remove(problem.key)
        choice = self._store(problem.key, self._search(problem, operands))
        return self._provider(choice).prepare(problem, choice.tactic, operands, scratch)

    def _provider(self, choice: Choice) -> ConvProvider:
        provider = next((each for each in self.providers if each.name == choice.provider), None)
        if provider is None:
            extra = ', or pip install "pytrtplugins[cublaslt]"' if choice.provider == "cublaslt" else ""
            raise BuildError(
                f"engine 'cuda': kernels of {choice.provider!r} are not here, and the engine was built with them.\n"
                f"Do: build it again{extra}",
                engine="cuda",
            )
        return provider

    def _choose(self, problem: ConvProblem, step: Step, plan: Plan) -> None:
        with _naming_step(step, problem):
            self._choice(problem, self._operands_of(step, plan))

    def _known(self, key: str) -> Choice | None:
        if key not in self.choices and self.cache is not None:
            choice = self.cache.get(key)
            if choice is not None and any(choice.provider == provider.name for provider in self.providers):
                self._from_disk.add(key)
                self.choices[key] = choice
        return self.choices.get(key)

    def _choice(self, problem: ConvProblem, operands: Operands) -> Choice:
        known = self._known(problem.key)
        return self._store(problem.key, self._search(problem, operands)) if known is None else known

    def _store(self, key: str, choice: Choice) -> Choice:
        self.choices[key] = choice
        if self.cache is not None and self.timer is not None:
            self.cache.put({key: choice})
        return choice

    def _search(self, problem: ConvProblem, operands: Operands) -> Choice:
        if self.timer is not None:  # what rivals pack goes when the choice is made
            return self.timer.fastest(problem, replace(operands, packed={}, kept={}), self.providers)
        for provider in self.providers:
            for tactic in provider.tactics(problem):
                if self._is_usable(problem, operands, provider, tactic):
                    return Choice(provider.name, tactic)
        raise ValueError("no kernel works")

    def _is_usable(self, problem: ConvProblem, operands: Operands, provider: ConvProvider, tactic: str) -> bool:
        """Whether a library's plan gives right results; kernels of this package are not checked, since tests cover them."""
        if self._is_right is None or provider.name not in LIBRARIES:
            return True
        return self._is_right(problem, replace(operands, packed={}), provider, tactic)

    def _compile_jobs(self, problems: Sequence[ConvProblem]) -> Iterator[Callable[[], None]]:
        """Yield jobs that compile the chosen kernels, or all candidates where they will be timed."""
        for problem in problems:
            known = self._known(problem.key)
            for provider in self.providers:
                if not isinstance(provider, Compiles) or (known is None and self.timer is None):
                    continue
                if known is None:
                    yield from (
                        functools.partial(provider.compile, problem, tactic) for tactic in provider.tactics(problem)
                    )
                elif known.provider == provider.name:
                    yield functools.partial(provider.compile, problem, known.tactic)


@contextmanager
def _compiling(jobs: Iterator[Callable[[], None]]) -> Iterator[None]:
    """Run compile jobs during the block, on all cores but that of the block, and wait for them.

    Their errors show when the kernel is used.
    """
    pool = ThreadPoolExecutor(max(1, default_threads() - 1), thread_name_prefix="pytrtplugins-compile")
    try:
        for job in jobs:
            pool.submit(job)
        yield
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


@contextmanager
def _naming_step(step: Step, problem: ConvProblem) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise BuildError(f"engine 'cuda': {step.name}: {error}: {problem.key}", engine="cuda") from error
