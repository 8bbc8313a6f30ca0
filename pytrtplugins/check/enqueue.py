"""Rules of `enqueue` on NumPy arrays between guard pages, with checked memory accesses."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..cuda import launches_kernels
from ..cuda.watch import Watch, watching
from ..errors import KernelError, MissingExtraError, PluginError, UnavailableError
from ..plugin.base import Plugin
from ..plugin.policy import has_enqueue
from ..plugin.runner import PluginRunner
from ..tensor import TensorDesc
from . import isolate
from .cases import Case, float_outputs, outputs_of
from .compare import difference, differences
from .guard import Memory

__all__ = [
    "Setting",
    "allocate_arrays",
    "coverage",
    "defects_only",
    "difference_from_compute",
    "from_layout",
    "has_kernels",
    "in_formats",
    "inputs_unchanged",
    "memory",
    "poisoned_array",
    "run_enqueue",
    "same_as_compute",
    "same_as_reference",
    "thread_order",
    "to_layout",
]

_WRITE = "write to an input"
_PATTERNS = (0xFF, 0x4B, 0xC3)
_POISONS = {"f": (np.nan, -77.0, 99.0), "i": (85, 42, -86), "u": (85, 42, 170), "b": (False, True, True)}
"""Values of each kind of element that no plugin writes by chance: of both signs, since a kernel may ask only for that."""
"""As float32: not a number, 13,323,083, -391.5; as int: -1, and large."""


@dataclass(frozen=True)
class Setting:
    """Options of one run of `enqueue`.

    Attributes:
        at_end: Whether arrays end at guard pages, or begin at them.
        poison: Which of three values fills outputs before.
        pattern: The byte that fills the workspace and shared memory before.
        order: In which order threads run.
        seed: Of the random order.
        races: Whether races are a defect.
        protect: Whether writing into an input ends the process.
    """

    at_end: bool = True
    poison: int = 0
    pattern: int = _PATTERNS[0]
    order: str = "forward"
    seed: int = 1
    races: bool = False
    protect: bool = False


@dataclass(frozen=True)
class _Result:
    outputs: list[Any]
    inputs: list[Any]
    watch: Watch


def run_enqueue(
    case: Case, setting: Setting = Setting(), other: int = 0, runner: PluginRunner | None = None, descs: Any = None
) -> _Result:
    """Run a clone through the life cycle, once; or a runner that is prepared, which stays open.

    ``other`` chooses other inputs; ``descs`` are the case's own unless they are given.
    """
    descs = descs or case.descs()
    layouts = [[desc.layout for desc in some] for some in descs]
    with contextlib.ExitStack() as stack:
        runner = runner or stack.enter_context(case.runner(descs))
        memory = stack.enter_context(Memory(at_end=setting.at_end)) if isolate.inside() else None
        input_arrays, outputs, workspace = allocate_arrays(descs, runner.workspace_bytes, memory)
        for array in outputs:
            array[...] = poisoned_array((), array.dtype, setting.poison)
        if workspace is not None:
            workspace[...] = setting.pattern
        for array, value, layout in zip(input_arrays, case.inputs(other), layouts[0], strict=True):
            array[...] = to_layout(value, layout)
        if memory and setting.protect:
            memory.protect()
        regions = memory.regions if memory else ()
        watch = Watch(regions, setting.order, setting.seed, setting.pattern, races=setting.races)
        with watching(watch) if memory else contextlib.nullcontext():
            runner.enqueue(input_arrays, outputs, workspace=workspace)
        after, results = (
            [from_layout(np.array(array), layout) for array, layout in zip(arrays, some, strict=True)]
            for arrays, some in zip((input_arrays, outputs), layouts, strict=True)
        )
    return _Result(results, after, watch)


def allocate_arrays(
    descs: tuple[Sequence[TensorDesc], Sequence[TensorDesc]], workspace_bytes: int, memory: Memory | None
) -> tuple[list[Any], list[Any], Any]:
    """Allocate inputs, outputs and workspace, filled with zeros: between guard pages if memory has them, else as plain arrays."""

    def make(name: str, dims: Any, dtype: Any, read_only: bool = False) -> Any:
        return np.zeros(dims, dtype) if memory is None else memory.array(name, dims, dtype, read_only=read_only)

    inputs = [make(f"input {i}", desc.dims, desc.dtype.numpy, True) for i, desc in enumerate(descs[0])]
    outputs = [make(f"output {i}", desc.dims, desc.dtype.numpy) for i, desc in enumerate(descs[1])]
    return inputs, outputs, make("workspace", (workspace_bytes,), np.dtype(np.uint8)) if workspace_bytes else None


def poisoned_array(shape: Any, dtype: Any, poison: int) -> Any:
    """An array full of a value that no plugin writes by chance."""
    return np.full(shape, _POISONS.get(dtype.kind, _POISONS["f"])[poison], dtype)


def to_layout(array: Any, layout: str) -> Any:
    """The array as an engine passes it: the same dims, with values in memory in the layout's order."""
    return array if layout == "linear" else np.moveaxis(array, 1, -1).reshape(array.shape)


def from_layout(array: Any, layout: str) -> Any:
    """Undo `to_layout`: the array in linear layout."""
    if layout == "linear":
        return array
    n, c, *spatial = array.shape
    return np.moveaxis(array.reshape(n, *spatial, c), -1, 1)


def defects_only(rule: Callable[[Case], str]) -> Callable[[Case], str]:
    """The rule without the errors of a plugin that simply fails: those are the rule `same_as_compute`'s to report."""

    @functools.wraps(rule)
    def only_defects(case: Case) -> str:
        try:
            return rule(case)
        except (MissingExtraError, UnavailableError):
            raise
        except PluginError as error:
            return str(error) if "defect" in error.facts else ""
        except Exception:
            return ""

    return only_defects


def _races(case: Case) -> bool:
    """Whether threads race, which is the rule `thread_order`'s to report."""
    try:
        run_enqueue(case, Setting(races=True))
    except KernelError as error:
        return str(error.facts.get("defect")).startswith("race")
    return False


@defects_only
def memory(case: Case) -> str:
    """Enqueue stays inside its arrays; previous contents of workspace and shared memory have no effect."""
    try:
        first = run_enqueue(case, Setting(at_end=False))
        others = [run_enqueue(case, Setting(pattern=pattern)) for pattern in _PATTERNS[1:]]
    except KernelError as error:
        if error.facts.get("defect") == _WRITE:  # the rule `inputs_unchanged` reports it
            return ""
        raise
    for other in others:
        wrong = differences(other.outputs, first.outputs)
        if wrong and not _races(case):
            what = "uninitialized read: results depend on what the workspace, or shared memory, held before"
            return first.watch.unset or other.watch.unset or f"{what}: {wrong}"
    return ""


@defects_only
def inputs_unchanged(case: Case) -> str:
    """Enqueue does not write into its inputs, not even the same values."""
    wrong = differences(run_enqueue(case).inputs, case.inputs())
    if wrong:
        return f"{_WRITE}: enqueue changes its inputs: {wrong}"
    run_enqueue(case, Setting(protect=True))
    return ""


@defects_only
def thread_order(case: Case) -> str:
    """Results do not depend on the order in which threads run between two barriers.

    Raises:
        UnavailableError: the C++ compiler cannot build kernels that are watched.
    """
    first = run_enqueue(case, Setting(races=True))
    if first.watch.unwatched:
        raise UnavailableError("the C++ compiler has no -fsanitize=thread: memory accesses are not checked")
    if not first.watch.watched:
        return ""
    for order, seed in (("backward", 1), ("random", 1), ("random", 2)):
        other = run_enqueue(case, Setting(order=order, seed=seed, races=True))
        wrong = differences(other.outputs, first.outputs)
        if wrong:
            return (
                f"race: results depend on the order of threads or blocks ({order} instead of forward): several write one "
                f"element, or one reads what another writes: {wrong}"
            )
    return ""


@defects_only
def coverage(case: Case) -> str:
    """Enqueue writes every element, whatever was there before."""
    first = run_enqueue(case)
    read = f"\n{first.watch.unset}" if first.watch.unset else ""
    for poison in (1, 2):
        other = run_enqueue(case, Setting(poison=poison))
        for index, (first_output, second_output) in enumerate(zip(first.outputs, other.outputs, strict=True)):
            if difference(second_output, first_output):
                places = np.argwhere(
                    ~(
                        (first_output == second_output)
                        | ((first_output != first_output) & (second_output != second_output))
                    )
                )
                what = f"output {index}: {len(places)} of {first_output.size}, the first at {list(map(int, places[0]))}"
                return f"elements are not written, or depend on what the output held before: {what}{read}"
    return ""


def same_as_compute(case: Case) -> str:
    """Enqueue gives what compute gives; codes with scales of their own are within one step of it."""
    return difference_from_compute(case, run_enqueue(case).outputs)


def difference_from_compute(case: Case, actual: Sequence[Any], other: int = 0) -> str:
    """The difference between outputs of enqueue, in linear layout, and of compute for the case's inputs, or the ``other``-th ones."""
    if not case.requantizes:
        return differences(actual, outputs_of(case.plugin, case.inputs(other)))
    for index, (array, floats, desc) in enumerate(
        zip(actual, float_outputs(case, other), case.descs()[1], strict=True)
    ):
        if desc.scale is None:
            wrong = difference(array, np.asarray(floats, desc.dtype.numpy))
        else:
            codes = np.clip(np.rint(floats / np.float32(desc.scale)), -128, 127)
            wrong = difference(array.astype(np.float32), codes.astype(np.float32), rtol=0, atol=1)
        if wrong:
            scales = ", ".join(f"{tensor.scale:g}" for tensor in case.descs()[0] if tensor.scale)
            return f"output {index}, for scales {scales} -> {f'{desc.scale:g}' if desc.scale else 'none'}: {wrong}"
    return ""


def same_as_reference(case: Case, reference: Plugin) -> str:
    """Enqueue equals `compute` of a reference class, which has the same fields."""
    right = replace(case, plugin=type(reference)(**case.plugin.fields()))
    outputs = run_enqueue(case, descs=right.descs()).outputs
    wrong = difference_from_compute(right, outputs)
    return wrong and f"{type(reference).__module__}.{type(reference).__name__} gives something else: {wrong}"


def in_formats(case: Case) -> str:
    """Enqueue in other supported types and layouts: correct, complete, and inside its arrays."""
    try:
        wrong = inputs_unchanged(case) or memory(case) or coverage(case) or same_as_compute(case)
    except (MissingExtraError, UnavailableError):
        raise
    except Exception as error:  # in what is supported it must not fail either
        if "defect" in getattr(error, "facts", {}):
            raise
        wrong = f"{type(error).__name__}: {error}"
    nhwc = "wrong stride for NHWC: with the channels innermost, enqueue differs from compute: "
    return f"{nhwc if wrong and 'nhwc' in case.layouts and 'differ' in wrong else ''}{wrong}"


def has_kernels(plugin: Plugin) -> bool:
    """Whether the plugin launches kernels, as far as its class shows."""
    return has_enqueue(type(plugin)) and launches_kernels(type(plugin))
