"""Choose by timing which layers of a network compute in INT8: what is not faster with it stays in float."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from ...errors import PytrtpluginsError
from ...model.ir import is_op
from ...utils.listing import first_names
from ...utils.optional import onnx
from ...utils.progress import progress_bar
from ..base.failures import shorten_message
from ..base.types import BuildOptions
from .conv.cache import Choice, TacticCache
from .lower.int8_chains import Int8Chain, int8_chains, with_float_chains
from .lower.pipeline import check_disable
from .plan.plan import Plan
from .run.network_timer import NetworkClock, plan_digest
from .run.owner import Owner
from .settings import compares_int8

__all__ = ["Candidate", "build_fastest", "network_microseconds"]

_log = logging.getLogger(__name__)
_FLOAT_GAIN = 0.99
"""How much of INT8's time float has to take at most to be chosen for the whole network: times that are about equal keep INT8."""
_CHAIN_GAIN = 0.998
"""How much of the network's time has to be left for a chain in another form: less is noise."""
_ROUNDS = 3
_SECONDS = 20.0
_SHOWN = 3
_INT8, _FLOAT = "i", "f"


class Candidate(Owner, Protocol):
    """An engine in one of the forms.

    Attributes:
        choices: What was decided while building, and why.
        float_precision: Precision of its float layers: ``"fp16"`` or ``"fp32"``.
    """

    choices: dict[str, str]
    float_precision: str

    def planned_sizes(self) -> list[dict[str, int]] | None:
        """Sizes of the free dims for which kernels were chosen; None: dims other than the batch are free."""

    def note_fallback(self, reason: str) -> None:
        """Record that the engine computes in float although INT8 was requested."""


EngineT = TypeVar("EngineT", bound=Candidate)


def build_fastest(
    build: Callable[[onnx.ModelProto, BuildOptions], EngineT],
    quantized: onnx.ModelProto,
    model: onnx.ModelProto,
    options: BuildOptions,
    progress: bool = False,
    measure: Callable[[EngineT], float] | None = None,
) -> EngineT:
    """Build a network in INT8, in float, or with some chains of layers in float, whichever is the fastest.

    Args:
        build: Builds a model.
        quantized: The model with Q/DQ.
        model: Its float form.
        options: Options of the build.
        progress: Show a progress bar while forms are timed, if the output is a terminal.
        measure: Microseconds of a run; None: by `network_microseconds`.
    """
    int8, chains = build(quantized, options), int8_chains(quantized)
    if not chains or not compares_int8(options):
        return int8
    forms = _Forms(build, measure or network_microseconds, options, int8, quantized, model, chains)
    try:
        plans = _plans(int8)
        reason = _untimed_reason(plans)
        choice = None if reason else _choice(forms, _key(plans, int8), int8.selector.cache, progress)
    except (RuntimeError, PytrtpluginsError) as error:  # a plugin, or a network that does not take made-up inputs
        choice, reason = None, f"a run on made-up inputs failed: {shorten_message(error)}"
    if choice is not None:
        return forms.engine(choice)
    int8.choices["int8"] = f"int8, not timed: {reason}"
    return int8


def _choice(forms: _Forms[EngineT], key: str, cache: TacticCache | None, progress: bool) -> Choice:
    """The choice from the disk, or by timing."""
    known = None if cache is None else cache.get(key)
    if known is not None and forms.fits(known):
        return known
    choice = forms.choose(progress)
    if cache is not None:
        cache.put({key: choice})
    return choice


def network_microseconds(engine: Candidate) -> float:
    """The time on the GPU of a run of each batch that the engine was built for, added up, without nodes of data-dependent dims."""
    clock, total = NetworkClock(engine.device), 0.0
    with engine.device.xp.cuda.Device(engine.device.number):
        for sizes in engine.planned_sizes() or ():
            execution = engine.execution(sizes)
            if execution.plan.tail is not None:
                execution.segments.pop()
            with engine.capturing:
                clock.prepare(execution)
                total += clock(execution)
            execution.close()
    return total


class _Forms(Generic[EngineT]):
    """The forms of a network: each chain in INT8 or in float, as a letter for each, ``i`` or ``f``.

    Args:
        build: As in `build_fastest`.
        measure: Likewise.
        options: Likewise.
        int8: The engine of the network in INT8.
        quantized: As in `build_fastest`.
        model: Likewise.
        chains: The chains of the quantized model.
    """

    def __init__(
        self,
        build: Callable[[onnx.ModelProto, BuildOptions], EngineT],
        measure: Callable[[EngineT], float],
        options: BuildOptions,
        int8: EngineT,
        quantized: onnx.ModelProto,
        model: onnx.ModelProto,
        chains: Sequence[Int8Chain],
    ) -> None:
        self._build, self._measure, self._options, self._chains = build, measure, options, chains
        self._quantized, self._model = quantized, model
        self._all_int8, self._all_float = (letter * len(chains) for letter in (_INT8, _FLOAT))
        self._rest = "float16" if int8.float_precision == "fp16" else "float32"
        self._engines = {self._all_int8: int8}

    def fits(self, choice: Choice) -> bool:
        """Whether a choice from the disk is one of this network."""
        return len(choice.tactic) == len(self._chains) and set(choice.tactic) <= {_INT8, _FLOAT}

    def choose(self, progress: bool) -> Choice:
        """Time the forms; the choice's tactic is the fastest form, its runners-up are the others that were built whole."""
        self._try(self._all_float)
        times = self._times(self._engines)
        fastest = min(times, key=times.__getitem__)
        with progress_bar("comparing INT8 with float", len(self._groups()), progress) as advance:
            mixed = self._flip(fastest, advance)
        if mixed not in self._engines:
            self._try(mixed)
            times = self._times(self._engines)
        best = min(times, key=times.__getitem__)
        if best == self._all_float and times[best] > _FLOAT_GAIN * times[self._all_int8]:
            best = self._all_int8
        others = sorted((took, form) for form, took in times.items() if form != best)
        return Choice("int8", best, times[best], len(others), tuple(("int8", form, took) for took, form in others))

    def engine(self, choice: Choice) -> EngineT:
        """The engine of a choice, which says what was chosen and why."""
        engine, rest = self._engine(choice.tactic), self._rest
        times = {form: took for _, form, took in choice.runners_up} | {choice.tactic: choice.microseconds}
        figures = ", ".join(
            f"{name} {'takes ' * (name == 'INT8')}{times[form]:.4g} µs"
            for name, form in (("INT8", self._all_int8), (rest, self._all_float))
            if form in times
        )
        if choice.tactic == self._all_int8:
            engine.choices["int8"] = f"int8: {figures}"
        elif choice.tactic == self._all_float:
            engine.note_fallback(figures)
            _log.warning(
                "engine 'cuda' falls back from INT8 to %s, which is faster here: %s.\n"
                'Do: settings={"int8": "always"}, or pytrt build --setting int8=always, to keep INT8',
                rest,
                figures,
            )
        else:
            layers = [name for chain in self._in_float(choice.tactic) for name in chain.layers]
            figures += f", both {choice.microseconds:.4g} µs, with {first_names(layers, _SHOWN)} in {rest}"
            engine.choices["int8"] = f"int8: {figures}"
            _log.info("engine 'cuda' computes %d of its INT8 layers in %s: %s", len(layers), rest, figures)
        return engine

    def _engine(self, form: str) -> EngineT:
        if form not in self._engines:
            self._engines[form] = self._build(self._model_of(form), self._options)
        return self._engines[form]

    def _try(self, form: str) -> None:
        """Build a form; one that cannot be built is left out."""
        try:
            self._engine(form)
        except (RuntimeError, PytrtpluginsError) as error:
            _log.info("engine 'cuda' cannot build a form that it would compare with INT8: %s", error)

    def _flip(self, form: str, advance: Callable[[int, str], None]) -> str:
        """Change the form of chains that are alike, the largest first, where the network becomes faster."""
        groups = self._groups()
        if len(groups) < 2:
            return form
        begun, best = time.monotonic(), self._quick(form)
        for places in groups:
            advance(1, f"{best:.1f} µs")
            if time.monotonic() - begun > _SECONDS:
                break
            letter = _FLOAT if form[places[0]] == _INT8 else _INT8
            changed = "".join(letter if place in places else other for place, other in enumerate(form))
            took = self._quick(changed)
            if took < _CHAIN_GAIN * best:
                form, best = changed, took
        return form

    def _quick(self, form: str) -> float:
        """Microseconds of a form with the kernels that are the fastest alone; infinity where it cannot be built."""
        disabled = {*check_disable(self._options.settings.get("disable", ())), "network-timing"}
        options = replace(self._options, settings={**self._options.settings, "disable": sorted(disabled)})
        try:
            return self._times({form: self._build(self._model_of(form), options)})[form]
        except (RuntimeError, PytrtpluginsError):
            return math.inf

    def _times(self, engines: Mapping[str, EngineT]) -> dict[str, float]:
        """Microseconds of each, the least of some rounds in turns."""
        rounds = [{form: self._measure(engine) for form, engine in engines.items()} for _ in range(_ROUNDS)]
        return {form: round(min(each[form] for each in rounds), 3) for form in engines}  # as a file of choices has them

    def _groups(self) -> list[list[int]]:
        """Places of chains that are alike, those with the most layers first."""
        groups: dict[str, list[int]] = {}
        for place, chain in enumerate(self._chains):
            groups.setdefault(chain.form, []).append(place)
        return sorted(groups.values(), key=lambda places: -sum(len(self._chains[place].layers) for place in places))

    def _in_float(self, form: str) -> Iterable[Int8Chain]:
        return (chain for chain, letter in zip(self._chains, form, strict=True) if letter == _FLOAT)

    def _model_of(self, form: str) -> onnx.ModelProto:
        if form in (self._all_int8, self._all_float):
            return self._quantized if form == self._all_int8 else self._model
        reason = f"the network is faster with it in {self._rest}"
        return with_float_chains(self._quantized, self._model, self._in_float(form), reason)


def _plans(engine: Candidate) -> list[Plan]:
    """The plan of each batch; none if other dims are free."""
    plans = []
    for sizes in engine.planned_sizes() or ():
        execution = engine.execution(sizes)
        plans.append(execution.plan)
        execution.close()
    return plans


def _untimed_reason(plans: Sequence[Plan]) -> str:
    """Why the forms of a network cannot be timed; empty where they can."""
    if not plans:
        return "dims of its inputs are free"
    late = (node for plan in plans if plan.tail is not None for node in plan.tail.nodes)
    return "dims of quantized tensors depend on values" if any(is_op(node, "DequantizeLinear") for node in late) else ""


def _key(plans: Sequence[Plan], engine: Candidate) -> str:
    """The key of a network's form in the cache of choices."""
    return f"form {' '.join(plan_digest(plan, engine.selector) for plan in plans)}"
