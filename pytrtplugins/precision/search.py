"""Greedy search for mixed precision: fix the earliest layer out of tolerance by the change that helps most per microsecond."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..calibration import CalibrationTable
from ..engines.base.engine import Engine
from ..errors import NoDataError, UsageError
from ..passes import CODES, LayerPrecision, Precisions, layer_names
from ..utils.journal import Journal
from ..utils.listing import count_text
from ..utils.notebook import object_html
from .interventions import Intervention, interventions, modelled_us
from .measure import LayerError, Measurer
from .network import Network, Sample
from .submodels import Layer
from .tolerance import MapTolerance, Tolerance

__all__ = ["Budget", "SearchResult", "Step", "search"]

_log = logging.getLogger(__name__)
_WORST = 1e12  # errors are compared up to here; infinity is no better or worse than this
_HELPS = 0.9  # an intervention must leave less than this part of the error
_LEAST_COST = 1e-3  # part of the latency: below it, costs are noise


@dataclass(frozen=True)
class Budget:
    """Limits of a search: number of evaluations, and latency.

    Attributes:
        max_runs: Most evaluations of the network over all samples; two of them measure it as it is at the start.
        max_latency_ratio: Largest latency, relative to the network with every layer in low precision.
    """

    max_runs: int = 200
    max_latency_ratio: float = math.inf

    def __post_init__(self) -> None:
        if self.max_runs < 2 or not self.max_latency_ratio >= 1:
            raise UsageError(f"budget: expected max_runs >= 2 and max_latency_ratio >= 1, found {self}")


@dataclass(frozen=True)
class Step:
    """One changed layer: what was wrong, and what was done.

    Attributes:
        own: The layer's own error before the change.
        action: The intervention that was kept; "" where none helped.
        tried: (intervention, error of the layer or of the outputs with it, microseconds that it costs) of all that were tried.
        final: Error of the outputs afterwards.
    """

    layer: str
    own: float
    action: str
    tried: tuple[tuple[str, float, float], ...]
    final: float
    latency_us: float


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Attributes:
        precisions: The table, ready to be written, or given to `pytrtplugins.build`.
        offenders: Names of the layers that were out of tolerance alone, in the order in which they were changed.
        reverted: (layer, intervention) that were tried, and that the outputs do not need.
        before: Errors of all layers with every layer in low precision.
        after: Errors of all layers with the precisions.
        final_before: Error of the outputs with every layer in low precision; 1 is the tolerance.
        final: Error of the outputs with the precisions.
        latency_before_us: Latency with every layer in low precision.
        latency_us: With the precisions.
        latency_fp32_us: In float32.
        holds: Whether the outputs are within tolerance.
        reason: Why the search ended.
    """

    precisions: Precisions
    offenders: tuple[str, ...]
    steps: tuple[Step, ...]
    reverted: tuple[tuple[str, str], ...]
    before: tuple[LayerError, ...]
    after: tuple[LayerError, ...]
    final_before: float
    final: float
    latency_before_us: float
    latency_us: float
    latency_fp32_us: float
    runs: int
    holds: bool
    reason: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        layers = self.precisions.layers.items()
        rows = [(name, layer.precision, layer.strategy, layer.reason) for name, layer in layers]
        state = "outputs within tolerance" if self.holds else f"outputs NOT within tolerance: {self.reason}"
        notes = [
            f"error {self.final_before:.3g} → {self.final:.3g} of the tolerance; {self.runs} evaluations",
            f"latency {self.latency_before_us:.4g} → {self.latency_us:.4g} µs; in float32 {self.latency_fp32_us:.4g} µs",
        ]
        title = f"precision search, {self.precisions.precision}: {state}; {count_text(len(rows), 'layer')} computed differently"
        return object_html(title, ("layer", "precision", "strategy", "reason"), rows, notes)


def search(
    network: Network,
    samples: Sequence[Sample],
    tolerance: Tolerance,
    precision: str,
    *,
    tables: Mapping[str, CalibrationTable] | None = None,
    per_tensor: bool = False,
    judge: Callable[[Engine], float] | None = None,
    budget: Budget | None = None,
    latency: str = "modelled",
    journal: Path | None = None,
    identity: Mapping[str, Any] | None = None,
    limit_bytes: int = 256 << 20,
    advance: Callable[[str], None] | None = None,
) -> SearchResult:
    """Find the layers that must not be in low precision.

    The search runs every layer in the network, and alone on its float32 inputs. It takes the earliest layer that is out of
    tolerance alone, tries each intervention, and keeps the one that reduces the error most per microsecond, or the cheapest
    one with which the outputs are within tolerance. If no layer is out of tolerance alone but the outputs are, it takes the
    layer with the largest own error. At the end it reverts every intervention once, scales too, and leaves out those that
    the outputs do not need.

    Args:
        network: The network.
        samples: Inputs, one image each.
        tolerance: What is tolerated.
        precision: ``"fp16"``, ``"bf16"``, ``"int8"`` or ``"fp8"``.
        tables: For int8 and fp8: name of a calibrator → its scales; the first is the one to start with.
        per_tensor: Also for int8 and fp8: start with one scale for all weights of a layer.
        judge: Gives the error of an engine where it is not that of its outputs, such as lost mAP50 in units of the tolerance.
        budget: Limits of the search.
        latency: ``"modelled"``: bytes moved, the same everywhere; ``"measured"``: on this machine.
        journal: File that keeps what was measured until the search is done.
        identity: What the samples are, for the journal.
        limit_bytes: Memory for tensors that are compared at a time.
        advance: Told of every evaluation, for a progress bar.

    Raises:
        UsageError: arguments that contradict each other.
        NoDataError: no samples.
    """
    if not samples:
        raise NoDataError("precision search: no samples to compare the precisions on.")
    if isinstance(tolerance, MapTolerance) != (judge is not None):
        raise UsageError("precision search: map50 needs labelled images, and other tolerances take none")
    if latency not in ("modelled", "measured"):
        raise UsageError(f"latency: expected modelled or measured, found {latency!r}")
    if precision in CODES and not tables:
        raise UsageError(f"precision search: {precision} needs the scales of a calibrator in tables")
    network.engine.check_precision(precision)
    first = next(iter((tables or {}).items()), ("", None))
    start = Precisions(
        precision,
        network.digest,
        layer_names(network.model),
        scales={} if first[1] is None else {name: float(scale) for name, scale in first[1].items()},
        algorithm="EntropyCalibration2" if first[1] is None else first[1].algorithm,
        per_tensor=per_tensor,
    )
    facts = {
        "network": network.digest, "engine": network.engine.name, "precision": precision, "tolerance": str(tolerance),
        "latency": latency, "per_tensor": per_tensor, "samples": len(samples), "plugins": network.plugins,
        **(identity or {}),
    }  # fmt: skip
    results_file = Journal(
        journal, {**facts, "scales": {k: v.header for k, v in (tables or {}).items()}, "limit": limit_bytes}
    )
    measurer = Measurer(network, samples, tolerance, limit_bytes)
    result = _Search(measurer, start, tables or {}, judge, budget or Budget(), latency, results_file, advance).run(
        facts
    )
    results_file.close()
    return result


class _BudgetSpentError(Exception):
    """No evaluation is left."""


@dataclass
class _Search:
    """The state of one search."""

    measurer: Measurer
    start: Precisions
    tables: Mapping[str, CalibrationTable]
    judge: Callable[[Engine], float] | None
    budget: Budget
    latency: str
    journal: Journal
    advance: Callable[[str], None] | None
    runs: int = 0
    kept: list[Intervention] = field(default_factory=list)  # in parts that can be reverted
    reverted: list[tuple[str, str]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    offenders: list[str] = field(default_factory=list)
    exhausted: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.network, self.now = self.measurer.network, self.start

    def run(self, facts: Mapping[str, Any]) -> SearchResult:
        start = self.now
        before = self._layers(start)
        final_before, _ = self._evaluate(start)
        final, errors, reason = final_before, before, ""
        try:
            while final > 1:
                layer, alone = self._next(errors)
                if layer is None:
                    reason = "no layer is left that anything helps"
                    break
                final = self._treat(layer, errors, final, alone)
                errors = self._layers(self.now)
            if final <= 1:
                final = self._revert(final)
        except _BudgetSpentError:
            reason = f"{self.budget.max_runs} evaluations are spent"
            final, _ = self._evaluate(self.now, counted=False)
        after = self._layers(self.now, counted=False)
        fp32 = self._latency(self.now, exact=True)
        latency = self._latency(self.now)
        table = replace(self.now, facts={**facts, "error_before": final_before, "error": final,
                                         "latency_us": latency, "runs": self.runs})  # fmt: skip
        return SearchResult(
            table, tuple(self.offenders), tuple(self.steps), tuple(self.reverted), tuple(before), tuple(after),
            final_before, final, self._latency(start), latency, fp32, self.runs, final <= 1, reason or "within tolerance", facts,
        )  # fmt: skip

    def _next(self, errors: Sequence[LayerError]) -> tuple[Layer | None, bool]:
        """The next layer to change, and whether it alone is out of tolerance."""
        by_name = {layer.name: layer for layer in self.network.layers}
        usable = [
            error for error in errors
            if error.name not in self.exhausted and not (by_name[error.name].copies and self.now.precision in CODES)
        ]  # fmt: skip
        for error in usable:
            if error.own > 1:
                return by_name[error.name], True
        open_ones = [error for error in usable if error.own > 0 and error.name not in self.now.pinned()]
        worst = max(open_ones, key=lambda error: error.own, default=None)
        return (None, False) if worst is None else (by_name[worst.name], False)

    def _treat(self, layer: Layer, errors: Sequence[LayerError], final: float, alone: bool) -> float:
        own_error, total = next((error.own, error.total) for error in errors if error.name == layer.name)
        if alone and layer.name not in self.offenders:
            self.offenders.append(layer.name)
        before = total if alone else final
        cost_before = self._latency(self.now)
        limit = self.budget.max_latency_ratio * self._latency(replace(self.now, layers={}))
        tried: list[tuple[str, float, float]] = []
        best: tuple[tuple[int, float], Intervention, float, float, float] | None = None
        for option in interventions(self.now, layer, self.network.layers, self.network.model, self.tables):
            changed = option.apply(self.now)
            cost = self._latency(changed)
            if cost > limit:
                tried.append((f"{option.name}: beyond the budget", math.nan, cost - cost_before))
                continue
            outcome, at_layer = self._evaluate(changed, layer)
            after = at_layer if alone else outcome
            tried.append((option.name, after, cost - cost_before))
            if outcome > 1 and _cap_error(after) > _HELPS * _cap_error(before):
                continue
            help_ = math.log(_cap_error(before) / max(_cap_error(after), 1e-6))
            worth = help_ / max(cost - cost_before, _LEAST_COST * cost_before)
            rank = (2, -cost) if outcome <= 1 else (int(after <= 1), worth)
            if best is None or rank > best[0]:
                best = (rank, option, cost, after, outcome)
        if best is None:
            self.exhausted.add(layer.name)
            self.steps.append(Step(layer.name, own_error, "", tuple(tried), final, cost_before))
            return final
        _, option, cost, after, outcome = best
        self._keep(option, layer, before, after, cost - cost_before, own_error if alone else None)
        self.steps.append(Step(layer.name, own_error, option.name, tuple(tried), outcome, cost))
        _log.info("%s: %s, error %.3g -> %.3g, outputs %.3g", layer.name, option.name, before, after, outcome)
        return outcome

    def _keep(
        self, option: Intervention, layer: Layer, before: float, after: float, cost: float, own_error: float | None
    ) -> None:
        why = (
            f"own error {own_error:.4g} of the tolerance"
            if own_error is not None
            else "largest own error where the outputs are off"
        )
        noted = {
            name: replace(
                choice,
                reason=choice.reason if name != layer.name else f"{why}; {option.name}",
                error_before=before,
                error_after=after,
                latency_us=cost / len(option.layers),
            )
            for name, choice in option.layers.items()
        }
        self.kept += replace(option, layers=noted).parts()
        self.now = _apply_all(self.start, self.kept)

    def _revert(self, final: float) -> float:
        """Revert interventions, the last one first, if the outputs are within tolerance without them."""
        for part in reversed(self.kept):
            fewer = [other for other in self.kept if other is not part]
            without = _apply_all(self.start, fewer)
            outcome = final if _key(without) == _key(self.now) else self._evaluate(without)[0]
            if outcome <= 1:
                (layer,) = part.layers
                _log.info("%s: %s: not needed after all", layer, part.name)
                self.reverted.append((layer, part.name))
                self.kept, self.now, final = fewer, without, outcome
        return final

    def _evaluate(
        self, precisions: Precisions, layer: Layer | None = None, counted: bool = True
    ) -> tuple[float, float]:
        """Error of the outputs, and of a layer's outputs."""
        at = () if layer is None else layer.outputs

        def measure() -> list[float]:
            names = list(dict.fromkeys([*at, *(() if self.judge is not None else self.network.outputs)]))
            errors = self.measurer.tensors(precisions, names) if names else {}
            outcome = (
                self.judge(self.network.candidate(precisions))
                if self.judge is not None
                else max(errors[name] for name in self.network.outputs)
            )
            return [outcome, max((errors[name] for name in at), default=0.0)]

        outcome, at_layer = self._measure_once("evaluate", f"{_key(precisions)} {at}", measure, counted)
        return float(outcome), float(at_layer)

    def _layers(self, precisions: Precisions, counted: bool = True) -> list[LayerError]:
        def measure() -> list[dict[str, Any]]:
            return [error.to_dict() for error in self.measurer.layers(precisions)]

        rows = self._measure_once("layers", _key(precisions), measure, counted)
        numbers = ("own", "total", "amax", "clipped")
        return [
            LayerError(**{**row, **{key: float(row[key]) for key in numbers}, "histogram": tuple(row["histogram"])})
            for row in rows
        ]

    def _measure_once(self, kind: str, key: str, measure: Callable[[], Any], counted: bool) -> Any:
        if counted:
            if self.runs >= self.budget.max_runs:
                raise _BudgetSpentError
            self.runs += 1
        if self.advance is not None:
            self.advance(f"{len(self.now.layers)} layers treated")
        return self.journal.get(f"{kind} {key}", measure)

    def _latency(self, precisions: Precisions, exact: bool = False) -> float:
        if exact:
            every = {name: LayerPrecision("fp32") for name in precisions.names}
            precisions = replace(precisions, layers=every)
        if self.latency == "modelled":
            return modelled_us(precisions, self.network.layers, self.network.model)

        def measure() -> float:
            engine = self.network.reference() if exact else self.network.candidate(precisions)
            return self.network.latency_us(engine, self.measurer.samples[0])

        return float(self.journal.get(f"latency {exact} {_key(precisions)}", measure))


def _apply_all(start: Precisions, interventions: Sequence[Intervention]) -> Precisions:
    for part in interventions:
        start = part.apply(start)
    return start


def _cap_error(error: float) -> float:
    return min(error, _WORST) if error == error else _WORST


def _key(precisions: Precisions) -> str:
    layers = sorted((name, layer.precision, layer.strategy) for name, layer in precisions.layers.items())
    return repr((layers, sorted(precisions.scales.items()), precisions.per_tensor))
