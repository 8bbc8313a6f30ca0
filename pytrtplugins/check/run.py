"""Run all checks of a plugin, in an order in which each failure has one cause."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..errors import UsageError
from ..plugin.base import Plugin
from ..plugin.format_method import has_default_formats, supports_format_source
from ..plugin.policy import has_enqueue
from ..tensor import DType
from . import capture, enqueue, isolate, large, models, on_gpu, rules, sharing
from . import sanitize as sanitizers
from .cases import NOT_RUN, OTHER_FORMAT, Case
from .formats import other_formats
from .in_formats import in_formats
from .report import Entry, Report
from .samples import Samples, input_names, own_inputs
from .search import Trial, cases_around, cases_of_variants, find_cases, given_cases, make_plugin, variants
from .steps import Rule, Step, StepRunner
from .tensorrt_build import tensorrt_builds

__all__ = ["check_names", "check_plugin"]

_TENSORRT = "TensorRT builds it"
_BASIC: dict[str, Rule] = {
    "dims": rules.dims,
    "formats": rules.formats,
    "dtypes": rules.dtypes,
    "determinism": rules.determinism,
}
_OTHERS: dict[str, Rule] = {
    "half precision": rules.half_precision,
    "symbolic dims": rules.symbolic_dims,
    "batch": rules.batch,
    "non-contiguous input": rules.not_contiguous,
    "serialization": rules.round_trip,
    "damaged bytes": rules.damage,
    "clone": rules.clones,
    "memory": enqueue.memory,
    "input unchanged": lambda case: rules.inputs_unchanged(case) or enqueue.inputs_unchanged(case),
    "independent results": rules.independent_results,
    "thread order": enqueue.thread_order,
    "enqueue writes all": enqueue.coverage,
    "enqueue": enqueue.same_as_compute,
    "graph capture": capture.graph_capture,
    "large tensors": large.large_tensors,
    "repeated runs": sharing.repeated_runs,
    "kept inputs": sharing.kept_inputs,
    "changing dims": sharing.changing_dims,
    "empty batch": sharing.empty_batch,
    "enqueue in other types": in_formats,
    "layouts": in_formats,
    "one array twice": sharing.one_array_twice,
    "two threads": sharing.two_threads,
    "int8 pass-through": rules.int8_pass_through,
    _TENSORRT: tensorrt_builds,
    "enqueue on the GPU": on_gpu.enqueue_on_gpu,
    "graph capture on the GPU": on_gpu.graph_replay,
    "two streams on the GPU": on_gpu.two_streams,
    "ONNX node": models.node,
    "decomposition": models.decomposition,
}
_BASIC_NAMES = tuple(_BASIC)
_SANITIZED: dict[str, Rule] = {
    "AddressSanitizer": sanitizers.address_sanitizer,
    "compute-sanitizer": sanitizers.compute_sanitizer,
}
_RUNS = ("clone", "memory", "input unchanged", "thread order")
_ENQUEUE_RULES = (
    *(*_RUNS, "enqueue writes all", "enqueue", "graph capture"),
    *("repeated runs", "changing dims", "empty batch"),
)
_NEEDS = {
    "damaged bytes": ("serialization",),
    "memory": ("clone",),
    "input unchanged": ("memory",),
    "thread order": ("clone", "memory", "input unchanged"),
    "enqueue writes all": _RUNS,
    "enqueue": (*_RUNS, "enqueue writes all"),
    "graph capture": (*_RUNS, "enqueue writes all", "enqueue"),
    "enqueue in other types": _ENQUEUE_RULES,
    "layouts": _ENQUEUE_RULES,
    "large tensors": (*_RUNS, "enqueue writes all", "enqueue"),
    "repeated runs": (*_RUNS, "enqueue writes all", "enqueue"),
    "kept inputs": (*_RUNS, "enqueue writes all", "enqueue", "repeated runs", "independent results"),
    "changing dims": (*_RUNS, "enqueue writes all", "enqueue", "repeated runs"),
    "empty batch": (*_RUNS, "batch", "enqueue writes all", "enqueue"),
    "one array twice": (*_RUNS, "enqueue writes all", "enqueue"),
    "two threads": (*_RUNS, "enqueue writes all", "enqueue", "independent results", "repeated runs"),
    _TENSORRT: ("serialization", "clone"),
    "enqueue on the GPU": _RUNS,
    "graph capture on the GPU": (*_RUNS, "graph capture", "enqueue on the GPU"),
    "two streams on the GPU": (*_RUNS, "enqueue on the GPU", "two threads"),
    "decomposition": ("ONNX node",),
}
_ENGINE_NEEDS = (*_RUNS, "enqueue", "enqueue writes all", "repeated runs", "ONNX node", "decomposition")
# slow, or the same for all shapes
_FEW = {"damaged bytes", "large tensors", "two threads", _TENSORRT, "ONNX node", "decomposition"}
_ON_GPU = {"enqueue on the GPU", "graph capture on the GPU", "two streams on the GPU"}
_HERE = {*_ON_GPU, "ONNX node", "decomposition"}  # libraries with threads do not survive a fork
_OF_FORMATS = {"enqueue in other types", "layouts"}
_OF_ENQUEUE = {"memory", "thread order", *_OF_FORMATS, "repeated runs", "changing dims", *_ON_GPU}
_APART = {"memory", "thread order", "large tensors", _TENSORRT}
_REFERENCE = "reference"
_CASES, _VARIANTS = 6, 5
_REFUSE = """A network with such dims is built, and fails when it runs.
Do: refuse them in {0}.output_dims, with pytrtplugins.check_rank, check_divisible or check_equal"""


def check_plugin(
    plugin: type[Plugin] | Plugin,
    *,
    shapes: Sequence[Any] | Mapping[str, Sequence[int]] | None = None,
    inputs: Mapping[str, Any] | Sequence[Any] | None = None,
    seed: int = 0,
    engines: str | Iterable[str] = "available",
    time_limit: float = 30.0,
    sanitize: bool = False,
    skip: Collection[str] = (),
    reference: type[Plugin] | Plugin | None = None,
) -> Report:
    """Check whether a plugin keeps the contract that engines rely on.

    Shapes are found by asking `Plugin.output_dims`; int and bool fields get other values where the constructor accepts
    them, but for an instance with given shapes. A failure is reported at the smallest shape at which it shows. Where the
    outputs' first dim is the inputs' first dim, it is taken for a batch, whose images must not depend on each other.

    On Linux `compute` and `enqueue` run in a process of their own, forked from this one, so that one that crashes, hangs or takes
    all memory is a failure with its smallest shape. Arrays stand between guard pages there, and kernels are watched: each access,
    in several orders of threads. Engines and the GPU come last, in this process.

    Args:
        plugin: A plugin class, or an instance where the class has fields that cannot be guessed.
        shapes: Dims to try instead of found ones: of the input, or a tuple with the dims of each input. Or one set of dims by the names of
            the parameters of `compute`, ``{"x": (1, 8, 6, 6), "offset": (1, 18, 6, 6)}``: other sizes around it are tried too.
        inputs: What to compute on instead of random numbers, by the names of the parameters of `compute`, or in order: your own array, a
            range ``(low, high)``, or None. Arrays bring their dims and types, float64 as float32; integers of a range may be both
            its bounds. Other values of the same input, and smaller cases, are made of an array's own values.
        seed: Seed of shapes, field values and data; the same seed tries the same.
        engines: ``"available"``, or names of engines; an empty list for none.
        time_limit: Seconds that one check may take on one shape; compiling a kernel does not count.
        sanitize: Whether to run the kernels under AddressSanitizer and UndefinedBehaviorSanitizer too, where the C++ compiler has
            them, and on a GPU under compute-sanitizer, where it is installed; both take seconds to minutes.
        skip: Names of checks to leave out, such as ``["large tensors"]``; the report lists them as skipped.
        reference: A class with the same fields whose `compute` says what is right, such as the Python class of an exported library:
            `enqueue` is compared with it in each type and layout that is accepted.

    Returns:
        The report; ``report.raise_if_failed()`` turns a failure into an exception.

    Raises:
        UsageError: no plugin can be made of the class, this is not a plugin, or there is no such input or check.

    Example:
        >>> from pytrtplugins.layers import Reorg
        >>> check_plugin(Reorg(stride=2), shapes=[(1, 4, 2, 2)], engines=[]).ok
        True
    """
    base = _instance(plugin)
    given = own_inputs(base, inputs)
    right = None if reference is None else _make_reference(base, reference)
    if unknown := sorted(set(skip) - set(names := check_names(engines, sanitize, reference)[1:])):
        raise UsageError(f"skip: there is no check {unknown[0]!r}. Checks: {', '.join(names)}")
    if isinstance(shapes, Mapping):
        _by_name(base, shapes)  # refused here, not in another process
    steps = StepRunner(base, time_limit, given)
    cases, remark = steps.find(
        lambda trial: _all_cases(base, shapes, given, seed, trial, vary=isinstance(plugin, type)),
        lambda cases: _left_out(_steps(base, cases, right), skip),
    )
    cases = [case for case in cases if not case.role]
    if "compute" in steps.entries:
        return Report(repr(base), tuple(steps.entries.values()))
    if not cases:
        detail = f"no input shape works; {remark.removesuffix('.')}.\n{_advice(base, given, remark)}"
        return Report(repr(base), (Entry("dims", False, detail),))
    if sanitize:
        reason = isolate.unavailable_reason(base) or ("" if enqueue.has_kernels(base) else "the class has no kernels")
        sanitized = (
            Step(name, rule, _select_cases(cases), _BASIC_NAMES, 10, skip=reason, patience=20)
            for name, rule in _SANITIZED.items()
        )
        steps.take(_left_out(sanitized, skip))
    for name, reason in _engines(engines).items():
        title, rule = f"engine {name}", partial(models.engine, name=name)
        step = Step(
            title, rule, _select_cases(cases), (*_BASIC, *_ENGINE_NEEDS), max_attempts=10, apart=False, skip=reason
        )
        steps.take(_left_out([step], skip))
    if remark and steps.entries["dims"].ok:
        detail = f"{remark}\n{_REFUSE.format(type(base).__name__)}"
        steps.entries["dims"] = replace(steps.entries["dims"], detail=detail, warning=True)
    return Report(repr(base), tuple(steps.entries.values()))


def check_names(engines: str | Iterable[str] = "available", sanitize: bool = False, reference: Any = None) -> list[str]:
    """Names of the checks that `check_plugin` runs with these options; ``compute`` fails if a plugin ends the process at once."""
    return [
        "compute",
        *_BASIC,
        *_OTHERS,
        *([_REFERENCE] if reference is not None else ()),
        *(_SANITIZED if sanitize else ()),
        *(f"engine {name}" for name in _engines(engines)),
    ]


def _left_out(steps: Iterable[Step], names: Collection[str]) -> Iterator[Step]:
    """The steps, those of such names with the reason why they are not tried."""
    for step in steps:
        yield replace(step, skip="left out by the caller") if step.name in names else step


def _advice(base: Plugin, given: Sequence[Samples | None], remark: str) -> str:
    """Advice if no shape works: other shapes, or other types and values of inputs."""
    count = base.num_inputs or 1
    parameters = inspect.signature(base.output_dims).parameters.values()
    differ = base.num_inputs not in (None, len(parameters))
    if differ and not any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return (
            f"Causes: output_dims has {len(parameters)} parameters, compute {count}.\n"
            "Do: give both a parameter for each input: its dims, and its array"
        )
    dims = ", ".join(f'"{name}": (...)' for name in input_names(base)[:count])
    example = "[(1, 3, 8, 8)]" if count == 1 else f"{{{dims}}}"
    shapes = f"Do: check_plugin(..., shapes={example}) with dims that should work, or inputs= with your own arrays"
    if count == 1 or not has_default_formats(base) or remark.startswith("output_dims refuses"):
        return shapes
    types = [DType.FLOAT32, *[DType.INT32] * (count - 1)]
    example = "as here the first from the others"
    if any(given):
        types = [sample.dtype if sample else DType.FLOAT32 for sample in (*given, *[None] * (count - len(given)))]
        example = "as those that are given"
    outputs = next((dtype for dtype in types if dtype not in (DType.INT32, DType.INT64)), types[0])
    source = supports_format_source(base, types, [outputs])
    return f"{shapes}\nCauses: its inputs differ in type, {example}. {source}"


def _make_reference(base: Plugin, reference: type[Plugin] | Plugin) -> Plugin:
    """An instance of the reference class, with the fields of the plugin to check."""
    cls, names = reference if isinstance(reference, type) else type(reference), list(base.fields())
    if not (issubclass(cls, Plugin) and [spec.name for spec in cls.field_specs()] == names):
        raise UsageError(
            f"reference: expected a plugin class with the fields {names}, as {base!r} has them; found {reference!r}"
        )
    return cls(**base.fields())


def _steps(base: Plugin, cases: list[Case], reference: Plugin | None = None) -> Iterator[Step]:
    """Yield the steps of all rules on these cases, in order."""
    if not cases:
        return
    others, not_run = ([case for case in cases if case.role == role] for role in (OTHER_FORMAT, NOT_RUN))
    cases = [case for case in cases if not case.role]
    for name, rule in _BASIC.items():
        yield Step(name, rule, cases, _BASIC_NAMES[: _BASIC_NAMES.index(name)])
    for name, rule in _OTHERS.items():
        if reason := _does_not_apply(base, name):
            yield Step(name, rule, (), apart=name not in _HERE, skip=reason)
        elif name in _OF_FORMATS:
            yield _step_of_formats(name, rule, *(_with_layouts(some, name == "layouts") for some in (others, not_run)))
        else:
            few, needs = name in _FEW, (*_BASIC, *_NEEDS.get(name, ()))
            max_attempts = 0 if name == "large tensors" else 10 if few else 80
            some = _select_cases(cases) if few else [*cases, *others] if name == "enqueue on the GPU" else cases
            yield Step(name, rule, some[:1] if name == "two threads" else some, needs, max_attempts, name not in _HERE)
    if reference is not None:
        rule = partial(enqueue.same_as_reference, reference=reference)
        yield Step(_REFERENCE, rule, [*cases, *others], (*_BASIC, *_RUNS, "enqueue writes all"), 40)


def _step_of_formats(name: str, rule: Rule, cases: list[Case], not_run: list[Case]) -> Step:
    """The step of all cases in other types, or in other layouts too."""
    if not cases:
        return Step(
            name, rule, (), skip=f"supports_format accepts no other {'layouts' if name == 'layouts' else 'types'}"
        )
    formats = list(dict.fromkeys(case.formats for case in not_run))
    remark = f"accepted, not run: {len(formats)} more, as {formats[0]}" if formats else ""
    return Step(name, rule, cases, (*_BASIC, *_NEEDS[name]), 40, remark=remark)


def _with_layouts(cases: Iterable[Case], nhwc: bool) -> list[Case]:
    """The cases that have an NHWC tensor, or, without ``nhwc``, those that have none."""
    return [case for case in cases if ("nhwc" in case.layouts) is nhwc]


def _instance(plugin: type[Plugin] | Plugin) -> Plugin:
    if isinstance(plugin, Plugin):
        return plugin
    if not (isinstance(plugin, type) and issubclass(plugin, Plugin) and "_key" in plugin.__dict__):
        raise UsageError(f"check_plugin: expected a class under @plugin, or an instance of one; found {plugin!r}")
    return make_plugin(plugin)


def _all_cases(
    base: Plugin, shapes: Any, given: tuple[Samples | None, ...], seed: int, trial: Trial, vary: bool
) -> tuple[list[Case], str]:
    arrays = [sample.array for sample in given if sample and sample.array is not None]
    if shapes is None and arrays and len(arrays) == (base.num_inputs or len(given)):
        shapes = [tuple(array.shape for array in arrays)]
    rng = np.random.default_rng(seed)
    if shapes is not None:
        if isinstance(shapes, Mapping):
            shapes = [_by_name(base, shapes)]
            own_shape_cases, remark = cases_around(base, shapes[0], seed, trial, given)
        else:
            own_shape_cases = given_cases(base, shapes, seed, given, trial)
            remark = "" if own_shape_cases else "shapes= is empty"
        others = cases_of_variants(variants(base, rng, _VARIANTS)[1:] if vary else [], shapes, seed, trial, given)
        return [*own_shape_cases, *others, *_other_formats(own_shape_cases)], remark
    cases, remark = find_cases(base, rng, _CASES, trial, given)
    for other in variants(base, rng, _VARIANTS)[1:] if cases else []:
        cases += find_cases(other, rng, 2, trial, given)[0]
    return [*cases, *_other_formats(cases)], remark


def _by_name(base: Plugin, shapes: Mapping[str, Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Dims of all inputs, in order."""
    names = list(shapes) if base.num_inputs is None else input_names(base)
    if set(names) != set(shapes):
        raise UsageError(f"shapes: {base!r} has the inputs {', '.join(names)}; given are {', '.join(shapes) or 'none'}")
    return tuple(tuple(map(int, shapes[name])) for name in names)


def _other_formats(cases: list[Case]) -> list[Case]:
    """The cases of `other_formats`, if an engine runs `enqueue` in them."""
    return other_formats(cases) if cases and has_enqueue(type(cases[0].plugin)) else []


def _select_cases(cases: list[Case]) -> list[Case]:
    """One case of up to three plugins, the largest of at most rank 4: different fields matter more than shapes."""
    chosen: dict[str, Case] = {}
    for case in cases:
        if max(map(len, case.dims)) <= 4:
            chosen[repr(case.plugin)] = case
    return list(chosen.values())[:3] or cases[:1]


def _does_not_apply(plugin: Plugin, name: str) -> str:
    if name == "decomposition" and not plugin.has_decomposition():
        return "the plugin has no decompose"
    if name in _OF_ENQUEUE and not has_enqueue(type(plugin)):
        return "the plugin has no enqueue of its own"
    if name in ("large tensors", "graph capture", "graph capture on the GPU") and not enqueue.has_kernels(plugin):
        return "the class has no kernels"
    if name in _APART and (reason := isolate.unavailable_reason(plugin)):
        return reason
    if name == "int8 pass-through" and plugin.int8 != "pass_through":
        return (
            f"the plugin computes in float (int8 = {plugin.int8!r})"
            if plugin.int8 == "float"
            else f"int8 = {plugin.int8!r}"
        )
    return ""


def _engines(wanted: str | Iterable[str]) -> dict[str, str]:
    """Engines to try → why one cannot be used, empty if it can."""
    from ..engines.registry import availability_of, engine_class, names

    if wanted != "available":
        wanted = [wanted] if isinstance(wanted, str) else list(wanted)
    reasons = {name: availability_of(name).reason for name in (names() if wanted == "available" else wanted)}
    return {name: reason for name, reason in reasons.items() if wanted != "available" or engine_class(name).computes}
