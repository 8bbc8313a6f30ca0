"""Runs all checks of a plugin, in an order in which each failure has one cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..errors import MissingExtraError, UnavailableError, UsageError
from ..plugin import Plugin
from . import device, models, rules
from .cases import Case, find_cases, given_cases, make_plugin, shrink, variants
from .report import Entry, Report

__all__ = ["check_plugin"]

Rule = Callable[[Case], str]

_BASIC: dict[str, Rule] = {
    "dims": rules.dims,
    "formats": rules.formats,
    "dtypes": rules.dtypes,
    "determinism": rules.determinism,
}
_OTHERS: dict[str, Rule] = {
    "symbolic dims": rules.symbolic_dims,
    "batch": rules.batch,
    "non-contiguous input": rules.not_contiguous,
    "input unchanged": rules.inputs_unchanged,
    "independent results": rules.independent_results,
    "serialization": rules.round_trip,
    "damaged bytes": rules.damage,
    "clone": rules.clones,
    "enqueue writes all": rules.enqueue_coverage,
    "enqueue": rules.enqueue,
    "enqueue on the GPU": device.enqueue_on_gpu,
    "int8 pass-through": rules.int8_pass_through,
    "ONNX node": models.node,
    "decomposition": models.decomposition,
}
_NEEDS = {
    "damaged bytes": ("serialization",),
    "enqueue writes all": ("clone", "input unchanged"),
    "enqueue": ("clone", "input unchanged", "enqueue writes all"),
    "enqueue on the GPU": ("clone", "input unchanged"),
    "decomposition": ("ONNX node",),
}
_ENGINE_NEEDS = ("clone", "input unchanged", "enqueue", "enqueue writes all", "ONNX node", "decomposition")
_FEW = {"damaged bytes", "ONNX node", "decomposition"}  # slow, or the same for all shapes
_CASES, _VARIANTS = 6, 5


def check_plugin(
    plugin: type[Plugin] | Plugin,
    *,
    shapes: Sequence[Any] | None = None,
    seed: int = 0,
    engines: str | Iterable[str] = "available",
) -> Report:
    """Try whether a plugin keeps the contract that engines rely on.

    Shapes are found by asking `Plugin.output_dims`; int and bool fields get other values where the constructor accepts
    them. A failure is reported at the smallest shape at which it shows. Where the outputs' first dim is the inputs' first
    dim, it is taken for a batch, whose images must not depend on each other.

    Args:
        plugin: A plugin class, or an instance where the class has fields that cannot be guessed.
        shapes: Dims to try instead of found ones: of the input, or a tuple with the dims of each input.
        seed: Seed of shapes, field values and data; the same seed tries the same.
        engines: ``"available"``, or names of engines; an empty list for none.

    Returns:
        The report; ``report.raise_if_failed()`` turns a failure into an exception.

    Raises:
        UsageError: no plugin can be made of the class, or this is no plugin.

    Example:
        >>> from pytrtplugins.layers import Reorg
        >>> check_plugin(Reorg(stride=2), shapes=[(1, 4, 2, 2)], engines=[]).ok
        True
    """
    base = _instance(plugin)
    rng = np.random.default_rng(seed)
    cases, remark = _all_cases(base, shapes, rng, seed)
    if not cases:
        detail = (
            f"no input shape works; {remark}.\nDo: check_plugin(..., shapes=[(1, 3, 8, 8)]) with dims that should work"
        )
        return Report(repr(base), (Entry("dims", False, detail),))
    entries: dict[str, Entry] = {}
    for name, rule in _BASIC.items():
        _add(entries, name, rule, cases, tuple(entries))
    if remark and entries["dims"].ok:
        entries["dims"] = Entry("dims", True, remark, entries["dims"].tried)
    for name, rule in _OTHERS.items():
        if reason := _does_not_apply(base, name):
            entries[name] = Entry(name, True, reason, skipped=True)
            continue
        _add(entries, name, rule, _few(cases) if name in _FEW else cases, (*_BASIC, *_NEEDS.get(name, ())))
    for name, reason in _engines(engines).items():
        title = f"engine {name}"
        if reason:
            entries[title] = Entry(title, True, reason, skipped=True)
        else:
            _add(entries, title, partial(models.engine, name=name), _few(cases), (*_BASIC, *_ENGINE_NEEDS))
    return Report(repr(base), tuple(entries.values()))


def _instance(plugin: type[Plugin] | Plugin) -> Plugin:
    if isinstance(plugin, Plugin):
        return plugin
    if not (isinstance(plugin, type) and issubclass(plugin, Plugin) and "_key" in plugin.__dict__):
        raise UsageError(f"check_plugin: expected a class under @plugin, or an instance of one; found {plugin!r}")
    return make_plugin(plugin)


def _all_cases(base: Plugin, shapes: Any, rng: np.random.Generator, seed: int) -> tuple[list[Case], str]:
    if shapes is not None:
        return given_cases(base, shapes, seed), "shapes= is empty"
    cases, remark = find_cases(base, rng, _CASES)
    for other in variants(base, rng, _VARIANTS)[1:] if cases else []:
        cases += find_cases(other, rng, 2)[0]
    return cases, remark


def _few(cases: list[Case]) -> list[Case]:
    """One case of up to three plugins, the largest of at most rank 4: different fields matter more than shapes."""
    chosen: dict[str, Case] = {}
    for case in cases:
        if max(map(len, case.dims)) <= 4:
            chosen[repr(case.plugin)] = case
    return list(chosen.values())[:3] or cases[:1]


def _does_not_apply(plugin: Plugin, name: str) -> str:
    if name == "decomposition" and not plugin.has_decomposition():
        return "the plugin has no decompose"
    if name == "enqueue on the GPU" and not device.has_enqueue(plugin):
        return "the plugin has no enqueue"
    if name == "int8 pass-through" and plugin.int8 != "pass_through":
        return f"int8 is {plugin.int8!r}"
    return ""


def _add(entries: dict[str, Entry], name: str, rule: Rule, cases: list[Case], needs: Iterable[str]) -> None:
    """Run a rule on all cases, unless one that it builds on failed."""
    broken = [need for need in needs if need in entries and not entries[need].ok]
    if broken:
        entries[name] = Entry(name, True, f"needs {broken[0]!r}, which failed", skipped=True)
        return
    try:
        entries[name] = _run(name, rule, cases)
    except (MissingExtraError, UnavailableError) as error:
        entries[name] = Entry(name, True, str(error), skipped=True)


def _run(name: str, rule: Rule, cases: list[Case]) -> Entry:
    for number, case in enumerate(cases):
        if not _guarded(rule, case):
            continue
        smallest, detail = shrink(case, partial(_guarded, rule), most=10 if name in _FEW or "engine" in name else 80)
        return Entry(name, False, f"{smallest}: {detail}", f"{number + 1} of {len(cases)} cases")
    plugins = len({repr(case.plugin) for case in cases})
    shapes = list(dict.fromkeys(" ".join("x".join(map(str, one)) for one in case.dims) for case in cases))
    shown = ", ".join(shapes[:3]) + (", ..." if len(shapes) > 3 else "")
    return Entry(name, True, "", f"{len(cases)} cases, {plugins} field value(s): {shown}")


def _guarded(rule: Rule, case: Case) -> str:
    try:
        return rule(case)
    except (MissingExtraError, UnavailableError):
        raise
    except Exception as error:  # a user's code may raise anything; the report shows it
        return f"{type(error).__name__}: {error}"


def _engines(wanted: str | Iterable[str]) -> dict[str, str]:
    """Engines to try, and why one cannot be."""
    from ..engines.select import engine_class, names

    if wanted != "available":
        wanted = [wanted] if isinstance(wanted, str) else list(wanted)
    found: dict[str, str] = {}
    for name in (other for other in names() if other != "null") if wanted == "available" else wanted:
        found[name] = engine_class(name).availability().reason
    return found
