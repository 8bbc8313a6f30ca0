"""Search shapes, types and field values that a plugin accepts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import FieldError, PytrtpluginsError, UsageError
from ..plugin.base import Plugin
from ..plugin.fields import MISSING
from ..tensor import PLUGIN_DTYPES, DType
from .cases import MAX_ELEMENTS, Case, Shape, outputs_of
from .samples import Samples, input_names

__all__ = ["Trial", "cases_around", "cases_of_variants", "find_cases", "given_cases", "make_plugin", "variants"]

_SIDES = (1, 2, 3, 4, 6, 8, 12)
_RANKS = (4, 3, 2, 5, 1)
_AROUND = 6
_CHANGES: tuple[Callable[[int], int], ...] = (
    lambda size: size + 1,
    lambda size: 2 * size,
    lambda size: max(1, size - 1),
)


class Trial:
    """Runs candidate cases; a subclass reports each case first, since the process may crash."""

    def note(self, case: Case) -> None:
        """Say what comes next, for when the process does not survive it."""

    def accepts(self, case: Case) -> None:
        """Compute a case; what it raises is a refusal."""
        outputs_of(case.plugin, case.inputs())


def make_plugin(cls: type[Plugin]) -> Plugin:
    """A plugin of the class: with defaults, and small values where a field has none.

    Raises:
        UsageError: no values were found that the constructor accepts.
    """
    required = [spec for spec in cls.field_specs() if spec.default is MISSING]
    choices = [spec.field_kind.samples for spec in required]
    reason = "a field has no default and a type that cannot be guessed"
    for values in itertools.islice(itertools.product(*choices), 200):
        try:
            return cls(**{spec.name: value for spec, value in zip(required, values, strict=True)})
        except FieldError as error:
            reason = str(error)
    arguments = ", ".join(f"{spec.name}=..." for spec in required)
    typed = " ".join(f"--set {spec.name}={spec.field_kind.example.format(spec.name)}" for spec in required)
    raise UsageError(
        f"check_plugin: no {cls.__name__} can be made by trying values for {[spec.name for spec in required]}: {reason}.\n"
        f"Do: check_plugin({cls.__name__}({arguments})), or: pytrt check-plugin MODULE:{cls.__name__} {typed}"
    )


def variants(plugin: Plugin, rng: np.random.Generator, count: int) -> list[Plugin]:
    """The plugin, and others of its class with random int and bool fields that the constructor accepts."""
    plugins = [plugin]
    names = [spec for spec in plugin.field_specs() if spec.field_kind.is_varied]
    for _ in range(4 * count if names else 0):
        chosen = rng.random(len(names)) < 0.6
        changed = {
            spec.name: rng.choice(spec.field_kind.samples).item()
            for spec, change in zip(names, chosen, strict=True)
            if change
        }
        try:
            other = type(plugin)(**{**plugin.fields(), **changed})
        except FieldError:
            continue
        if all(other != plugin_found for plugin_found in plugins):
            plugins.append(other)
        if len(plugins) > count:
            break
    return plugins


def given_cases(
    plugin: Plugin,
    shapes: Sequence[Any],
    seed: int,
    given: tuple[Samples | None, ...] = (),
    trial: Trial | None = None,
) -> list[Case]:
    """Cases with the caller's shapes: each is the dims of the one input, or a tuple of the dims of all."""
    cases = []
    for number, shape in enumerate(shapes):
        nested = bool(shape) and isinstance(shape[0], (tuple, list))
        dims = tuple(tuple(map(int, input_shape)) for input_shape in (shape if nested else (shape,)))
        (trial or Trial()).note(Case(plugin, dims, (DType.FLOAT32,) * len(dims), seed + number))
        try:
            dtypes = input_dtypes(plugin, dims, given)
        except Exception:  # the rule `dims` reports shapes that the plugin refuses
            dtypes = (DType.FLOAT32,) * len(dims)
        cases.append(Case(plugin, dims, dtypes, seed + number, given))
    return cases


def cases_around(
    plugin: Plugin, shape: tuple[Shape, ...], seed: int, trial: Trial, given: tuple[Samples | None, ...] = ()
) -> tuple[list[Case], str]:
    """The case with these dims, and up to six cases with other sizes that the plugin accepts.

    Equal sizes change together, or the batch alone; then one axis alone, which most rules refuse.

    Returns:
        The cases; and the first dims that `output_dims` accepts though `compute` refuses them.
    """
    cases, fault = given_cases(plugin, [shape], seed, given, trial), ""
    for dims in (*_sizes_around(shape), *_one_axis_longer(shape)):
        if len(cases) > _AROUND and fault:
            break
        (case,) = given_cases(plugin, [dims], seed + len(cases), given, trial)
        try:
            plugin.all_output_dims(dims)
        except Exception:  # whatever a user's rule raises, it is a refusal
            continue
        try:
            trial.note(case)
            trial.accepts(case)
        except Exception as error:
            fault = fault or _disagreement(plugin, dims, error)
            continue
        cases += [case] if len(cases) <= _AROUND else []
    return cases, fault


def cases_of_variants(
    plugins: Sequence[Plugin], shapes: Sequence[Any], seed: int, trial: Trial, given: tuple[Samples | None, ...] = ()
) -> list[Case]:
    """Cases with the caller's shapes for plugins with other field values, if they accept these shapes."""
    cases = []
    for plugin in plugins:
        for case in given_cases(plugin, shapes, seed, given, trial)[:2]:
            try:
                plugin.all_output_dims(case.dims)
                trial.accepts(case)
            except Exception:  # whatever a user's rule raises, it is a refusal
                continue
            cases.append(case)
    return cases


def _disagreement(plugin: Plugin, dims: Sequence[Shape], error: Exception) -> str:
    return f"output_dims accepts {_dims_text(plugin, dims)}, compute does not ({type(error).__name__}: {error})"


def _one_axis_longer(shape: tuple[Shape, ...]) -> Iterator[tuple[Shape, ...]]:
    for index, input_shape in enumerate(shape):
        for axis, size in enumerate(input_shape):
            yield (*shape[:index], (*input_shape[:axis], size + 1, *input_shape[axis + 1 :]), *shape[index + 1 :])


def _sizes_around(shape: tuple[Shape, ...]) -> Iterator[tuple[Shape, ...]]:
    visited = {shape}
    for size in (None, *sorted({size for input_shape in shape for size in input_shape})):  # None: the first axis of all
        for change in _CHANGES:
            places = (
                (axis == 0) if size is None else (old == size)
                for input_shape in shape
                for axis, old in enumerate(input_shape)
            )
            dims = tuple(tuple(change(old) if next(places) else old for old in input_shape) for input_shape in shape)
            if dims not in visited and all(math.prod(input_shape) <= MAX_ELEMENTS for input_shape in dims):
                visited.add(dims)
                yield dims


def find_cases(
    plugin: Plugin,
    rng: np.random.Generator,
    count: int,
    trial: Trial,
    given: tuple[Samples | None, ...] = (),
) -> tuple[list[Case], str]:
    """Search shapes that `output_dims` and `compute` accept: ``count`` of the usual rank, and fewer of other ranks.

    Returns:
        The cases, smallest first; and a remark: shapes that `output_dims` accepts though `compute` refuses them, or, when
        there are no cases, why.
    """
    cases: list[Case] = []
    remark = ""
    for rank in _RANKS:
        here: list[Case] = []
        refused = 0
        for candidate in _candidates(plugin, rank, rng):
            dims = _with_own_dims(candidate, given)
            trial.note(Case(plugin, dims, (DType.FLOAT32,) * len(dims)))
            try:
                plugin.all_output_dims(dims)
                case = Case(plugin, dims, input_dtypes(plugin, dims, given), int(rng.integers(2**31)), given)
            except Exception as error:  # whatever a user's rule raises, it is a refusal
                remark = remark or f"output_dims refuses {_dims_text(plugin, dims)}: {error}"
                continue
            try:
                trial.note(case)
                trial.accepts(case)
            except Exception as error:
                if not remark.startswith("output_dims accepts"):
                    remark = _disagreement(plugin, dims, error)
                refused += 1
                if refused > 150 and not here:
                    break
                continue
            here.append(case)
            if len(here) >= (count if rank == 4 else max(2, count // 3)):
                break
        cases += here
    if cases and remark.startswith("output_dims refuses"):
        remark = ""
    return sorted(cases, key=lambda case: sum(map(math.prod, case.dims))), remark


def _with_own_dims(dims: tuple[Shape, ...], given: Sequence[Samples | None]) -> tuple[Shape, ...]:
    """The dims, replaced by those of the caller's own arrays."""
    own_shapes = [sample.array.shape if sample and sample.array is not None else None for sample in given]
    return tuple(
        shape if index >= len(own_shapes) or (own := own_shapes[index]) is None else own
        for index, shape in enumerate(dims)
    )


def input_dtypes(plugin: Plugin, dims: Sequence[Shape], given: Sequence[Samples | None] = ()) -> tuple[DType, ...]:
    """float32, or the first other types that the plugin supports; the caller's arrays keep their types."""
    own_dtypes = {
        index: DType.of(samples.array) for index, samples in enumerate(given) if samples and samples.array is not None
    }

    def with_own(dtypes: Sequence[DType]) -> tuple[DType, ...]:
        return tuple(own_dtypes.get(index, dtype) for index, dtype in enumerate(dtypes))

    candidates = sorted(PLUGIN_DTYPES, key=lambda dtype: dtype is DType.BFLOAT16)
    uniform = [(dtype,) * len(dims) for dtype in candidates]
    for dtypes in itertools.chain(uniform, itertools.product(candidates[:7], repeat=min(len(dims), 3))):
        if len(dtypes) == len(dims) and supports_linear(plugin, dims, with_own(dtypes)):
            return with_own(dtypes)
    return with_own((DType.FLOAT32,) * len(dims))


def supports_linear(plugin: Plugin, dims: Sequence[Shape], dtypes: Sequence[DType]) -> bool:
    """Whether the plugin supports these types in linear layout."""
    inputs, outputs = Case(plugin, tuple(dims), tuple(dtypes)).descs()
    descs = [*inputs, *outputs]
    return all(plugin.supports_format(position, descs) for position in range(len(descs)))


def _candidates(plugin: Plugin, rank: int, rng: np.random.Generator) -> Iterator[tuple[Shape, ...]]:
    """Dims of all inputs: first alike, then each for itself; random, small sizes more often."""
    inputs = plugin.num_inputs
    counts = (2, 1, 3) if inputs is None else (inputs,)
    hints = _sizes_in_errors(plugin, rank)
    channels = [*range(1, 33), *(value for value in hints if value <= MAX_ELEMENTS)]
    for count in counts:
        for attempt in range(1500 if rank == _RANKS[0] else 200):
            if rank > 2:
                side = _draw(_SIDES, rank - 2, rng)
                channel = _draw(hints if hints and attempt % 2 else channels, 1, rng)
                dims = (int(rng.integers(1, 4)), *channel, *side)
            else:
                dims = _draw(channels, rank, rng)
            if math.prod(dims) <= MAX_ELEMENTS:
                yield (dims,) * count
        for _ in range(1500 if count > 1 else 0):
            yield tuple(tuple(map(int, rng.integers(1, 5, rng.integers(1, 5)))) for _ in range(count))


def _draw(values: Sequence[int], count: int, rng: np.random.Generator) -> Shape:
    """Draw ``count`` values like `Generator.choice`, which would make an array of them each time."""
    return tuple([values[int(rng.integers(len(values)))] for _ in range(count)])


def _sizes_in_errors(plugin: Plugin, rank: int) -> list[int]:
    """Sizes that the shape rule's own errors name: ``DimsError(..., expected=75)`` or ``by=4``."""
    hints: list[int] = []
    trial = [1] * rank
    for _ in range(3):
        try:
            plugin.all_output_dims([tuple(trial)] * (plugin.num_inputs or 1))
            break
        except PytrtpluginsError as error:
            size = error.facts.get("expected", error.facts.get("by"))
            if not isinstance(size, int) or rank < 2:
                break
            hints += [size] if "expected" in error.facts else [size, 2 * size, 3 * size]
            trial[1] = size
        except Exception:
            break
    return hints


def _dims_text(plugin: Plugin, dims: Sequence[Shape]) -> str:
    """Dims as text, with names if there are several inputs."""
    names = input_names(plugin)
    return ", ".join(
        f"{names[index]} {list(input_dims)}" if len(dims) > 1 else str(list(input_dims))
        for index, input_dims in enumerate(dims)
    )
