"""A case of a check: a plugin with inputs. A failing case is shrunk."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from ..plugin.base import Plugin
from ..plugin.fields import pack_fields, unpack_fields
from ..plugin.runner import PluginRunner
from ..tensor import DType, TensorDesc
from .samples import Samples

__all__ = [
    "MAX_ELEMENTS",
    "NOT_RUN",
    "OTHER_FORMAT",
    "Case",
    "Shape",
    "float_outputs",
    "input_scales",
    "outputs_of",
    "random_array",
    "shorter_cases",
    "shrink",
]

OTHER_FORMAT, NOT_RUN = "other format", "not run"
"""Roles of cases in other types and layouts than those that were found: run, and accepted but too many."""
Shape = tuple[int, ...]
_Found = TypeVar("_Found")
MAX_ELEMENTS = 20_000
"""Of an input that is looked for."""
_SCALE = 0.03
_LARGEST_CODE = 160
"""Of the outputs of a plugin that requantizes, before they are clamped to 127: calibration cuts off the largest values, too."""
"""Value of a step of int8 tensors, where a plugin is told one."""


@dataclass(frozen=True)
class Case:
    """A plugin and the inputs to call it with.

    Attributes:
        plugin: The plugin.
        dims: Of the inputs.
        dtypes: Of the inputs.
        seed: Of their values.
        given: Where the values of the user's own inputs come from.
        layouts: Of the inputs, then of the outputs; empty where all are linear.
        role: Empty for a case that was found or given; else `OTHER_FORMAT` or `NOT_RUN`.
    """

    plugin: Plugin
    dims: tuple[Shape, ...]
    dtypes: tuple[DType, ...]
    seed: int = 0
    given: tuple[Samples | None, ...] = field(default=(), compare=False)
    layouts: tuple[str, ...] = ()
    role: str = ""
    _kept: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def keep(self, name: Any, find: Callable[[], _Found]) -> _Found:
        """Cache of facts that follow from the case and that several rules need: returns what ``find`` returned first under a name."""
        if name not in self._kept:
            self._kept[name] = find()
        return self._kept[name]  # type: ignore[no-any-return]

    def inputs(self, other: int = 0) -> list[Any]:
        """New arrays, always the same for the same ``other``."""
        arrays = []
        for index, (dims, dtype) in enumerate(zip(self.dims, self.dtypes, strict=True)):
            samples, seed = (self.given[index] if index < len(self.given) else None), (self.seed, other, index)
            arrays.append(
                samples.draw(dims, dtype, seed, other=other > 0) if samples else _input(dims, dtype, seed).copy()
            )
        return arrays

    @property
    def own_arrays(self) -> bool:
        """Whether an input is an array of the user's."""
        return any(samples and samples.array is not None for samples in self.given)

    def descs(self) -> tuple[list[TensorDesc], list[TensorDesc]]:
        """Descriptions of the inputs and of the outputs."""
        inputs, outputs = self.keep("descs", self._find_descs)
        return [*inputs], [*outputs]

    def _find_descs(self) -> tuple[list[TensorDesc], list[TensorDesc]]:
        dims = self.plugin.all_output_dims(self.dims)
        dtypes = self.plugin.all_output_dtypes(self.dtypes, len(dims))
        layouts = itertools.chain(self.layouts, itertools.repeat("linear"))
        names = [*(f"x{index}" for index in range(len(self.dims))), *(f"y{index}" for index in range(len(dims)))]
        passes = self.plugin.int8 == "pass_through"
        output_scales = [_SCALE if passes and dtype is DType.INT8 else None for dtype in dtypes]
        scales = (*input_scales(self), *(_output_scales(self) if self.requantizes else output_scales))
        descs = list(map(TensorDesc, names, (*self.dims, *dims), (*self.dtypes, *dtypes), layouts, scales))
        return descs[: len(self.dims)], descs[len(self.dims) :]

    @property
    def requantizes(self) -> bool:
        """Whether int8 tensors are codes with scales of their own; `compute` gets the values that they stand for."""
        return self.plugin.int8 == "requantize" and DType.INT8 in self.dtypes

    def in_float(self) -> Case:
        """The case in the types that `compute` takes: float32 instead of int8 if the plugin requantizes."""
        if not self.requantizes:
            return self
        return replace(self, dtypes=tuple(DType.FLOAT32 if dtype is DType.INT8 else dtype for dtype in self.dtypes))

    @contextlib.contextmanager
    def runner(self, descs: Any = None, allocate: Callable[[int], Any] | None = None) -> Iterator[PluginRunner]:
        """Yield a runner of a clone of the plugin, ready to enqueue; ``descs``: the result of `descs`, if it is known."""
        with contextlib.closing(PluginRunner(self.plugin.clone(), allocate=allocate)) as runner:
            runner.prepare(*(descs or self.descs()))
            yield runner

    def as_json(self, base: Plugin) -> Any:
        """The case as lists and texts; a plugin of the class of ``base``, which itself is not written down."""
        fields = None if self.plugin is base else pack_fields(base.field_specs(), self.plugin.fields()).hex()
        return [fields, self.dims, [dtype.value for dtype in self.dtypes], self.seed, self.layouts, self.role]

    @staticmethod
    def from_json(data: Any, base: Plugin, given: tuple[Samples | None, ...] = ()) -> Case:
        """The case that `as_json` wrote; ``given`` is not part of the JSON."""
        fields, dims, dtypes, seed, layouts, role = data
        cls, plugin = type(base), base
        if fields is not None:
            plugin = cls(**unpack_fields(cls.field_specs(), bytes.fromhex(fields), cls.__name__))
        shapes = tuple(tuple(shape) for shape in dims)
        return Case(plugin, shapes, tuple(DType(dtype) for dtype in dtypes), seed, given, tuple(layouts), role)

    def __str__(self) -> str:
        shapes = ", ".join(f"{dtype}{list(dims)}" for dims, dtype in zip(self.dims, self.dtypes, strict=True))
        return f"{self.plugin!r} on {shapes}{f' ({self.formats})' if self.layouts else ''}"

    @property
    def formats(self) -> str:
        """Types and layouts of the inputs and outputs, as a text."""
        inputs, outputs = (
            ", ".join(f"{desc.dtype}{'' if desc.layout == 'linear' else f' {desc.layout}'}" for desc in some)
            for some in self.descs()
        )
        return f"{inputs} -> {outputs}"


def random_array(dims: Sequence[int], dtype: DType, seed: Any) -> Any:
    """Normal numbers, or small integers."""
    rng = np.random.default_rng(seed)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, dims).astype(bool)
    if dtype in (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16):
        return np.asarray(rng.standard_normal(dims), dtype.numpy)
    low = 0 if dtype is DType.UINT8 else -100
    return np.asarray(rng.integers(low, 101, dims), dtype.numpy)


def _input(dims: Shape, dtype: DType, seed: tuple[int, ...]) -> Any:
    return (_small_input if math.prod(dims) <= MAX_ELEMENTS else random_array)(dims, dtype, seed)


_small_input = functools.lru_cache(128)(random_array)
"""Each rule asks for the same again, and making a generator takes longer than a copy."""


def outputs_of(plugin: Plugin, inputs: Sequence[Any]) -> list[Any]:
    """Call `compute`, without checks; returns a list."""
    result = plugin.compute(*inputs)
    return list(result) if isinstance(result, (tuple, list)) else [result]


def input_scales(case: Case) -> list[float | None]:
    """Values of a step of the inputs that are codes; others for each where the plugin requantizes."""
    if case.plugin.int8 == "float":
        return [None] * len(case.dtypes)
    steps = itertools.count(1) if case.plugin.int8 == "requantize" else itertools.repeat(1)
    return [_SCALE * next(steps) if dtype is DType.INT8 else None for dtype in case.dtypes]


def float_outputs(case: Case, other: int = 0) -> list[Any]:
    """Outputs of `compute` for the numbers that int8 codes of inputs stand for."""
    pairs = zip(case.inputs(other), input_scales(case), strict=True)
    numbers = [array if scale is None else array.astype(np.float32) * np.float32(scale) for array, scale in pairs]
    return outputs_of(case.plugin, numbers)


@functools.lru_cache(64)
def _output_scales(case: Case) -> list[float | None]:
    """Values of a step of outputs that are codes, so that the largest numbers lie beyond the codes and must be clamped."""
    dims = case.plugin.all_output_dims(case.dims)
    dtypes = case.plugin.all_output_dtypes(case.dtypes, len(dims))
    largest = [float(np.abs(array).max(initial=0)) for array in float_outputs(case)]
    return [
        (size or 1) / _LARGEST_CODE if dtype is DType.INT8 else None
        for dtype, size in zip(dtypes, largest, strict=True)
    ]


def shrink(
    case: Case, detail: str, first_failing: Callable[[list[Case]], tuple[Case, str] | None], max_attempts: int = 80
) -> tuple[Case, str]:
    """Shrink a failing case as long as it fails; returns the smallest case with its failure.

    ``first_failing`` gives the first of some cases that fails; ``max_attempts`` cases are tried in all.
    """
    while max_attempts > 0:
        candidates = [replace(case, dims=dims) for dims in itertools.islice(shorter_cases(case.dims), max_attempts)]
        failure = first_failing(candidates)
        if failure is None:
            break
        max_attempts -= candidates.index(failure[0]) + 1
        case, detail = failure
    return case, detail


def shorter_cases(dims: tuple[Shape, ...]) -> Iterator[tuple[Shape, ...]]:
    """Cases with one axis shorter by one: in all inputs that share the dim, else in one."""
    alike = len(set(dims)) == 1
    for index in range(1 if alike else len(dims)):
        for axis, size in enumerate(dims[index]):
            for less in dict.fromkeys((1, 2, size // 2, size - 1, size - 2)):
                if 1 <= less < size:
                    shape = (*dims[index][:axis], less, *dims[index][axis + 1 :])
                    yield (shape,) * len(dims) if alike else (*dims[:index], shape, *dims[index + 1 :])
