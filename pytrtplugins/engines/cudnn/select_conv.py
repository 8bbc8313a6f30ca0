"""The kernel of each convolution of an engine: from its table, from the disk, or by timing."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from ...errors import BuildError
from .conv import ConvLaunch, ConvProblem, ConvProvider, Operands, Scratch
from .device import Device
from .framed import FramedProvider
from .plan import Plan, Step
from .steps import conv_operands, conv_problem
from .tactics import Choice, TacticCache
from .timer import Timer

__all__ = ["ConvSelector"]


class ConvSelector:
    """Makes the launches of an engine's convolutions.

    Args:
        device: Where arrays live.
        providers: Families of kernels; the last one can run every convolution from NHWC to NHWC.
        known: Choices that need no timing, from an engine file.
        cache: Choices on disk.
        timer: Chooses by timing; None: the first kernel of the first family that has one.
        tf32: Whether float32 may be rounded to TF32.
    """

    def __init__(
        self,
        device: Device,
        providers: Sequence[ConvProvider],
        known: Mapping[str, Choice] | None = None,
        cache: TacticCache | None = None,
        timer: Timer | None = None,
        tf32: bool = True,
    ) -> None:
        self.providers, self.cache, self.timer, self.tf32 = list(providers), cache, timer, tf32
        self.providers.append(FramedProvider(device, self._prepare))
        self.choices: dict[str, Choice] = dict(known or {})
        self._operands: dict[str, Operands] = {}
        self._lock = threading.RLock()

    def launch(self, step: Step, plan: Plan, scratch: Scratch) -> ConvLaunch:
        """The launch of a step, for one context.

        Raises:
            BuildError: no kernel can run it.
        """
        problem = conv_problem(step, plan, self.tf32)
        with self._lock:
            operands = self._operands.get(step.outputs[0])
            if operands is None:
                operands = self._operands[step.outputs[0]] = conv_operands(step, plan.constants)
            try:
                return self._prepare(problem, operands, scratch)
            except ValueError as error:
                raise BuildError(f"engine 'cudnn': {step.name}: {error}: {problem.key}", engine="cudnn") from error

    def _prepare(self, problem: ConvProblem, operands: Operands, scratch: Scratch) -> ConvLaunch:
        choice = self._choice(problem, operands)
        provider = next((each for each in self.providers if each.name == choice.provider), None)
        if provider is None:
            raise ValueError(f"kernels of {choice.provider!r} are not here")
        return provider.prepare(problem, choice.tactic, operands, scratch)

    def _choice(self, problem: ConvProblem, operands: Operands) -> Choice:
        key = problem.key
        if key in self.choices:
            return self.choices[key]
        found = self.cache.get(key) if self.cache is not None else None
        if found is None or found.provider not in {provider.name for provider in self.providers}:
            timed = self.timer is not None
            found = self.timer.fastest(problem, operands, self.providers) if self.timer else self._first(problem)
            if self.cache is not None and timed:
                self.cache.put({key: found})
        self.choices[key] = found
        return found

    def _first(self, problem: ConvProblem) -> Choice:
        for provider in self.providers:
            for tactic in provider.tactics(problem):
                return Choice(provider.name, tactic)
        raise ValueError("no kernel works")
